// environment.h - settings that the environment gives, which stand above those of the file.
//
//   bulkhead::yaml::Loaded file = bulkhead::yaml::load(path);
//   if (file.ok()) file.problems = bulkhead::apply_environment(file.config, {{"BULKHEAD_CONTROL__LISTEN", "127.0.0.1:80"}});
//
// A variable is called BULKHEAD_ and the path of the setting in capitals, with __ for each dot, and _ for whatever else is
// no letter or digit: BULKHEAD_BULKHEADS__EXTERNAL_API__MAX_QUEUE is bulkheads.external-api.max_queue. Numbers, durations,
// sizes, shares, flags, words and text can be given, by the rules of the file; lists and names of other things cannot, nor
// can a bulkhead that the file does not have.
//
// Threads: plain values. The environment itself is the caller's to read: `bulkhead run` and `bulkhead check` do.
// Promises: a variable that stands for no setting is a problem, so that no misspelt one is passed over. Not so for those that
//   the program uses itself (BULKHEAD_ADMIN, BULKHEAD_TOKEN), and that Kubernetes makes for a service called "bulkhead".
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

// Everything that can be given for this configuration, with what is in force; "" for what has no value yet.
std::vector<Variable> variables_of(const Config& config);

// Sets what they say, and checks the whole again. All problems; if there are any, the configuration is of no use.
std::vector<Problem> apply_environment(Config& config, const std::vector<Variable>& variables);

}  // namespace bulkhead
