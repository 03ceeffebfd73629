// seeking.cc - from an admitted call that finds nothing to lend to its resource.
#include "base/futex.h"
#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/lending.h"
#include "resource/pool_core.h"
#include "resource/util.h"

namespace bulkhead::detail {

using std::chrono::nanoseconds;
using Decision = Seeker::Decision;

// ---- the list ----

void ResourceCore::decide(Seeker& s, Decision decision, Aftermath& after) noexcept {
  if (s.listed) {
    seekers_.remove(s);
    s.listed = false;
    waiting_.store(seekers_.size());
  }
  s.decision = decision;
  after.decided.push_back(s);
}

void ResourceCore::assign(Seeker& s, ResourceSlot& slot, Aftermath& after) noexcept {
  slot.state.store(slot.resource ? SlotState::lent : SlotState::opening,
                   std::memory_order_relaxed);  // relaxed: as in lend()
  s.slot = &slot;
  decide(s, Decision::served, after);
}

void ResourceCore::enlist(Seeker& s, Aftermath& after) noexcept {
  if (s.early) {
    s.reason = *s.early;
    decide(s, Decision::rejected, after);
    return;
  }
  seekers_.push_back(s);
  s.listed = true;
  waiting_.store(seekers_.size());
  base::sync_point("resource.enlisted");
  serve(after);
}

// Whatever comes first decides: this, or serve().
void ResourceCore::withdraw(Seeker& s, Reason reason, Aftermath& after) noexcept {
  Lock lock(mutex_);
  if (s.decision != Decision::pending) return;
  if (!s.listed) {
    s.early = reason;
    return;
  }
  s.reason = reason;
  decide(s, Decision::rejected, after);
  serve(after);  // it may have been one too many for the budget
}

void ResourceCore::give_up(Seeker& seeker, Reason reason) noexcept {
  Aftermath after;
  withdraw(seeker, reason, after);
  finish(after);
}

void CancelSeeker::operator()() const noexcept { core.give_up(seeker, Reason::cancelled); }

// Gives the seekers what there is, and has the rest opened or validated; see R7. Under the lock, after anything that could
// help one of them.
void ResourceCore::serve(Aftermath& after) noexcept {
  const TimePoint now = seekers_.empty() ? TimePoint() : clock_.now();
  while (Seeker* first = seekers_.front()) {
    ResourceSlot* slot = idle_.pop();
    if (!slot) {
      if (idle_.empty()) break;  // sequentially consistent, unlike the pop: R3
      continue;
    }
    if (now >= slot->expires) {
      doom(*slot, count_.expired, after);
    } else if (fresh(*slot, now)) {
      assign(*first, *slot, after);
    } else if (first->claim) {
      slot->suspect = true;  // the claimant looks at it
      assign(*first, *slot, after);
    } else if (validating_ < seekers_.size()) {
      ++validating_;
      slot->state.store(SlotState::validating, std::memory_order_relaxed);  // relaxed: as in lend()
      add_job(*slot, JobKind::validate);
      ++after.jobs;
    } else {
      idle_.push(*slot);
      break;
    }
  }
  while (closed_ && !seekers_.empty()) {
    Seeker& s = *seekers_.front();
    s.reason = Reason::shutdown;
    decide(s, Decision::rejected, after);
  }

  bool no_unit = false;
  const auto open_what_is_needed = [&] {
    mutex_.assert_held();
    for (Seeker* s = seekers_.front(); s;) {
      Seeker* const next = s->next;
      if (s->claim) {
        ResourceSlot* slot = backing_off(now) ? nullptr : begin_opening(&no_unit);
        if (!slot) break;
        assign(*s, *slot, after);
      }
      s = next;
    }
    while (seekers_.size() > opening_ahead_ + validating_ && !backing_off(now)) {
      ResourceSlot* slot = begin_opening(&no_unit);
      if (!slot) break;
      ++opening_ahead_;
      add_job(*slot, JobKind::open);
      ++after.jobs;
    }
  };
  open_what_is_needed();
  const auto lacking = [&] {
    mutex_.assert_held();
    const std::uint32_t coming = opening_ahead_ + validating_;
    return no_unit && seekers_.size() > coming ? seekers_.size() - coming : 0;
  };
  if (budget_) {
    if (lacking() != 0 && unmet_.load(std::memory_order_relaxed) == 0) {  // relaxed: written under the lock
      unmet_.store(lacking(), std::memory_order_relaxed);
      budget_->state_->hungry.fetch_add(1);
      no_unit = false;
      open_what_is_needed();  // B2: a unit may have been given back just before
    }
    const std::uint32_t before = unmet_.load(std::memory_order_relaxed);
    unmet_.store(lacking(), std::memory_order_relaxed);
    if (before != 0 && lacking() == 0) budget_->state_->hungry.fetch_sub(1);
    after.reclaim |= lacking() != 0;
  }
  // While the factory backs off, only calls that a resource is being validated for keep waiting.
  if (backing_off(now))
    while (seekers_.size() > validating_) decide(*seekers_.back(), Decision::failing, after);
}

void ResourceCore::serve_now(Aftermath& after) noexcept {
  Lock lock(mutex_);
  serve(after);
}

// ---- what follows ----

// Threads first: they wake while the rest is done. Asynchronous calls stay in the list, for Deliveries::run().
void ResourceCore::wake(Aftermath& after) noexcept {
  SeekerList asynchronous;
  while (Seeker* s = after.decided.pop_front()) {
    if (s->async) {
      asynchronous.push_back(*s);
      continue;
    }
    s->signal.store(1, std::memory_order_release);  // release: the decision; the seeker may be gone from here
    base::futex_wake(&s->signal);
  }
  after.decided = asynchronous;
  if (const std::uint32_t jobs = std::exchange(after.jobs, 0); jobs > 0 && !by_hand()) post(jobs);
  if (std::exchange(after.refill, false)) kick();
  if (std::exchange(after.reclaim, false)) budget_->state_->reclaim();
}

// For callers that keep the pool alive until this returns.
void ResourceCore::finish(Aftermath& after) noexcept {
  wake(after);
  Deliveries::run(after.decided);
}

namespace {

struct Pending {
  SeekerList list;
  bool running = false;
};
constinit thread_local Pending pending{};

void run_pending() noexcept {
  while (Seeker* s = pending.list.pop_front()) s->async->deliver();
}

}  // namespace

void Deliveries::run(SeekerList& decided) noexcept {
  while (Seeker* s = decided.pop_front()) pending.list.push_back(*s);
  if (pending.running || pending.list.empty()) return;
  pending.running = true;
  run_pending();
  pending.running = false;
}

void Deliveries::flush() noexcept { run_pending(); }

// ---- threads ----

ResourceCore::Obtained ResourceCore::because(Reason reason) const {
  Rejection why;
  why.reason = reason;  // the numbers come with gave_up()
  return Obtained(unexpect, error_of(why));
}

ResourceCore::Obtained ResourceCore::obtain(const Terms& terms) {
  if (by_hand()) return obtain_by_hand(terms);
  Seeker seeker;
  std::optional<std::stop_callback<CancelSeeker>> on_stop;
  if (terms.stop.stop_possible()) on_stop.emplace(terms.stop, CancelSeeker{*this, seeker});
  {
    Aftermath after;
    {
      Lock lock(mutex_);
      enlist(seeker, after);
    }
    finish(after);
  }
  Deliveries::flush();
  TimePoint until = terms.until;
  while (seeker.signal.load(std::memory_order_acquire) == 0) {  // acquire: the decision
    if (until != no_deadline && clock_.now() >= until) {
      until = no_deadline;  // it is decided now, by this or by another thread, which is about to say so
      give_up(seeker, Reason::timeout);
      continue;
    }
    clock_.wait(seeker.signal, 0, until);
  }
  on_stop.reset();
  switch (seeker.decision) {
    case Decision::served:
      return seeker.slot;
    case Decision::failing:
      return Obtained(unexpect, failing(clock_.now()));
    default:
      if (seeker.reason == Reason::timeout) count_.timeouts.fetch_add(1, std::memory_order_relaxed);
      return because(seeker.reason);
  }
}

// ---- asynchronous calls ----

AsyncSeeker::AsyncSeeker(ResourceCore& core, LeaseOperation& operation, Priority priority,
                         ResourceCore::Terms terms)
    : core_(core), operation_(operation), priority_(priority), terms_(std::move(terms)) {
  async = this;
  claim = terms_.claim;
}

void AsyncSeeker::let_go() noexcept {
  // acq_rel: what the other owner did to the object comes before its end.
  if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
}

void AsyncSeeker::watch() noexcept {
  if (terms_.until != no_deadline) {
    at = terms_.until;
    armed_ = true;
    core_.clock_.deadlines().arm(*this);
  }
  if (terms_.stop.stop_possible()) cancel_.emplace(terms_.stop, CancelSeeker{core_, *this});
}

// The thread that delivers it disarms it before its permit is released. So the pool exists here, and until firing_ is 0 again.
bool AsyncSeeker::expire() noexcept {
  core_.firing_.fetch_add(1, std::memory_order_relaxed);  // relaxed: disarm() takes the driver's lock
  references_.fetch_add(1, std::memory_order_relaxed);    // relaxed: made from another one
  return true;
}

void AsyncSeeker::expired() noexcept {
  ResourceCore& core = core_;
  Aftermath after;
  core.withdraw(*this, Reason::timeout, after);
  let_go();
  core.wake(after);
  core.firing_.fetch_sub(1, std::memory_order_release);  // release: the destructor waits for it
  Deliveries::run(after.decided);
}

void AsyncSeeker::deliver() noexcept {
  cancel_.reset();
  if (armed_) core_.clock_.deadlines().disarm(*this);
  LeaseOperation& operation = operation_;
  RawResult result = decision == Decision::served ? lent() : denied();  // the pool may be gone from here
  let_go();
  operation.answer(std::move(result));
  operation.let_go();
}

RawResult AsyncSeeker::lent() noexcept {
  RawLease lease;
  if (slot->resource)
    core_.lend(*slot, std::move(permit_), terms_.began, core_.glance(), lease);
  else
    core_.hand_over(*slot, std::move(permit_), lease);
  return RawResult(std::move(lease));
}

RawResult AsyncSeeker::denied() noexcept {
  permit_.fail();
  if (decision != Decision::failing && reason == Reason::timeout)
    core_.count_.timeouts.fetch_add(1, std::memory_order_relaxed);
  RawResult result(unexpect, decision == Decision::failing ? core_.failing(core_.clock_.now())
                                                           : core_.gave_up(priority_, reason));
  permit_.release();
  return result;
}

std::optional<RawResult> ResourceCore::at_once(const AcquireOptions& options, bool claim,
                                               LeaseAdmission& admission) noexcept {
  admission.began = glance();
  std::optional<Result<Permit>> decided = gate_.at_once(options);
  if (!decided) return std::nullopt;
  if (!*decided) return RawResult(unexpect, error_of(decided->error()));
  RawLease lease;
  if (lend_fresh(**decided, admission.began, lease)) return RawResult(std::move(lease));
  if (claim) {
    // Mostly one may be opened right away, which the claimant does.
    Lock lock(mutex_);
    ResourceSlot* slot = nullptr;
    if (idle_.empty() && seekers_.empty() && !backing_off(clock_.now())) slot = begin_opening();
    lock.unlock();
    if (slot) {
      hand_over(*slot, **std::move(decided), lease);
      return RawResult(std::move(lease));
    }
  }
  admission.permit = **std::move(decided);
  return std::nullopt;
}

void ResourceCore::start(AcquireOptions options, bool claim, LeaseAdmission admission,
                         LeaseOperation& operation) noexcept {
  operation.hold();  // for the answer
  AsyncSeeker* seeker = nullptr;
  const bool started = guarded(
      [&] {
        Terms t = terms(options, admission.began);
        t.claim = claim;
        t.stop = options.stop = operation.watch(options.stop);
        seeker = new AsyncSeeker(*this, operation, options.priority, std::move(t));
        if (admission.permit) {
          seeker->permit_ = *std::move(admission.permit);
          seek(*seeker);
        } else {
          gate_.async_acquire(std::move(options), [this, made = seeker](Result<Permit> permit) {
            admitted(*made, std::move(permit));
          });
        }
        return true;
      },
      [](auto) { return false; });
  if (started) return;
  // Without memory. A gate throws only before it has joined the line, so no other thread has the seeker.
  if (seeker) seeker->let_go();
  admission.permit.reset();
  operation.answer(RawResult(unexpect, out_of_memory()));
  operation.let_go();
}

void ResourceCore::admitted(AsyncSeeker& seeker, Result<Permit> permit) noexcept {
  LeaseOperation& operation = seeker.operation_;
  RawLease lease;
  if (permit && !lend_fresh(*permit, seeker.terms_.began, lease)) {
    seeker.permit_ = *std::move(permit);
    return seek(seeker);
  }
  // After a rejection the pool may be gone.
  RawResult result = permit ? RawResult(std::move(lease)) : RawResult(unexpect, error_of(permit.error()));
  seeker.let_go();
  operation.answer(std::move(result));
  operation.let_go();
}

void ResourceCore::seek(AsyncSeeker& seeker) noexcept {
  if (by_hand()) {
    Lock lock(mutex_);
    return add_job(seeker, JobKind::seek);
  }
  visitors_.fetch_add(1, std::memory_order_relaxed);  // relaxed: its permit keeps the pool alive so far
  seeker.watch();
  Aftermath after;
  {
    Lock lock(mutex_);
    enlist(seeker, after);  // it may be gone from here, and its permit with it
  }
  wake(after);
  visitors_.fetch_sub(1, std::memory_order_release);  // release: the pool may end now
  Deliveries::run(after.decided);
}

}  // namespace bulkhead::detail
