#include "app/cli/json.h"

#include <fmt/format.h>

#include <cmath>

namespace bulkhead::cli {
namespace {

// The length of the well-formed UTF-8 character that starts at `i`, or 0.
std::size_t utf8_length(std::string_view text, std::size_t i) noexcept {
  const auto byte = [&](std::size_t k) { return k < text.size() ? static_cast<unsigned char>(text[k]) : 0u; };
  const unsigned first = byte(i);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  for (std::size_t k = 1; k < length; ++k)
    if ((byte(i + k) & 0xC0) != 0x80) return 0;
  const unsigned second = byte(i + 1);
  const bool overlong = (first == 0xE0 && second < 0xA0) || (first == 0xF0 && second < 0x90);
  const bool surrogate = first == 0xED && second >= 0xA0;
  const bool too_large = first == 0xF4 && second >= 0x90;
  return overlong || surrogate || too_large ? 0 : length;
}

}  // namespace

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      quoted += "\\ufffd";
      ++i;
      continue;
    }
    if (c == '"' || c == '\\') {
      quoted.append({'\\', c});
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else if (c >= 0 && c < 0x20) {
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      quoted.append(text.substr(i, length));
    }
    i += length;
  }
  return quoted + '"';
}

JsonWriter& JsonWriter::field(std::string_view name, double value) {
  return std::isfinite(value) ? raw(name, fmt::format("{}", value)) : null(name);
}

JsonWriter& JsonWriter::close() {
  const char bracket = open_.back();
  open_.pop_back();
  if (!first_) text_ += '\n' + std::string(2 * open_.size(), ' ');
  text_ += bracket;
  if (open_.empty()) text_ += '\n';
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::begin(std::string_view name, char bracket) {
  start(name);
  text_ += bracket;
  open_.push_back(bracket == '{' ? '}' : ']');
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view name, std::string_view value) {
  start(name);
  text_ += value;
  return *this;
}

void JsonWriter::start(std::string_view name) {
  if (open_.empty()) return;
  if (!first_) text_ += ',';
  first_ = false;
  text_ += '\n' + std::string(2 * open_.size(), ' ');
  if (open_.back() == '}') text_ += json_quoted(name) + ": ";
}

}  // namespace bulkhead::cli
