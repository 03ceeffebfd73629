
#include "bulkhead/bulkhead.h"
#include "bulkhead/bulkhead_core.h"

namespace bulkhead {
namespace detail {
namespace {

Snapshot since(Snapshot s, const Snapshot& baseline) {
  s.admitted -= baseline.admitted;
  s.released -= baseline.released;
  s.succeeded -= baseline.succeeded;
  s.failed -= baseline.failed;
  s.double_releases -= baseline.double_releases;
  s.hook_errors -= baseline.hook_errors;
  s.occupancy -= baseline.occupancy;
  s.saturated -= baseline.saturated;
  for (std::size_t i = 0; i < kReasons; ++i) s.rejected_by_reason[i] -= baseline.rejected_by_reason[i];
  return s;
}

std::uint64_t value(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

BulkheadSnapshot BulkheadCore::snapshot() const {
  MutexLock lock(mutex);
  BulkheadSnapshot s;
  s.name = gate_->name();
  s.isolation = pool_ ? Isolation::threads : Isolation::semaphore;
  s.enabled = options_in_force.enabled;
  s.shadow = options_in_force.shadow;
  s.draining = mode_.load(std::memory_order_relaxed) & kDraining;
  s.fault = fault();
  s.gate = since(gate_->snapshot(), baseline);
  if (pool_) {
    s.pool = pool_->snapshot();
    s.pool->gate = s.gate;
    s.pool->abandoned_total -= abandoned_before;
    s.pool->caller_runs -= caller_runs_before;
  }
  if (options_in_force.breaker) s.breaker = breaker_policy->snapshot();
  if (options_in_force.rate_limit) s.rate_limit = rate_policy->snapshot();
  if (options_in_force.adaptive) s.adaptive = limiter_policy->snapshot();
  if (options_in_force.holdback) s.holdback = holdback_policy->snapshot();
  s.budgets = budgets.snapshot();
  if (scoped) {
    if (FleetSnapshot now; scoped->describe(now)) s.fleet = std::move(now);
    s.host_in_flight = scoped->host_in_use();
  }
  s.bypassed = value(counts.bypassed);
  s.timed_out = value(counts.timed_out);
  for (std::size_t i = 0; i < s.fallbacks.size(); ++i) s.fallbacks[i] = value(counts.fallbacks[i]);
  s.fallback_failures = value(counts.fallback_failures);
  s.handler_errors = value(counts.handler_errors);
  for (std::size_t i = 0; i < kReasons; ++i) s.would_reject[i] = value(counts.would_reject[i]);
  s.would_wait = value(counts.would_wait);
  s.over_limit = counts.over_limit.load(std::memory_order_relaxed);
  if (options_in_force.histograms) {
    s.wait = wait.counts();
    s.service = service.counts();
    // Calls that need not wait are not recorded as they come, only counted here.
    const std::uint64_t ended = s.service.count(), waited = s.wait.count();
    if (ended > waited) s.wait.buckets[0] += ended - waited;
  }
  return s;
}

void BulkheadCore::reset_statistics() {
  MutexLock lock(mutex);
  baseline = gate_->snapshot();
  // Admissions of calls still in flight are forgotten, their ends are not: they count as released later.
  baseline.admitted = baseline.released;
  for (auto* counter : {&counts.bypassed, &counts.timed_out, &counts.fallback_failures,
                        &counts.handler_errors, &counts.would_wait})
    counter->store(0, std::memory_order_relaxed);
  for (auto& counter : counts.fallbacks) counter.store(0, std::memory_order_relaxed);
  for (auto& counter : counts.would_reject) counter.store(0, std::memory_order_relaxed);
  wait.reset();
  service.reset();
  budgets.reset_statistics();
  if (!pool_) return;
  const PoolSnapshot pool = pool_->snapshot();
  abandoned_before = pool.abandoned_total;
  caller_runs_before = pool.caller_runs;
}

}  // namespace detail

double BulkheadSnapshot::rejection_rate() const {
  const std::uint64_t asked = gate.admitted + gate.rejected();
  return asked == 0 ? 0 : static_cast<double>(gate.rejected()) / static_cast<double>(asked);
}

}  // namespace bulkhead
