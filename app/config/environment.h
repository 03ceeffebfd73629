// environment.h - a file as the program takes it: with what the environment says above it.
#pragma once

#include <string>
#include <vector>

#include "adapters/yaml/yaml.h"
#include "app/gateway/gateway.h"
#include "bulkhead/environment.h"

namespace bulkhead::config {

std::vector<Variable> environment();  // of this process, BULKHEAD_* only

yaml::Loaded with_environment(yaml::Loaded file);
// Without it, if the file has a gateway: the workers of nginx read the file themselves.
gateway::Loaded with_environment(gateway::Loaded file);

}  // namespace bulkhead::config
