#include "registry/names.h"

#include <algorithm>
#include <cstdint>

#include "base/suggest.h"
#include "base/text.h"

namespace bulkhead::registry {
namespace {

// The first character of `text`, taken off; -1: not UTF-8.
std::int32_t take_character(std::string_view& text) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const std::uint32_t first = byte(0);
  const std::size_t length = first < 0x80             ? 1
                             : (first & 0xe0) == 0xc0 ? 2
                             : (first & 0xf0) == 0xe0 ? 3
                             : (first & 0xf8) == 0xf0 ? 4
                                                      : 0;
  if (length == 0 || text.size() < length) return -1;
  std::uint32_t value = length == 1 ? first : first & (0x7fU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return -1;
    value = value << 6 | (byte(i) & 0x3fU);
  }
  constexpr std::uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // below: written longer than need be
  if (value < kLeast[length] || value > 0x10ffff || (value >= 0xd800 && value <= 0xdfff)) return -1;
  text.remove_prefix(length);
  return static_cast<std::int32_t>(value);
}

bool is_control(std::int32_t c) noexcept {
  return c < 0x20 || (c >= 0x7f && c <= 0x9f) || c == 0x2028 || c == 0x2029;
}

bool is_text(std::string_view text) noexcept {
  while (!text.empty()) {
    const std::int32_t c = take_character(text);
    if (c < 0 || is_control(c)) return false;
  }
  return true;
}

std::string quoted(const std::vector<std::string>& names, std::size_t at_most) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < at_most; ++i)
    text += base::join({i == 0 ? "" : ", ", "\"", names[i], "\""});
  return text;
}

}  // namespace

std::string_view problem_of_name(std::string_view name) noexcept {
  if (name.empty()) return "is empty: give it one";
  if (name.size() > kMaxName) return "is longer than 200 bytes: give a shorter one";
  if (!is_text(name)) return "has control characters or is not UTF-8: give plain text";
  if (name.starts_with('/') || name.ends_with('/')) return "begins or ends with '/': leave that out";
  if (name.ends_with(kOverflow)) return "ends like that of an overflow bulkhead, \"/*\": give another one";
  return {};
}

bool valid_tenant_id(std::string_view id, std::size_t max_length) noexcept {
  return !id.empty() && id.size() <= max_length && id != kOverflow.substr(1) &&
         id.find('/') == std::string_view::npos && is_text(id);
}

std::string suggest(std::string_view wanted, std::vector<std::string> names) {
  if (names.empty()) return ": there is none";
  if (const std::string nearest = wanted.size() <= kMaxName ? base::suggest(wanted, names) : "";
      !nearest.empty())
    return base::join({": did you mean \"", nearest, "\"?"});
  constexpr std::size_t kListed = 8;
  std::sort(names.begin(), names.end());
  const std::string more =
      names.size() > kListed ? base::join({" and ", std::to_string(names.size() - kListed), " more"}) : "";
  return base::join({": there are ", quoted(names, kListed), more});
}

}  // namespace bulkhead::registry
