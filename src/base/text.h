// text.h - composes, inspects and hashes texts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

namespace bulkhead::base {

std::string join(std::initializer_list<std::string_view> parts);

constexpr char to_lower(char c) noexcept {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}
std::string lower(std::string_view text);  // only A to Z

// The length in bytes of the character that `text`, which is not empty, starts with. 0: it is not UTF-8 (RFC 3629: no
// overlong forms, no surrogates).
std::size_t utf8_length(std::string_view text) noexcept;

inline constexpr std::uint64_t kEmptyHash = 14695981039346656037U;
// FNV-1a. To hash in parts, pass the hash of the parts before.
std::uint64_t hash_of(std::string_view text, std::uint64_t before = kEmptyHash) noexcept;

// Appends "text" for JSON: quoted and escaped. `text` is valid UTF-8.
void append_json(std::string& out, std::string_view text);

// Throws std::invalid_argument; in a build without exceptions it prints the text and aborts.
[[noreturn]] void throw_invalid(const std::string& what);

// Reads a decimal number such as 12 or 1.5 at the front of `text`, which then starts after it. False: there is none, and
// nothing changes.
bool take_decimal(std::string_view& text, double& value);

}  // namespace bulkhead::base
