// pacer.h - holds refusals back so that no more than so many leave in a second, evenly.
//
//   RefusalPacer pacer({.per_second = 1000, .burst = 100, .max_hold = 1s});
//   send_after(pacer.hold(now, random));
//
// Each refusal reserves the next free moment, as a token bucket in its virtual-time form does: the first
// `burst` leave at once, those beyond one `1/per_second` after the other. When the reservations reach
// max_hold ahead, refusals leave faster rather than later. Threads: any. Cost: one compare-exchange.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "bulkhead/clock.h"
#include "bulkhead/http_guard.h"

namespace bulkhead::http {

class RefusalPacer {
 public:
  explicit RefusalPacer(const StormOptions& options) noexcept
      : interval_(options.per_second ? 1'000'000'000 / std::max<std::int64_t>(options.per_second, 1) : 0),
        ahead_(interval_ * std::max<std::int64_t>(options.burst, 1)),
        max_hold_(std::max<std::int64_t>(options.max_hold.count(), 0)) {}

  std::chrono::nanoseconds hold(TimePoint now, std::uint32_t random) noexcept {
    if (interval_ == 0) return {};
    const std::int64_t at = now.time_since_epoch().count();
    std::int64_t seen = reserved_.load(std::memory_order_relaxed);  // the exchange below checks it
    std::int64_t next = 0;
    do {
      next = std::min(std::max(seen, at) + interval_, at + ahead_ + max_hold_);
      // relaxed: a reservation orders nothing but other reservations
    } while (!reserved_.compare_exchange_weak(seen, next, std::memory_order_relaxed));
    const std::int64_t held = next - at - ahead_;
    if (held <= 0) return {};
    // A little disorder, so that those held by several threads do not fall into step.
    return std::chrono::nanoseconds(
        held + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(interval_ + 1)));
  }

 private:
  const std::int64_t interval_, ahead_, max_hold_;
  std::atomic<std::int64_t> reserved_{0};
};

}  // namespace bulkhead::http
