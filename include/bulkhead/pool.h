// pool.h - a dedicated set of threads with a bounded queue, for calls that must not run on the caller's thread.
//
//   bulkhead::Pool reports{{.name = "reports", .max_concurrent = 4, .max_queue = 16}};
//   auto task = reports.submit([](std::stop_token stop) { return slow_report(stop); },
//                              {.execution_timeout = 2s});
//   if (auto report = task.get_for(500ms)) show(*report);
//   else show_cached(report.error().reason);    // timeout: the caller continues, the thread is still busy
//
// A pool has a Gate of `max_concurrent` units, one for each thread, and the queue is its line. So order, priorities, the
// critical reserve, eviction, cost, timeouts, cancellation, resize and counters are those of gate.h.
// Promises: every submission ends in exactly one result. A permit is held until the work has ended. When a caller gives
//   up on running work, the thread still counts as busy (PoolSnapshot::abandoned).
// Threads: every member may be called from any thread, also from work that runs in the pool. Work that waits for other
//   work of its own pool can deadlock: a debug build aborts with a message when every thread waits for a queued task.
//   Workers start when they are needed, up to `max_concurrent`; workers above `min_threads` end after `keep_alive` without
//   work. If the system gives no thread, work waits for the existing workers; without any worker the submitting thread
//   runs the work.
// Cost: a submit takes one recycled block for the shared state (256 bytes; 640 if fn is larger than 48 bytes, from the
//   heap if it is larger than 430), one compare-exchange when a thread is free, a short lock otherwise; at most one
//   wake-up is in flight. post() saves the Task if the result is not needed.
// Without memory: submit throws std::bad_alloc and has no effect. No later step needs memory, but a rejection may lack
//   its numbers and name, and its fallback may not run.
// The destructor is shutdown(now) without a deadline: it rejects queued work, requests running work to stop and waits
// for it.
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

namespace detail {
class CallPath;
struct BulkheadCore;
}  // namespace detail

// What happens to work that finds the queue full. For a fallback, see Pool::submit_or.
enum class OnReject : std::uint8_t {
  abort,  // the task completes with the Rejection
  // The submitting thread runs the work at once, which slows down callers that submit too much. Do not use it where that
  // thread must not block (an event loop). After shutdown the work is rejected.
  caller_runs,
  // Rejects as evicted the oldest task of the lowest priority, if that is not above the new one's, and queues the new
  // one; for work of which only the newest matters.
  discard_oldest,
};

enum class Shutdown : std::uint8_t {
  graceful,  // queued work still runs
  now,       // queued work is rejected, running work is requested to stop
};

// Carries a context (trace id, logger, locale) from the submitting thread to the worker.
struct ContextHooks {
  std::function<std::shared_ptr<void>()> capture{};                    // on the submitting thread
  std::function<void(const std::shared_ptr<void>&)> enter{}, leave{};  // around the work, on the worker
};

struct PoolOptions {
  std::string name{};
  std::uint32_t max_concurrent = 1;  // the maximum number of tasks that run at once, and of threads
  BULKHEAD_LINE_OPTIONS(BULKHEAD_LINE_OPTION_FIELD)  // max_queue, max_wait, hooks ...: see line_options.h
  std::uint32_t min_threads = 0;                     // workers kept when idle
  std::chrono::nanoseconds keep_alive = std::chrono::seconds(20);
  std::chrono::nanoseconds execution_timeout = wait_forever;  // of a task that does not set its own
  OnReject on_reject = OnReject::abort;
  ContextHooks context{};
  std::function<void(std::size_t worker)> on_thread_start{},
      on_thread_end{};           // on the worker; must not throw
  std::vector<unsigned> cpus{};  // the processors that workers may run on; empty: all
  std::size_t stack_size = 0;    // bytes; 0: the system's default
  int nice = 0;
  Clock* clock = nullptr;

  // For work that computes: one thread per processor, and a queue of four times as many.
  static PoolOptions cpu_bound(std::string name);
  // For work that mostly waits: many threads, and a queue of twice as many.
  static PoolOptions io_bound(std::string name, std::uint32_t max_concurrent = 32);
};

struct SubmitOptions {
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;                           // units of the gate; 1 is one thread
  std::chrono::nanoseconds timeout = gate_default;  // 0 or less: do not wait
  std::chrono::nanoseconds execution_timeout = gate_default;
  TimePoint deadline = no_deadline;  // for queue and execution together
  detail::Anchored<std::stop_token> stop{};
  std::uint64_t flow = 0;  // as AcquireOptions
  std::string_view label{};
  std::source_location where = std::source_location::current();
};

struct PoolSnapshot {
  Snapshot gate;  // max_concurrent; in_flight: work that runs or starts now; waiting: the queue; counters
  // That exist; that may exist, more than max_concurrent while a limit adapts; without work.
  std::uint32_t threads = 0, max_threads = 0, idle = 0;
  std::uint32_t abandoned = 0;                  // running, but the caller has given up
  std::chrono::nanoseconds oldest_abandoned{};  // the longest time since a caller gave up
  std::uint64_t abandoned_total = 0, caller_runs = 0, threads_started = 0;
};

class Pool {
 public:
  // std::invalid_argument naming the setting
  explicit Pool(PoolOptions options);  // Pool p(PoolOptions{...}) names a wrong field
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // fn() or fn(std::stop_token), which fires on cancel, on execution_timeout and on shutdown; or fn(Permit&) or
  // fn(std::stop_token, Permit&), for work that settles the cost of its own call while it runs (permit.h). The permit
  // is valid until the work returns, and releases itself then; work that runs on the thread of its caller
  // (OnReject::caller_runs) has none, so that settle() returns false.
  template <class F>
  auto submit(F fn, const SubmitOptions& options = {}) {
    return launch<detail::NoFallback>(std::move(fn), {}, options);
  }
  // For work without a result: return values are dropped, an exception counts as failed. The return value says whether
  // the work was admitted or queued; a later rejection (evicted, timeout, shutdown) is only counted.
  template <class F>
  Result<void> post(F fn, const SubmitOptions& options = {}) {
    detail::NoFallback none;
    auto* state = make<detail::NoFallback>(fn, none, options);
    state->let_go();
    return start(*state, options);
  }
  // As submit; if the work is rejected before it runs, or times out, the result is fallback(const Rejection&).
  template <class F, class Fallback>
  auto submit_or(F fn, Fallback fallback, const SubmitOptions& options = {}) {
    return launch<Fallback>(std::move(fn), std::move(fallback), options);
  }

  // Takes effect at once and never blocks; see Gate::resize. Surplus workers end when they are idle.
  void resize(std::uint32_t max_concurrent);
  void resize_queue(std::uint32_t max_queue);

  // Rejects new work and waits until all work has ended and every Task whose work ran is ready(). False: `until` came
  // first and work still runs; call shutdown again or let the destructor wait. A graceful one may be followed by now.
  bool shutdown(Shutdown how = Shutdown::graceful, TimePoint until = no_deadline);

  PoolSnapshot snapshot() const;
  Gate& gate() const noexcept;  // its units are the threads: acquiring them keeps tasks from running
  std::vector<Holder> holders() const { return gate().holders(); }
  std::string_view name() const noexcept { return gate().name(); }

 private:
  friend class detail::TaskState;
  friend class detail::CallPath;
  friend struct detail::BulkheadCore;

  void allow(
      std::uint32_t threads) noexcept;  // the number of threads for a gate whose limit a limiter changes

  template <class Fallback, class F>
  auto* make(F& fn, Fallback& fallback, const SubmitOptions& options) {
    static_assert(detail::WorkForm<F>::known,
                  "work is called as fn(), fn(std::stop_token), fn(Permit&) or fn(std::stop_token, Permit&)");
    using R = typename detail::WorkForm<F>::Returned;
    static_assert(!std::is_reference_v<R>, "return a value or a std::reference_wrapper");
    return detail::TaskOf<R, F, Fallback>::make(std::move(fn), std::move(fallback), *core_, gate(),
                                                extras(options));
  }
  template <class Fallback, class F>
  auto launch(F fn, Fallback fallback, const SubmitOptions& options) {
    auto* state = make<Fallback>(fn, fallback, options);
    Task<typename std::remove_pointer_t<decltype(state)>::Returned> task(state);
    (void)start(*state, options);  // NOLINT(bugprone-unused-return-value): the task has the result, too
    return task;
  }

  detail::TaskExtrasPtr extras(const SubmitOptions& options) const;
  Result<void> start(detail::TaskState& task,
                     const SubmitOptions& options) noexcept;  // success: admitted or queued

  std::unique_ptr<PoolCore> core_;
};

}  // namespace bulkhead
