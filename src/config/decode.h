// decode.h - from a document to a Config, or to everything that is wrong with it.
#pragma once

#include <string_view>
#include <vector>

#include "bulkhead/config.h"
#include "config/document.h"

namespace bulkhead::config {

struct Decoded {
  Config config;
  std::vector<ConfigProblem> problems;  // in the order of the file; empty: all is well
};

// `text` is the file as it is, for the lines that problems show.
Decoded decode(const Node& root, std::string_view file, std::string_view text);

// A part of the file that is not the library's, such as `gateway` of the program: decode() passes over it, and this reads
// it into `target`, whose table is `section`. `positions` are those of its settings. False: the file does not have it.
struct Section;
bool decode_part(const Node& root, std::string_view name, const Section& section, void* target,
                 std::string_view file, std::string_view text, Decoded& result);
inline constexpr std::string_view kOtherParts[] = {"gateway"};

std::vector<BulkheadConfig> built_in_types();

// The line of `text` with this number, from 1, without its end.
std::string_view line_of(std::string_view text, std::uint32_t line) noexcept;
void sort_by_position(std::vector<ConfigProblem>& problems);

}  // namespace bulkhead::config
