// snapshot.h - what a gate can tell about itself: numbers now, events as they happen, who holds the permits.
//
//   auto s = gate.snapshot();
//   std::cout << s.in_flight << "/" << s.max_concurrent << " running, " << s.rejected() << " rejected\n";
//
// Exactness: in_flight, permits, limits, admitted, released, succeeded and failed are of one instant and
// always add up; the other counters are exact too, but each is read for itself. Cost: taking a snapshot
// reads a few cache lines and writes none that calls use; it never takes a lock and never allocates. If a
// thread lost its core in the middle of a call that failed or costs more than 1, it lets that thread run
// first (0.1 s at most).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>

#include "bulkhead/rejection.h"

namespace bulkhead {

struct Snapshot {
  std::uint32_t in_flight = 0, waiting = 0, max_concurrent = 0, max_queue = 0;
  std::array<std::uint32_t, kPriorities> waiting_by_priority{};
  bool closed = false;
  std::uint32_t permits = 0;  // calls in flight; equal to in_flight unless calls cost more than 1
  std::uint64_t admitted = 0, released = 0, succeeded = 0, failed = 0;  // admitted == released + permits
  std::uint64_t double_releases = 0, hook_errors = 0, underflows = 0;
  std::array<std::uint64_t, kReasons> rejected_by_reason{};
  std::chrono::nanoseconds mean_hold{};  // of sampled calls, with GateOptions::measure_service
  // How long the oldest permit in flight has been held, 0 if there is none; with GateOptions::track_holders.
  std::optional<std::chrono::nanoseconds> oldest_hold{};
  // Sums over time that lose no spike between two snapshots; of GateOptions::measure_occupancy (in a
  // Bulkhead: of BulkheadOptions::histograms), else 0. They never fall, up to 292 years of one unit, and
  // then begin anew at 0.
  //   occupancy: units in flight, summed over time. 3 units for 2 s add 6 s; a rise of 6 s in 4 s means
  //     1.5 units on average.
  //   saturated: how long no unit was available to calls that are not critical: in flight were
  //     max_concurrent less the critical reserve, or more of them after a shrink. A unit handed from a
  //     call to the next in line was never available. Of a member of a group: none of what it is
  //     allotted, though the group may give it more.
  // Exact, as far as threads agree about the time (some microseconds); a call on its way in or out may be
  // missing.
  std::chrono::nanoseconds occupancy{}, saturated{};

  std::uint64_t rejected(Reason reason) const { return rejected_by_reason[static_cast<std::size_t>(reason)]; }
  std::uint64_t rejected() const {
    std::uint64_t sum = 0;
    for (const auto n : rejected_by_reason) sum += n;
    return sum;
  }
};

struct Event {
  std::string_view name;
  Priority priority = Priority::normal;
  std::uint32_t in_flight = 0, waiting = 0, max_concurrent = 0, max_queue = 0;
};

// Called synchronously, outside every lock, after the state has changed and before the caller concerned
// learns of it. On a hand-off the new holder's on_admit comes before the old holder's on_release. A hook may
// call back into the gate but must not destroy it, nor a coroutine that waits in its line; an exception it
// throws is swallowed and counted (Snapshot::hook_errors).
struct Hooks {
  std::function<void(const Event&)> on_admit{}, on_release{}, on_resize{}, on_close{};
  std::function<void(const Event&, Reason)> on_reject{};
};

// One permit in flight, as listed by Gate::holders().
struct Holder {
  static constexpr std::size_t max_label = 47;
  std::string label;  // AcquireOptions::label, or as much of it as fits into so many bytes
  std::chrono::nanoseconds age{};
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::source_location where;
};

}  // namespace bulkhead
