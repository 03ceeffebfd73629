// scoped.h - the turnstile of a gate with a scope, whose limit is 0: each call brings its units from a source that processes
// share. The invariant U1 is in bulkhead/detail/turnstile.h.
#pragma once

#include "gate/slow_path.h"

namespace bulkhead::detail {

template <class P>
bool Turnstile<P>::let_in(std::uint32_t cost, std::int64_t now) noexcept {
  P::point("scoped.before_let_in");
  if (cost > 1) begin();
  bool in = false;
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  while (!in && (w & word::kQuiet))  // acq_rel: as in take_units()
    in = word_.compare_exchange_weak(w, w - cost, std::memory_order_acq_rel, std::memory_order_relaxed);
  if (cost > 1) {
    if (in) add_heavy(cost - 1);
    end();
  }
  if (!in) return false;
  if (meter_) P::measure(*meter_, cost, 0, now);
  if (needs_note(w)) [[unlikely]]
    note_pass();
  return true;
}

// For a call that overtakes the line because of its priority.
template <class P>
void Turnstile<P>::let_in_anyway(const Waiter& w, std::int64_t now) noexcept {
  if (w.cost > 1) begin();
  word_.fetch_sub(w.cost, std::memory_order_acq_rel);
  if (w.cost > 1) {
    add_heavy(w.cost - 1);
    end();
  }
  if (meter_) P::measure(*meter_, w.cost, 0, now);
}

template <class P>
std::uint32_t Turnstile<P>::let_in_first(std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept {
  MutexLock hold(mutex_);
  Waiter* const w = closed_.load(std::memory_order_relaxed) ? nullptr : head();
  if (!w || w->cost > units) return 0;
  const std::uint32_t cost = w->cost;
  // Counted down first, as in admit().
  line_.store(line_.load(std::memory_order_relaxed) - line::one(w->tier), std::memory_order_release);
  let_in_anyway(*w, now);
  unlink(*w, true);
  decide(*w, Verdict::admitted);
  wakes.push(*w);
  attend(now, wakes);
  return cost;
}

}  // namespace bulkhead::detail
