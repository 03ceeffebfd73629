#include <algorithm>
#include <charconv>
#include <limits>

#include "bulkhead/http_hints.h"

namespace bulkhead::http {
namespace {

using std::chrono::nanoseconds;

std::string_view trimmed(std::string_view text) noexcept {
  const auto blank = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && blank(text.front())) text.remove_prefix(1);
  while (!text.empty() && blank(text.back())) text.remove_suffix(1);
  return text;
}

std::optional<std::int64_t> parse_number(std::string_view text) noexcept {
  std::int64_t n = 0;
  const char* const begin = text.data();
  const char* const end = begin + text.size();
  const auto [stop, error] = std::from_chars(begin, end, n);
  if (error != std::errc() || stop != end || n < 0) return std::nullopt;
  return n;
}

// n units, or wait_forever on overflow.
nanoseconds times(std::int64_t n, std::int64_t unit) noexcept {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  return n > kMost / unit ? wait_forever : nanoseconds(n * unit);
}

constexpr std::int64_t kMillisecond = 1'000'000;

std::optional<nanoseconds> asked_timeout(HeaderLookup get, bool absolute, std::int64_t unix_now) {
  if (const auto t = parse_grpc_timeout(get("grpc-timeout"))) return t;
  if (const auto t = parse_milliseconds(get("x-envoy-expected-rq-timeout-ms"))) return t;
  if (const auto t = parse_milliseconds(get(kTimeoutHeader))) return t;
  if (!absolute) return std::nullopt;
  const auto deadline = parse_number(trimmed(get("X-Request-Deadline")));
  if (!deadline) return std::nullopt;
  return times(std::max<std::int64_t>(*deadline - unix_now, 0), kMillisecond);
}

}  // namespace

std::optional<nanoseconds> parse_grpc_timeout(std::string_view value) noexcept {
  value = trimmed(value);
  if (value.size() < 2 || value.size() > 9) return std::nullopt;  // at most eight digits and the unit
  const auto n = parse_number(value.substr(0, value.size() - 1));
  if (!n) return std::nullopt;
  switch (value.back()) {
    case 'H':
      return times(*n, kMillisecond * 3600 * 1000);
    case 'M':
      return times(*n, kMillisecond * 60 * 1000);
    case 'S':
      return times(*n, 1000 * kMillisecond);
    case 'm':
      return times(*n, kMillisecond);
    case 'u':
      return times(*n, 1000);
    case 'n':
      return times(*n, 1);
    default:
      return std::nullopt;
  }
}

std::optional<nanoseconds> parse_milliseconds(std::string_view value) noexcept {
  const auto n = parse_number(trimmed(value));
  if (!n) return std::nullopt;
  return times(*n, kMillisecond);
}

// A dictionary of structured fields (RFC 8941), of which only the member u is read: u=0 to u=7.
Priority parse_priority(std::string_view value, Priority otherwise) noexcept {
  Priority found = otherwise;
  while (!value.empty()) {
    const std::size_t comma = value.find(',');
    std::string_view member = trimmed(value.substr(0, comma));
    value = comma == std::string_view::npos ? std::string_view() : value.substr(comma + 1);
    member = trimmed(member.substr(0, member.find(';')));  // without parameters
    if (member.size() != 3 || !member.starts_with("u=") || member[2] < '0' || member[2] > '7') continue;
    const int urgency = member[2] - '0';
    found = urgency <= 1 ? Priority::critical : urgency <= 4 ? Priority::normal : Priority::best_effort;
  }
  return found;
}

Hints read_hints(HeaderLookup get, const HintOptions& options, bool trusted, std::int64_t unix_now) {
  Hints hints{.timeout = options.max_timeout, .priority = options.priority};
  if (const auto asked = asked_timeout(get, options.absolute_deadline, unix_now))
    hints.timeout = std::min(*asked, options.max_timeout);
  if (!options.priority_header.empty()) {
    const Priority asked = parse_priority(get(options.priority_header), options.priority);
    hints.priority =
        trusted ? asked : std::max(asked, options.priority);  // a greater value is less important
  }
  if (trusted && !options.tenant_header.empty()) hints.tenant = trimmed(get(options.tenant_header));
  return hints;
}

std::optional<std::string> pass_on(nanoseconds left) {
  if (left == wait_forever) return std::nullopt;
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(left).count();
  return std::to_string(std::max<std::int64_t>(ms, 0));
}

std::optional<std::string> pass_on(TimePoint deadline, TimePoint now) {
  return pass_on(deadline == no_deadline ? wait_forever : deadline - now);
}

}  // namespace bulkhead::http
