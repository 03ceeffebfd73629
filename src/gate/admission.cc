// A call through a gate: from acquire to a permit or a rejection, and its release. The turnstile decides; this code
// reports the decisions to the caller, the waiters, the hooks and the group.
#include <algorithm>
#include <thread>

#include "base/futex.h"
#include "base/sync_point.h"
#include "base/tally.h"
#include "bulkhead/gate.h"
#include "bulkhead/scope.h"
#include "gate/backing.h"
#include "gate/completions.h"
#include "gate/flow_queues.h"
#include "gate/lending.h"
#include "gate/meter.h"
#include "gate/observers.h"
#include "gate/plain_rejection.h"
#include "gate/plan.h"
#include "gate/posting.h"
#include "gate/scoped.h"
#include "gate/sequence.h"
#include "gate/settling.h"
#include "gate/slow_path.h"

namespace bulkhead {

namespace detail {

void StdPlatform::wake(const std::atomic<std::uint32_t>* address) noexcept { base::futex_wake(address); }
void StdPlatform::yield() noexcept { std::this_thread::yield(); }
void StdPlatform::measure(Meter& meter, std::int64_t units, int full, std::int64_t now) noexcept {
  meter.step(units, full, now);
}
void StdPlatform::point(const char* name) noexcept { base::sync_point(name); }

template class Turnstile<
    StdPlatform>;  // with all that slow_path.h, lending.h, posting.h, scoped.h and settling.h define

}  // namespace detail

using detail::GateCore;
using detail::Verdict;

namespace {

// Saturating: a sum beyond the end of time means for ever.
std::int64_t later(std::int64_t now, std::chrono::nanoseconds wait) {
  constexpr auto kForever = std::numeric_limits<std::int64_t>::max();
  return now > 0 && wait.count() > kForever - now ? kForever : now + wait.count();
}

std::int64_t between(std::int64_t now, std::int64_t then) {
  constexpr auto kForever = std::numeric_limits<std::int64_t>::max();
  return now < 0 && then > kForever + now ? kForever : then - now;
}

}  // namespace

inline void GateCore::count_rejection(Reason reason) noexcept {
  static_assert(kStripes == base::kOwnStripes + 1);
  const base::ThreadNumber me = base::this_thread();
  const auto r = static_cast<std::size_t>(reason);
  Stripe& mine = rejections_[me.stripe];
  std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
  if (owner == 0 && mine.owner.compare_exchange_strong(owner, me.number, std::memory_order_relaxed))
    owner = me.number;
  if (owner == me.number) [[likely]]
    mine.by_reason[r].store(mine.by_reason[r].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  else
    rejections_[kStripes - 1].by_reason[r].fetch_add(1, std::memory_order_relaxed);
}

inline std::uint32_t GateCore::shown(std::uint32_t limit) const noexcept {
  return backing_ ? backing_->limit(limit) : limit;
}

inline Rejection GateCore::rejection_of(Priority priority, const Turnstile::Look& look) noexcept {
  const Reason reason = detail::reason_of(look.verdict);
  count_rejection(reason);
  if (observers_ && observers_->hooks.on_reject) [[unlikely]]
    call_hook([&] { observers_->hooks.on_reject(event(priority, look), reason); });
  return plain_rejection(reason, name_, {look.in_flight, shown(look.limit), look.waiting, look.max_queue});
}

std::int64_t GateCore::slow_now() const noexcept {
  if (fairness_ == Fairness::adaptive) return now_ns();
  return meter_ ? glance_ns() : 0;
}

// Reports the units that try_pass() has taken to the meter.
void GateCore::measure(std::uint32_t units, Turnstile::Pass pass, std::int64_t seen) noexcept {
  if (meter_) meter_->step(units, pass == Turnstile::Pass::filled ? 1 : 0, seen != 0 ? seen : glance_ns());
}

bool GateCore::pass(const AcquireOptions& options, std::int64_t seen) noexcept {
  const std::uint32_t cost = std::max(options.cost, 1u);
  if (source_) [[unlikely]]
    return pass_scoped(options.priority, cost, seen);
  const auto pass = detail::take_units(turnstile_, cost);
  if (pass == Turnstile::Pass::no) return false;
  measure(cost, pass, seen);
  return true;
}

// For a member of a group: asks for more units and admits this call with them.
bool GateCore::borrow(const AcquireOptions& options, bool may_queue) noexcept {
  Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  const auto timeout = options.timeout == gate_default ? max_wait_ : options.timeout;
  const bool waits = may_queue && turnstile_.max_queue() > 0 && timeout > std::chrono::nanoseconds(0);
  return backing_->admit(w, waits);
}

// The decisions that need no place in line, in the order promised in gate.h. Empty: join the line with `plan`.
std::optional<Result<Permit>> GateCore::decide_now(const AcquireOptions& options, bool may_queue,
                                                   WaitPlan& plan) noexcept {
  const Priority priority = options.priority;
  const bool has_deadline = options.deadline != no_deadline;
  const auto stopped_or_late = [&] {
    if (options.stop.stop_requested()) return detail::rejected(Reason::cancelled);
    if (!has_deadline) return Verdict::pending;
    plan.now = now_ns();
    return plan.now >= options.deadline.time_since_epoch().count() ? detail::rejected(Reason::deadline)
                                                                   : Verdict::pending;
  };
  // With a scope, pass() has asked the source already, unless a line was in the way: then borrow() decides who is first.
  const bool asks_backing = backing_ && (!source_ || !turnstile_.quiet());
  const auto take = [&] { return pass(options, plan.seen) || (asks_backing && borrow(options, may_queue)); };
  const auto predicts_nothing = [&] {
    if (has_deadline && may_queue) plan.terms.mean_hold = mean_hold_.load(std::memory_order_relaxed);
    return plan.terms.mean_hold == 0;
  };
  const auto decided = detail::decide_at_once(turnstile_, priority, std::max(options.cost, 1u), may_queue,
                                              stopped_or_late, take, predicts_nothing);
  if (decided.verdict == Verdict::admitted) return noted(options);
  if (decided.verdict != Verdict::pending)
    return Result<Permit>(detail::MakeError(), [&] {
      return decided.looked ? rejection_of(priority, decided.look)
                            : reject(priority, detail::reason_of(decided.verdict));
    });

  const auto timeout = options.timeout == gate_default ? max_wait_ : options.timeout;
  if (plan.now == 0 && may_queue && (timeout != wait_forever || fairness_ == Fairness::adaptive || backing_))
    plan.now = now_ns();
  plan.terms.may_wait =
      timeout > std::chrono::nanoseconds(0);  // false: rejected at once, so no alarm is needed
  if (plan.terms.may_wait && timeout != wait_forever) plan.until = later(plan.now, timeout);
  if (plan.terms.may_wait && has_deadline)
    plan.until = std::min<std::int64_t>(plan.until, options.deadline.time_since_epoch().count());
  plan.terms.time_left =
      has_deadline ? between(plan.now, options.deadline.time_since_epoch().count()) : Turnstile::kForever;
  plan.terms.may_queue = may_queue;
  plan.terms.may_wait = timeout > std::chrono::nanoseconds(0);
  if (plan.now == 0 && meter_) plan.now = plan.seen != 0 ? plan.seen : glance_ns();
  return std::nullopt;
}

std::optional<Result<Permit>> GateCore::at_once(const AcquireOptions& options, std::int64_t seen) noexcept {
  WaitPlan plan{.seen = seen};
  return decide_now(options, true, plan);
}

// The usual case of at_once(): one unit, and there is room. Makes the permit in place, because a bulkhead would otherwise
// copy it twice. False: not this case, and nothing has changed.
// Aligned: every call of a bulkhead runs this function. In the middle of a cache line it takes 1 ns of 17 more, and its
// position changes with any edit above it.
[[gnu::aligned(64)]] bool GateCore::enter_at_once(const AcquireOptions& options, std::int64_t seen,
                                                  Permit& permit) noexcept {
  if (!plain(options)) return false;
  if (source_) [[unlikely]] {
    if (!only_scoped() || !pass_scoped(options.priority, 1, seen)) return false;
    permit.hold(static_cast<Gate*>(this), options.priority);
    permit.observe();
    return true;
  }
  const auto passed = turnstile_.try_pass(1);
  if (passed == Turnstile::Pass::no) return false;
  if (passed != Turnstile::Pass::yes) {
    measure(1, passed, seen);
    if (!only_measured()) {
      permit = *noted(options);
      return true;
    }
    turnstile_.note_pass();
  }
  permit.hold(static_cast<Gate*>(this), options.priority);
  if (passed != Turnstile::Pass::yes) permit.observe();
  return true;
}

Result<Permit> GateCore::peek(const AcquireOptions& options) noexcept {
  if (!turnstile_.closed() && pass(options)) return noted(options);
  return Result<Permit>(unexpect);
}

// The permit for one unit that was just taken from the source of the scope.
inline Result<Permit> GateCore::scoped_permit(Priority priority) noexcept {
  Result<Permit> permit(std::in_place, Permit::Key(), static_cast<Gate*>(this), priority);
  permit->observe();
  return permit;
}

// A plain call that did not pass is mostly rejected by look(), without a lock. Other calls take the slow path.
Result<Permit> GateCore::try_acquire_else(std::source_location where) noexcept {
  if (only_scoped() && pass_scoped(Priority::normal, 1, 0)) return scoped_permit(Priority::normal);
  const auto look = turnstile_.look(Priority::normal, 1, false);
  if (look.verdict != Verdict::pending && !backing_)  // a member of a group asks the group first
    return Result<Permit>(detail::MakeError(), [&] { return rejection_of(Priority::normal, look); });
  return try_acquire_slow({.where = where});
}

Result<Permit> GateCore::try_acquire_else(const AcquireOptions& options) noexcept {
  if (plain(options) && only_scoped() && pass_scoped(options.priority, 1, 0))
    return scoped_permit(options.priority);
  if (plain(options) && !backing_) {
    const auto look = turnstile_.look(options.priority, 1, false);
    if (look.verdict != Verdict::pending)
      return Result<Permit>(detail::MakeError(), [&] { return rejection_of(options.priority, look); });
  }
  return try_acquire_slow(options);
}

Result<Permit> GateCore::acquire_else(std::source_location where) noexcept {
  if (only_scoped() && pass_scoped(Priority::normal, 1, 0)) return scoped_permit(Priority::normal);
  const auto look = turnstile_.look(Priority::normal, 1, true);
  if (look.verdict != Verdict::pending && !backing_)
    return Result<Permit>(detail::MakeError(), [&] { return rejection_of(Priority::normal, look); });
  return acquire_slow({.where = where});
}

Result<Permit> GateCore::acquire_else(const AcquireOptions& options) noexcept {
  if (plain(options) && only_scoped() && pass_scoped(options.priority, 1, 0))
    return scoped_permit(options.priority);
  if (plain(options) && !backing_) {
    const auto look = turnstile_.look(options.priority, 1, true);
    if (look.verdict != Verdict::pending)
      return Result<Permit>(detail::MakeError(), [&] { return rejection_of(options.priority, look); });
  }
  return acquire_slow(options);
}

Result<Permit> GateCore::try_acquire_slow(const AcquireOptions& options, std::int64_t seen) noexcept {
  WaitPlan plan{.seen = seen};
  if (auto decided = decide_now(options, false, plan)) return *std::move(decided);
  Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  Wakes wakes;
  turnstile_.enter(w, plan.terms, plan.now != 0 ? plan.now : slow_now(), wakes);
  announce(w);
  Result<Permit> result = conclude(w, options);
  tell(wakes);
  return result;
}

// Fairness::adaptive is for calls that take less time than a thread needs to sleep and wake up, and an idle core is not
// always given to another thread at once. So a thread that may wait much longer spins for about 40 us before it joins the
// line. Critical calls and members of a group do not: they may get units from the reserve or from the group in enter().
bool GateCore::pass_after_a_look(const AcquireOptions& options, const WaitPlan& plan) noexcept {
  constexpr int kLooks = 1000;
  constexpr std::int64_t kMuchLonger = 500'000;  // ns
  if (fairness_ != Fairness::adaptive || options.priority == Priority::critical || backing_ ||
      !plan.terms.may_wait || between(plan.now, plan.until) < kMuchLonger)
    return false;
  base::sync_point("acquire.look");
  for (int i = 0; i < kLooks; ++i) {
    if (pass(options)) return true;
    detail::StdPlatform::pause();
  }
  return false;
}

Result<Permit> GateCore::acquire_slow(const AcquireOptions& options) noexcept {
  WaitPlan plan;
  if (auto decided = decide_now(options, true, plan)) return *std::move(decided);
  if (pass_after_a_look(options, plan)) return noted(options);
  pin();
  static_assert(sizeof(Waiter) == 64);
  alignas(64) Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  w.flow = options.flow;
  const auto cancel = [&]() noexcept { withdraw_and_tell(w, Reason::cancelled); };
  // Registered before the call joins the line. If the stop comes first, enter() finds `early` set.
  std::optional<std::stop_callback<decltype(cancel)>> on_stop;
  if (options.stop.stop_possible()) on_stop.emplace(options.stop, cancel);

  Wakes wakes;
  const Verdict verdict = turnstile_.enter(w, plan.terms, plan.now, wakes);
  const bool own_decision = detail::finish_entering(
      turnstile_, *this, w, verdict, plan.until, wakes, [] { detail::Completions::flush(); },
      [this] { return now_ns(); },
      [this](const std::atomic<std::uint32_t>& signal, std::uint32_t value, std::int64_t until) {
        clock_.wait(signal, value,
                    until == Turnstile::kForever ? no_deadline : TimePoint(std::chrono::nanoseconds(until)));
      });
  on_stop.reset();
  if (own_decision) announce(w);
  Result<Permit> result = conclude(w, options);
  if (result) result->waited_ = verdict == Verdict::pending;
  unpin();
  return result;
}

bool GateCore::withdraw_and_tell(Waiter& w, Reason reason) noexcept {
  return detail::withdraw_and_tell(turnstile_, *this, w, reason);
}

// The permit for units that were just taken on the fast path.
Result<Permit> GateCore::noted(const AcquireOptions& options) noexcept {
  turnstile_.note_pass();
  if (observers_ && observers_->hooks.on_admit)
    call_hook([&] { observers_->hooks.on_admit(event(options.priority)); });
  Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  w.verdict = Verdict::admitted;
  return conclude(w, options);
}

Result<Permit> GateCore::conclude(Waiter& w, const AcquireOptions& options) noexcept {
  if (w.verdict != Verdict::admitted)
    return Result<Permit>(unexpect, detail::reason_of(w.verdict), name_, w.in_flight, shown(w.limit()),
                          w.waiting, w.max_queue());
  if (!turnstile_.observed() && w.cost == 1)
    return Result<Permit>(std::in_place, Permit::Key(), static_cast<Gate*>(this), w.tier);
  return watched(w, options);
}

// A permit whose release does more than one addition to the word.
Result<Permit> GateCore::watched(const Waiter& w, const AcquireOptions& options) noexcept {
  Result<Permit> permit(std::in_place, Permit::Key(), static_cast<Gate*>(this), w.tier);
  permit->cost_ = w.cost;
  permit->observe();
  if (observers_ && observers_->holders)
    permit->holder_ = observers_->holders->add(options.label, clock_.now(), w.tier, w.cost, options.where);
  // Sample one call in sixteen, and each of the first sixteen, so that the mean is known early.
  if (measure_) {
    const std::uint32_t released = turnstile_.released();
    if (released % 16 == 0 || released < 16) permit->sampled_at_ = now_ns();
  }
  return permit;
}

Rejection GateCore::reject(Priority priority, Reason reason) noexcept {
  Turnstile::Look look = numbers(priority);
  look.verdict = detail::rejected(reason);
  Rejection why = rejection_of(priority, look);
  why.deadline_passed =
      reason == Reason::deadline;  // if the wait was predicted, conclude() makes the rejection
  return why;
}

GateCore::Turnstile::Look GateCore::numbers(Priority priority) const noexcept {
  Turnstile::Look look = turnstile_.look(priority, 1, true);
  look.waiting = turnstile_.waiting();  // includes the inbox of a pool
  return look;
}

Event GateCore::event(Priority priority, const Turnstile::Look& numbers) const noexcept {
  return {name_, priority, numbers.in_flight, numbers.waiting, shown(numbers.limit), numbers.max_queue};
}

Event GateCore::event(Priority priority) const noexcept { return event(priority, numbers(priority)); }

void GateCore::announce(const Waiter& w) noexcept {
  const bool admitted = w.verdict == Verdict::admitted;
  if (!admitted) count_rejection(detail::reason_of(w.verdict));
  if (!observers_) return;
  const Hooks& hooks = observers_->hooks;
  const Event decided{name_, w.tier, w.in_flight, w.waiting, shown(w.limit()), w.max_queue()};
  if (admitted && hooks.on_admit)
    call_hook([&] { hooks.on_admit(decided); });
  else if (!admitted && hooks.on_reject)
    call_hook([&] { hooks.on_reject(decided, detail::reason_of(w.verdict)); });
}

void GateCore::announce_all(const Wakes& wakes) noexcept { detail::announce_each(wakes, *this); }

// Accesses only the waiters: the gate may be destroyed once the last of them is published.
void GateCore::publish_all(Wakes& wakes) noexcept {
  Turnstile::finish(wakes);
  if (!wakes.first) return;
  const detail::Completions::Together all;
  detail::publish_each(wakes);
}

void GateCore::tell(Wakes& wakes) noexcept {
  announce_all(wakes);
  if (backing_) [[unlikely]]
    return tell_lent(wakes);
  publish_all(wakes);
}

// The line has changed, so the group may have to move units. Calls that the group admits run after these are published.
void GateCore::tell_lent(Wakes& wakes) noexcept {
  const detail::Completions::Together all;
  backing_->settle();
  publish_all(wakes);
}

void GateCore::release_slow() noexcept {
  if (backing_) [[unlikely]]
    return release_lent();
  Wakes wakes;
  turnstile_.after_release(slow_now(), wakes);
  publish_all(wakes);  // these are admissions only, and plain permits have no hooks
}

// Other members of the group may need the units. Calls that they admit run after this gate is not used any more.
void GateCore::release_lent() noexcept {
  const detail::Completions::Together all;
  pin();
  Wakes wakes;
  turnstile_.after_release(slow_now(), wakes);
  backing_->settle();
  unpin();
  publish_all(wakes);
}

std::stop_token GateCore::lease(Permit& permit) noexcept {
  if (!(permit.state_ & Permit::kObserved)) permit.observe();
  return backing_->lease(permit.lease_, permit.cost_);
}

// Handlers and hooks run inside a release, and may release, assign or destroy this permit. So it is cleared before they
// run, and not accessed afterwards.
void Permit::release_held(std::int64_t now) noexcept {
  if (Gate* const gate = plain_) {  // the unit is back, and a call may wait for it
    gate->turnstile_.rouse();       // first: the next statements may miss the cache
    clear();
    gate->release_slow();
  } else if (state_ & kHeld) {
    drop_observed(now);
  }
}

void Permit::drop_observed(std::int64_t now) noexcept {
  Gate& gate = *gate_;
  if (gate.only_scoped() && cost_ == 1 && !(state_ & kFailed)) {
    clear();
    return gate.release_scoped(now);
  }
  const Parts what = parts();
  clear();
  if (!what.failed && what.cost == 1 && gate.only_measured()) return gate.release_measured(now);
  if (gate.meter_ && now == 0) now = gate.glance_ns();
  gate.release_observed(what, what.cost, now);
}

// The usual case: no call waits. The meter comes first, because the gate may be destroyed after the addition.
void GateCore::release_measured(std::int64_t now) noexcept {
  if (now == 0) now = glance_ns();
  meter_->step(-1, 0, now);
  if (!turnstile_.give_back_quietly(1))
    release_observed({.cost = 1}, 0, now);  // already reported to the meter
}

// Gives back the units first, so that nothing that follows delays them; then updates the numbers; then calls the hooks.
// `unmeasured` of the units have not been reported to the meter.
void GateCore::release_observed(const Permit::Parts& permit, std::uint32_t unmeasured,
                                std::int64_t now) noexcept {
  std::optional<detail::Completions::Together> all;  // see release_lent()
  if (backing_) [[unlikely]]
    all.emplace();
  pin();
  Wakes wakes;
  if (source_ && permit.cost > 0) source_->give_back(permit.cost);  // first: see U1 in turnstile.h
  const bool quiet = detail::give_back_counted(turnstile_, permit.cost, permit.failed, [&] {
    if (permit.cost == 0) return turnstile_.give_back_empty();
    return meter_ ? turnstile_.give_back(permit.cost, unmeasured, now) : turnstile_.give_back(permit.cost);
  });
  if (!quiet) turnstile_.after_release(meter_ ? now : slow_now(), wakes);
  if (backing_) [[unlikely]] {
    if (permit.lease != 0) backing_->end_lease(permit.lease);
    if (!quiet) backing_->settle();
  }
  announce_all(wakes);
  if (permit.sampled_at != 0) sample(now_ns() - permit.sampled_at);
  if (permit.holder != 0) observers_->holders->remove(permit.holder);
  if (observers_ && observers_->hooks.on_release) {
    call_hook([&] { observers_->hooks.on_release(event(permit.priority)); });
    Wakes others;
    turnstile_.keep_drains(wakes, slow_now(), others);
    tell(others);
  }
  unpin();
  publish_all(wakes);
}

void GateCore::sample(std::int64_t held_ns) noexcept {
  const std::int64_t mean = mean_hold_.load(std::memory_order_relaxed);
  const std::int64_t next = mean == 0 ? held_ns : mean + (held_ns - mean) / 8;
  mean_hold_.store(std::max<std::int64_t>(next, 1),
                   std::memory_order_relaxed);  // a race may lose a sample, which does not matter
}

void GateCore::count_double_release() noexcept { double_releases_.fetch_add(1, std::memory_order_relaxed); }

}  // namespace bulkhead
