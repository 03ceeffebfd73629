// environment.h - a file as the program takes it: with what the environment says above it.
#pragma once

#include <string>
#include <vector>

#include "adapters/yaml/yaml.h"
#include "bulkhead/environment.h"

namespace bulkhead::config {

std::vector<Variable> environment();  // of this process, BULKHEAD_* only

yaml::Loaded with_environment(yaml::Loaded file);

}  // namespace bulkhead::config
