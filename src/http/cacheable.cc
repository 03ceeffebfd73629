#include "http/cacheable.h"

#include <algorithm>
#include <array>

#include "base/text.h"
#include "http/response_cache.h"

namespace bulkhead::http {
namespace {

// Calls f for each member of a comma separated list, without the blanks around it.
template <class F>
void each_member(std::string_view list, F f) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    std::string_view member = list.substr(0, comma);
    list.remove_prefix(std::min(comma + 1, list.size()));
    const std::size_t first = member.find_first_not_of(" \t");
    if (first == std::string_view::npos) continue;
    f(member.substr(first, member.find_last_not_of(" \t") + 1 - first));
  }
}

template <std::size_t N>
bool is_one_of(std::string_view name, const std::array<std::string_view, N>& names) noexcept {
  return std::ranges::any_of(names, [&](std::string_view one) { return same_name(name, one); });
}

// A directive may have an argument: private="X-Tenant".
std::string_view directive_of(std::string_view member) noexcept {
  return member.substr(0, member.find_first_of("= \t"));
}

constexpr std::array<std::string_view, 4> kNotForOthers{"private", "no-store", "no-cache", "must-revalidate"};
// Of the connection (RFC 9110, 7.6.1), of the message's framing, and of the moment.
constexpr std::array<std::string_view, 11> kOfTheMessage{
    "Connection", "Keep-Alive", "Proxy-Connection", "Proxy-Authenticate", "TE", "Trailer",
    "Upgrade",    "Date",       "Content-Length",   "Transfer-Encoding",  "Age"};

}  // namespace

bool same_name(std::string_view a, std::string_view b) noexcept {
  return std::ranges::equal(a, b, {}, base::to_lower, base::to_lower);
}

bool forbids_storing(std::string_view cache_control) noexcept {
  bool found = false;
  each_member(cache_control, [&](std::string_view m) { found |= same_name(directive_of(m), "no-store"); });
  return found;
}

std::optional<unsigned> cacheable(std::span<const HeaderView> headers) {
  unsigned varies = 0;
  bool keep = true;
  for (const auto& [name, value] : headers) {
    if (same_name(name, "Set-Cookie")) keep = false;
    // An encoding was chosen by what the client accepts, also where the handler does not say so.
    if (same_name(name, "Content-Encoding") && !same_name(value, "identity")) varies |= kVaryEncoding;
    if (same_name(name, "Cache-Control"))
      each_member(value, [&](std::string_view m) { keep &= !is_one_of(directive_of(m), kNotForOthers); });
    if (!same_name(name, "Vary")) continue;
    each_member(value, [&](std::string_view field) {
      const auto known =
          std::ranges::find_if(kVarying, [&](std::string_view one) { return same_name(field, one); });
      if (known != kVarying.end())
        varies |= 1U << (known - kVarying.begin());
      else
        keep &= is_one_of(field, kAlwaysVarying);
    });
  }
  if (!keep) return std::nullopt;
  return varies;
}

std::vector<Header> kept_headers(std::span<const HeaderView> headers) {
  std::vector<Header> kept;
  for (const auto& [name, value] : headers)
    if (!is_one_of(name, kOfTheMessage)) kept.push_back({std::string(name), std::string(value)});
  return kept;
}

}  // namespace bulkhead::http
