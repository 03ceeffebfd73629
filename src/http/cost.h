// cost.h - how many units a request takes of its bulkhead, by the settings of its route.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "bulkhead/http_guard.h"

namespace bulkhead::http {

// A number with nothing around it but blanks. One that is too large is the largest, which no bulkhead admits.
inline std::optional<std::uint64_t> whole_number(std::string_view text) noexcept {
  constexpr std::string_view kBlanks = " \t";
  const auto first = text.find_first_not_of(kBlanks);
  if (first == std::string_view::npos) return std::nullopt;
  text = text.substr(first, text.find_last_not_of(kBlanks) - first + 1);
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (end != text.data() + text.size() || error == std::errc::invalid_argument) return std::nullopt;
  return error == std::errc::result_out_of_range ? std::numeric_limits<std::uint64_t>::max() : number;
}

inline std::uint32_t as_cost(std::uint64_t units) noexcept {
  return static_cast<std::uint32_t>(
      std::clamp<std::uint64_t>(units, 1, std::numeric_limits<std::uint32_t>::max()));
}

inline std::uint32_t cost_of(const Route& route, const Request& request, bool trusted) {
  std::optional<std::uint64_t> units;
  if (route.cost_of) {
#if defined(__cpp_exceptions)
    try {
      units = route.cost_of(request);
    } catch (...) {
      units.reset();  // as documented: the route's own cost
    }
#else
    units = route.cost_of(request);
#endif
  } else if (!route.cost_header.empty() && trusted) {
    units = whole_number(request.header(route.cost_header));
  } else if (route.bytes_per_unit > 0) {
    if (const auto bytes =
            request.body_bytes ? request.body_bytes : whole_number(request.header("Content-Length")))
      units = *bytes / route.bytes_per_unit + (*bytes % route.bytes_per_unit != 0 ? 1 : 0);
  }
  return as_cost(units.value_or(route.cost));
}

}  // namespace bulkhead::http
