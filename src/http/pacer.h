// pacer.h - holds refusals back so that no more than so many leave in a second, in small batches.
//
//   RefusalPacer pacer({.per_second = 1000, .burst = 100, .batch = 4, .max_hold = 1s}, seed);
//   send_after(pacer.hold(now));
//
// Each refusal reserves the next free moment, as a token bucket in its virtual-time form does: the first
// `burst` leave at once, those beyond one `1/per_second` after the other. `batch` of them share a moment, for one
// wake-up of the event loop instead of as many; the moments are not evenly spaced, so that several servers do not
// fall into step. When the reservations reach max_hold ahead, refusals leave faster rather than later.
// Threads: any. Cost: one compare-exchange.
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
  RefusalPacer(const StormOptions& options, std::uint64_t seed) noexcept
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
