// bulkhead.h - a named compartment for the calls to one dependency: how many, whether, for how long, and what
// then.
//
//   bulkhead::Bulkhead payments{{.name = "payments", .max_concurrent = 20, .max_queue = 40,
//                                .execution_timeout = 800ms, .breaker = bulkhead::BreakerOptions{},
//                                .rate_limit = bulkhead::RateLimiterOptions{.rate = 500}}};
//   auto receipt = payments.execute([&](std::stop_token stop) { return pay(order, stop); },
//                                   {.fallback = [&](const bulkhead::Cause& why) { return queue_it(order, why); },
//                                    .priority = bulkhead::Priority::critical});
//   if (!receipt) reply(503, receipt.error().message());       // Result<Receipt>
//
// Every call goes the same way: is the bulkhead enabled, or does it only watch (shadow); rate limit; breaker;
// a place in the gate, in the group's gate, or on a thread of the pool; the call, with its time limit; its
// outcome to breaker and adaptive limiter; then the fallback, if the cause is one of `fallback_on`.
//
// Threads: every member may be called from any thread, also from inside a protected call.
// Promises: the cap holds at every instant, whatever the breaker and the limiter do. Exactly one result: the
//   value, what the call threw, a Rejection, or what the fallback made of any of these. A refusal by one stage
//   gives back what the stages before it had taken (tokens only if nobody has taken any since, see
//   rate_limiter.h), and never counts as a failure of the dependency. The fallback runs after the place has
//   been given back; a call that its own stop_token cancelled gets none.
// Execution timeout: the stop_token of the call fires. With Isolation::threads the caller returns at that
//   moment, and the work keeps its thread until it really ends. With Isolation::semaphore it is the caller's
//   own thread that runs the call, so it returns when the call does. In both, the result is Reason::timeout,
//   whatever the call returns or throws later.
// Cost: two looks at the clock and three atomic exchanges with everything on (docs/benchmarks.md); nothing
//   allocates, unless a call has a time limit of its own and takes a stop_token, or runs in a pool.
// The destructor waits for the calls in line and in flight, like that of a gate, and closes its gate or pool
// first; it leaves a gate that others own as it is.
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

#include "bulkhead/breaker.h"
#include "bulkhead/detail/lazy.h"
#include "bulkhead/gate.h"
#include "bulkhead/histogram.h"
#include "bulkhead/judge.h"
#include "bulkhead/limiter.h"
#include "bulkhead/pool.h"
#include "bulkhead/rate_limiter.h"

namespace bulkhead {

enum class Isolation : std::uint8_t {
  semaphore,  // calls run on their caller's thread
  threads,    // calls run on threads of their own, see pool.h
};

// Why a fallback is called.
struct Cause {
  enum class Kind : std::uint8_t {
    rejected,   // not admitted: `rejection` says why
    timed_out,  // admitted, and longer than its time
    failed,     // it threw `exception`, or returned what the judge calls a failure
  };
  Kind kind{};
  Rejection rejection{};           // of rejected and timed_out
  std::exception_ptr exception{};  // of failed; null if it returned

  std::string message() const;
};

enum class FallbackOn : std::uint8_t { nothing = 0, rejection = 1, timeout = 2, failure = 4, all = 7 };
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
  std::uint32_t max_queue = 0;
  std::chrono::nanoseconds max_wait = wait_forever;           // in line, for calls that do not say
  std::chrono::nanoseconds execution_timeout = wait_forever;  // running, for calls that do not say
  double critical_reserve = 0;
  Fairness fairness = Fairness::fifo;  // of a gate
  // The line is fair between flows, see GateOptions; of gate and pool.
  std::uint32_t flow_queues = 0, flow_hand = 4;
  std::uint64_t flow_seed = 0;
  std::optional<BreakerOptions> breaker{};
  std::optional<RateLimiterOptions> rate_limit{};  // tokens are taken by cost; a call never waits for them
  std::optional<LimiterOptions> adaptive{};        // moves the limit between floor and ceiling
  FallbackOn fallback_on = FallbackOn::all;
  // What an exception says about the dependency, for calls whose own judge has no opinion.
  std::function<Opinion(const std::exception_ptr&)> judge{};
  // Either way a call runs on its caller's thread, and without a time limit:
  bool enabled = true;     // false: calls go straight through, and are only counted
  bool shadow = false;     // counts what it would reject, and rejects nothing
  bool histograms = true;  // of wait and service times; and Snapshot::occupancy and saturated
  Hooks hooks{};
  bool measure_service = false;  // as GateOptions
  bool track_holders = false;
  // Everything else about the threads; name, threads, max_queue, max_wait, critical_reserve, hooks and clock
  // are those above.
  PoolOptions pool{};
  // A gate that others own, such as a member of a Group. It must outlive the bulkhead; its name, limit, line
  // and hooks are used instead of those above. Not with Isolation::threads.
  Gate* gate = nullptr;
  Clock* clock = nullptr;  // default: that of `gate`, else Clock::steady()
};

namespace detail {
template <class R>
using Judged = std::conditional_t<std::is_void_v<R>, std::monostate, R>;
template <class F>
using ReturnOf =
    typename std::conditional_t<std::is_invocable_v<F&, std::stop_token>,
                                std::invoke_result<F&, std::stop_token>, std::invoke_result<F&>>::type;
template <class F>
using AwaitedOf = typename Awaited<ReturnOf<F>>::type;

// What {} makes where CallOptions could stand too: for most calls, which ask for nothing.
struct Nothing {};
using NoOptions = std::initializer_list<Nothing>;

class CallLimit;
struct PooledTimes;
}  // namespace detail

// What one call asks for. R is what it returns.
template <class R>
struct CallOptions {
  std::function<R(const Cause&)> fallback{};
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::chrono::nanoseconds timeout = gate_default;            // in line; 0 or less: do not wait
  std::chrono::nanoseconds execution_timeout = gate_default;  // running
  TimePoint deadline = no_deadline;                           // for both together
  std::stop_token stop{};
  std::uint64_t flow = 0;  // as AcquireOptions
  std::string_view label{};
  std::function<Opinion(const detail::Judged<R>&)> judge{};  // is what it returned a failure?
  std::source_location where = std::source_location::current();

  AcquireOptions acquire() const {
    return {.priority = priority,
            .cost = cost,
            .timeout = timeout,
            .deadline = deadline,
            .stop = stop,
            .flow = flow,
            .label = label,
            .where = where};
  }
};

struct BulkheadSnapshot {
  std::string_view name;
  Isolation isolation{};
  bool enabled = true, shadow = false;
  bool draining = false;  // see Bulkhead::set_draining()
  Snapshot gate;          // counters since reset_statistics(); rejections of every stage
  std::optional<PoolSnapshot> pool;
  std::optional<BreakerSnapshot> breaker;
  std::optional<RateLimiterSnapshot> rate_limit;
  std::optional<LimiterSnapshot> adaptive;

  std::uint64_t bypassed = 0;                // calls while not enabled
  std::uint64_t timed_out = 0;               // by the execution timeout
  std::array<std::uint64_t, 3> fallbacks{};  // that were used, by Cause::Kind
  std::uint64_t fallback_failures = 0;       // that threw
  std::uint64_t handler_errors = 0;          // of async_acquire and async_execute
  // Shadow mode: what it would have done, each call once, and how many now run that would be in line or beyond it.
  std::array<std::uint64_t, kReasons> would_reject{};
  std::uint64_t would_wait = 0;
  std::uint32_t beyond = 0;
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
  explicit Ended(std::exception_ptr thrown) : result_(std::unexpect), thrown_(std::move(thrown)) {}

  Result<R> get() && {
    if (thrown_) std::rethrow_exception(std::move(thrown_));
    return std::move(result_);
  }
  bool threw() const noexcept { return thrown_ != nullptr; }

 private:
  friend class Bulkhead;
  Result<R> result_;
  std::exception_ptr thrown_;
};

// The right to make one protected call, and the duty to say how it ended. For those who cannot wrap the call
// into a function: a request that ends in another handler than it began in.
class [[nodiscard]] Call {
 public:
  Call() noexcept = default;
  Call(Call&& other) noexcept;
  Call& operator=(Call&& other) noexcept;
  ~Call() {
    if (bulkhead_) finish(CallVerdict::ignored);
  }

  explicit operator bool() const noexcept { return bulkhead_; }  // not finished
  // Gives the place back and tells breaker and limiter. False, and no effect, the second time.
  bool finish(CallVerdict verdict) noexcept;
  // The same, a failure: it took longer than execution_timeout(), or than its deadline.
  bool time_out() noexcept;
  // How long it may run, see BulkheadOptions; for the caller to keep. wait_forever: no limit, or the bulkhead
  // is not enabled or only watches.
  std::chrono::nanoseconds execution_timeout() const noexcept;
  TimePoint began() const noexcept { return began_; }
  const Permit& permit() const noexcept { return permit_; }

 private:
  friend class Bulkhead;
  // free: it needs no place, because the bulkhead is not enabled or only watches. beyond: it would have had none.
  // pinned: the bulkhead waits for it although it has no place in a gate of its own.
  enum Flags : std::uint8_t { is_free = 1, is_beyond = 2, is_pinned = 4, is_bypassed = 8 };
  bool free() const noexcept { return flags_ & is_free; }

  Bulkhead* bulkhead_ = nullptr;
  Breaker* breaker_ = nullptr;
  RateLimiter* rate_ = nullptr;  // until it has its place: to give the tokens back
  RateTicket ticket_;
  Permit permit_;
  BreakerPass pass_;
  LimiterCall sample_;
  TimePoint began_{};
  std::uint8_t flags_ = 0;
};

class Bulkhead {
 public:
  explicit Bulkhead(const BulkheadOptions& options);  // std::invalid_argument naming the setting
  ~Bulkhead();
  Bulkhead(const Bulkhead&) = delete;
  Bulkhead& operator=(const Bulkhead&) = delete;

  // Calls fn() or fn(std::stop_token) and gives Result<what it returns>. What fn throws is thrown here, unless
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
  Result<Call> acquire(const AcquireOptions& options = {}) noexcept;
  template <class H>
  void async_acquire(AcquireOptions options, H handler);  // handler(Result<Call>)
  auto co_acquire(AcquireOptions options = {});           // co_await -> Result<Call>
  // async_acquire in two steps, for those who would make something for the wait (a stop_source, a timer) and need
  // not make it for calls that do not wait: the answer; or nullopt, and `begun` is for the second step, in which
  // options.stop counts.
  std::optional<Result<Call>> begin_acquire(const AcquireOptions& options, Call& begun) noexcept;
  template <class H>
  void async_acquire(Call begun, AcquireOptions options, H handler);

  // In force from the next call on; calls in flight, counters and what breaker and limiter have learnt stay.
  // Policies can be added and taken away. std::invalid_argument if a setting is wrong, or cannot be changed
  // on a living bulkhead (name, isolation, fairness, critical_reserve, flow_*, gate, clock): then nothing has changed.
  // Hooks, judge, measure_service, track_holders, what `pool` says, and whether occupancy is measured, stay as they
  // were made.
  void update(const BulkheadOptions& options);
  void check(const BulkheadOptions& options) const;  // throws what update() would, and changes nothing
  void resize(
      std::uint32_t max_concurrent);  // while `adaptive` moves the limit: in force when it no longer does
  void resize_queue(std::uint32_t max_queue);
  void reset_statistics();  // of calls, times and the pool; breaker, rate limiter and limiter keep theirs

  void close() noexcept;                      // as Gate; of a gate that others own, for them too
  bool drain(TimePoint until = no_deadline);  // as Gate
  // While on, new calls are refused with Reason::shutdown, also in shadow mode and when not enabled; those in
  // line and in flight go on. Unlike close() it can be taken back, and a gate that others own is not touched.
  void set_draining(bool on);
  // No call is in line, in flight, or on its way out. Lasting only if nobody can begin one.
  bool idle() const noexcept;

  BulkheadSnapshot snapshot() const;
  BulkheadOptions options() const;  // as given last, see update()
  std::vector<Holder> holders() const { return gate_->holders(); }
  std::string_view name() const noexcept { return gate_->name(); }
  Gate& gate() noexcept { return *gate_; }
  Breaker* breaker() noexcept { return breaker_.load(std::memory_order_acquire); }  // null: none
  Clock& clock() const noexcept { return clock_; }
  Isolation isolation() const noexcept { return pool_ ? Isolation::threads : Isolation::semaphore; }

 private:
  friend class Call;
  friend class detail::CallLimit;
  struct Core;
  // elsewhere: a pool, a gate of others, or a time limit. watched: the gate has hooks, a list of holders, or samples.
  enum Mode : std::uint8_t {
    bypassed = 1,
    shadowed = 2,
    timed = 4,
    with_histograms = 8,
    draining = 16,
    elsewhere = 32,
    watched = 64
  };

  struct Pin {  // around what touches the bulkhead when it may hold nothing that its destructor waits for
    explicit Pin(Bulkhead& b) noexcept : bulkhead(b) { b.pins_.fetch_add(1, std::memory_order_relaxed); }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { bulkhead.unpin(); }
    Bulkhead& bulkhead;
  };
  // Of a call that had to wait in line: if that ends in a refusal, its fallback is yet to come.
  using Waiting = std::optional<Pin>;

  // The stages before the place; false: `why` says which refused. Then the call, its place, and its end.
  bool prepare(Call& call, Priority priority, std::uint32_t cost, Rejection& why) noexcept;
  template <class R>
  bool enter(Call& call, const CallOptions<R>& options, Rejection& why, Waiting& waiting) noexcept;
  // Most calls begin and end on one thread, find a place at once, and have no time limit. This is what has to be known
  // of one while it runs; nothing is written that need not be, because the next atomic operation waits for it.
  struct SimpleCall {
    SimpleCall() noexcept {}  // NOLINT(*-member-init): enter_simply() writes what will be read
    TimePoint began() const noexcept { return TimePoint(std::chrono::nanoseconds(began_ns)); }

    std::int64_t began_ns;  // 0: nobody wants to know
    Breaker* breaker;
    bool sampled;
    std::uint64_t breaker_word;  // if there is a breaker
    union {
      LimiterCall sample;  // if sampled
    };
    RateLimiter* rate;           // if it is almost in, like the next two
    std::uint64_t charge, mark;  // if there is a rate limiter
  };
  // no: it takes more than that, and nothing has been taken. almost: all it lacks is a place.
  enum class Entry : std::uint8_t { no, almost, yes };
  Entry enter_simply(SimpleCall& call) noexcept;
  Entry enter_simply_at(SimpleCall& call, TimePoint now) noexcept;
  Entry enter_simply_late(SimpleCall& call) noexcept;
  Entry enter_simply_rest(SimpleCall& call, Gate::Turnstile::Pass passed) noexcept;
  void leave_simply(const SimpleCall& call) noexcept;  // it has succeeded
  void leave_simply_at(const SimpleCall& call, TimePoint now) noexcept;
  void leave_simply_late(const SimpleCall& call) noexcept;
  void leave_simply_telling(const SimpleCall& call, TimePoint now) noexcept;
  void give_back_simply(TimePoint now) noexcept;
  Call resume(const SimpleCall& call) noexcept;  // the same call, for the long way out
  // The long way in, from where enter_simply() has left off.
  bool enter_on(Call& call, const SimpleCall& begun, Entry entry, std::source_location where, Rejection& why,
                Waiting& waiting) noexcept;
  template <class R, class F>
  Result<R> execute_on(F&& fn, const SimpleCall& begun, Entry entry, std::source_location where);
  TimePoint glance() const noexcept;
  bool enter(Call& call, const AcquireOptions& options, bool may_wait, Rejection& why,
             Waiting& waiting) noexcept;
  bool enter_line(Call& call, const AcquireOptions& options, bool may_wait, Rejection& why,
                  Waiting& waiting) noexcept;
  Gate::Turnstile::Pass pass(Call& call, Priority priority) noexcept;
  bool enter_otherwise(Call& call, Gate::Turnstile::Pass passed, const AcquireOptions& options,
                       Rejection& why, Waiting& waiting) noexcept;
  bool place(Call& call, Result<Permit> permit, Rejection& why) noexcept;
  void leave(Call& call, CallVerdict verdict, bool timed_out, std::chrono::nanoseconds took,
             TimePoint now) noexcept;
  void enter_free(Call& call, Priority priority, std::uint32_t cost, std::uint8_t mode) noexcept;
  AcquireOptions with_defaults(AcquireOptions options) const noexcept;
  Opinion judge(const std::exception_ptr& thrown) const;
  template <class R>
  CallVerdict judge(Ended<R>& ended, const CallOptions<R>& options, Permit& permit) const noexcept;
  void would_reject(Reason reason) noexcept;
  void count_timeout(const Call& call) noexcept;
  Rejection late() noexcept;  // a Reason::timeout, counted as an execution timeout
  void apply(const BulkheadOptions& options);
  void try_out(const BulkheadOptions& options) const;
  void size(std::uint32_t max_concurrent);
  static void take_back(Call& call) noexcept {  // the tokens of a call that is not made
    if (RateLimiter* const rate = std::exchange(call.rate_, nullptr)) rate->cancel(call.ticket_);
  }
  void pin(Call& call) noexcept;
  void unpin() noexcept;
  void count_fallback(Cause::Kind kind, bool threw) noexcept;
  std::chrono::nanoseconds time_limit(std::chrono::nanoseconds own) const noexcept;
  bool has_fallback(Cause::Kind kind) const noexcept {
    return covers(fallback_on_.load(std::memory_order_relaxed), kind);
  }

  template <class R>
  Ended<R> conclude(const CallOptions<R>& options, const Cause& cause, Ended<R>&& otherwise);
  template <class R>
  Ended<R> refused(const CallOptions<R>& options, const Rejection& why);
  template <class R>
  class Attempt;
  template <class R, class F>
  Ended<R> attempt(Call& call, F& fn, const CallOptions<R>& options);
  template <class R, class F>
  Ended<R> execute_pooled(F&& fn, const CallOptions<R>& options);
  template <class R, class F>
  class Pooled;
  template <class R, class F>
  Ended<R> arrived(Call& call, Result<Permit> permit, F& fn, const CallOptions<R>& options);
  template <class R, class F>
  detail::Lazy<Result<R>> co_execute_lazily(F fn, CallOptions<R> options);
  template <class H, class A>
  void deliver(H& handler, A&& what) noexcept;
  TimePoint begin_pooled(detail::PooledTimes& times, TimePoint submitted) noexcept;
  void end_pooled(detail::PooledTimes& times, TimePoint began) noexcept;
  void count_handler_error() noexcept;

  // Read by every call, written seldom. A policy that is taken away lives on until the end, for the calls
  // that it has admitted.
  std::atomic<std::uint8_t> mode_{0};
  std::atomic<FallbackOn> fallback_on_{FallbackOn::all};
  std::atomic<RateLimiter*> rate_{nullptr};
  std::atomic<Breaker*> breaker_{nullptr};
  std::atomic<AdaptiveLimiter*> limiter_{nullptr};
  std::atomic<std::chrono::nanoseconds> max_wait_{wait_forever}, execution_timeout_{wait_forever};
  Clock& clock_;
  const bool steady_;  // it is Clock::steady(), whose glance() need not be called to be known
  Gate* gate_ = nullptr;
  Pool* pool_ = nullptr;  // null: Isolation::semaphore
  bool shared_ = false;   // the gate is another's
  // Calls that have no place and will yet touch this object. The top bit: the destructor waits for them.
  static constexpr std::uint32_t closing = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> pins_{0};
  std::unique_ptr<Core> core_;
};

// A callable with fn's parameters whose calls are protected, and give a Result. The bulkhead must outlive it.
template <class F>
auto protect(Bulkhead& bulkhead, F fn);

}  // namespace bulkhead

#include "bulkhead/detail/bulkhead_calls.h"
