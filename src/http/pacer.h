// pacer.h - delays rejections so that at most `per_second` are sent, in small batches.
//
//   RejectionPacer pacer({.per_second = 1000, .burst = 100, .batch = 4, .max_hold = 1s}, seed);
//   send_after(pacer.hold(now));
//
// Each rejection reserves the next free time, as in the virtual-time form of a token bucket: the first `burst` are sent at
// once, the others `1/per_second` apart. `batch` of them share a time, so that the event loop wakes up once for all of them;
// the times are not evenly spaced, so that several servers do not synchronize. When reservations reach max_hold, further
// rejections are sent faster instead of later.
// Threads: any. Cost: one compare-exchange.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>

#include "bulkhead/clock.h"
#include "bulkhead/http_guard.h"

namespace bulkhead::http {

class RejectionPacer {
 public:
  RejectionPacer(const StormOptions& options, std::uint64_t seed) noexcept
      : interval_(options.per_second ? 1'000'000'000 / std::max<std::int64_t>(options.per_second, 1) : 0),
        step_(interval_ * std::max<std::int64_t>(options.batch, 1)),
        ahead_(interval_ * std::max<std::int64_t>(options.burst, 1)),
        max_hold_(std::max<std::int64_t>(options.max_hold.count(), 0)),
        seed_(seed) {}

  std::chrono::nanoseconds hold(TimePoint now) noexcept {
    if (interval_ == 0) return {};
    const std::int64_t at = now.time_since_epoch().count();
    std::int64_t seen = reserved_.load(std::memory_order_relaxed);  // the exchange below checks it
    std::int64_t next = 0;
    do {
      next = std::min(std::max(seen, at) + interval_, at + ahead_ + max_hold_);
      // relaxed: a reservation orders nothing but other reservations
    } while (!reserved_.compare_exchange_weak(seen, next, std::memory_order_relaxed));
    const std::int64_t leaves = next - ahead_;
    if (leaves <= at) return {};
    const std::int64_t batch = (leaves + step_ - 1) / step_;
    return std::chrono::nanoseconds(batch * step_ + jitter(static_cast<std::uint64_t>(batch)) - at);
  }

 private:
  // Up to half the time to the next batch; the same for all of one.
  std::int64_t jitter(std::uint64_t batch) const noexcept {
    const std::uint64_t mixed = (batch ^ seed_) * 0x9e3779b97f4a7c15;
    return static_cast<std::int64_t>((mixed >> 32) % static_cast<std::uint64_t>(step_ / 2 + 1));
  }

  const std::int64_t interval_, step_, ahead_, max_hold_;
  const std::uint64_t seed_;
  std::atomic<std::int64_t> reserved_{0};
};

}  // namespace bulkhead::http
