// resource_pool.h - a bulkhead that lends resources: connections, sessions, buffers, anything that is expensive to create.
//
//   bulkhead::ResourcePool<Connection> db{{.name = "checkout", .max = 50,
//       .open = [](const bulkhead::Opening& o) { return connect("shop", o.deadline); },   // or an error, or an exception
//       .gate = {.max_queue = 100, .max_wait = 50ms}}};
//   if (auto connection = db.acquire()) (*connection)->query("...");   // returned when `connection` is destroyed
//   else reply(503, connection.error().message());                     // says whether the pool is full or opening failed
//
// Calls pass a Gate of `max` units first, so the queue, priorities, timeouts, deadlines, cancellation, holders and counters
// are those of the gate (gate.h). The resource returned last is lent first. A resource that is broken, too old or fails its
// validation is closed and never lent; resources that no call needs are closed after `idle_timeout`.
// Threads: every member may be called from any thread. Helper threads open, validate, clean and close; they start when there is
//   work and end when there is none. With Maintenance::by_hand there are none: callers open and validate, however long that
//   takes, and maintain() does the rest.
// Promises: the number of resources never exceeds `max`, including those that are being opened or closed. Every lease is
//   returned, on every path. A call waits no longer than its timeout, deadline and stop_token allow, however long `open`,
//   `validate` and `dispose` take: a resource that is opened too late for its call is kept for the next one. With a timeout
//   of 0 a call gets an idle resource, or is rejected with Reason::timeout while one is opened for the next call. The pool
//   opens only as many resources as waiting calls and min_idle need. Returning a lease never blocks: a helper cleans the
//   resource if necessary.
// After a failure of `open` the pool waits before it tries again, longer each time (Backoff). Meanwhile calls that would
// need a new resource fail at once (ResourceError::failed); calls that find an idle resource are served.
// Without memory: no call throws, and no resource is lost. A call that cannot wait, or cannot have a resource opened, fails
//   with the text "out of memory"; the calling thread validates, cleans or closes a resource that no helper can.
// Without threads: the same, with the text "no thread to open it", until the system has a thread again. Maintenance is late.
// Cost: acquire and return of an idle resource are the admission and release of a gate plus one compare-exchange each for
//   the stack of idle resources; with `validate`, max_wait or histograms one or two reads of the clock more. Nothing
//   allocates. Opening or validating adds a hop to a helper thread. docs/benchmarks.md has figures
//   (`bulkhead_bench --only resource`).
// The destructor closes the pool, waits for the leases and closes all resources. It must not run inside a handler of the pool.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bulkhead/detail/resource_core.h"
#include "bulkhead/gate.h"

namespace bulkhead {

template <class T>
struct ResourceOptions {
  std::string name{};
  std::uint32_t max = 10;      // most resources: 1 to 10'000
  std::uint32_t min_idle = 0;  // idle resources that are kept open, within `max`

  // Creates a resource. It should respect the deadline and the stop_token of Opening. Returns T, or Unexpected(error text);
  // it may throw instead. Runs on helpers, on several at once.
  std::function<bulkhead::Result<T, std::string>(const Opening&)> open{};
  // Whether a resource is still usable that was idle for validate_after, or while another one broke; if not, it is closed.
  // Runs on a helper, may block.
  std::function<bool(T&)> validate{};
  // On return: whether the resource must be cleaned before it is lent again. Runs on the returning thread and must not
  // block. Without it every resource is cleaned, if there is a `reset`.
  std::function<bool(T&)> dirty{};
  // Cleans a resource, on a helper; false: it cannot be cleaned and is closed. May block.
  std::function<bool(T&)> reset{};
  // Called before the destructor of a resource. Runs on a helper, may block.
  std::function<void(T&)> dispose{};

  std::chrono::nanoseconds validate_after = std::chrono::milliseconds(500);
  // How often an idle resource is validated in the background, so that servers, proxies and NATs do not drop it unnoticed;
  // accurate to a quarter of this time. A resource that fails is closed, and replaced if min_idle needs it. Only a few idle
  // resources are validated at a time; a call waits for one of them only if the pool has no other and may open none. Needs
  // `validate`; wait_forever: off.
  std::chrono::nanoseconds keepalive = wait_forever;
  // After this time, idle resources above min_idle are closed; wait_forever: never.
  std::chrono::nanoseconds idle_timeout = std::chrono::minutes(10);
  std::chrono::nanoseconds max_lifetime = std::chrono::minutes(30);  // wait_forever: none
  double lifetime_jitter = 0.1;  // shortens each lifetime at random by up to this share: 0 to 1
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
  Backoff backoff{};
  GateOptions gate{};       // queue, hooks, fairness ...: everything but name, max_concurrent and clock
  bool histograms = false;  // of wait, use and open times; costs two reads of the clock per lease
  std::uint64_t seed = 1;   // of the jitters
  Maintenance maintenance = Maintenance::background;
  Clock* clock = nullptr;  // default: Clock::steady()

  // Elastic pools: `on` is a gate to use instead of an own one, a member of a group, which alone resizes it; `budget` limits
  // the resources of several pools together. Both must outlive the pool.
  Gate* on = nullptr;
  ResourceBudget* budget = nullptr;
};

template <class T>
class ResourcePool;

// A call of async_acquire or async_claim that may still be waiting. It may be used from any thread, also after the end of the
// pool. Destroying it has no effect: the handler will be called.
class PendingLease {
 public:
  PendingLease() noexcept = default;
  PendingLease(PendingLease&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  PendingLease& operator=(PendingLease&& other) noexcept {
    std::swap(operation_, other.operation_);
    return *this;
  }
  ~PendingLease() {
    if (operation_) operation_->let_go();
  }

  // Ends the wait: the handler is called with Reason::cancelled, unless the call is decided already.
  void cancel() noexcept {
    if (operation_) operation_->cancel();
  }
  // Ends the wait without a result. True: the handler is destroyed inside this function and is never called; a resource
  // assigned to it returns to the pool. False: the handler was called, or another thread is calling it. An event loop that
  // ends before the pool abandons the calls whose handlers would use the loop.
  bool abandon() noexcept { return operation_ && operation_->abandon(); }

 private:
  template <class>
  friend class ResourcePool;
  explicit PendingLease(detail::LeaseOperation* operation) noexcept
      : operation_(operation) {}  // takes the reference
  detail::LeaseOperation* operation_ = nullptr;
};

// A resource on loan. It has one owner, like a unique_ptr; it may be moved to, and destroyed on, any thread. If it is empty
// (released or moved from), get() is null and the other members have no effect.
template <class T>
class [[nodiscard]] Lease {
 public:
  Lease() noexcept = default;

  T& operator*() const noexcept { return *get(); }
  T* operator->() const noexcept { return get(); }
  T* get() const noexcept { return static_cast<T*>(raw_.resource()); }
  explicit operator bool() const noexcept { return raw_.held(); }

  void mark_broken() noexcept { raw_.mark_broken(); }  // the resource is closed instead of lent again
  void fail() noexcept { raw_.fail(); }                // counts the call as failed
  bool release(Outcome outcome = Outcome::success) noexcept { return raw_.release(outcome); }
  // Triggered when a group calls the units of this lease back, see Permit::stop_token().
  std::stop_token stop_token() noexcept { return raw_.stop_token(); }

 private:
  friend class ResourcePool<T>;
  template <class>
  friend class Claim;
  explicit Lease(detail::RawLease raw) noexcept : raw_(std::move(raw)) {}
  detail::RawLease raw_;
};

// For an event loop that opens and validates without helper threads: a slot of the pool, with or without a resource.
// Destroying an undecided claim returns the slot.
template <class T>
class [[nodiscard]] Claim {
 public:
  bool vacant() const noexcept {
    return raw_.vacant();
  }  // no resource: open one within `opening()`, then fill() or fail()
  bool unchecked() const noexcept {
    return raw_.unchecked();
  }  // was idle for long: validate it, then lease() or discard()
  T& operator*() const noexcept { return *static_cast<T*>(raw_.resource()); }
  Opening opening() const { return raw_.opening(); }

  Lease<T> lease() && noexcept {
    raw_.checked();
    return Lease<T>(std::move(raw_));
  }
  Lease<T> fill(T resource) && {
    raw_.fill(new T(std::move(resource)));
    return Lease<T>(std::move(raw_));
  }
  ResourceError fail(std::string why) && {
    return raw_.fail_to_open(std::move(why));
  }  // counts as a failure for the backoff
  // For a call that times out or is cancelled while it opens a resource; this is not a failure of the factory. A helper
  // calls `open`, which may block, and keeps the resource for the next call; the slot is in use until then. Returns the
  // rejection of the call: Reason::timeout, deadline or cancelled.
  ResourceError open_elsewhere(std::function<bulkhead::Result<T, std::string>(const Opening&)> open,
                               Reason reason) && {
    return raw_.open_elsewhere(
        [open = std::move(open)](const Opening& opening) -> bulkhead::Result<void*, std::string> {
          bulkhead::Result<T, std::string> made = open(opening);
          if (!made) return Unexpected(std::move(made).error());
          return new T(*std::move(made));
        },
        reason);
  }
  void discard() && noexcept {
    raw_.mark_broken();
    raw_.release(Outcome::success);
  }

 private:
  friend class ResourcePool<T>;
  explicit Claim(detail::RawLease raw) noexcept : raw_(std::move(raw)) {}
  detail::RawLease raw_;
};

template <class T>
using ResourceResult = bulkhead::Result<Lease<T>, ResourceError>;

template <class T>
class ResourcePool {
 public:
  explicit ResourcePool(ResourceOptions<T> options) : raw_(settings(options), operations(options)) {}

  // Never waits. If no resource is idle but one may be opened, or the idle one must be validated first, a helper does that
  // for the next call, and this call is rejected with Reason::timeout. For callers that only use try_acquire, a `keepalive`
  // shorter than validate_after keeps idle resources available.
  ResourceResult<T> try_acquire(const AcquireOptions& options = {}) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.try_acquire(options, result->raw_)) result = Unexpected(*std::move(error));
    return result;
  }
  // May block. options.timeout bounds the wait in the queue and for a resource together. A lease is one resource: a higher
  // options.cost takes more units of the gate, but not more resources.
  ResourceResult<T> acquire(const AcquireOptions& options) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.acquire(options, result->raw_)) [[unlikely]]
      result = Unexpected(*std::move(error));
    return result;
  }
  // A template so that `acquire({})` selects the overload above.
  template <std::same_as<void> = void>
  ResourceResult<T> acquire(std::source_location where = std::source_location::current()) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.acquire(where, result->raw_)) [[unlikely]]
      result = Unexpected(*std::move(error));
    return result;
  }
  // Calls handler(ResourceResult<T>) exactly once: inside this function if a resource is idle, else on the thread that
  // returned one, on the timer thread, or on a helper that opened one. The handler must not block for long, throw, or destroy
  // the pool. The returned PendingLease can end the wait early. A call that waits allocates; without memory the handler gets
  // ResourceError::failed(), "out of memory".
  template <class H>
  PendingLease async_acquire(AcquireOptions options, H handler) {
    return launch(std::move(options), false, [handler = std::move(handler)](detail::RawResult raw) mutable {
      if (raw)
        handler(ResourceResult<T>(Lease<T>(*std::move(raw))));
      else
        handler(ResourceResult<T>(unexpect, std::move(raw).error()));
    });
  }
  // For an event loop that opens and validates by itself: handler(bulkhead::Result<Claim<T>, ResourceError>).
  template <class H>
  PendingLease async_claim(AcquireOptions options, H handler) {
    return launch(std::move(options), true, [handler = std::move(handler)](detail::RawResult raw) mutable {
      using Result = bulkhead::Result<Claim<T>, ResourceError>;
      if (raw)
        handler(Result(Claim<T>(*std::move(raw))));
      else
        handler(Result(unexpect, std::move(raw).error()));
    });
  }
  // co_await -> ResourceResult<T>. Resumes where async_acquire would call its handler. A coroutine that is destroyed while it
  // is suspended here leaves the queue, and a resource assigned to it returns to the pool. It must not be destroyed while
  // another thread resumes it.
  // In an asio::awaitable: bulkhead::async_acquire(pool, options, use_awaitable) of adapters/asio/async_acquire.h.
  auto co_acquire(AcquireOptions options = {}) {
    struct Awaiter : detail::CoLease {
      using CoLease::CoLease;
      ResourceResult<T> await_resume() {
        if (result) return ResourceResult<T>(Lease<T>(*std::move(result)));
        return ResourceResult<T>(unexpect, std::move(result).error());
      }
    };
    return Awaiter(raw_, std::move(options));
  }

  // Never blocks. Shrinking closes idle resources first, and resources on loan when they return.
  void resize(std::uint32_t max) { raw_.resize(max); }
  void resize_queue(std::uint32_t max_queue) { gate().resize_queue(max_queue); }
  // Rejects waiting calls and closes idle resources; resources on loan are closed when they return.
  void close() noexcept { raw_.close(); }
  bool drain(TimePoint until = no_deadline) { return raw_.drain(until); }

  // With Maintenance::by_hand: closes, cleans and opens resources as required at `now`, on this thread. Returns the latest
  // time of the next call. No effect otherwise.
  TimePoint maintain(TimePoint now) { return raw_.maintain(now); }

  ResourceSnapshot snapshot() const { return raw_.snapshot(); }
  std::vector<Holder> holders() const { return gate().holders(); }
  Gate& gate() const noexcept { return raw_.gate(); }
  std::string_view name() const noexcept { return gate().name(); }

 private:
  // Without memory for a call that has to wait, the handler gets the error inside this function.
  template <class H>
  PendingLease launch(AcquireOptions options, bool claim, H handler) {
    detail::LeaseAdmission admission;
    std::optional<detail::RawResult> answer = raw_.at_once(options, claim, admission);
    detail::LeaseOperation* operation = nullptr;
    if (!answer) {
      operation = new (std::nothrow) detail::LeaseHandler<H>(std::move(handler));
      if (!operation) answer.emplace(unexpect, raw_.out_of_memory());
    }
    if (answer) {
      admission.permit.reset();
      handler(*std::move(answer));
      return {};
    }
    PendingLease lease(operation);
    raw_.start(std::move(options), claim, std::move(admission), *operation);
    return lease;
  }
  static detail::ResourceSettings settings(const ResourceOptions<T>& o) {
    return {.name = o.name,
            .max = o.max,
            .min_idle = o.min_idle,
            .validate_after = o.validate_after,
            .keepalive = o.keepalive,
            .idle_timeout = o.idle_timeout,
            .max_lifetime = o.max_lifetime,
            .lifetime_jitter = o.lifetime_jitter,
            .connect_timeout = o.connect_timeout,
            .backoff = o.backoff,
            .gate = o.gate,
            .histograms = o.histograms,
            .seed = o.seed,
            .maintenance = o.maintenance,
            .clock = o.clock,
            .on = o.on,
            .budget = o.budget};
  }
  // The functions of the user, without T: the pool behind them is compiled once for all types.
  static detail::ResourceOperations operations(const ResourceOptions<T>& o) {
    detail::ResourceOperations ops;
    const auto of = [](void* resource) -> T& { return *static_cast<T*>(resource); };
    if (o.open)
      ops.open = [open = o.open](const Opening& opening) -> bulkhead::Result<void*, std::string> {
        bulkhead::Result<T, std::string> made = open(opening);
        if (!made) return Unexpected(std::move(made).error());
        return new T(*std::move(made));
      };
    if (o.validate) ops.validate = [f = o.validate, of](void* resource) { return f(of(resource)); };
    if (o.dirty) ops.dirty = [f = o.dirty, of](void* resource) { return f(of(resource)); };
    if (o.reset) ops.reset = [f = o.reset, of](void* resource) { return f(of(resource)); };
    ops.dispose = [f = o.dispose, of](void* resource) {
      const std::unique_ptr<T> dying(&of(resource));
      if (f) f(*dying);
    };
    return ops;
  }

  detail::RawPool raw_;
};

}  // namespace bulkhead
