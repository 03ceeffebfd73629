// resource_snapshot.h - what a pool of things (resource_pool.h) tells about itself, and how a registry gets to know.
//
//   auto attached = registry.attach(pool);             // from now on in registry.snapshot(), metrics and health
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
  Snapshot gate;  // in_flight: things on loan, and callers who are about to get theirs
  std::uint32_t max = 0, min_idle = 0;
  // Of one instant, together `alive`. cleaning: given back, being reset before they can be lent again.
  std::uint32_t alive = 0, used = 0, idle = 0, opening = 0, cleaning = 0, closing = 0;
  std::uint32_t most_alive = 0;  // ever
  std::uint64_t opened = 0, closed = 0;
  // Why they were closed.
  std::uint64_t broken = 0, expired = 0, idled_out = 0, invalid = 0, surplus = 0;
  std::uint64_t open_failures = 0;
  std::uint64_t failing_calls = 0;  // answered with ResourceError::failed
  std::uint64_t timeouts = 0;       // had a place, but got no thing in time
  std::uint32_t failures = 0;       // of the factory, in a row, now
  std::string last_failure;
  std::chrono::nanoseconds retry_after{};
  std::chrono::nanoseconds oldest_lease{};
  bool histograms = false;          // whether there are:
  HistogramCounts wait, use, open;  // empty unless ResourceOptions::histograms
};

// A pool that a registry tells of, though it is not the registry's.
struct ResourceSource {
  std::string name{};
  std::string kind{};  // "postgres", "sqlite" ...; empty: something of your own
  // From any thread, often, until the source is detached. It must not use the registry.
  std::function<ResourceSnapshot()> snapshot{};
};

}  // namespace bulkhead
