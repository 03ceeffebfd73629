// checks.h - what a table cannot say: settings that must fit each other, names that must exist.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "bulkhead/config.h"

namespace bulkhead::config {

struct Checks {
  // Whether a setting at or under this path has been complained about: what follows from it says nothing new.
  std::function<bool(std::string_view path)> broken;
  std::function<void(std::string path, std::string message, std::string hint)> complain;
};

// Complains about what does not fit.
void check(const Config& config, const Checks& checks);

}  // namespace bulkhead::config
