// resource_core.h - what resource_pool.h is made of; everything that does not depend on the thing lent.
#pragma once

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "bulkhead/gate.h"
#include "bulkhead/resource_snapshot.h"

namespace bulkhead {

// What a factory is told.
struct Opening {
  TimePoint deadline = no_deadline;
  std::stop_token stop{};  // fires when the pool is closed
};

// How long a factory that failed is left alone: initial, then twice as long each time, at most `max`; up
// to the share `jitter` shorter, so that many pools do not come back at once.
struct Backoff {
  std::chrono::nanoseconds initial = std::chrono::milliseconds(100);
  std::chrono::nanoseconds max = std::chrono::seconds(10);
  double jitter = 0.2;
};

enum class Maintenance : std::uint8_t {
  background,  // on helper threads
  by_hand,     // inside ResourcePool::maintain(): for tests and simulations on virtual time
};

// Why there is no lease: the bulkhead refused (rejection), or the thing cannot be had (failed): a
// dependency that is down is not a pool that is full, and the callers of either want to do different
// things.
struct ResourceError {
  std::optional<Rejection> rejection{};
  std::string_view name{};
  std::string failure{};                   // what the factory said
  std::uint32_t failures = 0;              // in a row
  std::chrono::nanoseconds retry_after{};  // until the factory is tried again; 0: at once

  bool failed() const noexcept { return !rejection; }
  // bulkhead "db" cannot open: connection refused (3 failures in a row), next try in 400 ms
  std::string message() const;
};

class ResourceBudget;

namespace detail {

class ResourceCore;
struct ResourceSlot;

struct ResourceSettings {
  std::string name;
  std::uint32_t max, min_idle;
  std::chrono::nanoseconds validate_after, idle_timeout, max_lifetime;
  double lifetime_jitter;
  std::chrono::nanoseconds connect_timeout;
  Backoff backoff;
  GateOptions gate;
  bool histograms;
  std::uint64_t seed;
  Maintenance maintenance;
  Clock* clock;
  Gate* on;
  ResourceBudget* budget;
};

struct ResourceOperations {
  std::function<std::expected<void*, std::string>(const Opening&)> open;
  std::function<bool(void*)> validate, dirty, reset;
  std::function<void(void*)> dispose;  // and destroys it
};

// The right to one place of the pool, and mostly a thing in it.
class RawLease {
 public:
  RawLease() noexcept = default;
  RawLease(RawLease&& other) noexcept
      : permit_(std::move(other.permit_)), core_(other.core_), slot_(std::exchange(other.slot_, nullptr)) {}
  RawLease& operator=(RawLease&& other) noexcept {
    if (this != &other) {
      if (slot_) give_back();
      permit_ = std::move(other.permit_);
      core_ = other.core_;
      slot_ = std::exchange(other.slot_, nullptr);
    }
    return *this;
  }
  ~RawLease() {
    if (slot_) give_back();
  }

  bool held() const noexcept { return slot_; }
  void* thing() const noexcept;
  bool vacant() const noexcept;
  bool unchecked() const noexcept;
  void mark_broken() noexcept;
  void fail() noexcept { permit_.fail(); }
  bool release(Outcome outcome) noexcept {
    if (!slot_) return false;
    if (outcome == Outcome::failure) permit_.fail();
    give_back();
    return true;
  }
  std::stop_token stop_token() noexcept { return permit_.stop_token(); }
  Opening opening() const;
  void fill(void* thing) noexcept;
  void checked() noexcept;
  ResourceError fail_to_open(std::string why);

 private:
  friend class ResourceCore;
  void give_back() noexcept;

  Permit permit_;
  ResourceCore* core_ = nullptr;
  ResourceSlot* slot_ = nullptr;
};

using RawResult = std::expected<RawLease, ResourceError>;
using RawHandler = std::move_only_function<void(RawResult)>;

class RawPool {
 public:
  RawPool(ResourceSettings settings, ResourceOperations operations);
  ~RawPool();
  RawPool(const RawPool&) = delete;
  RawPool& operator=(const RawPool&) = delete;

  // Nothing: `lease` is filled.
  std::optional<ResourceError> try_acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(std::source_location where, RawLease& lease);
  void async_acquire(AcquireOptions options, bool claim, RawHandler handler);
  void resize(std::uint32_t max);
  void close() noexcept;
  bool drain(TimePoint until);
  TimePoint maintain(TimePoint now);
  ResourceSnapshot snapshot() const;
  Gate& gate() const noexcept;

 private:
  std::unique_ptr<ResourceCore> core_;
};

// Suspends the coroutine unless the answer comes at once.
class CoLease {
 public:
  CoLease(RawPool& pool, AcquireOptions options) : pool_(pool), options_(std::move(options)) {}
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> coroutine) {
    pool_.async_acquire(std::move(options_), false, [this, coroutine](RawResult answer) {
      result = std::move(answer);
      if (stage_.exchange(answered, std::memory_order_acq_rel) == suspended) coroutine.resume();
    });
    return stage_.exchange(suspended, std::memory_order_acq_rel) != answered;
  }

 protected:
  RawResult result{std::unexpect};

 private:
  enum : std::uint8_t { started, answered, suspended };
  RawPool& pool_;
  AcquireOptions options_;
  std::atomic<std::uint8_t> stage_{started};
};

}  // namespace detail

// How many things several pools may have alive together, opening and closing ones included. A pool that
// may open one more but finds the budget used up closes an idle one of its neighbours first. Outlives
// its pools.
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
