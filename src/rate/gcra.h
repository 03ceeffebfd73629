// gcra.h - the token bucket as one number: the time at which the bucket would be full again.
//
// That time ("full at") is at or before now if the bucket is full. Each token taken moves it forward by one interval, and
// it may be at most a burst of intervals ahead. So taking is one compare-exchange, and refilling needs no step. Times are
// in ticks of 1/64 ns and wrap around: only differences are used, and they are right if the bucket is used once in four
// years. The checks of the options rule out longer waits.
//
// Threads: Terms and the functions are values.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "bulkhead/clock.h"

namespace bulkhead::rate {

inline constexpr std::int64_t kTicks = 64;  // per nanosecond
inline constexpr std::int64_t kDay = 86'400'000'000'000 * kTicks;
inline constexpr std::int64_t kMostBurst = 400 * kDay;  // the time to fill a bucket
inline constexpr std::int64_t kMostWait = 400 * kDay;   // of a reservation

inline constexpr std::int64_t kStep = 60'000'000'000 * kTicks;  // a step back of the clock

inline std::uint64_t ticks_of(TimePoint t) noexcept {
  return static_cast<std::uint64_t>(t.time_since_epoch().count()) * kTicks;
}
inline std::int64_t ticks_of(std::chrono::nanoseconds d) noexcept {
  return std::clamp<std::int64_t>(d.count(), 0, kMostWait / kTicks) * kTicks;
}
inline std::chrono::nanoseconds ns_of(
    std::int64_t ticks) noexcept {  // rounded up, so that it is not too early
  return std::chrono::nanoseconds(ticks / kTicks + (ticks % kTicks > 0 ? 1 : 0));
}

// The ticks of one token and of a full bucket. The interval is rounded up to whole ticks: the rate is never above the
// configured one.
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

// The time from now until the bucket is full.
inline std::int64_t ahead(std::uint64_t full_at, std::uint64_t now) noexcept {
  return std::max<std::int64_t>(static_cast<std::int64_t>(full_at - now), 0);
}
// More than a minute further ahead than taking tokens can move it: the clock has stepped back. Then the bucket counts as
// empty now; otherwise it would stay closed until the clock has caught up. (Less than a minute may be a thread that slept
// after it had read the clock.)
inline bool impossible(std::uint64_t full_at, std::uint64_t now, std::int64_t most) noexcept {
  return static_cast<std::int64_t>(full_at - now) > most;
}

}  // namespace bulkhead::rate
