// resource_core.h - the parts of resource_pool.h that do not depend on the type of the resource. Not for direct use.
#pragma once

#include "bulkhead/detail/language.h"

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <functional>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>

#include "bulkhead/detail/kept_options.h"
#include "bulkhead/gate.h"
#include "bulkhead/resource.h"
#include "bulkhead/resource_snapshot.h"

namespace bulkhead {

namespace detail {

class ResourceCore;
struct ResourceSlot;

struct ResourceSettings {
  std::string name;
  std::uint32_t max, min_idle;
  std::chrono::nanoseconds validate_after, keepalive, idle_timeout, max_lifetime;
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
  std::function<Result<void*, std::string>(const Opening&)> open;
  std::function<bool(void*)> validate, dirty, reset;
  std::function<void(void*)> dispose;  // also destroys the resource
};

// A place of the pool, mostly with a resource in it.
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
  void* resource() const noexcept;
  bool vacant() const noexcept;
  bool unchecked() const noexcept;
  void mark_broken() noexcept;
  void fail() noexcept {
    if (slot_) permit_.fail();
  }
  bool release(Outcome outcome) noexcept {
    if (!slot_) return false;
    if (is_failure(outcome)) permit_.fail();
    give_back();
    return true;
  }
  std::stop_token stop_token() noexcept { return permit_.stop_token(); }
  Opening opening() const;
  void fill(void* resource) noexcept;
  void checked() noexcept;
  ResourceError fail_to_open(std::string why);
  // The caller does not wait: a helper calls `open` and keeps the resource for the next call.
  ResourceError open_elsewhere(std::function<Result<void*, std::string>(const Opening&)> open, Reason reason);

 private:
  friend class ResourceCore;
  void give_back() noexcept;

  Permit permit_;
  ResourceCore* core_ = nullptr;
  ResourceSlot* slot_ = nullptr;
};

using RawResult = Result<RawLease, ResourceError>;

// One call of async_acquire, async_claim or co_acquire that has to wait. It is reference-counted: the pool holds a reference
// until it has answered, and so does the owner, which may cancel or abandon it. It may outlive the pool.
//
// Invariant: the thread that sets taken_ first, to answer or to abandon, owns the handler.
class LeaseOperation {
 public:
  LeaseOperation(const LeaseOperation&) = delete;
  LeaseOperation& operator=(const LeaseOperation&) = delete;

  // relaxed: the caller has a reference
  void hold() noexcept { references_.fetch_add(1, std::memory_order_relaxed); }
  void let_go() noexcept {
    // acq_rel: the accesses of the other owners come before the delete
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }
  void answer(RawResult result) noexcept {
    if (!taken_.exchange(true, std::memory_order_acq_rel)) deliver(std::move(result));
  }
  // Ends the wait with Reason::cancelled, unless it is answered already.
  void cancel() noexcept {
    if (stop_) std::stop_source(*stop_).request_stop();  // a copy: this object may end inside
  }
  // True: the handler is destroyed and will not be called. False: it was called, or is being called on another thread.
  bool abandon() noexcept {
    if (taken_.exchange(true, std::memory_order_acq_rel)) return false;
    drop();
    cancel();
    return true;
  }
  bool taken() const noexcept { return taken_.load(std::memory_order_acquire); }

 protected:
  LeaseOperation() = default;
  virtual ~LeaseOperation() = default;
  virtual void deliver(RawResult result) noexcept = 0;
  virtual void drop() noexcept = 0;

 private:
  friend class ResourceCore;
  struct Forward {
    LeaseOperation& to;
    void operator()() const noexcept { to.cancel(); }
  };
  // Throws std::bad_alloc. Returns the token that ends the wait: fired by cancel(), abandon() and the caller's own token.
  std::stop_token watch(const std::stop_token& callers) {
    stop_.emplace();
    if (callers.stop_possible()) callers_.emplace(callers, Forward{*this});
    return stop_->get_token();
  }

  std::atomic<std::uint32_t> references_{1};
  std::atomic<bool> taken_{false};
  std::optional<std::stop_source> stop_;  // made when the wait begins
  std::optional<std::stop_callback<Forward>> callers_;
};

template <class H>
class LeaseHandler final : public LeaseOperation {
 public:
  explicit LeaseHandler(H&& handler) : handler_(std::move(handler)) {}

 private:
  void deliver(RawResult result) noexcept override {
    std::optional<H> handler = std::exchange(handler_, std::nullopt);
#if defined(__cpp_exceptions)
    try {
      (*handler)(std::move(result));
    } catch (...) {// NOLINT(bugprone-empty-catch)
      // The handler runs on a thread of the pool or of another caller, which could not handle its exception.
    }
#else
    (*handler)(std::move(result));
#endif
  }
  void drop() noexcept override { handler_.reset(); }

  std::optional<H> handler_;
};

// The state of a call between at_once() and start(): a permit, if it has one already.
struct LeaseAdmission {
  std::optional<Permit> permit{};
  TimePoint began{};
};

class RawPool {
 public:
  RawPool(ResourceSettings settings, ResourceOperations operations);
  ~RawPool();
  RawPool(const RawPool&) = delete;
  RawPool& operator=(const RawPool&) = delete;

  // Empty: `lease` is filled.
  std::optional<ResourceError> try_acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(const AcquireOptions& options, RawLease& lease);
  std::optional<ResourceError> acquire(std::source_location where, RawLease& lease);
  // The answer if the call need not wait; otherwise fills `admission` for start().
  std::optional<RawResult> at_once(const AcquireOptions& options, bool claim,
                                   LeaseAdmission& admission) noexcept;
  // Answers `operation` exactly once, possibly inside this call, unless it is abandoned.
  void start(AcquireOptions options, bool claim, LeaseAdmission admission,
             LeaseOperation& operation) noexcept;
  ResourceError out_of_memory() const noexcept;
  void resize(std::uint32_t max);
  void close() noexcept;
  bool drain(TimePoint until);
  TimePoint maintain(TimePoint now);
  ResourceSnapshot snapshot() const;
  Gate& gate() const noexcept;

 private:
  std::unique_ptr<ResourceCore> core_;
};

// Suspends the coroutine unless the result is known at once. Destroying the coroutine while it waits takes it out of the
// line and gives back what it was about to get.
class CoLease {
 public:
  CoLease(RawPool& pool, AcquireOptions options) : pool_(pool), options_(std::move(options)) {}
  CoLease(const CoLease&) = delete;
  CoLease& operator=(const CoLease&) = delete;
  ~CoLease();
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> coroutine) noexcept;

 protected:
  RawResult result{unexpect};

 private:
  enum class Stage : std::uint8_t { started, answered, suspended };
  class Operation;

  RawPool& pool_;
  KeptOptions<AcquireOptions> options_;
  LeaseOperation* operation_ = nullptr;
  std::atomic<Stage> stage_{Stage::started};
};

}  // namespace detail

}  // namespace bulkhead
