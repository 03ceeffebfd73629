// call_path.h - the stages of a call through a bulkhead. Not for direct use.
//
//   0. holds_back    rejects lower priorities as saturation nears
//   1. limit_rate    takes tokens of the rate limiter
//   2. ask_breaker   takes a pass of the breaker
//      take_budgets  takes units of the budgets that the call names, see src/bulkhead/budgets.cc
//   3. take_place    takes a place: in the gate, in a group's gate, or on a thread of the pool
//   4. run           makes the call, with its time limit; an injected fault comes first, see src/bulkhead/fault.cc
//   5. conclude      reports the outcome to breaker and adaptive limiter, then gives the place back
//   6. fall_back     calls the fallback, if there is one for the cause
//
// All of them are in src/bulkhead/call.cc, in this order. Every form of call goes through them; the templates in
// bulkhead_calls.h differ only in how they wait: on a thread, with a handler, in a coroutine or for a pool.
#pragma once

#include "bulkhead/detail/language.h"

#include <coroutine>
#include <new>

#include "bulkhead/bulkhead.h"

namespace bulkhead::detail {

class CallPath;
struct BulkheadCore;

using ExceptionJudge = std::function<Opinion(const std::exception_ptr&)>;

// Fires the stop_token of a running call: when its time is up, when its caller cancels it, or when the group that
// lent its place calls it back.
class CallLimit {
 public:
  CallLimit() noexcept = default;
  CallLimit(const CallLimit&) = delete;
  CallLimit& operator=(const CallLimit&) = delete;
  ~CallLimit();

  std::stop_token watch(Clock& clock, TimePoint until, const std::stop_token& caller,
                        const std::stop_token& lender);

 private:
  struct Timer;
  struct Relay {
    std::stop_source to;
    void operator()() noexcept { std::stop_source(to).request_stop(); }  // a copy: this may end inside
  };
  Clock* clock_ = nullptr;
  std::shared_ptr<Timer> timer_;
  std::optional<std::stop_callback<Relay>> caller_, lender_;
};

// What the stages need of a call: its options, its function and its result. Nothing here throws: what the function,
// the judge or the fallback throws is the result.
class CallBody {
 public:
  CallBody(AcquireOptions place, std::chrono::nanoseconds limit)
      : asked(std::move(place)), execution_timeout(limit) {}
  CallBody(const CallBody&) = delete;
  CallBody& operator=(const CallBody&) = delete;
  virtual ~CallBody() = default;

  struct Attempt;
  virtual void run(Attempt& attempt) noexcept = 0;
  struct Judgement {
    Outcome outcome;
    bool by_judge;  // else it is the usual outcome of what the call returned or threw
  };
  virtual Judgement judge(const ExceptionJudge& common) noexcept = 0;
  virtual void reject(const Rejection& why) noexcept = 0;  // the rejection replaces the result
  virtual bool has_fallback() const noexcept = 0;
  virtual void fall_back(const Cause& cause) noexcept = 0;  // what it returns or throws replaces the result

  const AcquireOptions asked;
  const std::chrono::nanoseconds execution_timeout;
  std::exception_ptr thrown;
  bool needs_judge = true;  // false: it returned, and a value that is always a success
};

// A call that runs. Its stop_token is made when the function asks for it: most functions take none.
struct CallBody::Attempt {
  Attempt(CallPath& path, Call& call, const CallBody& body) noexcept;
  std::stop_token stop();

  CallPath& path;
  Call& call;
  const CallBody& body;
  TimePoint until = no_deadline;
  CallLimit limit;
};

// Makes the handles that functions get.
struct RunningCallOf : RunningCall {
  explicit RunningCallOf(CallBody::Attempt& attempt) noexcept;
  RunningCallOf(Permit& permit, BudgetHold* budgets, std::stop_token stop) noexcept
      : RunningCall(permit, budgets, false) {
    stop_ = std::move(stop);
  }
  static std::stop_token stop_of(void* attempt);
};

struct BudgetHoldDelete {
  void operator()(BudgetHold* hold) const noexcept;
};
using BudgetHoldPtr = std::unique_ptr<BudgetHold, BudgetHoldDelete>;
bool settle_budget(BudgetHold* hold, std::string_view budget, std::uint32_t units) noexcept;
bool grow_budget(BudgetHold* hold, std::string_view budget, std::uint32_t units) noexcept;
std::uint32_t held_of_budget(const BudgetHold* hold, std::string_view budget) noexcept;

// When a call ran on a thread of the pool. Its caller may give up first, so both share it.
struct PooledTimes {
  LimiterCall sample{};
  std::atomic<std::int64_t> began{0}, ended{0};  // ns; 0: not yet. Written after `sample`.
  bool injected_error = false;                   // written before `ended`
};

// What a fault does to a call: its latency ends then, and it may fail instead of running.
struct Injected {
  TimePoint until{};
  bool error = false;
};

// co_await: until then, without a thread.
class Delay {
 public:
  Delay(Clock& clock, TimePoint until);
  Delay(const Delay&) = delete;
  Delay& operator=(const Delay&) = delete;
  ~Delay();
  bool await_ready() const noexcept;
  void await_suspend(std::coroutine_handle<> waiter) noexcept;
  void await_resume() const noexcept {}

 private:
  struct Wake;
  Clock& clock_;
  std::shared_ptr<Wake> wake_;
};

// Calls fn() then, on the thread of the clock's deadlines, or at once if it is over or there is no memory to wait: its caller
// is a handler of the gate, and an exception there would lose the call.
template <class Fn>
void run_at(Clock& clock, TimePoint until, Fn fn) {
  struct Later final : Alarm {
    explicit Later(Fn its_fn) : run(std::move(its_fn)) {}
    bool expire() noexcept override { return true; }
    void expired() noexcept override {
      const std::unique_ptr<Later> self(this);
      run();
    }
    Fn run;
  };
  Later* const later = clock.now() < until ? new (std::nothrow) Later(std::move(fn)) : nullptr;
  if (!later) return fn();
  later->at = until;
  clock.deadlines().arm(*later);
}

// Why a stage rejected the call, once it has. (An optional: GCC fills an empty one with zeros at every call.)
class RejectionSlot {
 public:
  RejectionSlot() noexcept {}  // NOLINT(*-member-init): the rejection is made later, or never
  RejectionSlot(const RejectionSlot&) = delete;
  RejectionSlot& operator=(const RejectionSlot&) = delete;
  ~RejectionSlot() {
    if (made_) rejection_.~Rejection();
  }
  Rejection& make(const Rejection& why) noexcept {
    made_ = true;
    return *::new (&rejection_) Rejection(why);
  }
  const Rejection& operator*() const noexcept { return rejection_; }
  const Rejection* operator->() const noexcept { return &rejection_; }

 private:
  union {
    Rejection rejection_;
  };
  bool made_ = false;
};

class CallPath {
 public:
  CallPath(const CallPath&) = delete;
  CallPath& operator=(const CallPath&) = delete;
  virtual ~CallPath() = default;

  // Holds the destructor of the bulkhead off. For code that uses the bulkhead while its call has no place.
  class Pin {
   public:
    explicit Pin(CallPath& path) noexcept : path_(path) { path.pin(); }
    Pin(const Pin&) = delete;
    Pin& operator=(const Pin&) = delete;
    ~Pin() { path_.unpin(); }

   private:
    CallPath& path_;
  };
  // Made when a call waits in line: if it is rejected there, its fallback still needs the bulkhead.
  using WaitPin = std::optional<Pin>;
  struct Ending {
    TimePoint now{};
    std::chrono::nanoseconds took{};
    bool timed_out = false;
  };

  // All stages, on this thread.
  void execute(CallBody& body) noexcept;
  // Stages 1 and 2 of a call whose place comes later. False: the call is over, rejected or made without a place.
  bool start(Call& call, CallBody& body) noexcept;
  // The other stages, when its place has come.
  void arrive(Call& call, Result<Permit> permit, CallBody& body) noexcept;
  // Stages 1 to 3 for callers that make the call themselves.
  Result<Call> acquire(const AcquireOptions& options, bool may_wait) noexcept;
  std::optional<Result<Call>> begin_acquire(const AcquireOptions& options, Call& begun) noexcept;

  // Stages 1 and 2. False: `why` says which one rejected the call. A call that is_free() needs no place.
  bool admit(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept;
  bool holds_back(const AcquireOptions& options) noexcept;
  bool limit_rate(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept;
  bool ask_breaker(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept;
  enum class Place : std::uint8_t { taken, rejected, wait };
  // Budgets. A call that waits for one asks budget_gate() with budget_options(), and budget_answer() takes what that
  // says. False: `why` says which one rejected the call, which is over.
  bool reserve(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept;
  bool take_budgets(Call& call, bool may_wait, RejectionSlot& why) noexcept;  // on this thread
  Place budgets_at_once(Call& call, bool may_wait, RejectionSlot& why) noexcept;
  static bool has_budgets(const Call& call) noexcept { return call.budgets_; }
  static bool waits_for_budget(const Call& call) noexcept;
  static void set_stop(Call& call, const std::stop_token& stop) noexcept;  // of what it waits for from now on
  static Gate& budget_gate(Call& call) noexcept;
  AcquireOptions budget_options(const Call& call) const noexcept;
  bool budget_answer(Call& call, Result<Permit> permit, RejectionSlot& why) noexcept;
  bool peek_budgets(Call& call) noexcept;
  // The work in a pool keeps its units until it has ended, also when its caller gives up.
  static BudgetHoldPtr take_hold(Call& call) noexcept {
    return BudgetHoldPtr(std::exchange(call.budgets_, nullptr));
  }

  bool take_place(Call& call, const AcquireOptions& options, bool may_wait, RejectionSlot& why,
                  WaitPin& waits) noexcept;
  Place place_at_once(Call& call, const AcquireOptions& options, bool may_wait, RejectionSlot& why) noexcept;
  bool placed(Call& call, Result<Permit> permit, RejectionSlot& why) noexcept;
  void begin_service(Call& call) noexcept;
  void run(Call& call, CallBody& body) noexcept;
  void end(CallBody::Attempt& attempt, CallBody& body) noexcept;
  void conclude(Call& call, CallBody& body, const Ending& ending) noexcept;
  void leave(Call& call, Outcome outcome, const Ending& ending) noexcept;
  void reject(CallBody& body, const Rejection& why) noexcept;
  void fall_back(CallBody& body, const Cause& cause) noexcept;

  // Around and after stage 4 on a thread of the pool.
  SubmitOptions submission(const Call& call, const CallBody& body) const noexcept;
  TimePoint submitted(const Call& call) const noexcept;
  TimePoint begin_pooled(PooledTimes& times, TimePoint submitted) noexcept;
  void end_pooled(PooledTimes& times, TimePoint began) noexcept;
  void conclude_pooled(Call& call, CallBody& body, const PooledTimes& times,
                       const Rejection* rejection) noexcept;

  // A fault, see fault.h: a call that is_faulty() and has its place asks once what it meets.
  static bool is_faulty(const Call& call) noexcept { return call.flags_ & Call::kFaulty; }
  Injected injected(TimePoint limit) noexcept;
  Injected injected(Call& call, TimePoint limit) noexcept;
  Injected injected(Call& call, const CallBody& body) noexcept;
  void sleep(TimePoint until) noexcept;
  void run_faulty(Call& call, CallBody& body) noexcept;                        // on this thread
  void run_after(const Injected& fault, Call& call, CallBody& body) noexcept;  // its latency is over
  bool end_after(const Injected& fault, CallBody::Attempt& attempt,
                 CallBody& body) noexcept;  // false: it may run
  void fail(Call& call, CallBody& body, const Ending& ending) noexcept;
  Rejection fail(Call& call) noexcept;  // of callers that make the call themselves

  bool finish(Call& call, Outcome outcome) noexcept;     // stage 5 for callers that made the call themselves
  void hold(Call& call) noexcept { call.path_ = this; }  // the call ends with `call`, whatever happens
  void pin(Call& call) noexcept;
  static bool is_free(const Call& call) noexcept { return call.free(); }
  void count_handler_error() noexcept;
  AcquireOptions with_defaults(AcquireOptions options) const noexcept;
  AcquireOptions place_options(const Call& call, AcquireOptions options) const noexcept;
  std::chrono::nanoseconds time_limit(std::chrono::nanoseconds own) const noexcept;
  Gate& gate() const noexcept { return *gate_; }
  Pool* pool() const noexcept { return pool_; }
  Clock& clock() const noexcept { return clock_; }

 protected:
  friend struct CallBody::Attempt;
  explicit CallPath(Clock& clock) noexcept;

  struct Verdict {
    Outcome outcome;
    bool failed;  // the caller gets the fallback
  };
  Verdict judge(CallBody& body, Permit& permit) noexcept;
  bool reject(const Call& call, Priority priority, Reason reason, std::chrono::nanoseconds retry_after,
              RejectionSlot& why) noexcept;
  void shadow_place(Call& call, const AcquireOptions& options) noexcept;
  void would_reject(Reason reason) noexcept;
  Rejection timed_out() noexcept;
  Rejection injected_rejection() noexcept;
  static void take_back_tokens(Call& call) noexcept;
  TimePoint glance() const noexcept;
  void pin() noexcept { pins_.fetch_add(1, std::memory_order_relaxed); }
  void unpin() noexcept;
  BulkheadCore& core() noexcept;

  enum Mode : std::uint8_t {
    kBypassed = 1,
    kShadow = 2,
    kTimed = 4,
    kHistograms = 8,
    kDraining = 16,
    kHoldback = 32,
    kFaulty = 64
  };
  // Read by every call, written by update(). A policy that was removed lives as long as the bulkhead, for the calls
  // that it has admitted.
  std::atomic<std::uint8_t> mode_{0};
  std::atomic<FallbackOn> fallback_on_{FallbackOn::all};
  std::atomic<RateLimiter*> rate_{nullptr};
  std::atomic<Breaker*> breaker_{nullptr};
  std::atomic<AdaptiveLimiter*> limiter_{nullptr};
  std::atomic<Holdback*> holdback_{nullptr};
  std::atomic<std::chrono::nanoseconds> max_wait_{wait_forever}, execution_timeout_{wait_forever};
  Clock& clock_;
  const bool steady_;  // clock_ is Clock::steady(), which is read without a virtual call
  Gate* gate_ = nullptr;
  Pool* pool_ = nullptr;  // null: Isolation::semaphore
  bool shared_ = false;   // the gate has another owner
  // Calls that hold no place and still use this object. The top bit: the destructor waits for them.
  static constexpr std::uint32_t kClosing = std::uint32_t{1} << 31;
  std::atomic<std::uint32_t> pins_{0};
};

}  // namespace bulkhead::detail
