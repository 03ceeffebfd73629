// scopes.h - limits that replicas of a simulation share: `scope: host` and `scope: fleet`.
//
// A fleet uses the shipped leases (adapters/redis/fleet_limit.h, src/shared) and the shipped decisions of the store
// (src/shared/limit_state.h); only the network between them is simulated: delay, loss, a store that is down or forgets,
// and replicas that are cut off. A host is a counter that all its replicas see at once, as shared memory is; the call
// that has waited longest goes first, within a priority.
#pragma once

#include <memory>

#include "app/sim/engine.h"
#include "app/simulate/load.h"
#include "bulkhead/fleet.h"
#include "bulkhead/scope.h"

namespace bulkhead::simulate {

class Scopes {
 public:
  Scopes(sim::Engine& engine, const Load& load, const FleetSettings& fleet);
  ~Scopes();
  Scopes(const Scopes&) = delete;
  Scopes& operator=(const Scopes&) = delete;

  // Where a replica gets its units from. Must not outlive this.
  std::shared_ptr<UnitSources> of(std::uint32_t replica);
  std::uint64_t store_requests() const noexcept;

  struct World;

 private:
  std::shared_ptr<World> world_;
};

}  // namespace bulkhead::simulate
