// bulkhead.h - concurrency limit, breaker, rate limit, timeout and fallback for the calls to one dependency.
//
//   bulkhead::Bulkhead payments{{.name = "payments", .max_concurrent = 20, .max_queue = 40,
//                                .execution_timeout = 800ms, .breaker = bulkhead::BreakerOptions{},
//                                .rate_limit = bulkhead::RateLimiterOptions{.rate = 500}}};
//   auto receipt = payments.execute([&](std::stop_token stop) { return pay(order, stop); },
//                                   {.fallback = [&](const bulkhead::Cause& why) { return queue_it(order, why); },
//                                    .priority = bulkhead::Priority::critical});
//   if (!receipt) reply(503, receipt.error().message());       // Result<Receipt>
//
// Every policy is optional; their order is fixed: holdback; rate limit; breaker; budgets (budget.h); a place in the gate,
// in the group's gate, or on a thread of the pool; the call, with its time limit; its outcome, to breaker and adaptive
// limiter; then the fallback, if the cause is one of `fallback_on`. See docs/design/bulkhead.md.
//
// Threads: every member may be called from any thread, also from inside a protected call.
// Promises: the cap holds at every instant, whatever the breaker and the limiter do. Exactly one result: the
//   value, what the call threw, a Rejection, or what the fallback returned or threw. When a stage rejects a call, the
//   earlier stages get back what it took from them (tokens only if no other call has taken any since, see
//   rate_limiter.h). A rejection never counts as a failure of the dependency. The fallback runs after the place has
//   been given back; a call that was cancelled by its own stop_token gets no fallback.
// execution_timeout: the stop_token of the call fires. With Isolation::threads the caller returns at that moment, and
//   the work keeps its thread until it ends. With Isolation::semaphore the caller's own thread runs the call, so it
//   returns when the call does. In both, the result is Reason::execution_timeout, whatever the call returns or throws later.
// Cost: two readings of the clock and three atomic read-modify-writes with all policies on (docs/benchmarks.md). A call
//   allocates only if it has a time limit and takes a stop_token, or runs in a pool.
// The destructor closes the gate or the pool, then waits for the calls in line and in flight. It does not close a gate
// that it does not own.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <source_location>
#include <stop_token>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bulkhead/breaker.h"
#include "bulkhead/budget.h"
#include "bulkhead/detail/lazy.h"
#include "bulkhead/fault.h"
#include "bulkhead/gate.h"
#include "bulkhead/histogram.h"
#include "bulkhead/holdback.h"
#include "bulkhead/judge.h"
#include "bulkhead/limiter.h"
#include "bulkhead/pool.h"
#include "bulkhead/rate_limiter.h"
#include "bulkhead/scope.h"

namespace bulkhead {

enum class Isolation : std::uint8_t {
  semaphore,  // calls run on their caller's thread
  threads,    // calls run on threads of their own, see pool.h
};

// Why a fallback is called.
struct Cause {
  enum class Kind : std::uint8_t {
    rejected,   // not admitted: `rejection` says why
    timed_out,  // admitted, and took longer than its time limit
    failed,     // the call threw `exception`, or a judge calls its result a failure
  };
  Kind kind{};
  Rejection rejection{};           // of rejected and timed_out; and of failed with Reason::injected_fault
  std::exception_ptr exception{};  // of failed; null if it returned

  std::string message() const;
};

enum class FallbackOn : std::uint8_t {
  nothing = 0,
  rejection = 1,
  execution_timeout = 2,
  failure = 4,
  all = 7
};
constexpr FallbackOn operator|(FallbackOn a, FallbackOn b) noexcept {
  return static_cast<FallbackOn>(static_cast<unsigned>(a) | static_cast<unsigned>(b));
}
constexpr bool covers(FallbackOn set, Cause::Kind kind) noexcept {
  return static_cast<unsigned>(set) & (1U << static_cast<unsigned>(kind));
}

struct BulkheadOptions {
  std::string name{};
  Isolation isolation = Isolation::semaphore;
  std::uint32_t max_concurrent = 1;  // calls at once; threads of the pool
  // max_queue, max_wait, hooks ...: see line_options.h. `fairness` has no effect on threads, whose queue is always fifo.
  BULKHEAD_LINE_OPTIONS(BULKHEAD_LINE_OPTION_FIELD)
  std::chrono::nanoseconds execution_timeout = wait_forever;  // of a call that does not set its own
  std::optional<BreakerOptions> breaker{};
  std::optional<RateLimiterOptions> rate_limit{};  // tokens are taken by cost; a call never waits for them
  std::vector<BudgetOptions> budgets{};            // see budget.h; at most kMostBudgets
  std::optional<LimiterOptions> adaptive{};        // moves the limit between floor and ceiling
  std::optional<HoldbackOptions> holdback{};       // rejects lower priorities first, see holdback.h
  FallbackOn fallback_on = FallbackOn::all;
  // What an exception says about the dependency, for calls whose own judge has no opinion.
  std::function<Opinion(const std::exception_ptr&)> judge{};
  // In both cases a call runs on its caller's thread and without a time limit:
  bool enabled = true;     // false: calls go straight through, and are only counted
  bool shadow = false;     // counts what it would reject, and rejects nothing
  bool histograms = true;  // of wait and service times; and Snapshot::occupancy and saturated
  bool nested = false;     // its calls are made inside calls of other bulkheads: totals count each call once
  // Everything else about the threads; name, threads, clock and the options of line_options.h are those above.
  PoolOptions pool{};
  // A gate that others own, such as a member of a Group. It must outlive the bulkhead; its name, limit, line
  // and hooks are used instead of those above. Not with Isolation::threads.
  Gate* gate = nullptr;
  // A limiter that others own, such as that of the group whose member `gate` is: calls are reported to it. It must outlive
  // the bulkhead. Not with `adaptive`.
  AdaptiveLimiter* limiter = nullptr;
  // How far max_concurrent reaches. Beyond the process it needs `sources`, which must outlive the bulkhead, and goes
  // with Isolation::semaphore and Fairness::fifo only, without `adaptive` and `gate`. See scope.h.
  Scope scope = Scope::process;
  UnitSources* sources = nullptr;
  Clock* clock = nullptr;  // default: that of `gate`, else Clock::steady()
};

class RunningCall;

namespace detail {
template <class R>
using Judged = std::conditional_t<std::is_void_v<R>, std::monostate, R>;
template <class F>
inline constexpr bool takes_stop = std::is_invocable_v<F&, std::stop_token>;
template <class F>
inline constexpr bool takes_call = !takes_stop<F> && std::is_invocable_v<F&, RunningCall&>;
template <class F>
struct Returned {
  static_assert(takes_stop<F> || takes_call<F> || std::is_invocable_v<F&>,
                "a bulkhead calls fn(), fn(std::stop_token) or fn(bulkhead::RunningCall&): this function "
                "takes other arguments");
  using type = typename std::conditional_t<
      takes_stop<F>, std::invoke_result<F&, std::stop_token>,
      std::conditional_t<takes_call<F>, std::invoke_result<F&, RunningCall&>, std::invoke_result<F&>>>::type;
};
template <class F>
using ReturnOf = typename Returned<F>::type;
template <class F>
using AwaitedOf = typename Awaited<ReturnOf<F>>::type;

// Chosen by {} in place of CallOptions: a call without options.
struct Nothing {};
using NoOptions = std::initializer_list<Nothing>;

class CallPath;
class CallBody;
struct BudgetHold;
struct RunningCallOf;
struct BulkheadCore;
template <class R>
class CallBodyOf;
}  // namespace detail

// What one call asks for. R is what it returns.
template <class R>
struct CallOptions {
  detail::Anchored<std::function<R(const Cause&)>> fallback{};
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::chrono::nanoseconds timeout = gate_default;            // in line; 0 or less: do not wait
  std::chrono::nanoseconds execution_timeout = gate_default;  // running
  TimePoint deadline = no_deadline;                           // for both together
  detail::Anchored<std::stop_token> stop{};
  std::uint64_t flow = 0;  // as AcquireOptions
  std::string_view label{};
  detail::Anchored<CallJudge<detail::Judged<R>>>
      judge{};  // is what it returned or threw a failure? See judge.h
  std::source_location where = std::source_location::current();
  Costs costs{};  // of budgets, see budget.h

  AcquireOptions acquire() const {
    return {.priority = priority,
            .cost = cost,
            .timeout = timeout,
            .deadline = deadline,
            .stop = stop,
            .flow = flow,
            .label = label,
            .where = where,
            .costs = costs};
  }
};

struct BulkheadSnapshot {
  std::string_view name;
  Isolation isolation{};
  bool enabled = true, shadow = false;
  bool draining = false;       // see Bulkhead::set_draining()
  std::optional<Fault> fault;  // in force, see Bulkhead::inject()
  Snapshot gate;               // counters since reset_statistics(); rejections of every stage
  std::optional<PoolSnapshot> pool;
  std::optional<BreakerSnapshot> breaker;
  std::optional<RateLimiterSnapshot> rate_limit;
  std::optional<LimiterSnapshot> adaptive;
  std::optional<HoldbackSnapshot> holdback;
  std::optional<FleetSnapshot> fleet;  // with Scope::fleet
  // Units that all processes of this host hold: with Scope::host, and with Scope::fleet if they share its lease.
  std::optional<std::uint32_t> host_in_flight;
  std::vector<BudgetSnapshot> budgets;

  std::uint64_t bypassed = 0;                // calls while not enabled
  std::uint64_t timed_out = 0;               // by execution_timeout
  std::array<std::uint64_t, 3> fallbacks{};  // that were used, by Cause::Kind
  std::uint64_t fallback_failures = 0;       // that threw
  std::uint64_t handler_errors = 0;          // of async_acquire and async_execute
  // Shadow mode: what it would have done, each call once. over_limit: calls in flight that would have been rejected or queued.
  std::array<std::uint64_t, kReasons> would_reject{};
  std::uint64_t would_wait = 0;
  std::uint32_t over_limit = 0;
  // Empty unless BulkheadOptions::histograms. Calls that need not wait are in bucket 0, once they have ended.
  HistogramCounts wait, service;

  double rejection_rate() const;  // rejected / (admitted + rejected), 0 to 1
};

class Bulkhead;

// What became of a call, for handlers: get() gives the result once, or throws what the call threw.
template <class R>
class [[nodiscard]] Ended {
 public:
  explicit Ended(Result<R> result) : result_(std::move(result)) {}
  explicit Ended(std::exception_ptr thrown) : result_(unexpect), thrown_(std::move(thrown)) {}

  Result<R> get() && {
    if (thrown_) std::rethrow_exception(std::move(thrown_));
    return std::move(result_);
  }
  bool threw() const noexcept { return thrown_ != nullptr; }

 private:
  Result<R> result_;
  std::exception_ptr thrown_;
};

// The right to make one protected call; finish() reports its outcome. For calls that are not one function: a request
// that begins in one handler and ends in another.
class [[nodiscard]] Call {
 public:
  Call() noexcept {
  }  // NOLINT(modernize-use-equals-default): a defaulted one is compiled to a slow fill of zeros
  Call(Call&& other) noexcept;
  Call& operator=(Call&& other) noexcept;
  ~Call() {
    if (path_) finish(Outcome::ignored);
  }

  explicit operator bool() const noexcept { return path_; }  // not finished
  // Reports the outcome to breaker and limiter, and gives the place back. Outcome::timeout: the call took longer than
  // execution_timeout() or its deadline. False, and no effect, the second time.
  bool finish(Outcome outcome) noexcept;
  // How long the call may run, see BulkheadOptions; the caller enforces it. wait_forever: no limit, or the bulkhead
  // is not enabled or in shadow mode.
  std::chrono::nanoseconds execution_timeout() const noexcept;
  // It needs no place, and is not to be stopped: the bulkhead is not enabled or in shadow mode.
  bool free() const noexcept { return flags_ & kFree; }
  TimePoint began() const noexcept { return began_; }
  const Permit& permit() const noexcept { return permit_; }

  // As Permit::settle and Permit::try_grow, for the units of the call's place; tokens of the rate limit stay as they
  // were taken. A call that has no place because the bulkhead is not enabled or in shadow mode: true, and no effect.
  bool settle(std::uint32_t units) noexcept { return permit_ ? permit_.settle(units) : has_no_place(); }
  [[nodiscard]] bool try_grow(std::uint32_t units) noexcept {
    return permit_ ? permit_.try_grow(units) : has_no_place();
  }
  // The same for the units of a budget that the call has named among its costs. False also if it has not; try_grow()
  // never gets more than per_call_max.
  bool settle(std::string_view budget, std::uint32_t units) noexcept;
  [[nodiscard]] bool try_grow(std::string_view budget, std::uint32_t units) noexcept;
  std::uint32_t held(std::string_view budget) const noexcept;  // units; 0 also if it has named none

 private:
  friend class detail::CallPath;
  friend class detail::CallBody;
  friend struct detail::RunningCallOf;
  // free: needs no place, because the bulkhead is not enabled or in shadow mode. over limit: a free call that would
  // have had no place. pinned: the bulkhead waits for the call although it has no place in a gate of its own.
  // waited: it had to wait for a budget. faulty: a fault is in force, and the call has not met it yet.
  enum Flags : std::uint8_t {
    kFree = 1,
    kOverLimit = 2,
    kPinned = 4,
    kBypassed = 8,
    kWaited = 16,
    kFaulty = 32
  };
  bool has_no_place() const noexcept { return path_ && free(); }  // false also once it is finished

  detail::CallPath* path_ = nullptr;
  Breaker* breaker_ = nullptr;
  RateLimiter* rate_ = nullptr;  // until it has its place: to give the tokens back
  detail::BudgetHold* budgets_ = nullptr;
  RateTicket ticket_;
  Permit permit_;
  BreakerPass pass_;
  LimiterCall sample_;
  TimePoint began_{};
  std::uint8_t flags_ = 0;
};

// A call from the inside: what a function that a bulkhead runs may do with its own call, on the thread on which it
// runs. Valid until the function returns, or what it returns to co_await has ended.
//
//   model.execute([&](bulkhead::RunningCall& call) {
//     while (more()) {
//       if (call.stop_token().stop_requested()) break;
//       call.settle("tokens", left());
//     }
//   }, {.costs = {{"tokens", 16'000}}});
class RunningCall {
 public:
  RunningCall(const RunningCall&) = delete;
  RunningCall& operator=(const RunningCall&) = delete;

  // As of Call. In a pool whose on_reject is caller_runs, a call may run without a place: then false.
  bool settle(std::uint32_t units) noexcept { return (free_ && !*permit_) || permit_->settle(units); }
  [[nodiscard]] bool try_grow(std::uint32_t units) noexcept {
    return (free_ && !*permit_) || permit_->try_grow(units);
  }
  bool settle(std::string_view budget, std::uint32_t units) noexcept;
  [[nodiscard]] bool try_grow(std::string_view budget, std::uint32_t units) noexcept;
  std::uint32_t held(std::string_view budget) const noexcept;
  std::stop_token stop_token();  // the one that fn(std::stop_token) gets

 private:
  friend class detail::CallPath;
  friend struct detail::RunningCallOf;
  RunningCall(Permit& permit, detail::BudgetHold* budgets, bool free) noexcept
      : permit_(&permit), budgets_(budgets), free_(free) {}

  Permit* permit_;
  detail::BudgetHold* budgets_;
  void* attempt_ = nullptr;  // makes the stop_token, when it is asked for
  std::stop_token stop_{};
  bool free_;
};

class Bulkhead {
 public:
  // std::invalid_argument naming the setting. Compilers print the next line, but not the field, if an option does not exist.
  explicit Bulkhead(const BulkheadOptions& options);  // Bulkhead b(BulkheadOptions{...}) names a wrong field
  ~Bulkhead();
  Bulkhead(const Bulkhead&) = delete;
  Bulkhead& operator=(const Bulkhead&) = delete;

  // Calls fn(), fn(std::stop_token) or fn(RunningCall&) and gives Result<what it returns>. What fn throws is thrown here, unless
  // the fallback takes it.
  template <class F>
  auto execute(F&& fn, detail::NoOptions = {}, std::source_location where = std::source_location::current())
      -> Result<detail::ReturnOf<F>>;
  template <class F>
  auto execute(F&& fn, const CallOptions<detail::ReturnOf<F>>& options) -> Result<detail::ReturnOf<F>>;
  // The same in short: fallback(const Cause&) or fallback().
  template <class F, class Fallback>
    requires std::is_invocable_v<Fallback&, const Cause&> || std::is_invocable_v<Fallback&>
  auto execute(F&& fn, Fallback&& fallback, Priority priority = Priority::normal)
      -> Result<detail::ReturnOf<F>>;

  // co_await -> Result<R>. fn returns R, or something to co_await that gives R; the place is held until then.
  // The coroutine resumes where that does, or where the place came from.
  template <class F>
  auto co_execute(F fn, CallOptions<detail::AwaitedOf<F>> options = {});

  // Calls handler(Ended<R>), exactly once, when fn has run: on the thread that gave it its place (inside this
  // call, if there is one), or on one of the pool's.
  template <class F, class H>
  void async_execute(F fn, CallOptions<detail::ReturnOf<F>> options, H handler);

  // The parts, for calls that do not fit into a function. With Isolation::threads they take the place of a
  // thread, but no thread.
  Result<Call> try_acquire(const AcquireOptions& options = {}) noexcept;
  Result<Call> acquire(const AcquireOptions& options = {}) noexcept;  // AcquireOptions{} names a wrong field
  template <class H>
  void async_acquire(AcquireOptions options, H handler);  // handler(Result<Call>)
  // co_await -> Result<Call>. In an asio::awaitable: as Gate::co_acquire.
  auto co_acquire(AcquireOptions options = {});
  // async_acquire in two steps. Lets callers make what a wait needs (a stop_source, a timer) only for calls that wait.
  // Returns the answer; or nullopt, and `begun` is for the second step, which uses options.stop.
  std::optional<Result<Call>> begin_acquire(const AcquireOptions& options, Call& begun) noexcept;
  template <class H>
  void async_acquire(Call begun, AcquireOptions options, H handler);

  // In force from the next call on; calls in flight, counters and what breaker and limiter have learnt stay.
  // Policies can be added and removed. std::invalid_argument if a setting is wrong, or cannot be changed while the
  // bulkhead exists (name, isolation, fairness, critical_reserve, flow_*, gate, scope, clock): then nothing has changed.
  // std::bad_alloc: a part of the change may be in force; update again. A Registry undoes that part.
  // Hooks, judge, measure_service, track_holders, what `pool` says, and whether occupancy is measured, stay as they
  // were made.
  void update(const BulkheadOptions& options);
  void check(const BulkheadOptions& options) const;  // throws what update() would, and changes nothing
  void resize(
      std::uint32_t max_concurrent);  // while `adaptive` moves the limit: in force when it no longer does
  void resize_queue(std::uint32_t max_queue);
  void
  reset_statistics();  // of calls, times, budgets and the pool; breaker, rate limiter and limiter keep theirs

  void close() noexcept;                      // as Gate; of a gate that others own, for them too
  bool drain(TimePoint until = no_deadline);  // as Gate
  // While on, new calls are rejected with Reason::draining, also in shadow mode and when not enabled; calls in line
  // and in flight continue. Unlike close() it can be undone, and a gate of another owner is not closed.
  void set_draining(bool on);
  // Latency and errors in front of the calls that begin from now on, see fault.h. One fault at a time: a second one
  // replaces the first. std::invalid_argument naming the setting.
  void inject(const Fault& fault);
  void end_fault();
  std::optional<Fault> fault() const;  // in force
  // No call is in line, in flight, or being finished. A new call may begin at any time.
  bool idle() const noexcept;

  BulkheadSnapshot snapshot() const;
  BulkheadOptions options() const;  // as given last, see update()
  std::vector<Holder> holders() const;
  std::string_view name() const noexcept;
  Gate& gate() noexcept;
  Breaker* breaker() noexcept;  // null: none
  Clock& clock() const noexcept;
  Isolation isolation() const noexcept;

 private:
  detail::BulkheadCore& core() const noexcept;

  std::unique_ptr<detail::CallPath> path_;  // the stages of a call; everything else is behind them
};

// A callable with fn's parameters whose calls are protected, and give a Result. The bulkhead must outlive it.
template <class F>
auto protect(Bulkhead& bulkhead, F fn);

}  // namespace bulkhead

#include "bulkhead/detail/bulkhead_calls.h"
