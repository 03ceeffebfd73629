// lending.cc - from an admitted call to its resource, and back.
#include <algorithm>

#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/lending.h"
#include "resource/pool_core.h"
#include "resource/util.h"

namespace bulkhead::detail {

using std::chrono::nanoseconds;

// ---- lending ----

ResourceCore::Terms ResourceCore::terms(const AcquireOptions& o, TimePoint began) const noexcept {
  const auto timeout = o.timeout == gate_default ? settings_.gate.max_wait : o.timeout;
  Terms t{.began = began == TimePoint() ? clock_.now() : began, .stop = o.stop};
  t.until = std::min(saturating_add(t.began, std::max(timeout, nanoseconds(0))), o.deadline);
  return t;
}

std::optional<ResourceError> ResourceCore::try_acquire(const AcquireOptions& options, RawLease& lease) {
  const TimePoint now = glance();
  Result<Permit> permit = gate_.try_acquire(options);
  if (!permit) return error_of(permit.error());
  if (lend_fresh(*permit, now, lease)) return std::nullopt;
  // For the next call: what is idle but has to be validated, or else one more, unless one is on the way that no call waits for.
  Aftermath after;
  bool no_unit = false;
  {
    Lock lock(mutex_);
    const TimePoint exactly = clock_.now();
    const bool spare = opening_ahead_ + validating_ + checking_ > seekers_.size();
    ResourceSlot* slot = spare ? nullptr : idle_.pop();
    if (slot && fresh(*slot, exactly)) {  // returned meanwhile
      lock.unlock();
      lend(*slot, *std::move(permit), now, glance(), lease);
      return std::nullopt;
    }
    if (slot && exactly >= slot->expires) doom(*std::exchange(slot, nullptr), count_.expired, after);
    if (slot) {
      ++validating_;
      slot->state.store(SlotState::validating, std::memory_order_relaxed);  // relaxed: as in lend()
      add_job(*slot, JobKind::validate);
      ++after.jobs;
    } else if (!spare && !backing_off(exactly)) {
      if (ResourceSlot* vacant = begin_opening(&no_unit)) {
        ++opening_ahead_;
        add_job(*vacant, JobKind::open);
        ++after.jobs;
      }
    }
    permit->fail();
    if (!slot && backing_off(exactly)) {
      lock.unlock();
      finish(after);
      return failing(exactly);
    }
  }
  finish(after);
  if (no_unit) budget_->state_->reclaim(1);
  return gave_up(options.priority, Reason::timeout);
}

std::optional<ResourceError> ResourceCore::acquire(const AcquireOptions& options, RawLease& lease) {
  const bool timed = clocked_ || (options.timeout != gate_default && options.timeout != wait_forever);
  const TimePoint began = timed ? clock_.glance() : TimePoint();
  Result<Permit> permit = gate_.acquire(options);
  if (permit && lend_fresh(*permit, began, lease)) [[likely]]
    return std::nullopt;
  return acquire_slowly(permit, options, began, lease);
}

std::optional<ResourceError> ResourceCore::acquire(std::source_location where, RawLease& lease) {
  const TimePoint began = glance();
  Result<Permit> permit = gate_.acquire(where);
  if (permit && lend_fresh(*permit, began, lease)) [[likely]]
    return std::nullopt;
  return acquire_slowly(permit, {.where = where}, began, lease);
}

std::optional<ResourceError> ResourceCore::acquire_slowly(Result<Permit>& permit,
                                                          const AcquireOptions& options, TimePoint began,
                                                          RawLease& lease) {
  if (!permit) return error_of(permit.error());
  const Terms t = terms(options, began);
  Obtained slot = obtain(t);
  if (slot) {
    lend(**slot, *std::move(permit), t.began, glance(), lease);
    return std::nullopt;
  }
  permit->fail();
  if (slot.error().rejection) return gave_up(options.priority, slot.error().rejection->reason);
  return std::move(slot).error();
}

// ---- by hand: the caller does what helpers would ----

// One that is good, after a look at it if needed. Those that are not are doomed on the way.
ResourceSlot* ResourceCore::pop_good(TimePoint now, bool claim) {
  Aftermath nothing_follows_by_hand;
  while (ResourceSlot* slot = idle_.pop()) {
    if (now >= slot->expires) {
      doom_now(*slot, count_.expired, nothing_follows_by_hand);
    } else if (fresh(*slot, now)) {
      return slot;
    } else if (claim) {
      slot->suspect = true;
      return slot;
    } else if (still_good(*slot)) {
      slot->suspect = false;
      return slot;
    } else {
      doom_now(*slot, count_.invalid, nothing_follows_by_hand);
    }
  }
  return nullptr;
}

// Without helpers the caller opens and validates on its own thread, however long that takes.
ResourceCore::Obtained ResourceCore::obtain_by_hand(const Terms& terms) {
  for (;;) {
    const TimePoint now = clock_.now();
    if (ResourceSlot* slot = pop_good(now, terms.claim)) return slot;
    Lock lock(mutex_);
    if (closed_) return because(Reason::shutdown);
    if (backing_off(now)) {
      lock.unlock();
      return Obtained(unexpect, failing(now));
    }
    if (ResourceSlot* slot = begin_opening()) {
      if (terms.claim) return slot;
      lock.unlock();
      auto made = make(operations_.open);
      lock.lock();
      if (made) {
        Aftermath nothing_follows_by_hand;
        opened(*slot, *made, clock_.now(), nothing_follows_by_hand);
        return slot;
      }
      failed_to_open(*slot, std::move(made).error());
      lock.unlock();
      return Obtained(unexpect, failing(clock_.now()));
    }
    const bool neighbours = budget_ && alive_ < limit_;
    lock.unlock();
    if (dispose_one_doomed()) continue;
    if (neighbours && budget_->state_->close_an_idle_one(*this)) continue;
    if (terms.stop.stop_requested()) return because(Reason::cancelled);
    count_.timeouts.fetch_add(1, std::memory_order_relaxed);
    return because(Reason::timeout);
  }
}

// ---- giving back ----

[[gnu::always_inline]] inline void ResourceCore::put_back(ResourceSlot& slot, Aftermath& after) noexcept {
  if (aged_.load(std::memory_order_relaxed) && clock_.now() >= slot.expires)
      [[unlikely]]  // relaxed: as above
    return doom_now(slot, count_.expired, after);
  // Relaxed, both: push() and the look after it are the ones that count.
  if (careful_.load(std::memory_order_relaxed) || waiting_.load(std::memory_order_relaxed) != 0)
      [[unlikely]] {
    Lock lock(mutex_);
    return hand_in(slot, false, after);
  }
  push(slot);
  // Sequentially consistent, like the push: either the seeker sees the resource, or this sees the seeker (R3, B2).
  if (waiting_.load() != 0) [[unlikely]]
    serve_now(after);
  if (budget_ && budget_->state_->hungry.load() != 0) [[unlikely]]
    after.reclaim = true;
}

void ResourceCore::give_back(ResourceSlot& slot, Permit& permit) noexcept {
  Aftermath after;
  if (!slot.resource) [[unlikely]] {  // a claim that was not filled
    {
      Lock lock(mutex_);
      --opening_;
      vacate(slot);
      serve(after);
    }
    unit_freed(after);
    after.refill |= settings_.min_idle > 0;
    wake(after);
    permit.release();
    return Deliveries::run(after.decided);
  }
  if (stamps_returns_) {
    slot.idle_since = slot.known_good = clock_.glance();
    // Relaxed, here and below: its own thread wrote it last.
    const std::int64_t lent_at = slot.lent_at.load(std::memory_order_relaxed);
    if (times_)
      times_->use.record(
          static_cast<std::uint64_t>(std::max<std::int64_t>(ns_of(slot.idle_since) - lent_at, 0)));
  } else {
    slot.idle_since = TimePoint();
  }
  if (clocked_) slot.lent_at.store(0, std::memory_order_relaxed);
  if (slot.broken) [[unlikely]] {
    doom_now(slot, count_.broken, after);
    suspect_all();
  } else if (operations_.reset &&
             (!operations_.dirty ||
              guarded([&] { return operations_.dirty(slot.resource); }, [](auto) { return true; }))) {
    slot.state.store(SlotState::cleaning, std::memory_order_relaxed);
    visitors_.fetch_add(1, std::memory_order_relaxed);  // relaxed: the permit keeps the pool alive so far
    slot.held = std::move(permit);
    {
      Lock lock(mutex_);
      add_job(slot, JobKind::clean);
    }
    if (!by_hand()) post(1);
    visitors_.fetch_sub(1, std::memory_order_release);  // release: the pool may end now
    return;
  } else {
    put_back(slot, after);
  }
  if (after.jobs != 0 || after.reclaim || !after.decided.empty()) [[unlikely]] {
    wake(after);
    permit.drop();
    return Deliveries::run(after.decided);
  }
  permit.drop();
}

// Here, where what they call can be inlined.
std::optional<ResourceError> RawPool::acquire(const AcquireOptions& options, RawLease& lease) {
  return core_->acquire(options, lease);
}
std::optional<ResourceError> RawPool::acquire(std::source_location where, RawLease& lease) {
  return core_->acquire(where, lease);
}
void RawLease::give_back() noexcept { core_->give_back(*std::exchange(slot_, nullptr), permit_); }

}  // namespace bulkhead::detail
