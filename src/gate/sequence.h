// sequence.h - the order in which a gate calls its turnstile. The gate and the model check compile these functions.
//
// `Owner` is the GateCore, or the ModelGate of tests/model. Its members are called without a lock:
//   announce(w)      counts the decision on one waiter and calls the hooks
//   tell(wakes)      announces and publishes decided waiters; the owner may be destroyed when this returns
//   slow_now()       ns; the time that the line needs, or 0 if it needs none
#pragma once

#include "gate/slow_path.h"

namespace bulkhead::detail {

// The decisions that need no place in line, in the order promised in gate.h. `before` decides what is checked between
// shutdown and admission, `take` tries to take the units. `by_look` is false if the wait is to be predicted, which only
// enter() can do. Verdict `pending`: join the line.
template <class P>
struct AtOnce {
  Verdict verdict;
  bool looked = false;  // `look` has the numbers that the verdict is based on
  typename Turnstile<P>::Look look{};
};
template <class P, class Before, class Take, class ByLook>
[[gnu::always_inline]] inline AtOnce<P> decide_at_once(const Turnstile<P>& turnstile, Priority tier,
                                                       std::uint32_t cost, bool may_queue, Before&& before,
                                                       Take&& take, ByLook&& by_look) noexcept {
  if (turnstile.closed()) return {rejected(Reason::shutdown)};
  if (const Verdict early = before(); early != Verdict::pending) return {early};
  if (take()) return {Verdict::admitted};
  if (!by_look()) return {Verdict::pending};
  const auto look = turnstile.look(tier, cost, may_queue);
  return {look.verdict, true, look};
}

// Takes units on the fast path. Costs above 1 change a number beside the word, so they stand in a section (begin(),
// end()) in which readers do not trust the numbers.
template <class P>
[[gnu::always_inline]] inline typename Turnstile<P>::Pass take_units(Turnstile<P>& turnstile,
                                                                     std::uint32_t cost) noexcept {
  if (cost == 1) return turnstile.try_pass(1);
  turnstile.begin();
  const auto pass = turnstile.try_pass(cost);
  if (pass != Turnstile<P>::Pass::no) turnstile.add_heavy(cost - 1);
  turnstile.end();
  return pass;
}

// Tells the waiters that enter() has decided, then waits until `w` is decided. `before_wait` runs if this thread has to
// wait, `park` parks it. True: this thread decided `w` itself, and has to announce it.
template <class P, class Owner, class BeforeWait, class Now, class Park>
bool finish_entering(Turnstile<P>& turnstile, Owner& owner, Waiter<P>& w, Verdict verdict, std::int64_t until,
                     Wakes<P>& wakes, BeforeWait&& before_wait, Now&& now, Park&& park) noexcept {
  owner.tell(wakes);
  if (verdict != Verdict::pending) return true;
  before_wait();
  return turnstile.wait(w, until, now, park, [&owner](Wakes<P>& others) { owner.tell(others); });
}

template <class P, class Owner>
bool withdraw_and_tell(Turnstile<P>& turnstile, Owner& owner, Waiter<P>& w, Reason reason) noexcept {
  Wakes<P> wakes;
  const bool left = turnstile.withdraw(w, reason, owner.slow_now(), wakes);
  if (left) wakes.push_front(w);
  owner.tell(wakes);
  return left;
}

// Gives back the units of a call that failed or does not hold exactly 1, by `give_back`, and counts it in the same section.
// False: call after_release().
template <class P, class GiveBack>
[[gnu::always_inline]] inline bool give_back_counted(Turnstile<P>& turnstile, std::uint32_t cost, bool failed,
                                                     GiveBack&& give_back) noexcept {
  if (!failed && cost == 1) return give_back();
  turnstile.begin();
  const bool quiet = give_back();
  if (failed) turnstile.add_failed();
  if (cost != 1) turnstile.add_heavy(1 - std::int64_t{cost});
  turnstile.end();
  return quiet;
}

// Announces in order, then publishes. A published waiter may be destroyed, and with the last one the gate.
template <class P, class Owner>
void announce_each(const Wakes<P>& wakes, Owner& owner) noexcept {
  for (const Waiter<P>* w = wakes.first; w; w = w->next) owner.announce(*w);
}
template <class P>
void publish_each(Wakes<P>& wakes) noexcept {
  while (Waiter<P>* w = wakes.pop()) Turnstile<P>::publish(*w);
}

// Waits until nothing is in flight and no call waits. `expired` says that the time is over, `park(signal, late)` parks;
// `late`: the drain is over and is about to be published, unless a release hook takes units again, so park briefly.
// False: the time was over first.
template <class P, class Owner, class Expired, class Park>
bool wait_idle(Turnstile<P>& turnstile, Owner& owner, Expired&& expired, Park&& park) {
  typename Turnstile<P>::Drain drain;
  Wakes<P> wakes;
  const bool waits = turnstile.join_drain(drain, owner.slow_now(), wakes);
  owner.tell(wakes);
  if (!waits) return true;
  while (drain.signal.load(std::memory_order_acquire) != Waiter<P>::kDone) {
    const bool late = expired();
    if (late) {
      Wakes<P> others;
      const bool left = turnstile.leave_drain(drain, owner.slow_now(), others);
      owner.tell(others);
      if (left) return false;
    }
    park(drain.signal, late);
  }
  return true;
}

}  // namespace bulkhead::detail
