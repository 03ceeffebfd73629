#include "base/sync_point.h"
#include "gate/completions.h"
#include "gate/plan.h"

namespace bulkhead {

AsyncAcquire::AsyncAcquire(Gate& gate, AcquireOptions options) noexcept
    : gate_(gate), options_(std::move(options)) {
  is_thread = false;
  complete = &AsyncAcquire::completed;
}

AsyncAcquire::~AsyncAcquire() {
  if (!pinned_) return;
  if (stage_ == Stage::posted && detail::Completions::remove(*this)) {
    // Decided, but the owner goes before it was told: what it was given goes back.
    disarm();
    result_.emplace(gate_.conclude(*this, options_));
  } else if (stage_ == Stage::started) {
    disarm();
    Gate::Wakes wakes;
    if (gate_.turnstile_.withdraw(*this, Reason::cancelled, gate_.slow_now(), wakes)) gate_.announce(*this);
    gate_.tell(wakes);
  }
  gate_.unpin();
}

bool AsyncAcquire::start() noexcept {
  Gate::Plan plan;
  result_ = gate_.decide_now(options_, true, plan);
  if (result_) return true;
  cost = std::max(options_.cost, 1u);
  tier = options_.priority;
  stage_ = Stage::started;
  pinned_ = true;
  gate_.pin();
  // Before it joins the line, because afterwards it may be decided and gone at any time. Should one of these
  // fire first, enter() finds it out.
  if (options_.stop.stop_possible()) cancel_.emplace(options_.stop, Cancel{*this});
  if (plan.until != Gate::Turnstile::forever) {
    at = TimePoint(std::chrono::nanoseconds(plan.until));
    armed_ = true;
    gate_.deadlines_.arm(*this);
  }
  Gate& gate = gate_;
  Gate::Wakes wakes;
  const bool decided = gate.turnstile_.enter(*this, plan.terms, plan.now, wakes) != detail::Verdict::pending;
  if (decided) {
    stage_ = Stage::over;
    disarm();
    gate.announce(*this);
    result_.emplace(gate.conclude(*this, options_));
  }
  gate.tell(wakes);
  return decided;
}

Result<Permit> AsyncAcquire::result() noexcept {
  Result<Permit> result = *std::move(result_);
  if (std::exchange(pinned_, false)) gate_.unpin();
  return result;
}

void AsyncAcquire::disarm() noexcept {
  cancel_.reset();
  if (armed_) gate_.deadlines_.disarm(*this);
  armed_ = false;
}

void AsyncAcquire::completed(Waiter& w) noexcept { detail::Completions::post(static_cast<AsyncAcquire&>(w)); }

void AsyncAcquire::Cancel::operator()() const noexcept { self.gate_.withdraw_and_tell(self); }

bool AsyncAcquire::expire() noexcept {
  if (!gate_.turnstile_.withdraw(*this, Reason::timeout, gate_.slow_now(), wakes_)) return false;
  armed_ = false;
  wakes_.push_front(*this);
  return true;
}

void AsyncAcquire::expired() noexcept {
  Gate::Wakes wakes = std::exchange(wakes_, {});
  gate_.tell(wakes);
}

}  // namespace bulkhead
