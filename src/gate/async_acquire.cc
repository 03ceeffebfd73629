#include "bulkhead/async_acquire.h"

#include <algorithm>

#include "gate/completions.h"
#include "gate/plan.h"
#include "gate/wakes.h"

namespace bulkhead {

// ---- the watch ----

bool AcquireWatch::needed(const Gate& gate, std::chrono::nanoseconds timeout, TimePoint deadline,
                          const std::stop_token& stop) noexcept {
  return (timeout == gate_default ? gate.max_wait_ : timeout) != wait_forever || deadline != no_deadline ||
         stop.stop_possible() || (gate.turnstile_.observed() && !gate.only_measured());
}

DeadlineDriver& AcquireWatch::deadlines(Gate& gate) const noexcept {
  return deadlines_ ? *deadlines_ : gate.deadlines_;
}

void AcquireWatch::arm(AsyncAcquire& waiter, std::int64_t until) noexcept {
  waiter_ = &waiter;
  if (options_.stop.stop_possible()) cancel_.emplace(options_.stop, Cancel{waiter});
  if (until == Gate::Turnstile::kForever) return;
  at = TimePoint(std::chrono::nanoseconds(until));
  armed_ = true;
  deadlines(waiter.gate_).arm(*this);
}

void AcquireWatch::disarm(Gate& gate) noexcept {
  cancel_.reset();
  if (std::exchange(armed_, false)) deadlines(gate).disarm(*this);
}

AcquireWatch::~AcquireWatch() {
  if (waiter_) waiter_->abandon();
}

void AcquireWatch::Cancel::operator()() const noexcept { waiter.cancel(); }

bool AcquireWatch::expire() noexcept {
  Gate& gate = waiter_->gate_;
  if (!gate.turnstile_.withdraw(*waiter_, Reason::timeout, gate.slow_now(), wakes_)) return false;
  armed_ = false;
  wakes_.push_front(*waiter_);
  return true;
}

void AcquireWatch::expired() noexcept {
  auto wakes = std::exchange(wakes_, {});
  waiter_->gate_.tell(wakes);
}

// ---- the acquisition ----

AsyncAcquire::AsyncAcquire(Gate& gate, AcquireWatch* watch, Tell tell) noexcept : gate_(gate), watch_(watch) {
  is_thread = false;
  complete = tell == Tell::in_turn ? &AsyncAcquire::post : &AsyncAcquire::tell_at_once;
}

// The watch is mostly a member of the derived class and destroyed by now; then its destructor has called abandon().
AsyncAcquire::~AsyncAcquire() { abandon(); }

// The owner destroys this before it took the result.
void AsyncAcquire::abandon() noexcept {
  if (!pinned_) return;  // not in line; without a watch, the owner is responsible
  watch_->disarm(gate_);
  if (stage_ == Stage::posted) detail::Completions::remove(*this);
  if (stage_ != Stage::started) {
    [[maybe_unused]] const Result<Permit> unwanted = result();  // gives the permit back
    return;
  }
  Gate::Wakes wakes;
  if (gate_.turnstile_.withdraw(*this, Reason::cancelled, gate_.slow_now(), wakes)) gate_.announce(*this);
  gate_.tell(wakes);
  let_go();
}

void AsyncAcquire::let_go() noexcept {
  if (!std::exchange(pinned_, false)) return;
  watch_->waiter_ = nullptr;  // NOLINT(clang-analyzer-core.NullDereference): one that is pinned has a watch
  gate_.unpin();
}

bool AsyncAcquire::start(const AcquireOptions& options) noexcept {
  if (stage_ == Stage::over) {  // started again
    stage_ = Stage::idle;
    verdict = early = detail::Verdict::pending;
    waited_ = false;
  }
  Gate::WaitPlan plan;
  if (auto decided = gate_.decide_now(options, true, plan)) {
    if (*decided) {
      verdict = detail::Verdict::admitted;
      permit_ = **std::move(decided);
    } else {
      verdict = detail::rejected(decided->error().reason);
      in_flight = decided->error().in_flight;
      waiting = decided->error().waiting;
      set_shape(decided->error().max_concurrent, decided->error().max_queue);
    }
    stage_ = Stage::over;
    return true;
  }
  cost = std::max(options.cost, 1u);
  tier = options.priority;
  flow = options.flow;
  stage_ = Stage::started;
  Gate& gate = gate_;
  pinned_ = watch_ != nullptr;
  if (pinned_) gate.pin();
  const bool member = gate.backing_ != nullptr;
  if (member) gate.pin();  // the group is asked when this may be destroyed
  // Before it joins the line, because afterwards it may be decided and destroyed at any time. If the timeout or the stop
  // comes first, enter() finds `early` set.
  if (watch_) watch_->arm(*this, plan.until);
  Gate::Wakes wakes;
  const bool decided = gate.turnstile_.enter(*this, plan.terms, plan.now, wakes) != detail::Verdict::pending;
  if (decided) {
    stage_ = Stage::over;
    if (watch_) watch_->disarm(gate);
  }
  // This object and the gate may be destroyed by now, unless this is decided or `wakes` is not empty.
  gate.announce_all(wakes);
  if (decided) gate.announce(*this);
  if (member) {
    gate.tell_lent(wakes);
    gate.unpin();
  } else {
    Gate::publish_all(wakes);
  }
  return decided;
}

bool AsyncAcquire::join() noexcept {
  stage_ = Stage::started;
  return gate_.turnstile_.post(*this);
}

AsyncAcquire* AsyncAcquire::hand_on() noexcept {
  if (!permit_.plain_ || gate_.backing_) return nullptr;  // the release has more to do
  Waiter* const w = gate_.turnstile_.hand_on(&AsyncAcquire::tell_at_once);
  if (!w) return nullptr;
  permit_.clear();
  auto* heir = static_cast<AsyncAcquire*>(w);
  heir->stage_ = Stage::over;
  heir->waited_ = true;
  if (heir->watch_) heir->watch_->disarm(gate_);
  heir->let_go();
  heir->permit_.hold(&gate_, heir->tier);
  heir->permit_.waited_ = true;
  return heir;
}

Result<Permit> AsyncAcquire::result() noexcept {
  if (permit_) return std::move(permit_);
  Result<Permit> result =
      watch_ ? gate_.conclude(*this, watch_->options_) : gate_.conclude(*this, AcquireOptions());
  if (result) result->waited_ = waited_;
  let_go();
  return result;
}

bool AsyncAcquire::cancel(Reason reason) noexcept { return gate_.withdraw_and_tell(*this, reason); }

void AsyncAcquire::post(Waiter& w) noexcept { detail::Completions::post(static_cast<AsyncAcquire&>(w)); }

void AsyncAcquire::tell_at_once(Waiter& w) noexcept { static_cast<AsyncAcquire&>(w).decided_by_others(); }

void AsyncAcquire::decided_by_others() noexcept {
  if (watch_) watch_->disarm(gate_);
  stage_ = Stage::over;
  waited_ = true;
  on_decided();
}

}  // namespace bulkhead
