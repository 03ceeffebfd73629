// A call through a gate with a scope. While no call of this process waits, it takes no lock: the source admits or rejects it,
// and the word counts it.
#include "bulkhead/scope.h"

#include "base/sync_point.h"
#include "bulkhead/gate.h"
#include "gate/backing.h"
#include "gate/completions.h"
#include "gate/meter.h"

namespace bulkhead {

using detail::GateCore;

bool GateCore::pass_scoped(Priority priority, std::uint32_t cost, std::int64_t seen) noexcept {
  if (!turnstile_.quiet()) return false;  // calls of this process wait, or the gate is closed
  if (!source_->take({.priority = priority, .cost = cost})) return false;
  if (turnstile_.let_in(cost, !meter_ ? 0 : seen != 0 ? seen : glance_ns())) [[likely]]
    return true;
  // A call has joined the line since, and goes first.
  source_->give_back(cost);
  const detail::Completions::Together all;
  backing_->settle();
  return false;
}

// The release of one unit that has no further effect.
void GateCore::release_scoped(std::int64_t now) noexcept {
  if (meter_) meter_->step(-1, 0, now != 0 ? now : glance_ns());
  source_->give_back(1);  // first: see U1 in turnstile.h
  base::sync_point("scoped.before_put_back");
  if (!turnstile_.give_back(1)) release_lent();
}

}  // namespace bulkhead
