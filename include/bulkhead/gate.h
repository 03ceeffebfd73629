// gate.h - caps concurrent calls, queues a bounded number, and rejects the rest immediately with a reason.
//
//   bulkhead::Gate db{{.name = "db", .max_concurrent = 32, .max_queue = 64}};
//   if (auto permit = db.acquire({.timeout = 50ms})) query();      // its place is free again when `permit` is destroyed
//   else reply(503, to_string(permit.error().reason));             // queue_limit, timeout, evicted ...
//
// Threads, handlers and coroutines wait in one line:
//
//   auto permit = co_await db.co_acquire({.priority = bulkhead::Priority::critical});
//   db.async_acquire({.timeout = 50ms}, [](bulkhead::Result<bulkhead::Permit> permit) { ... });
//   auto rows = db.run([&] { return query(); });                   // Result<Rows>; released also on a throw
//
// Threads: every member may be called from any thread, and from hooks and handlers.
// Order: FIFO within a priority; with Fairness::fifo a call never overtakes a waiting call of its own or a higher
//   priority. When the line is full, an arrival evicts the newest waiter of the lowest priority, if that is below its
//   own. With flow_queues, each priority is fair between flows and FIFO within each flow (line_options.h).
//   Every kind of acquire decides in this order: shutdown; cancelled (stop already requested); deadline (already
//   past); admitted; concurrency_limit (no line, or try_acquire); deadline (the predicted wait is too long);
//   queue_limit (the line is full and nothing can be evicted); timeout (the call does not wait); wait.
// Promises: the cap holds at every instant, also across resize. Every call gets exactly one result. A waiter that times
//   out or is cancelled leaves at once; if it was admitted before that, it keeps the permit.
// Not promised: fairness between gates; any order with Fairness::barging or adaptive.
// Cost: an acquire without a wait is one compare-exchange, a release one atomic addition. A rejection writes nothing
//   that admissions read. Waiting allocates nothing. The gate takes 1 KiB, with flow_queues about 420 bytes more per
//   queue; a waiter takes 64 bytes of its thread's stack, 544 bytes of a coroutine or an operation. close(), resize()
//   and releases decide many waiters in batches of 1024 and unlock in between: no caller waits for the lock for more
//   than about 2 ms, even with two million calls in line.
// The destructor closes the gate and waits for its permits.
#pragma once

#include "bulkhead/detail/language.h"

#include <atomic>
#include <chrono>
#include <concepts>
#include <coroutine>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bulkhead/budget.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/anchored.h"
#include "bulkhead/detail/platform.h"
#include "bulkhead/detail/turnstile.h"
#include "bulkhead/fairness.h"
#include "bulkhead/line_options.h"
#include "bulkhead/permit.h"
#include "bulkhead/result.h"
#include "bulkhead/snapshot.h"

namespace bulkhead {

inline constexpr std::chrono::nanoseconds gate_default = std::chrono::nanoseconds::min();

struct GateOptions {
  std::string name{};
  std::uint32_t max_concurrent = 1;                  // the maximum of units in flight: 1 to 268'435'455
  BULKHEAD_LINE_OPTIONS(BULKHEAD_LINE_OPTION_FIELD)  // max_queue, max_wait, hooks ...: see line_options.h
  Clock* clock = nullptr;                            // default: Clock::steady()
  DeadlineDriver* deadlines =
      nullptr;  // fires the timeouts of asynchronous waiters; default: the clock's driver
};

struct AcquireOptions {
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;  // units of this call; 0 counts as 1. A cost above the limit is rejected at once.
  std::chrono::nanoseconds timeout = gate_default;  // how long to wait in line; 0 or less: do not wait
  TimePoint deadline = no_deadline;
  detail::Anchored<std::stop_token> stop{};  // a std::stop_token
  std::uint64_t flow = 0;  // the flow of the call, see flow_of(); all calls with 0 are one flow
  std::string_view
      label{};  // shown by Gate::holders() beside `where`; copied by a call that waits or starts later
  std::source_location where = std::source_location::current();
  Costs costs{};  // of the budgets of a bulkhead, see budget.h; a gate has none
};

// A number for a tenant, a user or a route; never 0. Any other number that identifies the flow works too.
constexpr std::uint64_t flow_of(std::string_view name) noexcept {
  std::uint64_t hash = 0xcbf29ce484222325;  // FNV-1a
  for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash != 0 ? hash : 1;
}

class AsyncAcquire;
struct PoolCore;

namespace detail {
class Frame;
class Completions;
class Backing;
class MemberGate;
class GateCore;
class AcquireAll;
class Meter;
class ResourceCore;
class CallPath;
struct Budget;
struct BulkheadCore;
struct Membership;
}  // namespace detail

}  // namespace bulkhead

#include "bulkhead/detail/gate_core.h"  // needs the options above

namespace bulkhead {

class Gate : private detail::GateCore {
 public:
  // std::invalid_argument naming the setting
  explicit Gate(GateOptions options);  // Gate g(GateOptions{...}) names a wrong field
  ~Gate();                             // close(), then waits for the permits to come back
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  // Never waits, never queues.
  Result<Permit> try_acquire(const AcquireOptions& options) noexcept {
    if (plain(options) && turnstile_.pass()) [[likely]]
      return Result<Permit>(std::in_place, Permit::Key(), this, options.priority);
    return try_acquire_else(options);
  }
  // A template only so that `try_acquire({})` selects the overload above.
  template <std::same_as<void> T = void>
  [[gnu::always_inline]] Result<Permit> try_acquire(
      std::source_location where = std::source_location::current()) noexcept {
    if (turnstile_.pass()) [[likely]]
      return Result<Permit>(std::in_place, Permit::Key(), this, Priority::normal);
    return try_acquire_else(where);
  }

  // May block this thread until options.timeout or the deadline.
  Result<Permit> acquire(const AcquireOptions& options) noexcept {  // AcquireOptions{...} names a wrong field
    if (plain(options) && turnstile_.pass()) [[likely]]
      return Result<Permit>(std::in_place, Permit::Key(), this, options.priority);
    return acquire_else(options);
  }
  template <std::same_as<void> T = void>
  [[gnu::always_inline]] Result<Permit> acquire(
      std::source_location where = std::source_location::current()) noexcept {
    if (turnstile_.pass()) [[likely]]
      return Result<Permit>(std::in_place, Permit::Key(), this, Priority::normal);
    return acquire_else(where);
  }

  // co_await -> Result<Permit>. A coroutine that had to wait resumes on the thread that released its units or cancelled
  // it, or on the timer's thread. In an asio::awaitable, use bulkhead::async_acquire(gate, options, use_awaitable) of
  // adapters/asio/async_acquire.h instead: it resumes on the coroutine's executor.
  auto co_acquire(AcquireOptions options = {});

  // Calls handler(Result<Permit>) exactly once: inside this call if it does not have to wait, otherwise on the thread
  // on which co_acquire would resume. Exceptions of the handler are caught and counted. The handler must not block for
  // long, because other handlers may be waiting for the same thread. A call that waits takes a recycled block of memory
  // (64 of each size are static); without memory the handler gets queue_limit.
  template <class H>
  void async_acquire(AcquireOptions options, H handler);

  // Acquires, calls fn() or fn(std::stop_token) or fn(Permit&), releases; an exception counts as failure and is
  // rethrown. Returns Result<what fn returns>. The stop_token is options.stop; in a member of a group with
  // Lend::revocable it also fires when the group calls the units back (unless there is no memory for that).
  template <class F>
  auto run(F&& fn, const AcquireOptions& options = {});

  // Takes effect at once and never blocks. Growing admits exactly the waiters that now fit. Shrinking interrupts no
  // call: calls above the new limit run to their end, and no call is admitted until they have. Waiters whose cost can
  // never fit are rejected; waiters above a smaller max_queue stay. Throws std::invalid_argument as the constructor
  // does, and for a member of a group, because only the group changes its limit.
  void resize(std::uint32_t max_concurrent);
  void resize_queue(std::uint32_t max_queue);

  // Irreversible. Rejects all waiters with Reason::shutdown before it returns; permits in flight stay valid.
  void close() noexcept;
  // Waits until no call is in flight or waiting; false if `until` came first. New calls are still admitted.
  bool drain(TimePoint until = no_deadline);

  Snapshot snapshot() const noexcept;
  std::uint32_t in_flight() const noexcept { return turnstile_.in_flight(); }
  // Counts a rejection that another stage has decided (a breaker, a rate limit), and calls the hooks.
  Rejection reject(Priority priority, Reason reason) noexcept { return GateCore::reject(priority, reason); }
  std::vector<Holder> holders() const;  // oldest first; empty unless GateOptions::track_holders
  std::string_view name() const noexcept { return name_; }
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class Permit;
  friend class AsyncAcquire;
  friend class AcquireWatch;
  friend struct PoolCore;
  friend class detail::GateCore;
  friend class detail::Frame;
  friend class detail::Completions;
  friend class detail::AcquireAll;
  friend class detail::MemberGate;
  friend class detail::ResourceCore;
  friend class detail::CallPath;
  friend struct detail::BulkheadCore;
  friend struct detail::Budget;

  Gate(GateOptions options, const detail::Membership* membership);
};

inline bool Permit::release(Outcome outcome) noexcept {
  if (!(state_ & kHeld)) {
    if (Gate* last = gate()) last->count_double_release();
    return false;
  }
  if (is_failure(outcome)) fail();
  drop();
  return true;
}

inline std::stop_token Permit::stop_token() noexcept {
  return (state_ & kHeld) && gate()->backing_ ? gate()->lease(*this) : std::stop_token();
}

// Does not access the gate after the addition unless a call waits: the gate may be destroyed then.
[[gnu::always_inline]] inline bool Permit::give_back() noexcept {
  return plain_ && plain_->turnstile_.give_back(1);
}

inline void Permit::drop(std::int64_t now) noexcept {
  if (give_back()) [[likely]]
    clear();  // after the addition: before it, the addition would wait for these stores
  else
    release_held(now);
}

}  // namespace bulkhead

#include "bulkhead/async_acquire.h"
