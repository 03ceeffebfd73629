// resource_pool.h - a bulkhead that lends things: connections, sessions, buffers, anything dear to make.
//
//   bulkhead::ResourcePool<Connection> db{{.name = "checkout", .max = 50,
//       .open = [](const bulkhead::Opening& o) { return connect("shop", o.deadline); },   // or an error, or a throw
//       .gate = {.max_queue = 100, .max_wait = 50ms}}};
//   if (auto connection = db.acquire()) (*connection)->query("...");   // goes back when `connection` dies
//   else reply(503, connection.error().message());                     // full, or it cannot be opened: not the same
//
// In front is a Gate of `max` units, so the line, priorities, timeouts, deadlines, cancellation, holders
// and counters are the gate's (gate.h). Behind it are the things: the one returned last is lent first;
// one that is broken, too old or fails its validation is closed and never lent; those nobody needs are
// closed after a while.
// Threads: every member may be called from any thread. Maintenance (closing, cleaning, refilling) runs
//   on helper threads that start when there is something to do and end when there is not, or by hand
//   (Maintenance::by_hand).
// Promises: the number alive never exceeds `max`, counting those being opened and those being closed.
//   Every lease comes back, on every path. A caller waits no longer than it wants, even if `open`
//   ignores its deadline: what is opened too late for it is kept for the next. Giving back never blocks:
//   a thing that needs cleaning is cleaned by a helper.
// A factory that fails is left alone for a while, longer each time (Backoff); callers who would need it
// are told so at once (ResourceError::failed), those for whom a thing is idle are served.
// Cost: acquire and return of an idle thing are a gate's admission and release and one compare-exchange
//   each for the stack of idle things, 2.7 times a gate's pair; with `validate`, max_wait or histograms one or
//   two glances at the clock more. Nothing allocates. See docs/design/resource.md.
// The destructor closes the pool, waits for the leases and closes all things.
#pragma once

#include <chrono>
#include <cstdint>
#include <expected>
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
  std::uint32_t max = 10;      // alive at most: 1 to 10'000
  std::uint32_t min_idle = 0;  // opened ahead of need, as far as `max` allows

  // Makes one. It keeps to the deadline it is given and gives up when asked to stop. Returns T, or
  // std::unexpected of what went wrong; it may throw instead. Runs on the thread that needs the thing or
  // on a helper, often several at once.
  std::function<std::expected<T, std::string>(const Opening&)> open{};
  // Whether one that lay idle for validate_after is still good; one that is not is closed. May block.
  std::function<bool(T&)> validate{};
  // On return: whether it must be cleaned before it is lent again. Runs on the thread that returns it,
  // so it only looks.
  // Without it everything is cleaned, if there is a `reset`.
  std::function<bool(T&)> dirty{};
  // Cleans one, on a helper; false: it cannot be cleaned, close it. May block.
  std::function<bool(T&)> reset{};
  // Before its destructor. May block.
  std::function<void(T&)> dispose{};

  std::chrono::nanoseconds validate_after = std::chrono::milliseconds(500);
  // Above min_idle; wait_forever: kept.
  std::chrono::nanoseconds idle_timeout = std::chrono::minutes(10);
  std::chrono::nanoseconds max_lifetime = std::chrono::minutes(30);  // wait_forever: none
  double lifetime_jitter = 0.1;  // lives up to this share shorter, so that not all end at once: 0 to 1
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
  Backoff backoff{};
  GateOptions gate{};       // its line, hooks, fairness ...: all but name, max_concurrent and clock
  bool histograms = false;  // wait, use and open times; costs two glances at the clock
  std::uint64_t seed = 1;   // of the jitters
  Maintenance maintenance = Maintenance::background;
  Clock* clock = nullptr;  // default: Clock::steady()

  // Elastic pools: `on` is a gate in place of its own, a member of a group, which alone moves its limit;
  // `budget` is what several pools share, so that they have no more alive together than it allows. Both
  // outlive the pool.
  Gate* on = nullptr;
  ResourceBudget* budget = nullptr;
};

template <class T>
class ResourcePool;

// A thing on loan. Belongs to one owner, like a unique_ptr; it may be moved to, and die on, any thread.
template <class T>
class [[nodiscard]] Lease {
 public:
  Lease() noexcept = default;

  T& operator*() const noexcept { return *get(); }
  T* operator->() const noexcept { return get(); }
  T* get() const noexcept { return static_cast<T*>(raw_.thing()); }
  explicit operator bool() const noexcept { return raw_.held(); }

  void mark_broken() noexcept { raw_.mark_broken(); }  // it will be closed instead of lent again
  void fail() noexcept { raw_.fail(); }                // the call has failed: for the counters
  bool release(Outcome outcome = Outcome::success) noexcept { return raw_.release(outcome); }
  // Fires when the units of this lease are wanted back, see Permit::stop_token().
  std::stop_token stop_token() noexcept { return raw_.stop_token(); }

 private:
  friend class ResourcePool<T>;
  template <class>
  friend class Claim;
  explicit Lease(detail::RawLease raw) noexcept : raw_(std::move(raw)) {}
  detail::RawLease raw_;
};

// What an event loop gets that opens and validates by itself, without a thread: a place in the pool,
// with or without a thing in it. One that dies undecided gives the place back.
template <class T>
class [[nodiscard]] Claim {
 public:
  bool vacant() const noexcept {
    return raw_.vacant();
  }  // nothing there: open one by `opening()`, then fill() or fail()
  bool unchecked() const noexcept {
    return raw_.unchecked();
  }  // idle for long: look whether it is good, then lease() or discard()
  T& operator*() const noexcept { return *static_cast<T*>(raw_.thing()); }
  Opening opening() const { return raw_.opening(); }

  Lease<T> lease() && noexcept {
    raw_.checked();
    return Lease<T>(std::move(raw_));
  }
  Lease<T> fill(T thing) && {
    raw_.fill(new T(std::move(thing)));
    return Lease<T>(std::move(raw_));
  }
  ResourceError fail(std::string why) && {
    return raw_.fail_to_open(std::move(why));
  }  // counts for the backoff
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
using ResourceResult = std::expected<Lease<T>, ResourceError>;

template <class T>
class ResourcePool {
 public:
  explicit ResourcePool(ResourceOptions<T> options) : raw_(settings(options), operations(options)) {}

  // Never waits: an idle thing, or why not. If there is none but there could be one, that is opened in
  // the background and this call is refused with Reason::timeout.
  ResourceResult<T> try_acquire(const AcquireOptions& options = {}) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.try_acquire(options, result->raw_)) result = std::unexpected(*std::move(error));
    return result;
  }
  // May block this thread. options.timeout bounds the wait in line and for a thing to be opened
  // together; options.cost is 1.
  ResourceResult<T> acquire(const AcquireOptions& options) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.acquire(options, result->raw_)) [[unlikely]]
      result = std::unexpected(*std::move(error));
    return result;
  }
  // (A template only so that `acquire({})` means the one above.)
  template <std::same_as<void> = void>
  ResourceResult<T> acquire(std::source_location where = std::source_location::current()) {
    ResourceResult<T> result{std::in_place};
    if (auto error = raw_.acquire(where, result->raw_)) [[unlikely]]
      result = std::unexpected(*std::move(error));
    return result;
  }
  // Calls handler(ResourceResult<T>) exactly once: inside this call if a thing is idle, else on the
  // thread that returned one, on that of a timer, or on a helper that opened one. It must not block for
  // long, nor throw.
  template <class H>
  void async_acquire(AcquireOptions options, H handler) {
    raw_.async_acquire(std::move(options), false,
                       [handler = std::move(handler)](detail::RawResult raw) mutable {
                         if (raw)
                           handler(ResourceResult<T>(Lease<T>(*std::move(raw))));
                         else
                           handler(ResourceResult<T>(std::unexpect, std::move(raw).error()));
                       });
  }
  // The same for those who open things by themselves: handler(std::expected<Claim<T>, ResourceError>).
  template <class H>
  void async_claim(AcquireOptions options, H handler) {
    raw_.async_acquire(std::move(options), true,
                       [handler = std::move(handler)](detail::RawResult raw) mutable {
                         using Result = std::expected<Claim<T>, ResourceError>;
                         if (raw)
                           handler(Result(Claim<T>(*std::move(raw))));
                         else
                           handler(Result(std::unexpect, std::move(raw).error()));
                       });
  }
  // co_await -> ResourceResult<T>. Resumes where async_acquire would call its handler.
  auto co_acquire(AcquireOptions options = {}) {
    struct Awaiter : detail::CoLease {
      using CoLease::CoLease;
      ResourceResult<T> await_resume() {
        if (result) return ResourceResult<T>(Lease<T>(*std::move(result)));
        return ResourceResult<T>(std::unexpect, std::move(result).error());
      }
    };
    return Awaiter(raw_, std::move(options));
  }

  // At once and never blocking. Shrinking closes idle things first, borrowed ones when they return.
  void resize(std::uint32_t max) { raw_.resize(max); }
  void resize_queue(std::uint32_t max_queue) { gate().resize_queue(max_queue); }
  // Waiters are rejected, idle things are closed, those on loan when they return.
  void close() noexcept { raw_.close(); }
  bool drain(TimePoint until = no_deadline) { return raw_.drain(until); }

  // With Maintenance::by_hand: closes, cleans and opens what is due at `now`, on this thread. Gives the
  // time when it has to be called again at the latest, if nothing happens until then. (Harmless
  // otherwise.)
  TimePoint maintain(TimePoint now) { return raw_.maintain(now); }

  ResourceSnapshot snapshot() const { return raw_.snapshot(); }
  std::vector<Holder> holders() const { return gate().holders(); }
  Gate& gate() const noexcept { return raw_.gate(); }
  std::string_view name() const noexcept { return gate().name(); }

 private:
  static detail::ResourceSettings settings(const ResourceOptions<T>& o) {
    return {o.name,
            o.max,
            o.min_idle,
            o.validate_after,
            o.idle_timeout,
            o.max_lifetime,
            o.lifetime_jitter,
            o.connect_timeout,
            o.backoff,
            o.gate,
            o.histograms,
            o.seed,
            o.maintenance,
            o.clock,
            o.on,
            o.budget};
  }
  static detail::ResourceOperations operations(const ResourceOptions<T>& o) {
    detail::ResourceOperations ops;
    const auto of = [](void* thing) -> T& { return *static_cast<T*>(thing); };
    if (o.open)
      ops.open = [open = o.open](const Opening& opening) -> std::expected<void*, std::string> {
        std::expected<T, std::string> made = open(opening);
        if (!made) return std::unexpected(std::move(made).error());
        return new T(*std::move(made));
      };
    if (o.validate) ops.validate = [f = o.validate, of](void* thing) { return f(of(thing)); };
    if (o.dirty) ops.dirty = [f = o.dirty, of](void* thing) { return f(of(thing)); };
    if (o.reset) ops.reset = [f = o.reset, of](void* thing) { return f(of(thing)); };
    ops.dispose = [f = o.dispose, of](void* thing) {
      const std::unique_ptr<T> dying(&of(thing));
      if (f) f(*dying);
    };
    return ops;
  }

  detail::RawPool raw_;
};

}  // namespace bulkhead
