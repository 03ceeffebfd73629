// fleet.h - limits for processes on many hosts, for bulkheads with Scope::fleet, through Redis or Valkey.
//
//   bulkhead::redis::Fleet fleet{{.store = "rediss://limits.internal:6380"}};
//   bulkhead::Registry registry{{.sources = &fleet}};
//   auto payments = registry.add({.options = {.name = "payments", .max_concurrent = 50, .max_queue = 20,
//                                             .scope = bulkhead::Scope::fleet}});
//   auto done = payments->execute(work);   // at most 50 at once in all processes that use the store
//
// Each process leases units and admits calls within its lease; a thread of the fleet renews it. docs/design/fleet.md explains
// how.
//
// Threads: every member may be called from any thread. Handlers and coroutines of calls that have waited run on a second thread
//   of the fleet: one that takes long delays the others, and no lease. The fleet outlives the bulkheads that were made with it.
// Promises: at most max_concurrent units are in use under valid leases, through crashes, pauses and partitions of processes,
//   lost, late and repeated messages, and a store that restarts, forgets, rolls back or whose clock steps. No call waits for
//   the network in FleetMode::block, and none longer than its timeout in FleetMode::direct.
// Not promised: that calls are counted which outlive their lease and the grace; the limit while two servers act as master;
//   order between processes; that all units are used in FleetMode::block. Calls that WhenCutOff admits are not included.
// Limits: max_concurrent up to 16'777'215. fairness is fifo; no critical_reserve, groups, threads or tenants, and no
//   adaptive limit. FleetMode::direct needs max_queue.
// Processes of one host: with a shm::Host (adapters/shm/host.h) they are one member. One of them talks to the store for all;
//   when it ends, another one takes over within 0.1 s. If that process is stopped (SIGSTOP) but not ended, the lease ends.
// Exhaustion: the first bulkhead of a fleet starts its threads; if the system has none left, making it throws
//   std::system_error, and the next one tries again. Without file descriptors the store is not reached: see WhenCutOff.
// fork(): make the fleet after it. In a child, bulkheads of the parent's fleet reject everything.
// Cost: 36 ns for a call that need not wait, without a lock; two threads; the store carries a request per heartbeat
//   (lease / 5), and at most one per lease / 250 while calls are rejected, or two per call in FleetMode::direct.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "bulkhead/fleet.h"
#include "bulkhead/scope.h"
#include "transport.h"

namespace bulkhead::redis {

class FleetEngine;

class Fleet final : public UnitSources {
 public:
  // Warnings and changes of mode, one sentence each, on a thread of the fleet.
  using Report = std::function<void(const std::string&)>;

  // The store is connected to once the first bulkhead needs it.
  // With `host`, the processes that use its region are one member of the fleet and share its lease; it outlives the fleet.
  // With `connect`, another client than this adapter's carries the commands (transport.h).
  // std::invalid_argument names the setting.
  explicit Fleet(FleetSettings settings, Report report = {}, HostLeases* host = nullptr,
                 Connect connect = {});
  ~Fleet();  // gives back all units, if the store answers
  Fleet(const Fleet&) = delete;
  Fleet& operator=(const Fleet&) = delete;

  // For settings that become known later; without effect once a bulkhead has used them.
  void set_settings(const FleetSettings& settings);
  // Throws what the constructor would because of these settings.
  static void check(const FleetSettings& settings);

  std::unique_ptr<UnitSource> open(const Request& request, UnitUser& user) override;
  void check(const Request& request) const override;

 private:
  std::unique_ptr<FleetEngine> engine_;
};

}  // namespace bulkhead::redis
