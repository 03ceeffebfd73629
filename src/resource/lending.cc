// lending.cc - from an admitted call to its thing, and back.
#include <algorithm>

#include "base/sync_point.h"
#include "resource/budget.h"
#include "resource/core.h"
#include "resource/util.h"

namespace bulkhead::detail {

using std::chrono::nanoseconds;

// ---- lending ----

ResourceCore::Terms ResourceCore::terms(const AcquireOptions& o, TimePoint began) const noexcept {
  const auto timeout = o.timeout == gate_default ? settings_.gate.max_wait : o.timeout;
  Terms t{.began = began == TimePoint() ? clock_.now() : began, .stop = o.stop};
  if (timeout > nanoseconds(0))
    t.until = after(t.began, timeout);  // else it did not want to wait in line: it has not
  t.until = std::min(t.until, o.deadline);
  return t;
}

inline bool ResourceCore::fresh(const ResourceSlot& slot, TimePoint now) const noexcept {
  if (now == TimePoint()) return !slot.suspect;
  if (now >= slot.expires) return false;
  return !operations_.validate || (!slot.suspect && now - slot.idle_since < settings_.validate_after);
}

// One that can be lent as it is, or nothing.
[[gnu::always_inline]] inline ResourceSlot* ResourceCore::pop_fresh(TimePoint now) noexcept {
  ResourceSlot* slot = idle_.pop();
  if (!slot || fresh(*slot, now)) [[likely]]
    return slot;
  push(*slot);
  return nullptr;
}

// One that is good, after a look at it if needed. Those that are not are doomed on the way.
ResourceSlot* ResourceCore::pop_good(TimePoint now, How how) {
  while (ResourceSlot* slot = idle_.pop()) {
    if (now >= slot->expires) {
      doom(*slot, count_.expired);
    } else if (fresh(*slot, now)) {
      return slot;
    } else if (how == How::claim) {
      slot->suspect = true;
      return slot;
    } else if (!operations_.validate ||
               guarded([&] { return operations_.validate(slot->thing); }, [](auto) { return false; })) {
      slot->suspect = false;
      return slot;
    } else {
      doom(*slot, count_.invalid);
    }
  }
  return nullptr;
}

[[gnu::always_inline]] inline void ResourceCore::lend(ResourceSlot& slot, Permit&& permit, TimePoint began,
                                                      TimePoint now, RawLease& lease) noexcept {
  // Relaxed: for snapshots, which take no part in who owns what.
  slot.state.store(SlotState::lent, std::memory_order_relaxed);
  if (clocked_) slot.lent_at.store(ns_of(now), std::memory_order_relaxed);
  if (times_)
    times_->wait.record(static_cast<std::uint64_t>(std::max<std::int64_t>((now - began).count(), 0)));
  hand_over(slot, std::move(permit), lease);
  if (settings_.min_idle > 0 && !idle_.at_least(settings_.min_idle) && alive_ < limit_) [[unlikely]]
    kick();
}

inline void ResourceCore::hand_over(ResourceSlot& slot, Permit&& permit, RawLease& lease) noexcept {
  lease.permit_.take(permit);  // the lease was empty: nothing to give back
  lease.core_ = this;
  lease.slot_ = &slot;
}

// If it is admitted and the top of the stack can be lent as it is.
[[gnu::always_inline]] inline bool ResourceCore::lend_fresh(Result<Permit>& permit, TimePoint began,
                                                            RawLease& lease) noexcept {
  if (!permit) return false;
  TimePoint now = permit->waited() ? glance() : began;
  // Relaxed: set some microseconds late at worst, as any alarm is.
  if (!clocked_ && aged_.load(std::memory_order_relaxed)) [[unlikely]]
    now = clock_.now();
  ResourceSlot* slot = pop_fresh(now);
  if (!slot) return false;
  lend(*slot, *std::move(permit), began, now, lease);
  return true;
}

std::optional<ResourceError> ResourceCore::try_acquire(const AcquireOptions& options, RawLease& lease) {
  const TimePoint now = glance();
  Result<Permit> permit = gate_.try_acquire(options);
  if (!permit) return refused(permit.error());
  if (lend_fresh(permit, now, lease)) return std::nullopt;
  permit->fail();
  Lock lock(mutex_);
  const TimePoint exactly = clock_.now();
  if (failures_ > 0 && exactly < retry_at_) {
    lock.unlock();
    return failing(exactly);
  }
  if (ResourceSlot* slot = idle_.empty() ? begin_opening(lock) : nullptr) {
    lock.unlock();
    open_elsewhere(*slot);
  } else {
    lock.unlock();
    kick();  // it is idle but has to be looked at, or somebody must close one first
  }
  return gave_up(options.priority, Reason::timeout);
}

std::optional<ResourceError> ResourceCore::acquire(const AcquireOptions& options, RawLease& lease) {
  const bool timed = clocked_ || (options.timeout != gate_default && options.timeout != wait_forever);
  const TimePoint began = timed ? clock_.glance() : TimePoint();
  Result<Permit> permit = gate_.acquire(options);
  if (lend_fresh(permit, began, lease)) [[likely]]
    return std::nullopt;
  return acquire_slowly(permit, options, began, lease);
}

std::optional<ResourceError> ResourceCore::acquire(std::source_location where, RawLease& lease) {
  const TimePoint began = glance();
  Result<Permit> permit = gate_.acquire(where);
  if (lend_fresh(permit, began, lease)) [[likely]]
    return std::nullopt;
  return acquire_slowly(permit, {.where = where}, began, lease);
}

std::optional<ResourceError> ResourceCore::acquire_slowly(Result<Permit>& permit,
                                                          const AcquireOptions& options, TimePoint began,
                                                          RawLease& lease) {
  if (!permit) return refused(permit.error());
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

void ResourceCore::async_acquire(AcquireOptions options, bool claim, RawHandler handler) {
  Terms t = terms(options, glance());
  t.how = claim ? How::claim : How::open;
  const Priority priority = options.priority;
  gate_.async_acquire(std::move(options), [this, t = std::move(t), priority,
                                           handler = std::move(handler)](Result<Permit> permit) mutable {
    if (!permit) return handler(RawResult(std::unexpect, refused(permit.error())));
    RawLease lease;
    if (lend_fresh(permit, t.began, lease)) return handler(RawResult(std::move(lease)));
    if (t.how == How::claim) {
      // Mostly one may be opened right away, and whoever asked does that without a thread of ours.
      Lock lock(mutex_);
      const TimePoint exactly = clock_.now();
      ResourceSlot* slot = nullptr;
      if (idle_.empty() && !(failures_ > 0 && exactly < retry_at_)) slot = begin_opening(lock);
      if (slot) {
        lock.unlock();
        hand_over(*slot, *std::move(permit), lease);
        return handler(RawResult(std::move(lease)));
      }
    }
    run_job([this, t = std::move(t), priority, permit = *std::move(permit),
             handler = std::move(handler)]() mutable {
      Obtained slot = obtain(t);
      if (!slot) {
        permit.fail();
        ResourceError error = slot.error().rejection ? gave_up(priority, slot.error().rejection->reason)
                                                     : std::move(slot).error();
        permit.release();
        return handler(RawResult(std::unexpect, std::move(error)));
      }
      RawLease got;
      if ((*slot)->thing)
        lend(**slot, std::move(permit), t.began, glance(), got);
      else
        hand_over(**slot, std::move(permit), got);
      handler(RawResult(std::move(got)));
    });
  });
}

ResourceCore::Obtained ResourceCore::because(Reason reason) const {
  Rejection why;
  why.reason = reason;  // the numbers come with gave_up()
  return Obtained(std::unexpect, refused(why));
}

// For a call that is admitted and found nothing fresh: a thing that is good, or one that it or a helper
// opens for it, or somebody else's that comes back meanwhile. With How::claim also a slot to be filled.
ResourceCore::Obtained ResourceCore::obtain(const Terms& terms) {
  const auto wake = [this]() noexcept { changed(); };
  std::optional<std::stop_callback<decltype(wake)>> on_stop;
  struct Waiting {
    std::atomic<std::uint32_t>& count;
    explicit Waiting(std::atomic<std::uint32_t>& c) : count(c) { count.fetch_add(1); }
    ~Waiting() { count.fetch_sub(1); }
  } const waiting(waiting_);
  if (terms.stop.stop_possible()) on_stop.emplace(terms.stop, wake);

  std::optional<std::uint64_t> failures_before;
  bool asked = false;  // a helper is opening one on behalf of this call
  for (;;) {
    const std::uint32_t epoch = epoch_.load();
    const TimePoint now = clock_.now();
    if (ResourceSlot* slot = pop_good(now, terms.how)) return slot;
    base::sync_point("resource.obtain.none_idle");

    Lock lock(mutex_);
    if (!idle_.empty()) continue;
    if (!failures_before) failures_before = failures_ever_;
    if (closed_) return because(Reason::shutdown);
    if (failures_ever_ != *failures_before || (failures_ > 0 && now < retry_at_)) {
      lock.unlock();
      return Obtained(std::unexpect, failing(now));
    }
    bool neighbours = false;
    if (!asked) {
      if (ResourceSlot* slot = begin_opening(lock)) {
        lock.unlock();
        if (terms.how == How::claim) return slot;
        if (settings_.maintenance == Maintenance::by_hand ||
            terms.until >= after(now, settings_.connect_timeout)) {
          if (const auto done = open_into(*slot); done) return slot;
          return Obtained(std::unexpect, failing(clock_.now()));
        }
        open_elsewhere(*slot);
        asked = true;
        continue;
      }
      neighbours = budget_ && alive_ < limit_;
    }
    const bool some_doomed = !doomed_.empty();
    lock.unlock();
    if (some_doomed && settings_.maintenance == Maintenance::by_hand && dispose_one_doomed()) continue;
    if (neighbours && budget_->state_->close_an_idle_one(*this)) continue;
    if (terms.stop.stop_requested()) return because(Reason::cancelled);
    // By hand nobody else is at work, so nothing would change.
    if (now >= terms.until || settings_.maintenance == Maintenance::by_hand) {
      count_.timeouts.fetch_add(1, std::memory_order_relaxed);
      return because(Reason::timeout);
    }
    clock_.wait(epoch_, epoch, terms.until);
  }
}

// ---- giving back ----

[[gnu::always_inline]] inline void ResourceCore::push(ResourceSlot& slot) noexcept {
  slot.state.store(SlotState::idle, std::memory_order_relaxed);  // relaxed: as in lend()
  idle_.push(slot);
  // Sequentially consistent, like the push: either they see it, or this sees them.
  if (waiting_.load() != 0) [[unlikely]]
    changed();
  if (!watching_.load() || careful_.load()) [[unlikely]]
    kick();
}

void ResourceCore::put_back(ResourceSlot& slot) noexcept {
  if (aged_.load(std::memory_order_relaxed) && clock_.now() >= slot.expires)
      [[unlikely]]  // relaxed: as above
    return doom(slot, count_.expired);
  if (careful_.load(std::memory_order_relaxed)) [[unlikely]] {  // relaxed: push() looks again
    Lock lock(mutex_);
    const bool surplus = closed_ || alive_ - closing_now_ - doomed_.size() > limit_;
    lock.unlock();
    if (surplus) return doom(slot, count_.surplus);
  }
  push(slot);
}

void ResourceCore::give_back(ResourceSlot& slot, Permit& permit) noexcept {
  if (!slot.thing) [[unlikely]] {  // a claim that nobody filled
    {
      Lock lock(mutex_);
      --opening_;
      vacate(lock, slot);
    }
    changed();
    if (budget_) budget_->state_->changed();
    permit.release();
    return;
  }
  if (stamps_returns_) {
    slot.idle_since = clock_.glance();
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
    doom(slot, count_.broken);
    suspect_all();
  } else if (operations_.reset &&
             (!operations_.dirty ||
              guarded([&] { return operations_.dirty(slot.thing); }, [](auto) { return true; }))) {
    slot.state.store(SlotState::cleaning, std::memory_order_relaxed);
    run_job([this, &slot, held = std::move(permit)]() mutable {
      clean(slot);
      held.release();
    });
    return;
  } else {
    put_back(slot);
  }
  permit.drop();
}

void ResourceCore::clean(ResourceSlot& slot) noexcept {
  if (!guarded([&] { return operations_.reset(slot.thing); }, [](auto) { return false; })) {
    doom(slot, count_.broken);
    return suspect_all();
  }
  if (stamps_returns_) slot.idle_since = clock_.glance();
  put_back(slot);
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
