#include <array>
#include <charconv>
#include <string>

#include "base/text.h"
#include "limiter/algorithm.h"

namespace bulkhead {
namespace {

std::string number(double value, int decimals) {
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::fixed, decimals);
  return {text.data(), end.ptr};
}

std::string milliseconds(std::chrono::nanoseconds time) {
  const double ms = static_cast<double>(time.count()) / 1e6;
  return number(ms, ms < 10 ? 2 : 0) + " ms";
}

std::string rate(double per_second) { return number(per_second, per_second < 10 ? 1 : 0) + "/s"; }

}  // namespace

std::string_view to_string(LimitVerdict verdict) noexcept {
  constexpr std::array<std::string_view, kLimitVerdicts> kNames{
      "started", "measured",     "steady",     "probing",   "kept", "raised",
      "lowered", "demand_bound", "no_goodput", "unsettled", "held", "set"};
  const auto i = static_cast<std::size_t>(verdict);
  return i < kNames.size() ? kNames[i] : "unknown";
}

// One line for logs and the dashboard, with the numbers behind the decision.
std::string LimitDecision::text() const {
  std::string limit = "limit " + std::to_string(from);
  if (to != from) limit += " -> " + std::to_string(to);
  std::string compared;
  if (low != high)
    compared = base::join({"goodput ", rate(low_goodput), " at ", std::to_string(low), ", ",
                           rate(high_goodput), " at ", std::to_string(high), ", gain ", number(gain, 2),
                           " of 1, noise ", number(noise, 2), "; "});
  const std::string without_load =
      unloaded.count() > 0 ? " (" + milliseconds(unloaded) + " without load)" : "";
  return base::join({limit,
                     " (",
                     to_string(verdict),
                     "): ",
                     compared,
                     std::to_string(samples),
                     " calls, ",
                     rate(goodput),
                     " good, ",
                     number(in_flight, 1),
                     " in flight, ",
                     milliseconds(round_trip),
                     " each",
                     without_load,
                     ", ",
                     number(100 * bad_share, 1),
                     " % bad, ",
                     std::to_string(rejected),
                     " rejected",
                     because.empty() ? "" : ": ",
                     because});
}

namespace limiter {

LimitDecision report(const Window& w, LimitVerdict verdict, std::uint32_t to) noexcept {
  return {.verdict = verdict,
          .at = w.end,
          .from = w.limit,
          .to = to,
          .goodput = w.goodput(),
          .in_flight = w.in_flight,
          .round_trip = nanoseconds(static_cast<std::int64_t>(w.round_trip)),
          .samples = w.samples(),
          .bad_share = w.bad_share(),
          .rejected = w.rejected};
}

}  // namespace limiter
}  // namespace bulkhead
