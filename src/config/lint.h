// lint.h - the rules of the linter: what each looks for, why it hurts, and what to do.
#pragma once

#include <span>
#include <string_view>

namespace bulkhead::config {

struct Rule {
  std::string_view name;  // "queue-too-deep"
  std::string_view what;  // it finds, one sentence
  std::string_view why;   // that hurts
  std::string_view fix;
};

std::span<const Rule> rules();
const Rule* find_rule(std::string_view name);

}  // namespace bulkhead::config
