// override.h - one setting of a configuration, changed by its path.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/config.h"

namespace bulkhead::config {

// Sets "bulkheads.db.max_queue" to "40". The problem if there is no such setting, it is none that can be changed
// live by itself, or the value is wrong; then nothing has changed.
std::vector<ConfigProblem> set_value(Config& config, std::string_view path, std::string_view value);

// The same before anything runs: also what needs a restart, text, and the control plane, which is made if need be.
std::vector<ConfigProblem> give_value(Config& config, std::string_view path, std::string_view value);

// What does not fit together in it.
std::vector<ConfigProblem> check_all(const Config& config);

}  // namespace bulkhead::config
