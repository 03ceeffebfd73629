// resource.h - the types that a ResourcePool and its users share: how resources are opened, and why there is none.
//
//   bulkhead::ResourceBudget connections{100};             // of all pools together
//
// Threads: plain values; every member of ResourceBudget may be called from any thread.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "bulkhead/clock.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

namespace detail {
class ResourceCore;
}

// The arguments of a factory.
struct Opening {
  TimePoint deadline = no_deadline;
  std::stop_token stop{};  // fires when the pool is closed
};

// The pause after a failure of the factory: `initial`, then twice as long after each further failure, at most `max`. Each
// pause is shortened at random by up to the share `jitter`, so that many pools do not retry at once.
struct Backoff {
  std::chrono::nanoseconds initial = std::chrono::milliseconds(100);
  std::chrono::nanoseconds max = std::chrono::seconds(10);
  double jitter = 0.2;
};

enum class Maintenance : std::uint8_t {
  background,  // on helper threads
  by_hand,     // inside ResourcePool::maintain(): for tests and simulations on virtual time
};

// Why there is no lease: the gate rejected the call (rejection), or the resource could not be opened (failed). Callers
// treat a dependency that is down differently from a pool that is full.
struct ResourceError {
  std::optional<Rejection> rejection{};
  Name name{};
  std::string failure{};                   // what the factory said
  std::uint32_t failures = 0;              // in a row
  std::chrono::nanoseconds retry_after{};  // until the factory is tried again; 0: at once

  bool failed() const noexcept { return !rejection; }
  // bulkhead "db" cannot open: connection refused (3 failures in a row), next try in 400 ms
  std::string message() const;
};

// The maximum number of resources that several pools have alive together, including those that are being opened or
// closed. A pool that may open one more but finds the budget used up first closes an idle one of another pool. The budget
// must outlive its pools.
class ResourceBudget {
 public:
  explicit ResourceBudget(std::uint32_t total);
  ~ResourceBudget();
  ResourceBudget(const ResourceBudget&) = delete;
  ResourceBudget& operator=(const ResourceBudget&) = delete;

  std::uint32_t total() const noexcept;
  std::uint32_t alive() const noexcept;  // of all its pools, now
  std::uint32_t most_alive() const noexcept;

 private:
  friend class detail::ResourceCore;
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
