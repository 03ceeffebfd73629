// live_config_test.h - configurations and their text for tests, without a parser.
#pragma once

#include <string>
#include <utility>

#include "bulkhead/live_config.h"

namespace bulkhead::tests {

// Equal configurations have equal texts.
inline ConfigText as_text(Config config) {
  std::string text;
  for (const Setting& s : settings(config)) text += s.path + "=" + s.value + "\n";
  return {.config = std::move(config), .problems = {}, .warnings = {}, .text = std::move(text)};
}

inline ConfigText bad_text(std::string message = "is wrong") {
  return {.config = {},
          .problems =
              {{.file = "shop.yaml", .at = {3, 7}, .path = "bulkheads.db", .message = std::move(message)}},
          .warnings = {},
          .text = "not a configuration"};
}

}  // namespace bulkhead::tests
