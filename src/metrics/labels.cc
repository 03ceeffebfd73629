#include "metrics/labels.h"

#include <algorithm>
#include <array>
#include <cstdint>

namespace bulkhead::metrics {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kDigits = "0123456789abcdef";

// The length of the character `text` begins with; 0 if it is none (RFC 3629: no overlong forms, no surrogates).
std::size_t character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t size = first >= 0xC2 && first <= 0xDF   ? 2
                           : first >= 0xE0 && first <= 0xEF ? 3
                           : first >= 0xF0 && first <= 0xF4 ? 4
                                                            : 0;
  if (size == 0 || text.size() < size) return 0;
  for (std::size_t i = 1; i < size; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(1);
  if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
      (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F))
    return 0;
  return size;
}

bool plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

std::string clean(std::string_view value, std::size_t max_bytes) {
  if (value.size() <= max_bytes && plain(value)) return std::string(value);
  std::string text;
  bool changed = value.size() > max_bytes;
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t size = character(rest);
    const std::string_view next = size > 0 ? rest.substr(0, size) : kReplacement;
    if (text.size() + next.size() > max_bytes) {
      changed = true;
      break;
    }
    text += next;
    changed |= size == 0;
    rest.remove_prefix(std::max<std::size_t>(size, 1));
  }
  if (!changed) return text;
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : value) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  std::string tail = "~";
  for (int shift = 60; shift >= 0; shift -= 4) tail += kDigits[(hash >> shift) & 15];
  std::size_t keep = std::min(text.size(), max_bytes - tail.size());
  while (keep < text.size() && keep > 0 && (static_cast<unsigned char>(text[keep]) & 0xC0) == 0x80) --keep;
  text.resize(keep);
  return text + tail;
}

void append_label(std::string& out, std::string_view name, std::string_view value, std::size_t max_bytes) {
  out += name;
  out += "=\"";
  for (const char c : clean(value, max_bytes)) {
    if (c == '\n') {
      out += "\\n";
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  out += '"';
}

void append_json(std::string& out, std::string_view text) {
  out += '"';
  for (const char c : text) {
    const auto code = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (code < 0x20) {
      out += "\\u00";
      out += kDigits[code >> 4];
      out += kDigits[code & 15];
    } else {
      out += c;
    }
  }
  out += '"';
}

}  // namespace bulkhead::metrics
