// pool.h - a dedicated set of threads with a bounded queue, for calls that must not run on the
// caller's thread.
//
//   bulkhead::Pool reports{{.name = "reports", .threads = 4, .max_queue = 16}};
//   auto task = reports.submit([](std::stop_token stop) { return slow_report(stop); },
//                              {.execution_timeout = 2s});
//   if (auto report = task.get_for(500ms)) show(*report);
//   else show_cached(report.error().reason);    // timeout: the caller goes on, the thread is still busy
//
// Behind it is a Gate of `threads` units whose line is the queue, so order, priorities, the critical
// reserve, eviction, cost, timeouts, cancellation, resize and counters are the gate's (gate.h).
// Promises: every submission ends in exactly one result. A permit is held until the work has really ended:
//   a caller that gives up does not make the pool believe that a thread is free (PoolSnapshot::abandoned).
// Threads: every member may be called from any thread, also from work running in the pool. Work that waits
//   for other work of its own pool can starve itself: a debug build says so and aborts when every thread
//   waits for a queued task. Workers start when work comes, up to `threads`; those beyond `min_threads`
//   end after `keep_alive` without work.
// Cost: a submit takes one recycled block for the shared state (256 bytes; 512 if fn is larger than 64 bytes,
//   from the heap if it is larger than 300), one compare-exchange when a thread is free, a short lock when
//   not; at most one wake-up is in flight. post() saves the Task where nobody waits for the result.
// The destructor is shutdown(now) without a deadline: queued work is rejected, running work is asked to
// stop and waited for.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/snapshot.h"
#include "bulkhead/task.h"

namespace bulkhead {

class Bulkhead;

// What becomes of work that has no place. A fallback is given with the work itself, see Pool::submit_or.
enum class OnReject : std::uint8_t {
  abort,        // the task is complete with the Rejection
  caller_runs,  // the submitting thread runs it there and then, which slows those who submit too much;
                // dangerous where that thread must not block (an event loop), and never done when the pool
                // is shut down
};

enum class Shutdown : std::uint8_t {
  graceful,  // what is queued still runs
  now,       // what is queued is rejected, what runs is asked to stop
};

// Carries a context (trace id, logger, locale) from the submitting thread to the one that works.
struct ContextHooks {
  std::function<std::shared_ptr<void>()> capture{};                    // on the submitting thread
  std::function<void(const std::shared_ptr<void>&)> enter{}, leave{};  // around the work, on the worker
};

struct PoolOptions {
  std::string name{};
  std::uint32_t threads = 1;      // running at once at most
  std::uint32_t max_queue = 0;    // waiting at most
  std::uint32_t min_threads = 0;  // workers kept when idle
  std::chrono::nanoseconds keep_alive = std::chrono::seconds(20);
  std::chrono::nanoseconds max_wait = wait_forever;           // in the queue, for work that does not say
  std::chrono::nanoseconds execution_timeout = wait_forever;  // running, for work that does not say
  double critical_reserve = 0;  // share of threads and of queue places only Priority::critical may use
  std::uint32_t flow_queues = 0, flow_hand = 4;  // of the queue, as GateOptions
  std::uint64_t flow_seed = 0;
  OnReject on_reject = OnReject::abort;
  Hooks hooks{};
  ContextHooks context{};
  std::function<void(std::size_t worker)> on_thread_start{},
      on_thread_end{};           // on the worker; must not throw
  std::vector<unsigned> cpus{};  // where workers may run; empty: anywhere
  std::size_t stack_size = 0;    // bytes; 0: the system's default
  int nice = 0;
  bool measure_service = false;  // as GateOptions
  bool track_holders = false;
  bool measure_occupancy = false;
  Clock* clock = nullptr;

  // One thread per processor and a short queue: more threads would only take turns.
  static PoolOptions cpu_bound(std::string name);
  // Threads that mostly wait for others: many of them, and a queue of twice as many.
  static PoolOptions io_bound(std::string name, std::uint32_t threads = 32);
};

struct SubmitOptions {
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;                                 // threads' worth of the pool this work takes
  std::chrono::nanoseconds queue_timeout = gate_default;  // 0 or less: do not wait
  std::chrono::nanoseconds execution_timeout = gate_default;
  TimePoint deadline = no_deadline;  // for queue and execution together
  std::stop_token stop{};
  std::uint64_t flow = 0;  // as AcquireOptions
  std::string_view label{};
  std::source_location where = std::source_location::current();
};

struct PoolSnapshot {
  Snapshot gate;  // in_flight: work running or about to; waiting: the queue; counters
  std::uint32_t threads = 0, max_threads = 0, idle = 0;
  std::uint32_t queued = 0, running = 0;
  std::uint32_t abandoned = 0;                  // running for a caller that has given up
  std::chrono::nanoseconds oldest_abandoned{};  // since that caller gave up
  std::uint64_t abandoned_total = 0, caller_runs = 0, threads_started = 0;
};

class Pool {
 public:
  explicit Pool(PoolOptions options);  // std::invalid_argument naming the setting
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // fn() or fn(std::stop_token), which fires on cancel, on the execution timeout and on shutdown.
  template <class F>
  auto submit(F fn, const SubmitOptions& options = {}) {
    return launch<detail::NoFallback>(std::move(fn), {}, options);
  }
  // For work that nobody waits for: what it returns is dropped, what it throws is lost (and counted as failed). The
  // answer is whether it has a place; what is refused later (evicted, out of time, shut down) is only counted.
  template <class F>
  Result<void> post(F fn, const SubmitOptions& options = {}) {
    detail::NoFallback none;
    auto* state = make<detail::NoFallback>(fn, none, options);
    state->let_go();
    return start(*state, options);
  }
  // As submit; if it is rejected before it ran or times out, the result is fallback(const Rejection&).
  template <class F, class Fallback>
  auto submit_or(F fn, Fallback fallback, const SubmitOptions& options = {}) {
    return launch<Fallback>(std::move(fn), std::move(fallback), options);
  }

  // At once and without blocking; see Gate::resize. Surplus workers end when they have nothing to do.
  void resize(std::uint32_t threads);
  void resize_queue(std::uint32_t max_queue);

  // No new work; ends when the work has. False: `until` came first, and what still runs goes on; call it
  // again, or let the destructor wait. graceful may be followed by now.
  bool shutdown(Shutdown how = Shutdown::graceful, TimePoint until = no_deadline);

  PoolSnapshot snapshot() const;
  Gate& gate() const noexcept;  // who takes its units takes the places of threads
  std::vector<Holder> holders() const { return gate().holders(); }
  std::string_view name() const noexcept { return gate().name(); }

 private:
  friend class detail::TaskState;
  friend class Bulkhead;

  void allow(std::uint32_t threads) noexcept;  // for a limit of the gate that others move

  template <class Fallback, class F>
  auto* make(F& fn, Fallback& fallback, const SubmitOptions& options) {
    constexpr bool with_stop = std::is_invocable_v<F&, std::stop_token>;
    static_assert(with_stop || std::is_invocable_v<F&>, "work is called as fn() or fn(std::stop_token)");
    using R = typename std::conditional_t<with_stop, std::invoke_result<F&, std::stop_token>,
                                          std::invoke_result<F&>>::type;
    static_assert(!std::is_reference_v<R>, "return a value or a std::reference_wrapper");
    return detail::TaskOf<R, F, Fallback>::make(std::move(fn), std::move(fallback), *core_, gate(),
                                                extras(options));
  }
  template <class Fallback, class F>
  auto launch(F fn, Fallback fallback, const SubmitOptions& options) {
    auto* state = make<Fallback>(fn, fallback, options);
    Task<typename std::remove_pointer_t<decltype(state)>::Returned> task(state);
    (void)start(*state, options);  // NOLINT(bugprone-unused-return-value): the task knows as well
    return task;
  }

  detail::TaskExtras* extras(const SubmitOptions& options) const;
  Result<void> start(detail::TaskState& task,
                     const SubmitOptions& options) noexcept;  // its place, or why none

  std::unique_ptr<PoolCore> core_;
};

}  // namespace bulkhead
