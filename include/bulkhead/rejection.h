// rejection.h - why a call was not admitted, as a value: one enum for code, metrics, logs, HTTP and CLI.
//
//   if (auto permit = gate.acquire()) work();
//   else log(permit.error().message());
//   // bulkhead "db" rejected (queue_limit): 32/32 running, 64/64 waiting
//
// Threads: plain values. A Rejection refers to the name of its bulkhead, so use it while that bulkhead lives.
// Cost: making one copies a few numbers; only message() allocates.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <expected>
#include <string>
#include <string_view>

namespace bulkhead {

// Tiers, served in this order. Everything else about a call is equal.
enum class Priority : std::uint8_t { critical, normal, best_effort };

enum class Outcome : std::uint8_t { success, failure };

enum class Reason : std::uint8_t {
  concurrency_limit,  // full, and this call does not queue (or costs more than the limit can ever hold)
  queue_limit,        // full, and so is the line
  timeout,            // waited its time, or was not willing to wait at all
  cancelled,          // its stop_token fired
  shutdown,           // the gate is closed
  evicted,            // gave its place in a full line to a call of a higher tier
  deadline,           // its deadline has passed, or would pass before its turn
  breaker_open,
  rate_limit,
  tenant_limit,  // no bulkhead for one more tenant; in_flight and max_concurrent count tenants
};

inline constexpr std::size_t kPriorities = 3;
inline constexpr std::size_t kReasons = 10;

constexpr std::string_view to_string(Priority priority) noexcept {
  constexpr std::array<std::string_view, kPriorities> names{"critical", "normal", "best_effort"};
  const auto i = static_cast<std::size_t>(priority);
  return i < names.size() ? names[i] : "unknown";
}

constexpr std::string_view to_string(Outcome outcome) noexcept {
  return outcome == Outcome::success ? "success" : "failure";
}

constexpr std::string_view to_string(Reason reason) noexcept {
  constexpr std::array<std::string_view, kReasons> names{
      "concurrency_limit", "queue_limit", "timeout",      "cancelled",  "shutdown",
      "evicted",           "deadline",    "breaker_open", "rate_limit", "tenant_limit"};
  const auto i = static_cast<std::size_t>(reason);
  return i < names.size() ? names[i] : "unknown";
}

// The numbers are those of the moment the decision was taken. `in_flight` and `max_concurrent` count units of
// cost, `waiting` and `max_queue` count calls.
struct Rejection {
  Reason reason{};
  std::string_view name;
  std::uint32_t in_flight = 0, max_concurrent = 0, waiting = 0, max_queue = 0;
  std::chrono::nanoseconds retry_after{};  // when it makes sense to come back, if that is known; else 0

  std::string message() const;
};

template <class T>
using Result = std::expected<T, Rejection>;

}  // namespace bulkhead
