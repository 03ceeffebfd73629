// yaml.h - reads a configuration file: YAML, of which JSON is a part.
//
//   const bulkhead::yaml::Loaded file = bulkhead::yaml::load("bulkhead.yaml");
//   if (!file.ok()) std::cerr << bulkhead::to_text(file.problems);
//   // bulkhead.yaml:7:15: bulkheads.db.max_wait: "5" has no unit
//   //         max_wait: 5
//   //                   ^
//   //   hint: write 5s or 5ms; units are ns, us, ms, s, m, h, d
//
// A strict part of YAML, so that a file means the same to every reader (docs/formats/config.md): no duplicate keys, no
// anchors, aliases and merge keys (types share settings), no tags, one document, UTF-8 without a byte order mark, at most
// 1 MiB and 32 levels deep.
//
// Threads: any. Side effects: none but reading the file.
// Promises: never throws for what a file contains, whatever that is; memory and the length of the answer are bounded.
//   Mistakes of meaning are all found at once; a mistake of syntax hides those that come after it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/config.h"

namespace bulkhead::config {
struct Node;
struct Section;
}  // namespace bulkhead::config

namespace bulkhead::yaml {

struct Loaded {
  Config config{};                        // use it only if ok()
  std::vector<ConfigProblem> problems{};  // errors, in the order of the file
  std::vector<ConfigProblem> warnings{};  // of the linter; only if ok()
  std::string text{};                     // the file
  bool readable = true;                   // false: there was nothing to look at, and `problems` says why

  bool ok() const noexcept { return problems.empty(); }
};

Loaded parse(std::string text, std::string_view file = "config");  // `file`: what problems call it
Loaded load(const std::string& path);
// The same for a file with another meaning: `root` is its tree (src/config/document.h), and only syntax is checked.
Loaded load_tree(const std::string& path, config::Node& root);
Loaded parse_tree(std::string text, std::string_view file, config::Node& root);

// A part of the file that belongs to a program and not to the library (src/config/decode.h): read into `target`, and
// `found` says whether it is there. For the program's own use.
Loaded parse_part(const std::string& text, std::string_view file, std::string_view name,
                  const config::Section& section, void* target, bool& found);

}  // namespace bulkhead::yaml
