// The way of a call through a gate: to a permit or a refusal, and its release. What the turnstile decides, this tells:
// to the caller, to those in line, to the hooks and to the group.
#include <algorithm>
#include <thread>

#include "base/futex.h"
#include "base/sync_point.h"
#include "bulkhead/gate.h"
#include "gate/backing.h"
#include "gate/completions.h"
#include "gate/flow_queues.h"
#include "gate/lending.h"
#include "gate/meter.h"
#include "gate/observers.h"
#include "gate/plan.h"
#include "gate/posting.h"
#include "gate/slow_path.h"

namespace bulkhead {

namespace detail {

void StdPlatform::wake(const std::atomic<std::uint32_t>* address) noexcept { base::futex_wake(address); }
void StdPlatform::yield() noexcept { std::this_thread::yield(); }
void StdPlatform::measure(Meter& meter, std::int64_t units, int full, std::int64_t now) noexcept {
  meter.step(units, full, now);
}
void StdPlatform::point(const char* name) noexcept { base::sync_point(name); }

template class Turnstile<StdPlatform>;  // with all that slow_path.h, lending.h and posting.h define

}  // namespace detail

using detail::Verdict;

namespace {

// Times far away mean for ever, instead of overflowing into the past.
std::int64_t later(std::int64_t now, std::chrono::nanoseconds wait) {
  constexpr auto forever = std::numeric_limits<std::int64_t>::max();
  return wait.count() >= forever - now ? forever : now + wait.count();
}

// Numbers threads from 1, and never gives a number twice.
struct ThreadNumber {
  std::uint32_t number, stripe;  // stripe: the number modulo `stripes`
};
ThreadNumber thread_number(std::uint32_t stripes) noexcept {
  static constinit std::atomic<std::uint32_t> threads{0};
  constinit static thread_local ThreadNumber mine{};
  if (mine.number == 0) [[unlikely]] {
    mine.number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
    mine.stripe = mine.number % stripes;
  }
  return mine;
}

}  // namespace

inline void Gate::count_rejection(Reason reason) noexcept {
  const auto [me, stripe] = thread_number(kStripes - 1);
  const auto r = static_cast<std::size_t>(reason);
  Stripe& mine = rejections_[stripe];
  std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
  if (owner == 0 && mine.owner.compare_exchange_strong(owner, me, std::memory_order_relaxed)) owner = me;
  if (owner == me) [[likely]]
    mine.by_reason[r].store(mine.by_reason[r].load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
  else
    rejections_[kStripes - 1].by_reason[r].fetch_add(1, std::memory_order_relaxed);
}

inline Rejection Gate::refused(Priority priority, const Turnstile::Look& look) noexcept {
  const Reason reason = detail::reason_of(look.verdict);
  count_rejection(reason);
  if (observers_ && observers_->hooks.on_reject) [[unlikely]]
    call_hook([&] { observers_->hooks.on_reject(event(priority, look), reason); });
  return {reason, name_, look.in_flight, look.limit, look.waiting, look.max_queue};
}

std::int64_t Gate::slow_now() const noexcept {
  if (fairness_ == Fairness::adaptive) return now_ns();
  return meter_ ? glance_ns() : 0;
}

// What try_pass() has taken.
void Gate::measure(std::uint32_t units, Turnstile::Pass pass, std::int64_t seen) noexcept {
  if (meter_) meter_->step(units, pass == Turnstile::Pass::filled ? 1 : 0, seen != 0 ? seen : glance_ns());
}

bool Gate::pass(const AcquireOptions& options, std::int64_t seen) noexcept {
  const std::uint32_t cost = std::max(options.cost, 1u);
  if (cost > 1) turnstile_.begin();
  const auto pass = turnstile_.try_pass(cost);
  const bool passed = pass != Turnstile::Pass::no;
  if (cost > 1) {
    if (passed) turnstile_.add_heavy(cost - 1);
    turnstile_.end();
  }
  if (passed) measure(cost, pass, seen);
  return passed;
}

// For a member of a group: more units, and this call among them.
bool Gate::borrow(const AcquireOptions& options, bool may_queue) noexcept {
  Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  const auto timeout = options.timeout == gate_default ? max_wait_ : options.timeout;
  const bool waits = may_queue && turnstile_.max_queue() > 0 && timeout > std::chrono::nanoseconds(0);
  return backing_->admit(w, waits);
}

// The decisions that need no place in line, in the order promised in gate.h. Nothing: join the line
// by the plan.
std::optional<Result<Permit>> Gate::decide_now(const AcquireOptions& options, bool may_queue,
                                               Plan& plan) noexcept {
  const Priority priority = options.priority;
  if (turnstile_.closed()) return Result<Permit>(std::unexpect, refuse(priority, Reason::shutdown));
  if (options.stop.stop_requested())
    return Result<Permit>(std::unexpect, refuse(priority, Reason::cancelled));
  const bool has_deadline = options.deadline != no_deadline;
  if (has_deadline) {
    plan.now = now_ns();
    if (plan.now >= options.deadline.time_since_epoch().count())
      return Result<Permit>(std::unexpect, refuse(priority, Reason::deadline));
  }
  if (pass(options, plan.seen)) return noted(options);
  if (backing_ && borrow(options, may_queue)) return noted(options);

  if (has_deadline && may_queue) plan.terms.mean_hold = mean_hold_.load(std::memory_order_relaxed);
  if (plan.terms.mean_hold == 0) {
    const auto look = turnstile_.look(priority, std::max(options.cost, 1u), may_queue);
    if (look.verdict != Verdict::pending) return Result<Permit>(std::unexpect, refused(priority, look));
  }
  const auto timeout = options.timeout == gate_default ? max_wait_ : options.timeout;
  if (plan.now == 0 && may_queue && (timeout != wait_forever || fairness_ == Fairness::adaptive))
    plan.now = now_ns();
  plan.terms.may_wait = timeout > std::chrono::nanoseconds(0);  // else nothing is to happen later: no alarm
  if (plan.terms.may_wait && timeout != wait_forever) plan.until = later(plan.now, timeout);
  if (plan.terms.may_wait && has_deadline)
    plan.until = std::min<std::int64_t>(plan.until, options.deadline.time_since_epoch().count());
  plan.terms.time_left =
      has_deadline ? options.deadline.time_since_epoch().count() - plan.now : Turnstile::forever;
  plan.terms.may_queue = may_queue;
  plan.terms.may_wait = timeout > std::chrono::nanoseconds(0);
  if (plan.now == 0 && meter_) plan.now = plan.seen != 0 ? plan.seen : glance_ns();
  return std::nullopt;
}

std::optional<Result<Permit>> Gate::at_once(const AcquireOptions& options, std::int64_t seen) noexcept {
  Plan plan{.seen = seen};
  return decide_now(options, true, plan);
}

Result<Permit> Gate::peek(const AcquireOptions& options) noexcept {
  if (!turnstile_.closed() && pass(options)) return noted(options);
  return Result<Permit>(std::unexpect);
}

// Puts what `answer` returns into the place of a blank permit, built right there: a rejection is not copied.
// The blank is not destroyed, only written over: it says that it holds a unit, and that is not so.
template <class Answer>
void Gate::fill(Result<Permit>& blank, Answer&& answer) noexcept {
  new (&blank) Result<Permit>(answer());
}

// A plain call that did not pass is mostly refused at sight, without a lock; what needs more takes
// the long way.
void Gate::try_acquire_else(Result<Permit>& blank, std::source_location where) noexcept {
  if (refuse_at_sight(blank, Priority::normal, false)) return;
  fill(blank, [&] { return try_acquire_slow({.where = where}); });
}

void Gate::try_acquire_else(Result<Permit>& blank, const AcquireOptions& options) noexcept {
  if (plain(options) && refuse_at_sight(blank, options.priority, false)) return;
  fill(blank, [&] { return try_acquire_slow(options); });
}

void Gate::acquire_else(Result<Permit>& blank, std::source_location where) noexcept {
  if (refuse_at_sight(blank, Priority::normal, true)) return;
  fill(blank, [&] { return acquire_slow({.where = where}); });
}

void Gate::acquire_else(Result<Permit>& blank, const AcquireOptions& options) noexcept {
  if (plain(options) && refuse_at_sight(blank, options.priority, true)) return;
  fill(blank, [&] { return acquire_slow(options); });
}

inline bool Gate::refuse_at_sight(Result<Permit>& blank, Priority priority, bool may_queue) noexcept {
  const auto look = turnstile_.look(priority, 1, may_queue);
  if (look.verdict == Verdict::pending || backing_) return false;  // a member asks its group first
  fill(blank, [&] { return Result<Permit>(std::unexpect, refused(priority, look)); });
  return true;
}

Result<Permit> Gate::try_acquire_slow(const AcquireOptions& options, std::int64_t seen) noexcept {
  Plan plan{.seen = seen};
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

// Calls that suit Fairness::adaptive take less time than a thread needs to fall asleep and wake up, and a core
// that has fallen idle is not always given to somebody else at once. So a thread that may wait much longer
// looks for some 40 us whether it can pass, before it lines up. Critical calls may find room where others do
// not, and members of a group elsewhere: they line up, and so find out.
bool Gate::pass_after_a_look(const AcquireOptions& options, const Plan& plan) noexcept {
  constexpr int looks = 1000;
  constexpr std::int64_t much_longer = 500'000;  // ns
  if (fairness_ != Fairness::adaptive || options.priority == Priority::critical || backing_ ||
      !plan.terms.may_wait || plan.until - plan.now < much_longer)
    return false;
  base::sync_point("acquire.look");
  for (int i = 0; i < looks; ++i) {
    if (pass(options)) return true;
    detail::StdPlatform::pause();
  }
  return false;
}

Result<Permit> Gate::acquire_slow(const AcquireOptions& options) noexcept {
  Plan plan;
  if (auto decided = decide_now(options, true, plan)) return *std::move(decided);
  if (pass_after_a_look(options, plan)) return noted(options);
  pin();
  static_assert(sizeof(Waiter) == 64);
  alignas(64) Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  w.flow = options.flow;
  const auto cancel = [&]() noexcept { withdraw_and_tell(w, Reason::cancelled); };
  // Before it joins the line; should the stop come first, enter() finds it out.
  std::optional<std::stop_callback<decltype(cancel)>> on_stop;
  if (options.stop.stop_possible()) on_stop.emplace(options.stop, cancel);

  Wakes wakes;
  const Verdict verdict = turnstile_.enter(w, plan.terms, plan.now, wakes);
  tell(wakes);
  bool own_decision = true;
  if (verdict == Verdict::pending) {
    detail::Completions::flush();
    own_decision = turnstile_.wait(
        w, plan.until, [this] { return now_ns(); },
        [this](const std::atomic<std::uint32_t>& signal, std::uint32_t value, std::int64_t until) {
          clock_.wait(signal, value,
                      until == Turnstile::forever ? no_deadline : TimePoint(std::chrono::nanoseconds(until)));
        },
        [this](Wakes& others) { tell(others); });
  }
  on_stop.reset();
  if (own_decision) announce(w);
  Result<Permit> result = conclude(w, options);
  if (result) result->waited_ = verdict == Verdict::pending;
  unpin();
  return result;
}

bool Gate::withdraw_and_tell(Waiter& w, Reason reason) noexcept {
  Wakes wakes;
  const bool left = turnstile_.withdraw(w, reason, slow_now(), wakes);
  if (left) wakes.push_front(w);
  tell(wakes);
  return left;
}

// For units just taken on the fast path.
Result<Permit> Gate::noted(const AcquireOptions& options) noexcept {
  turnstile_.note_pass();
  if (observers_ && observers_->hooks.on_admit)
    call_hook([&] { observers_->hooks.on_admit(event(options.priority)); });
  Waiter w;
  w.cost = std::max(options.cost, 1u);
  w.tier = options.priority;
  w.verdict = Verdict::admitted;
  return conclude(w, options);
}

Result<Permit> Gate::conclude(Waiter& w, const AcquireOptions& options) noexcept {
  if (w.verdict != Verdict::admitted)
    return Result<Permit>(std::unexpect, Rejection{detail::reason_of(w.verdict), name_, w.in_flight,
                                                   w.limit(), w.waiting, w.max_queue()});
  if (!turnstile_.observed() && w.cost == 1)
    return Result<Permit>(std::in_place, Permit::Key(), this, w.tier);
  Result<Permit> permit(std::in_place, Permit::Key(), this, w.tier);
  permit->cost_ = w.cost;
  permit->observe();
  if (observers_ && observers_->holders)
    permit->holder_ = observers_->holders->add(options.label, clock_.now(), w.tier, w.cost, options.where);
  // One call in sixteen, but every one of the first few, so that the mean is soon known.
  if (measure_) {
    const std::uint32_t released = turnstile_.released();
    if (released % 16 == 0 || released < 16) permit->sampled_at_ = now_ns();
  }
  return permit;
}

Rejection Gate::refuse(Priority priority, Reason reason) noexcept {
  Turnstile::Look look = numbers(priority);
  look.verdict = detail::rejected(reason);
  return refused(priority, look);
}

Gate::Turnstile::Look Gate::numbers(Priority priority) const noexcept {
  Turnstile::Look look = turnstile_.look(priority, 1, true);
  look.waiting = turnstile_.waiting();  // with those in the inbox of a pool
  return look;
}

Event Gate::event(Priority priority, const Turnstile::Look& numbers) const noexcept {
  return {name_, priority, numbers.in_flight, numbers.waiting, numbers.limit, numbers.max_queue};
}

Event Gate::event(Priority priority) const noexcept { return event(priority, numbers(priority)); }

void Gate::announce(const Waiter& w) noexcept {
  const bool admitted = w.verdict == Verdict::admitted;
  if (!admitted) count_rejection(detail::reason_of(w.verdict));
  if (!observers_) return;
  const Hooks& hooks = observers_->hooks;
  const Event decided{name_, w.tier, w.in_flight, w.waiting, w.limit(), w.max_queue()};
  if (admitted && hooks.on_admit)
    call_hook([&] { hooks.on_admit(decided); });
  else if (!admitted && hooks.on_reject)
    call_hook([&] { hooks.on_reject(decided, detail::reason_of(w.verdict)); });
}

void Gate::announce_all(const Wakes& wakes) noexcept {
  for (const Waiter* w = wakes.first; w; w = w->next) announce(*w);
}

// Touches the waiters only: once the last of them is told, the gate may be gone.
void Gate::publish_all(Wakes& wakes) noexcept {
  Turnstile::finish(wakes);
  if (!wakes.first) return;
  const detail::Completions::Together all;
  while (Waiter* w = wakes.pop()) Turnstile::publish(*w);
}

void Gate::tell(Wakes& wakes) noexcept {
  announce_all(wakes);
  if (backing_) [[unlikely]]
    return tell_lent(wakes);
  publish_all(wakes);
}

// The line has changed, and with it what the group should do. Whoever that lets in runs after these are told.
void Gate::tell_lent(Wakes& wakes) noexcept {
  const detail::Completions::Together all;
  backing_->settle();
  publish_all(wakes);
}

void Gate::release_slow() noexcept {
  if (backing_) [[unlikely]]
    return release_lent();
  Wakes wakes;
  turnstile_.after_release(slow_now(), wakes);
  publish_all(wakes);  // only admissions can come of this, and nobody watches them
}

// In a group the units may be wanted by others. Whoever they let in runs when this gate is no longer needed.
void Gate::release_lent() noexcept {
  const detail::Completions::Together all;
  pin();
  Wakes wakes;
  turnstile_.after_release(slow_now(), wakes);
  backing_->settle();
  unpin();
  publish_all(wakes);
}

std::stop_token Gate::lease(Permit& permit) noexcept {
  if (!(permit.state_ & Permit::observed)) permit.observe();
  return backing_->lease(permit.lease_, permit.cost_);
}

// Handlers and hooks run inside a release, and may release this very permit, give it a new value or destroy it.
// So it is no longer held before they run, and not touched afterwards.
void Permit::give_back_else(std::int64_t now) noexcept {
  if (Gate* const gate = plain_) {  // the unit is back, and somebody may wait for it
    gate->turnstile_.rouse();       // before anything else is looked at, which may have to be fetched
    clear();
    gate->release_slow();
  } else if (state_ & held) {
    drop_observed(now);
  }
}

void Permit::drop_observed(std::int64_t now) noexcept {
  Gate& gate = *gate_;
  const Parts what = parts();
  clear();
  if (!what.failed && what.cost == 1 && gate.only_measured()) return gate.release_measured(now);
  if (gate.meter_ && now == 0) now = gate.glance_ns();
  gate.release_observed(what, what.cost, now);
}

// Mostly nobody waits. The meter first: afterwards the gate may be gone.
void Gate::release_measured(std::int64_t now) noexcept {
  if (now == 0) now = glance_ns();
  meter_->step(-1, 0, now);
  if (!turnstile_.give_back_quietly(1)) release_stepped(now);
}

// The meter knows already.
void Gate::release_stepped(std::int64_t now) noexcept { release_observed({.cost = 1}, 0, now); }

// The units first, so that nothing that follows can keep them; then the numbers; then the hooks. The meter does
// not know of `unmeasured` of the units yet.
void Gate::release_observed(const Permit::Parts& permit, std::uint32_t unmeasured,
                            std::int64_t now) noexcept {
  std::optional<detail::Completions::Together> all;  // see release_lent()
  if (backing_) [[unlikely]]
    all.emplace();
  pin();
  const bool bracket = permit.failed || permit.cost > 1;
  Wakes wakes;
  if (bracket) turnstile_.begin();
  const bool quiet =
      meter_ ? turnstile_.give_back(permit.cost, unmeasured, now) : turnstile_.give_back(permit.cost);
  if (bracket) {
    if (permit.failed) turnstile_.add_failed();
    if (permit.cost > 1) turnstile_.add_heavy(1 - std::int64_t{permit.cost});
    turnstile_.end();
  }
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

void Gate::sample(std::int64_t held_ns) noexcept {
  const std::int64_t mean = mean_hold_.load(std::memory_order_relaxed);
  const std::int64_t next = mean == 0 ? held_ns : mean + (held_ns - mean) / 8;
  mean_hold_.store(std::max<std::int64_t>(next, 1), std::memory_order_relaxed);  // a lost sample is no loss
}

void Gate::count_double_release() noexcept { double_releases_.fetch_add(1, std::memory_order_relaxed); }

}  // namespace bulkhead
