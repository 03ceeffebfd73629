#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include "base/text.h"
#include "bulkhead/metrics.h"

namespace bulkhead {
namespace {

struct Offer {
  std::string_view type, subtype;
  std::array<std::string_view, 2> versions;  // that we speak; a range that names another is not for us
};
// In the order of MetricsFormat, which is that of our preference too.
constexpr std::array<Offer, 3> kOffers{{{"text", "plain", {"0.0.4", "0.0.4"}},
                                        {"application", "openmetrics-text", {"1.0.0", "0.0.1"}},
                                        {"application", "json", {"", ""}}}};

constexpr bool is_space(char c) { return c == ' ' || c == '\t'; }

std::string_view trim(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// Takes what stands before the next `separator` off `text`.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return trim(part);
}

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, {}, base::to_lower, base::to_lower);
}

// "0.5" as 500. What is no quality is 0: a header we cannot read shall not get us chosen.
int quality(std::string_view text) {
  if (text.empty() || (text[0] != '0' && text[0] != '1') || text.size() > 5) return 0;
  if (text.size() > 1 && text[1] != '.') return 0;
  int thousandths = (text[0] - '0') * 1000, weight = 100;
  for (const char c : text.substr(std::min<std::size_t>(2, text.size()))) {
    if (c < '0' || c > '9') return 0;
    thousandths += (c - '0') * weight;
    weight /= 10;
  }
  return std::min(thousandths, 1000);
}

struct Range {
  std::string_view type, subtype, version;
  int q = 1000;
};

// One element of Accept (RFC 9110): type, subtype, quality, and the version of the format.
Range parse(std::string_view text) {
  Range range;
  std::string_view media = take(text, ';');
  range.type = take(media, '/');
  range.subtype = media;
  while (!text.empty()) {
    std::string_view value = take(text, ';');
    const std::string_view name = take(value, '=');
    value = trim(value);
    if (value.size() >= 2 && value.front() == '"' && value.back() == '"')
      value = value.substr(1, value.size() - 2);
    if (same(name, "q")) range.q = quality(value);
    if (same(name, "version")) range.version = value;
  }
  return range;
}

// How closely the range names the offer: 0 not at all, 1 */*, 2 its type, 3 it, 4 with its version.
int closeness(const Range& range, const Offer& offer) {
  if (range.type == "*" && range.subtype == "*") return 1;
  if (!same(range.type, offer.type)) return 0;
  if (range.subtype == "*") return 2;
  if (!same(range.subtype, offer.subtype)) return 0;
  if (range.version.empty()) return 3;
  return std::ranges::find(offer.versions, range.version) != offer.versions.end() ? 4 : 0;
}

}  // namespace

MetricsFormat negotiate(std::string_view accept) noexcept {
  struct Choice {
    int close = 0, q = 0;
    std::size_t place = 0;  // of the range in the header
  };
  std::array<Choice, kOffers.size()> choices;
  for (std::size_t place = 0; !accept.empty(); ++place) {
    const Range range = parse(take(accept, ','));
    for (std::size_t i = 0; i < kOffers.size(); ++i)
      if (const int close = closeness(range, kOffers[i]); close > choices[i].close)
        choices[i] = {.close = close, .q = range.q, .place = place};
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < choices.size(); ++i)
    if (choices[i].q > choices[best].q ||
        (choices[i].q == choices[best].q && choices[i].q > 0 && choices[i].place < choices[best].place))
      best = i;
  return static_cast<MetricsFormat>(best);
}

std::string_view content_type(MetricsFormat format) noexcept {
  switch (format) {
    case MetricsFormat::openmetrics:
      return "application/openmetrics-text; version=1.0.0; charset=utf-8";
    case MetricsFormat::json:
      return "application/json; charset=utf-8";
    case MetricsFormat::prometheus:
      break;
  }
  return "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace bulkhead
