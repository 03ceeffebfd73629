// resource_snapshot.h - the observable state of a resource pool (resource_pool.h), and how a registry obtains it.
//
//   auto attached = registry.attach(checkout);         // adds it to registry.snapshot(), metrics and health
//   print(registry.snapshot().resources[0].now.used);
//
// Plain values; exactness: see ResourceSnapshot.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "bulkhead/histogram.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

struct ResourceSnapshot {
  Snapshot gate;  // in_flight: resources on loan, and calls that are about to get one
  std::uint32_t max = 0, min_idle = 0;
  // Of one instant; the sum is `alive`. idle includes resources that are being validated; cleaning: reset after a lease.
  std::uint32_t alive = 0, used = 0, idle = 0, opening = 0, cleaning = 0, closing = 0;
  std::uint32_t most_alive = 0;  // the highest value of alive so far
  std::uint64_t opened = 0, closed = 0;
  // Closed resources, by cause.
  std::uint64_t broken = 0, expired = 0, idled_out = 0, invalid = 0, surplus = 0;
  std::uint64_t open_failures = 0;
  std::uint64_t failing_calls = 0;  // calls that ended with ResourceError::failed
  std::uint64_t timeouts = 0;       // admitted calls that got no resource in time
  std::uint32_t failures = 0;       // consecutive failures of the factory
  std::string last_failure;
  std::chrono::nanoseconds retry_after{};
  // Age of the oldest lease. Always 0 for a pool that does not read the clock at each lease: that is one without `validate`,
  // gate.max_wait, histograms, Maintenance::by_hand and gate.track_holders. Any one of these is enough.
  std::chrono::nanoseconds oldest_lease{};
  bool histograms = false;          // whether there are:
  HistogramCounts wait, use, open;  // empty unless ResourceOptions::histograms
};

// A pool that appears in the snapshots of a registry. The registry does not own it.
struct ResourceSource {
  std::string name{};
  std::string kind{};  // "postgres", "sqlite" ...; empty: other
  // Called from any thread until the source is detached. It must not use the registry.
  std::function<ResourceSnapshot()> snapshot{};
  // The bulkhead around the pool, in whose queue calls wait before they reach the pool; empty: none.
  std::string bulkhead{};
};

}  // namespace bulkhead
