// fault.h - latency and errors in front of a bulkhead's calls, to rehearse an incident in a running process.
//
//   payments.inject({.latency = 2s, .error = 0.1, .until = now() + 1min});   // every call 2 s later, one in ten fails
//   payments.end_fault();
//
// A call gets its place, waits for `latency` with it, and then runs or fails: bulkhead, breaker, limiter and callers see a
// slow or failing dependency. A call that fails does not run; its result is a Rejection with Reason::injected_fault, its
// outcome a failure, and its fallback is used as for a call that threw.
// Limits: the latency ends with the call's execution_timeout or deadline, and with the fault. A caller that cancels meanwhile
//   gets its answer when the latency is over. try_acquire() never waits: its calls only fail. Calls of a bulkhead that is
//   not enabled or in shadow mode are left alone. Handlers and coroutines continue on the thread of the clock's deadlines.
//   A handler for which there is no memory to wait is called at once.
// Errors are spread evenly, not at random: with 0.1 every tenth call fails.
// Threads: plain values; Bulkhead::inject() and end_fault() may be called from any thread.
// Cost: none for calls while there is no fault.
#pragma once

#include <chrono>

#include "bulkhead/clock.h"

namespace bulkhead {

inline constexpr std::chrono::nanoseconds kMostFaultLatency = std::chrono::minutes(1);

struct Fault {
  std::chrono::nanoseconds latency{0};  // at most kMostFaultLatency
  double error = 0;                     // share of the calls that fail, 0 to 1
  TimePoint until = no_deadline;        // it ends by itself

  friend bool operator==(const Fault&, const Fault&) = default;
};

}  // namespace bulkhead
