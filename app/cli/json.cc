#include "app/cli/json.h"

#include <fmt/format.h>

#include <cmath>

#include "base/text.h"

namespace bulkhead::cli {

std::string json_quoted(std::string_view text) {
  std::string quoted = "\"";
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t length = base::utf8_length(text.substr(i));
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
