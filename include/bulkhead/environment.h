// environment.h - settings from environment variables, which override those of the file.
//
//   bulkhead::yaml::Loaded file = bulkhead::yaml::load(path);
//   if (file.ok()) file.problems = bulkhead::apply_environment(file.config, {{"BULKHEAD_CONTROL__LISTEN", "127.0.0.1:80"}});
//
// The name of a variable is BULKHEAD_ and the path of the setting in capitals, with __ for each dot, and _ for every other
// character that is not a letter or digit: BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE is bulkheads.external-api.max_queue.
// Numbers, durations, sizes, shares, flags, words and texts can be set, in the syntax of the file. Lists, references to other
// entries, and bulkheads that the file does not contain cannot be set.
//
// Threads: plain values. The caller reads the environment: `bulkhead run` and `bulkhead check` do.
// Promises: a variable that matches no setting is a problem, so that a misspelt one is noticed. Exceptions are the variables
//   of the program (BULKHEAD_ADMIN, BULKHEAD_TOKEN), and those that Kubernetes sets for a service named "bulkhead".
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/config.h"

namespace bulkhead {

struct Variable {
  std::string name, value;
};

std::string variable_of(std::string_view path);  // "control.listen" -> "BULKHEAD_CONTROL__LISTEN"

// All variables that this configuration accepts, with the values in force; "" for a setting without a value.
std::vector<Variable> variables_of(const Config& config);

// Applies the variables and checks the whole configuration again. With problems, the configuration is unusable.
std::vector<ConfigProblem> apply_environment(Config& config, const std::vector<Variable>& variables);

}  // namespace bulkhead
