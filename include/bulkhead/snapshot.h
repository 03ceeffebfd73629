// snapshot.h - the observable state of a gate: current numbers, counters, events, and the permits in flight.
//
//   auto s = gate.snapshot();
//   std::cout << s.in_flight << "/" << s.max_concurrent << " running, " << s.rejected() << " rejected\n";
//
// Exactness: in_flight, permits, max_concurrent, max_queue, admitted, released, succeeded and failed are of one instant
// and always add up; the other counters are exact too, but each is read separately. Cost: a snapshot reads a few cache
// lines and writes none that calls use; it takes no lock and allocates nothing. If a thread was preempted in the middle
// of a call that failed or costs more than 1, the snapshot waits for it, for at most 0.1 s.
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
  // Age of the oldest permit in flight, 0 without one; with GateOptions::track_holders.
  std::optional<std::chrono::nanoseconds> oldest_hold{};
  // Integrals over time, which miss no spike between two snapshots; with GateOptions::measure_occupancy (in a Bulkhead:
  // BulkheadOptions::histograms), else 0. They never decrease, and wrap to 0 after 292 years of one unit.
  //   occupancy: units in flight, integrated. 3 units for 2 s add 6 s; an increase of 6 s in 4 s means 1.5 units on
  //     average.
  //   saturated: how long no unit was available to calls that are not critical: in_flight was max_concurrent minus the
  //     critical reserve, or more after a shrink. A unit handed from one call to the next waiting call was never
  //     available. For a member of a group: none of its allotted units, even if the group could lend it more.
  // Exact within the difference of the clocks of threads (some microseconds); a call that is being admitted or released
  // may be missing.
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

// Called synchronously, without a lock held, after the change of state and before the call gets its result. On a hand-off
// on_admit of the next call runs before on_release of the previous one. A hook may call back into the gate, but must not
// destroy it, nor a coroutine that waits in it. Exceptions are caught and counted (Snapshot::hook_errors).
struct Hooks {
  std::function<void(const Event&)> on_admit{}, on_release{}, on_resize{}, on_close{};
  std::function<void(const Event&, Reason)> on_reject{};
};

// One permit in flight, as listed by Gate::holders().
struct Holder {
  static constexpr std::size_t kMaxLabel = 47;
  std::string label;  // AcquireOptions::label, cut to kMaxLabel bytes
  std::chrono::nanoseconds age{};
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::source_location where;
};

}  // namespace bulkhead
