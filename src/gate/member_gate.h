// member_gate.h - the interface of a gate to its group or scope.
#pragma once

#include <utility>

#include "bulkhead/gate.h"
#include "gate/backing.h"

namespace bulkhead::detail {

class MemberGate final : public Gate {
 public:
  using Gate::Turnstile;
  using Gate::Waiter;
  using Gate::Wakes;

  MemberGate(GateOptions options, const Membership& membership) : Gate(std::move(options), &membership) {}

  // See Turnstile. The group holds its lock.
  void reshape(std::uint32_t guaranteed, std::uint32_t ceiling) noexcept;
  void set_ceiling(std::uint32_t ceiling) noexcept { turnstile_.set_ceiling(ceiling); }
  Turnstile::Lack try_enter(const Waiter& w) noexcept { return turnstile_.try_enter(w, slow_now()); }
  void grow(std::uint32_t units, Wakes& wakes) noexcept { turnstile_.grow(units, slow_now(), wakes); }
  bool grow_for(const Waiter& w, std::uint32_t units, Wakes& wakes) noexcept {
    return turnstile_.grow_for(w, units, slow_now(), wakes);
  }
  std::uint32_t shrink_idle(std::uint32_t most) noexcept { return turnstile_.shrink_idle(most, slow_now()); }
  std::uint32_t call_back(std::uint32_t units) noexcept { return turnstile_.call_back(units, slow_now()); }
  std::uint32_t collect() noexcept { return turnstile_.collect(slow_now()); }
  void watch(bool on) noexcept { turnstile_.watch(on, slow_now()); }
  bool quiet() const noexcept { return turnstile_.quiet(); }
  void let_in_anyway(const Waiter& w) noexcept { turnstile_.let_in_anyway(w, slow_now()); }
  std::uint32_t let_in_first(std::uint32_t units, Wakes& wakes) noexcept {
    return turnstile_.let_in_first(units, slow_now(), wakes);
  }
  Turnstile::Hunger hunger() const noexcept { return turnstile_.hunger(); }

  bool closed() const noexcept { return turnstile_.closed(); }
  std::uint32_t in_flight() const noexcept { return turnstile_.in_flight(); }
  std::uint32_t waiting() const noexcept { return turnstile_.waiting(); }
  std::uint32_t reserve(std::uint32_t guaranteed) const noexcept;
  bool at_ceiling() const noexcept { return turnstile_.limit() >= turnstile_.ceiling(); }
  bool full_at_ceiling() const noexcept { return turnstile_.in_flight() >= turnstile_.ceiling(); }
  static bool at_its_share(const Gate& gate) noexcept {
    return gate.backing_ && gate.backing_->at_its_share();
  }

  // The group does not hold its lock for the following functions.
  // Rejects waiters that can never fit after a change of the shares, and serves the line.
  void refit(Wakes& wakes) noexcept { turnstile_.refit_all(slow_now(), wakes); }
  // Waiters that were admitted under the group's lock are notified after it; the pin keeps the gate until then.
  void pin() noexcept { Gate::pin(); }
  void unpin_and_tell(Wakes& wakes) noexcept;
};

}  // namespace bulkhead::detail
