#include "base/text.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <locale>
#include <sstream>
#include <stdexcept>

namespace bulkhead::base {

std::string join(std::initializer_list<std::string_view> parts) {
  std::size_t size = 0;
  for (const auto part : parts) size += part.size();
  std::string text;
  text.reserve(size);
  for (const auto part : parts) text += part;
  return text;
}

std::string lower(std::string_view text) {
  std::string low(text);
  for (char& c : low) c = to_lower(c);
  return low;
}

std::size_t utf8_length(std::string_view text) noexcept {
  const auto byte = [&](std::size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U; };
  const unsigned first = byte(0), second = byte(1);
  if (first < 0x80) return 1;
  const std::size_t length = first < 0xC2 ? 0 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : first < 0xF5 ? 4 : 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0U) != 0x80) return 0;
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool beyond = (first == 0xED && second >= 0xA0) || (first == 0xF4 && second >= 0x90);
  return overlong || beyond ? 0 : length;
}

std::uint64_t hash_of(std::string_view text, std::uint64_t before) noexcept {
  std::uint64_t hash = before;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

void throw_invalid(const std::string& what) {
#if defined(__cpp_exceptions)
  throw std::invalid_argument(what);
#else
  std::fprintf(stderr, "%s\n", what.c_str());
  std::abort();
#endif
}

void append_json(std::string& out, std::string_view text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      out += "\\u00";
      out += kHex[code >> 4];
      out += kHex[code & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

bool take_decimal(std::string_view& text, double& value) {
  constexpr std::string_view kDigits = "0123456789";
  std::size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  if (end == 0) return false;
  if (end < text.size() && text[end] == '.')
    end = std::min(text.find_first_not_of(kDigits, end + 1), text.size());
  const std::string_view number = text.substr(0, end);
#if defined(__cpp_lib_to_chars)
  if (std::from_chars(number.data(), number.data() + number.size(), value).ec != std::errc{}) return false;
#else  // libc++ 19 has no std::from_chars for double; strtod() would follow the locale of the process.
  std::istringstream in{std::string(number)};
  in.imbue(std::locale::classic());
  double read = 0;
  if (!(in >> read)) return false;
  value = read;
#endif
  text.remove_prefix(end);
  return true;
}

}  // namespace bulkhead::base
