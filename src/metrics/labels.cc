#include "metrics/labels.h"

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/text.h"

namespace bulkhead::metrics {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD
constexpr std::string_view kDigits = "0123456789abcdef";

bool plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

}  // namespace

// A value that was changed ends in a hash of the original, so that two values do not become one series.
std::string clean(std::string_view value, std::size_t max_bytes) {
  if (value.size() <= max_bytes && plain(value)) return std::string(value);
  std::string text;
  bool changed = value.size() > max_bytes;
  for (std::string_view rest = value; !rest.empty();) {
    const std::size_t size = base::utf8_length(rest);
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
  const std::uint64_t hash = base::hash_of(value);
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

}  // namespace bulkhead::metrics
