// core.h - what a bulkhead is made of, apart from what every call reads, which stands in the Bulkhead itself.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "base/counter_clock.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/service_times.h"

namespace bulkhead {

// Invariants
//   C1 Settings are changed by one thread at a time, under `settings`. Calls in line may be admitted and run in
//      there, on that very thread: so it is recursive, and whoever only reads does not take it.
//   C2 options and baseline are read and written under `mutex`, and no code of others is called under it.
//   C3 A policy is made before options name it, and lives as long as the core, for the calls it has admitted.
//   C4 Once there is a limiter, it alone resizes the gate; without `adaptive` it is fixed at max_concurrent.
struct Bulkhead::Core {
  std::recursive_mutex settings;
  mutable std::mutex mutex;
  BulkheadOptions options;  // in force
  std::function<Opinion(const std::exception_ptr&)> judge;
  std::optional<Gate> gate;
  std::optional<Pool> pool;
  // The limiter is destroyed before its gate.
  std::unique_ptr<Breaker> breaker;
  std::unique_ptr<RateLimiter> rate;
  std::unique_ptr<AdaptiveLimiter> limiter;

  Histogram wait;
  ServiceTimes service;  // reset under `mutex`
  std::atomic<std::uint64_t> bypassed{0}, timed_out{0}, fallback_failures{0}, handler_errors{0},
      would_wait{0};
  std::array<std::atomic<std::uint64_t>, 3> fallbacks{};
  std::array<std::atomic<std::uint64_t>, kReasons> would_reject{};
  std::atomic<std::uint32_t> beyond{0};
  Snapshot baseline;  // the gate's counters at the last reset_statistics()
  std::uint64_t abandoned_before = 0, caller_runs_before = 0;
};

// Every call asks twice, mostly the same clock.
[[gnu::always_inline]] inline TimePoint Bulkhead::glance() const noexcept {
  return steady_ ? TimePoint(std::chrono::nanoseconds(base::counter_now())) : clock_.glance();
}

}  // namespace bulkhead
