// gcra.h - the token bucket as one number: the time at which the bucket would be full again.
//
// That time ("full at") is at or before now when the bucket is full; each token taken moves it one
// interval on, and it may be at most a burst of intervals ahead. So taking is one compare-exchange, and
// refilling is nothing at all. Times are in ticks of 1/64 ns and wrap around: only differences count,
// and those are right while the bucket is touched once in four years. A wait beyond that cannot arise:
// options are checked.
//
// Threads: Terms and the functions are values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bulkhead/clock.h"

namespace bulkhead::rate {

inline constexpr std::int64_t kTicks = 64;  // in a nanosecond
inline constexpr std::int64_t kDay = 86'400'000'000'000 * kTicks;
inline constexpr std::int64_t kMostBurst = 400 * kDay;  // a full bucket's worth of time
inline constexpr std::int64_t kMostWait = 400 * kDay;   // of a reservation

inline constexpr std::int64_t kStep = 60'000'000'000 * kTicks;  // a step back of the clock

inline std::uint64_t ticks_of(TimePoint t) noexcept {
  return static_cast<std::uint64_t>(t.time_since_epoch().count()) * kTicks;
}
inline std::int64_t ticks_of(std::chrono::nanoseconds d) noexcept {
  return std::clamp<std::int64_t>(d.count(), 0, kMostWait / kTicks) * kTicks;
}
inline std::chrono::nanoseconds ns_of(std::int64_t ticks) noexcept {  // rounded up: not too early
  return std::chrono::nanoseconds(ticks / kTicks + (ticks % kTicks > 0 ? 1 : 0));
}

// What a token costs, and a full bucket. The interval is rounded up to whole ticks: never faster than
// asked.
struct Terms {
  std::int64_t one = 1, full = 1;

  static Terms of(std::uint32_t rate, std::chrono::nanoseconds per, std::uint32_t burst) noexcept {
    const std::int64_t one = (per.count() * kTicks + rate - 1) / rate;
    return {.one = one, .full = one * static_cast<std::int64_t>(burst)};
  }
  double tokens(std::int64_t ticks) const noexcept {
    return static_cast<double>(ticks) / static_cast<double>(one);
  }
};

// How far ahead of now the bucket will be full.
inline std::int64_t ahead(std::uint64_t full_at, std::uint64_t now) noexcept {
  return std::max<std::int64_t>(static_cast<std::int64_t>(full_at - now), 0);
}
// Further ahead than anything that was taken could make it, by more than a minute: the clock has stepped
// back. What then remains is to call the bucket empty now, else it would stay closed until the clock has
// caught up. (Less than a minute may be a thread that slept after it had read the clock.)
inline bool impossible(std::uint64_t full_at, std::uint64_t now, std::int64_t most) noexcept {
  return static_cast<std::int64_t>(full_at - now) > most;
}

}  // namespace bulkhead::rate
