// values.h - the scalars of a file: what "250ms", "64KiB", "20%" mean, and how a value is written.
//
// Strict on purpose: a value that two YAML parsers could read differently is rejected, with a hint what to write.
#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "bulkhead/group.h"
#include "config/document.h"

namespace bulkhead::config {

struct Complaint {
  std::string message, hint;
};
template <class T>
using Read = Result<T, Complaint>;

Read<std::uint64_t> read_count(const Node& node);                              // 20
Read<double> read_number(const Node& node);                                    // 1.5
Read<double> read_share(const Node& node);                                     // 20%, or 0.2
Read<Share> read_part(const Node& node);                                       // 50%, or 5 units
Read<std::chrono::nanoseconds> read_duration(const Node& node, bool forever);  // 250ms, 1m30s, forever
Read<std::uint64_t> read_size(const Node& node);                               // 64KiB
Read<bool> read_flag(const Node& node);                                        // true, false
Read<std::string> read_text(const Node& node);
Read<std::string> read_name(const Node& node);  // letters, digits, - and _

std::string show_number(double value);
std::string show_share(double share);
std::string show_part(const Share& part);
std::string show_duration(std::chrono::nanoseconds span);
std::string show_size(std::uint64_t bytes);
std::string one_of(std::span<const std::string_view> words);  // "a, b or c"
std::string show_text(std::string_view text);                 // quoted if it would be read as something else

// For a terminal: control characters and what is not UTF-8 become ?, and a text that is too long nothing at all.
std::string printable(std::string_view text);
std::string quoted(std::string_view text);  // for messages: cut off if it is long, control characters escaped
std::string_view kind_of(const Node& node);  // "a list", "a map", "text" ...

}  // namespace bulkhead::config
