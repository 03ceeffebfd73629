// settling.h - the turnstile under a permit that changes what it holds. The invariant E1 is in turnstile.h.
//
// A permit that is lowered keeps the turnstile alive until it is released, so none of these functions is counted as a
// release on its way to the lock (D1).
#pragma once

#include "gate/slow_path.h"

namespace bulkhead::detail {

template <class P>
bool Turnstile<P>::lower(std::uint32_t from, std::uint32_t to, std::int64_t now) noexcept {
  const std::uint32_t units = from - to;
  begin();
  if (to == 0) empty_.fetch_add(1, std::memory_order_relaxed);  // published by the addition below
  // release: what the call has written is visible to the one that takes these units.
  const std::uint64_t w = word_.fetch_add(units, std::memory_order_release);
  P::remember(this, w + units);
  add_heavy(-std::int64_t{units});
  end();
  if (meter_) P::measure(*meter_, -std::int64_t{units}, word::turned_full(w, w + units), now);
  return w & word::kQuiet;
}

template <class P>
void Turnstile<P>::after_lower(std::int64_t now, Wakes& wakes) noexcept {
  P::point("lower.before_lock");
  {
    MutexLock hold(mutex_);
    attend(now, wakes);
  }
  go_on(now, wakes);
}

// The fast path of fifo: quiet means that the line is empty. In the loose modes it does not, so the lock decides.
template <class P>
bool Turnstile<P>::raise_quietly(std::uint32_t units, std::int64_t now) noexcept {
  std::uint64_t w = word_.load(std::memory_order_relaxed);
  while (open_for(units, w)) {
    if (!take_units(units, w)) continue;
    if (meter_) P::measure(*meter_, units, word::turned_full(w, w - units), now);
    return true;
  }
  return false;
}

template <class P>
typename Turnstile<P>::Raise Turnstile<P>::raise(Priority tier, std::uint32_t held, std::uint32_t units,
                                                 std::int64_t now) noexcept {
  begin();
  Raise raised = Raise::no_room;
  if (held > 0 && !loose() && raise_quietly(units, now)) {
    raised = Raise::done;
    add_heavy(units);
  } else {
    P::point("raise.before_lock");
    MutexLock hold(mutex_);
    take_posts();  // they wait too
    const std::uint64_t l = line_.load(std::memory_order_relaxed);
    Waiter w;
    w.cost = units;
    w.tier = tier;
    if (line::total(l) > line::below(l, tier)) {
      raised = Raise::behind;
    } else if (take(w, now)) {
      raised = Raise::done;
      add_heavy(1);  // take() has counted a permit of its own
      if (held == 0) empty_.fetch_sub(1, std::memory_order_relaxed);
    }
    allow_posts();
  }
  end();
  return raised;
}

template <class P>
void Turnstile<P>::fill_empty() noexcept {
  MutexLock hold(mutex_);
  empty_.fetch_sub(1, std::memory_order_relaxed);
}

// Under the lock, because no later look would find the turnstile idle if a drain began between the two steps.
template <class P>
bool Turnstile<P>::give_back_empty() noexcept {
  P::point("empty.before_lock");
  MutexLock hold(mutex_);
  empty_.fetch_sub(1, std::memory_order_relaxed);
  return put_back(0) & word::kQuiet;
}

}  // namespace bulkhead::detail
