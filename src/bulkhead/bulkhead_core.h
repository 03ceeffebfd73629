// bulkhead_core.h - what a bulkhead is made of: the stages of its calls, its settings, its policies and its counters.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/counter_clock.h"
#include "bulkhead/budgets.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/service_times.h"
#include "shared/scoped_gate.h"

namespace bulkhead::detail {

// Invariants
//   C1 Settings are changed by one thread at a time, under `settings`. Handlers and coroutines that a change admits
//      run after it, on that thread; hooks run inside, so it is recursive, and readers do not take it.
//   C2 `options_in_force` and `baseline` are read and written under `mutex`. No code of others runs under it.
//   C3 A policy is made before the options name it, and lives as long as the core, for the calls it has admitted.
//   C4 Once there is a limiter, only it resizes the gate; without `adaptive` it is fixed at max_concurrent.
struct BulkheadCore final : CallPath {
  explicit BulkheadCore(const BulkheadOptions& options);
  ~BulkheadCore() override;

  void check(const BulkheadOptions& options) const;
  void update(const BulkheadOptions& options);
  void resize(std::uint32_t max_concurrent);
  void resize_queue(std::uint32_t max_queue);
  void set_draining(bool on);
  void inject(const Fault& fault);
  void end_fault();
  void end_fault_if_over(TimePoint now) noexcept;
  std::optional<Fault> fault() const;
  bool idle() const noexcept;
  BulkheadOptions options() const;
  BulkheadSnapshot snapshot() const;
  void reset_statistics();
  Breaker* breaker() const noexcept { return breaker_.load(std::memory_order_acquire); }

  RecursiveMutex settings;  // one change at a time: C1
  mutable StdMutex mutex;
  BulkheadOptions options_in_force BULKHEAD_GUARDED_BY(mutex);
  ExceptionJudge judge_of_all;  // BulkheadOptions::judge
  std::optional<Gate> own_gate;
  std::optional<Pool> own_pool;
  Budgets budgets;
  std::optional<shared::ScopedGate> scoped;  // instead of own_gate, beyond Scope::process
  // The limiter is destroyed before its gate.
  std::unique_ptr<Breaker> breaker_policy;
  std::unique_ptr<RateLimiter> rate_policy;
  std::unique_ptr<AdaptiveLimiter> limiter_policy;
  std::unique_ptr<Holdback> holdback_policy;

  Histogram wait;
  ServiceTimes service;  // reset under `mutex`
  struct Counts {        // see BulkheadSnapshot
    std::atomic<std::uint64_t> bypassed{0}, timed_out{0}, fallback_failures{0}, handler_errors{0},
        would_wait{0};
    std::array<std::atomic<std::uint64_t>, 3> fallbacks{};
    std::array<std::atomic<std::uint64_t>, kReasons> would_reject{};
    std::atomic<std::uint32_t> over_limit{0};
  } counts;
  struct Faults {                                    // see fault.h; in force while the mode says so
    std::atomic<std::int64_t> latency{0}, until{0};  // ns
    std::atomic<std::uint32_t> error{0};             // of a million calls
    std::atomic<std::uint64_t> calls{0};
  } faults;
  Snapshot baseline BULKHEAD_GUARDED_BY(mutex);  // the gate's counters at the last reset_statistics()
  std::uint64_t abandoned_before BULKHEAD_GUARDED_BY(mutex) = 0, caller_runs_before
                                                                 BULKHEAD_GUARDED_BY(mutex) = 0;

 private:
  void apply(const BulkheadOptions& options);
  void try_out(const BulkheadOptions& options) const;
  void size(std::uint32_t max_concurrent);
  bool restates_limit(const BulkheadOptions& options) const;
};

inline BulkheadCore& CallPath::core() noexcept { return static_cast<BulkheadCore&>(*this); }

// Most bulkheads use the steady clock: it is read in place, without a virtual call.
[[gnu::always_inline]] inline TimePoint CallPath::glance() const noexcept {
  return steady_ ? TimePoint(std::chrono::nanoseconds(base::counter_now())) : clock_.glance();
}

}  // namespace bulkhead::detail
