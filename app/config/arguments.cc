#include "app/config/arguments.h"

#include <fmt/format.h>

#include "base/text.h"
#include "config/values.h"

namespace bulkhead::config {
using std::chrono::nanoseconds;

nanoseconds duration_of(const std::string& text) {
  return read_duration({.kind = Node::Kind::scalar, .quoted = true, .text = text}, false)
      .value_or(nanoseconds(0));
}

std::string check_duration(const std::string& text, bool may_be_zero) {
  const auto span = read_duration({.kind = Node::Kind::scalar, .quoted = true, .text = text}, false);
  if (!span) return fmt::format("{}; {}", span.error().message, span.error().hint);
  if (*span > std::chrono::hours(24)) return fmt::format("\"{}\" is longer than a day", text);
  return *span > nanoseconds(0) || may_be_zero ? "" : "give more than 0s";
}

double rate_of(std::string_view text) {
  double per = 1;
  if (text.ends_with("/s"))
    text.remove_suffix(2);
  else if (text.ends_with("/m"))
    per = 60, text.remove_suffix(2);
  else if (text.ends_with("/h"))
    per = 3600, text.remove_suffix(2);
  double value = 0;
  return base::take_decimal(text, value) && text.empty() && value > 0 && value <= 1e9 ? value / per : 0;
}

std::string check_rate(const std::string& text) {
  return rate_of(text) > 0 ? ""
                           : fmt::format("\"{}\" is not a rate: give 200, 200/s, 12000/m or 5000/h", text);
}

}  // namespace bulkhead::config
