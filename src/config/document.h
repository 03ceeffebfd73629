// document.h - a parsed file before it is decoded: a tree of scalars, lists and maps, each with its
// place. Adapters fill it, decode() reads it.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "bulkhead/config.h"

namespace bulkhead::config {

struct Node {
  enum class Kind : std::uint8_t { null, scalar, list, map };
  Kind kind = Kind::null;
  Position at{};
  bool quoted = false;         // a scalar in quotes, or a block: text and nothing else
  std::string text{};          // of a scalar
  std::vector<Node> keys{};    // of a map, scalars; duplicates are kept
  std::vector<Node> values{};  // of a map, one for each key; of a list, its items

  bool is_map() const noexcept { return kind == Kind::map; }
  bool is_list() const noexcept { return kind == Kind::list; }
  bool is_scalar() const noexcept { return kind == Kind::scalar; }
};

}  // namespace bulkhead::config
