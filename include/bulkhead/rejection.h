// rejection.h - why a call was not admitted, as a value: one enum for code, metrics, logs, HTTP and CLI.
//
//   if (auto permit = gate.acquire()) work();
//   else log(permit.error().message());
//   // bulkhead "db" rejected (queue_limit): 32/32 running, 64/64 waiting
//
// Threads: plain values. A Rejection owns its name (see name.h) and may outlive its bulkhead.
// Cost: creating one copies a few numbers and the name; only message() allocates.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "bulkhead/name.h"
#include "bulkhead/outcome.h"

namespace bulkhead {

// Tiers of the queue, served in this order.
enum class Priority : std::uint8_t { critical, normal, best_effort };

enum class Reason : std::uint8_t {
  concurrency_limit,  // max_concurrent reached and the call may not queue, or its cost exceeds max_concurrent
  queue_limit,        // max_concurrent and max_queue reached
  timeout,            // waited in the queue for its timeout (max_wait), or its timeout is 0
  cancelled,          // its stop_token was triggered
  shutdown,           // the gate is closed
  evicted,  // removed from a full queue for a call of a higher tier, or for a newer task (OnReject::discard_oldest)
  deadline,      // its deadline has passed, or would pass before its turn: see Rejection::deadline_passed
  breaker_open,  // the circuit breaker rejects calls
  rate_limit,    // more calls per second than rate_limit allows
  tenant_limit,  // no room for one more tenant; in_flight and max_concurrent count tenants
  draining,      // an operator drains the bulkhead
  budget_limit,  // a budget has too few units left, and the call may not wait or has waited for too long; see budget.h
  holdback,  // saturation is high, and calls of lower priorities are rejected before higher ones are hurt; see holdback.h
  execution_timeout,  // admitted, and ran longer than its execution_timeout or past its deadline
  injected_fault,     // admitted, and an operator rehearses a failing dependency: see fault.h
};

inline constexpr std::size_t kPriorities = 3;
inline constexpr std::size_t kReasons = 15;
inline constexpr std::size_t kRejectReasons =
    13;  // without execution_timeout and injected_fault, the last: those calls were admitted

constexpr std::string_view to_string(Priority priority) noexcept {
  constexpr std::array<std::string_view, kPriorities> kNames{"critical", "normal", "best_effort"};
  const auto i = static_cast<std::size_t>(priority);
  return i < kNames.size() ? kNames[i] : "unknown";
}

constexpr std::string_view to_string(Reason reason) noexcept {
  constexpr std::array<std::string_view, kReasons> kNames{
      "concurrency_limit", "queue_limit",  "timeout",      "cancelled",         "shutdown",
      "evicted",           "deadline",     "breaker_open", "rate_limit",        "tenant_limit",
      "draining",          "budget_limit", "holdback",     "execution_timeout", "injected_fault"};
  const auto i = static_cast<std::size_t>(reason);
  return i < kNames.size() ? kNames[i] : "unknown";
}

// The name of a budget, inside the object; a longer one is cut.
class BudgetName {
 public:
  constexpr BudgetName() noexcept = default;
  constexpr BudgetName(std::string_view name) noexcept {  // NOLINT: implicit on purpose
    for (std::size_t i = 0; i < name.size() && i + 1 < sizeof text_; ++i) text_[i] = name[i];
  }
  constexpr std::string_view view() const noexcept { return text_; }
  constexpr bool empty() const noexcept { return text_[0] == 0; }
  friend bool operator==(const BudgetName&, const BudgetName&) = default;

 private:
  char text_[24] = {};
};

// The numbers are from the moment of the decision. `in_flight` and `max_concurrent` count units of cost, `waiting`
// and `max_queue` count calls.
struct Rejection {
  Reason reason{};
  Name name{};
  std::uint32_t in_flight = 0, max_concurrent = 0, waiting = 0, max_queue = 0;
  std::chrono::nanoseconds retry_after{};  // when a retry makes sense; 0: not known
  // With Reason::deadline: the deadline had already passed. False: the calls ahead in the queue would have taken
  // longer than the time left.
  bool deadline_passed = false;
  // Of a call that was rejected at a budget: its name, and the units that the call asked for. in_flight, max_concurrent,
  // waiting and max_queue are then those of the budget; max_concurrent is 0 if the bulkhead has no such budget.
  BudgetName budget{};
  std::uint32_t asked = 0, per_call_max = 0;

  std::string message() const;
  friend bool operator==(const Rejection&, const Rejection&) = default;
};

}  // namespace bulkhead
