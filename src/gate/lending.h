// lending.h - the turnstile of a member of a group, whose limit is what it is allotted now.
//
// As in slow_path.h, every function runs under the turnstile's lock and calls no other code. The group calls them one at a
// time under its own lock, and go_on() and refit_all() without it. The invariants M1 and M2 are in
// bulkhead/detail/turnstile.h.
#pragma once

#include "gate/slow_path.h"

namespace bulkhead::detail {

template <class P>
void Turnstile<P>::move_limit(std::int64_t by, std::int64_t now) noexcept {
  begin();
  shift(by, now);
  limit_.store(static_cast<std::uint32_t>(limit_.load(std::memory_order_relaxed) + by),
               std::memory_order_release);
  end();
}

// As in enter(): it overtakes the line only if all waiters are of a lower tier.
template <class P>
typename Turnstile<P>::Lack Turnstile<P>::try_enter(const Waiter& w, std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  const std::uint64_t l = line_.load(std::memory_order_relaxed);
  const bool behind = line::total(l) > line::below(l, w.tier) && !(loose() && !starved(head(), now));
  if (behind || closed_.load(std::memory_order_relaxed) || hopeless(w)) return {.waits = true};
  if (take(w, now)) return {};
  const std::int64_t reserve = w.tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  const std::int64_t lacks = w.cost - word::room(word_.load(std::memory_order_relaxed)) - reserve;
  return {.units = lacks > 1 ? static_cast<std::uint32_t>(lacks)
                             : 1};  // at least 1: units may have come back meanwhile
}

// Changes the reserve without checking the line; refit_all() does that.
template <class P>
void Turnstile<P>::set_reserve(std::uint32_t reserve, std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  reshape(limit_.load(std::memory_order_relaxed), reserve, now);
}

template <class P>
void Turnstile<P>::refit_all(std::int64_t now, Wakes& wakes) noexcept {
  for (bool over = false; !over;) {
    HoldForABatch hold(mutex_);
    over = refit(now, wakes);
  }
  go_on(now, wakes);
}

template <class P>
void Turnstile<P>::grow(std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept {
  MutexLock hold(mutex_);
  move_limit(units, now);
  attend(now, wakes);
}

// Grows for `w`, which comes before the line. If a call on the fast path took the units first, the limit stays grown.
template <class P>
bool Turnstile<P>::grow_for(const Waiter& w, std::uint32_t units, std::int64_t now, Wakes& wakes) noexcept {
  MutexLock hold(mutex_);
  move_limit(units, now);
  const bool taken = take(w, now);
  attend(now, wakes);
  return taken;
}

template <class P>
std::uint32_t Turnstile<P>::shrink_idle(std::uint32_t most, std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  begin();
  // A waiter that was woken to try for itself must find its unit. Otherwise members could wake each other for the same
  // unit for ever.
  const std::int64_t promised = poked_ ? poked_->cost : 0;
  std::int64_t units = 0;
  std::uint64_t x = word_.load(std::memory_order_relaxed);
  do {
    const std::int64_t free = word::room(x) - promised;
    units = free < std::int64_t{most} ? free : std::int64_t{most};
    // acquire: the call that gets these units sees what the call that gave them back has written
  } while (units > 0 && !word_.compare_exchange_weak(x, x - static_cast<std::uint64_t>(units),
                                                     std::memory_order_acq_rel, std::memory_order_relaxed));
  if (units > 0) {
    limit_.store(limit_.load(std::memory_order_relaxed) - static_cast<std::uint32_t>(units),
                 std::memory_order_release);
    if (meter_) P::measure(*meter_, 0, word::turned_full(x, x - static_cast<std::uint64_t>(units)), now);
  }
  end();
  return units > 0 ? static_cast<std::uint32_t>(units) : 0;
}

// Subtracts from owed_ the units that came back, and returns them. Above the limit no call is admitted, so owed_ only
// falls.
template <class P>
std::uint32_t Turnstile<P>::repaid() noexcept {
  // acquire: as in shrink_idle()
  const std::int64_t above = -word::room(word_.load(std::memory_order_acquire)) -
                             std::int64_t{reserve_.load(std::memory_order_relaxed)};
  const std::uint32_t owed = above > 0 ? static_cast<std::uint32_t>(above) : 0;
  if (owed >= owed_) return 0;
  const std::uint32_t paid = owed_ - owed;
  owed_ = owed;
  return paid;
}

template <class P>
std::uint32_t Turnstile<P>::call_back(std::uint32_t units, std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  move_limit(-std::int64_t{units}, now);
  owed_ += units;
  if (quiet_) set_quiet(false);  // before repaid(), so that no release is missed
  const std::uint32_t free = repaid();
  settle_quiet(now);
  return free;
}

template <class P>
std::uint32_t Turnstile<P>::collect(std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  if (owed_ == 0) return 0;
  const std::uint32_t paid = repaid();
  settle_quiet(now);
  return paid;
}

// The group reads `room` again, as W3 requires: it calls shrink_idle() afterwards.
template <class P>
void Turnstile<P>::watch(bool on, std::int64_t now) noexcept {
  MutexLock hold(mutex_);
  watched_ = on;
  settle_quiet(now);
}

template <class P>
typename Turnstile<P>::Hunger Turnstile<P>::hunger() const noexcept {
  MutexLock hold(mutex_);
  const Waiter* first = head();
  if (!first) return {};
  const std::int64_t room = word::room(word_.load(std::memory_order_relaxed));
  const std::int64_t reserve =
      first->tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  Hunger h;
  h.cost = first->cost;
  h.tier = first->tier;
  h.since = first->since;
  if (first->cost > room + reserve) h.head = static_cast<std::uint32_t>(first->cost - room - reserve);
  // Sum up the costs of the first waiters; the others count as 1, so that a long line takes no time.
  std::int64_t sum = waiting();
  int looked_at = 0;
  for (std::uint32_t list = 0; list < lists() && looked_at < 64; ++list)
    for (const Waiter* w = first_of(list); w && looked_at < 64; w = w->next, ++looked_at) sum += w->cost - 1;
  if (sum > room) h.line = static_cast<std::uint32_t>(sum - room);
  return h;
}

}  // namespace bulkhead::detail
