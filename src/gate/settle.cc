// A permit that changes what it holds: Permit::settle() and Permit::try_grow().
#include <optional>
#include <utility>

#include "base/sync_point.h"
#include "bulkhead/gate.h"
#include "bulkhead/scope.h"
#include "gate/backing.h"
#include "gate/completions.h"
#include "gate/observers.h"

namespace bulkhead {

using detail::GateCore;

bool Permit::settle(std::uint32_t units) noexcept {
  if (!(state_ & kHeld) || units > cost_) return false;
  if (units == cost_) return true;
  watch();
  const std::uint32_t from = std::exchange(cost_, units);
  gate_->lower(parts(), from);  // a handler that it admits may release or destroy this permit
  return true;
}

bool Permit::try_grow(std::uint32_t units) noexcept {
  if (!(state_ & kHeld)) return false;
  if (units == 0) return true;
  // What the group of this gate does may let other calls in. Their handlers run when the permit is whole again.
  const detail::Completions::Together all;
  if (!gate()->raise(parts(), units)) return false;
  watch();
  cost_ += units;
  gate_->note_cost(parts());
  return true;
}

void GateCore::note_cost(const Permit::Parts& permit) noexcept {
  if (permit.holder != 0) observers_->holders->set_cost(permit.holder, permit.cost);
  if (permit.lease != 0) backing_->change_lease(permit.lease, permit.cost);
}

void GateCore::lower(const Permit::Parts& permit, std::uint32_t from) noexcept {
  if (source_) source_->give_back(from - permit.cost);  // first: see U1 in turnstile.h
  const bool quiet = turnstile_.lower(from, permit.cost, meter_ ? glance_ns() : 0);
  note_cost(permit);
  if (quiet) return;
  std::optional<detail::Completions::Together> all;  // see release_lent()
  if (backing_) [[unlikely]]
    all.emplace();
  pin();
  Wakes wakes;
  turnstile_.after_lower(slow_now(), wakes);
  if (backing_) [[unlikely]]
    backing_->settle();
  announce_all(wakes);
  unpin();
  publish_all(wakes);
}

bool GateCore::raise(const Permit::Parts& permit, std::uint32_t units) noexcept {
  const auto raised = turnstile_.raise(permit.priority, permit.cost, units, slow_now());
  if (raised == Turnstile::Raise::done) return true;
  if (raised == Turnstile::Raise::behind || !backing_) return false;
  // The backing admits a call of its own; until that is corrected a snapshot waits.
  Waiter w;
  w.cost = units;
  w.tier = permit.priority;
  turnstile_.begin();
  const bool grown = backing_->admit(w, false);
  if (grown) turnstile_.add_heavy(1);
  turnstile_.end();
  if (grown && permit.cost == 0) turnstile_.fill_empty();
  return grown;
}

}  // namespace bulkhead
