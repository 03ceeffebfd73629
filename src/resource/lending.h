// lending.h - the short way of a lease, for the parts of a resource pool that take it.
#pragma once

#include <algorithm>

#include "resource/pool_core.h"
#include "resource/util.h"

namespace bulkhead::detail {

[[gnu::always_inline]] inline void ResourceCore::push(ResourceSlot& slot) noexcept {
  slot.state.store(SlotState::idle, std::memory_order_relaxed);  // relaxed: as in lend()
  idle_.push(slot);
  if (!watching_.load() || careful_.load()) [[unlikely]]
    kick();
}

inline bool ResourceCore::fresh(const ResourceSlot& slot, TimePoint now) const noexcept {
  if (now == TimePoint())
    return true;  // nothing ages here, but for what aged_ tells, and nothing is validated
  if (now >= slot.expires) return false;
  return !operations_.validate || (!slot.suspect && now - slot.known_good < settings_.validate_after);
}

// One that can be lent as it is, or nothing.
[[gnu::always_inline]] inline ResourceSlot* ResourceCore::pop_fresh(TimePoint now) noexcept {
  ResourceSlot* slot = idle_.pop();
  if (!slot || fresh(*slot, now)) [[likely]]
    return slot;
  push(*slot);
  return nullptr;
}

[[gnu::always_inline]] inline void ResourceCore::lend(ResourceSlot& slot, Permit&& permit, TimePoint began,
                                                      TimePoint now, RawLease& lease) noexcept {
  // Relaxed: for snapshots only; ownership does not depend on it.
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

// If the top of the stack can be lent as it is.
[[gnu::always_inline]] inline bool ResourceCore::lend_fresh(Permit& permit, TimePoint began,
                                                            RawLease& lease) noexcept {
  TimePoint now = permit.waited() ? glance() : began;
  // Relaxed: set some microseconds late at worst, as any alarm is.
  if (!clocked_ && aged_.load(std::memory_order_relaxed)) [[unlikely]]
    now = clock_.now();
  ResourceSlot* slot = pop_fresh(now);
  if (!slot) return false;
  lend(*slot, std::move(permit), began, now, lease);
  return true;
}

}  // namespace bulkhead::detail
