#include <mutex>

#include "bulkhead/bulkhead.h"
#include "bulkhead/core.h"

namespace bulkhead {
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

BulkheadSnapshot Bulkhead::snapshot() const {
  const Core& core = *core_;
  std::lock_guard lock(core.mutex);
  BulkheadSnapshot s;
  s.name = name();
  s.isolation = isolation();
  s.enabled = core.options.enabled;
  s.shadow = core.options.shadow;
  s.draining = mode_.load(std::memory_order_relaxed) & draining;
  s.gate = since(gate_->snapshot(), core.baseline);
  if (pool_) {
    s.pool = pool_->snapshot();
    s.pool->gate = s.gate;
    s.pool->abandoned_total -= core.abandoned_before;
    s.pool->caller_runs -= core.caller_runs_before;
  }
  if (core.options.breaker) s.breaker = core.breaker->snapshot();
  if (core.options.rate_limit) s.rate_limit = core.rate->snapshot();
  if (core.options.adaptive) s.adaptive = core.limiter->snapshot();
  s.bypassed = value(core.bypassed);
  s.timed_out = value(core.timed_out);
  for (std::size_t i = 0; i < s.fallbacks.size(); ++i) s.fallbacks[i] = value(core.fallbacks[i]);
  s.fallback_failures = value(core.fallback_failures);
  s.handler_errors = value(core.handler_errors);
  for (std::size_t i = 0; i < kReasons; ++i) s.would_reject[i] = value(core.would_reject[i]);
  s.would_wait = value(core.would_wait);
  s.beyond = core.beyond.load(std::memory_order_relaxed);
  if (core.options.histograms) {
    s.wait = core.wait.counts();
    s.service = core.service.counts();
    // Calls that need not wait are not recorded as they come, only counted here.
    const std::uint64_t ended = s.service.count(), waited = s.wait.count();
    if (ended > waited) s.wait.buckets[0] += ended - waited;
  }
  return s;
}

void Bulkhead::reset_statistics() {
  Core& core = *core_;
  std::lock_guard lock(core.mutex);
  core.baseline = gate_->snapshot();
  // Admissions of calls still in flight are forgotten, their ends are not: they count as released later.
  core.baseline.admitted = core.baseline.released;
  for (auto* counter :
       {&core.bypassed, &core.timed_out, &core.fallback_failures, &core.handler_errors, &core.would_wait})
    counter->store(0, std::memory_order_relaxed);
  for (auto& counter : core.fallbacks) counter.store(0, std::memory_order_relaxed);
  for (auto& counter : core.would_reject) counter.store(0, std::memory_order_relaxed);
  core.wait.reset();
  core.service.reset();
  if (!pool_) return;
  const PoolSnapshot pool = pool_->snapshot();
  core.abandoned_before = pool.abandoned_total;
  core.caller_runs_before = pool.caller_runs;
}

double BulkheadSnapshot::rejection_rate() const {
  const std::uint64_t asked = gate.admitted + gate.rejected();
  return asked == 0 ? 0 : static_cast<double>(gate.rejected()) / static_cast<double>(asked);
}

}  // namespace bulkhead
