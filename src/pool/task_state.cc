#include "bulkhead/task.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "base/futex.h"
#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "pool/pool_core.h"

namespace bulkhead::detail {
namespace {

struct Parked final : Continuation {
  Parked() {
    resume = [](Continuation& self) noexcept {
      auto& parked = static_cast<Parked&>(self);
      parked.unblock();  // it is not blocked any more, even before it wakes up
      auto* word = &parked.signal;
      word->store(1, std::memory_order_release);
      base::futex_wake(word);
    };
  }
  void unblock() const noexcept {
    if (blocked) blocked->unblock(units);
  }
  std::atomic<std::uint32_t> signal{0};
  Workers* blocked = nullptr;  // set if this thread is a worker of the pool that it waits for
  std::uint32_t units = 0;     // units that this thread holds
};

}  // namespace

TaskState::TaskState(PoolCore& core, Gate& gate, TaskExtrasPtr extras) noexcept
    : AsyncAcquire(gate, extras ? &extras->watch : nullptr, Tell::at_once),
      core_(core),
      clock_(core.clock),
      extras_(std::move(extras)) {}

TaskState::~TaskState() = default;

TimePoint TaskState::after(std::chrono::nanoseconds timeout) const noexcept {
  if (settled()) return no_deadline;
  return saturating_add(clock_.now(), timeout);
}

// ---- the caller's side ----

void empty_task() {
  constexpr const char* kText =
      "bulkhead: the Task is empty: it was moved from, or its result was taken or given up";
#if defined(__cpp_exceptions)
  throw std::logic_error(kText);
#else
  std::fprintf(stderr, "%s\n", kText);
  std::abort();
#endif
}

bool TaskState::attach(Continuation& waiter) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & kSettled))
    if (word_.compare_exchange_weak(w, w | pack(&waiter), std::memory_order_acq_rel,
                                    std::memory_order_acquire))
      return true;
  return false;
}

bool TaskState::detach(Continuation& waiter) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (continuation(w) == &waiter)
    if (word_.compare_exchange_weak(w, w & kFlags, std::memory_order_acq_rel, std::memory_order_acquire))
      return true;
  return false;
}

namespace {
// The tasks that this thread is giving up, innermost first: the pool may call back into one of them.
struct Giving {
  explicit Giving(const TaskState& t) noexcept : task(t), outer(innermost) { innermost = this; }
  ~Giving() { innermost = outer; }
  Giving(const Giving&) = delete;
  Giving& operator=(const Giving&) = delete;

  static bool up(const TaskState& t) noexcept {
    for (const Giving* g = innermost; g; g = g->outer)
      if (&g->task == &t) return true;
    return false;
  }
  const TaskState& task;
  const Giving* const outer;
  static constinit thread_local const Giving* innermost;
};
constinit thread_local const Giving* Giving::innermost = nullptr;
}  // namespace

void TaskState::give_up(Reason reason) noexcept {
  const std::uintptr_t before = set_rejected();
  if (!before) return;
  const Giving giving(*this);
  // The pool exists until the task is settled below (T4).
  store_rejection(numbers(reason));
  if (std::stop_source* source = stop()) source->request_stop();
  if (before & kRunning)
    abandon();
  else
    cancel(reason);  // if it is admitted already, the worker will find it rejected
  settle(0);
}

// ---- results ----

// 0: it was rejected or settled before. Else the old word with kRejected.
std::uintptr_t TaskState::set_rejected() noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & (kRejected | kSettled)))
    if (word_.compare_exchange_weak(w, w | kRejected, std::memory_order_acq_rel, std::memory_order_acquire))
      return w | kRejected;
  return 0;
}

// Wakes the waiting thread or calls the continuation. Afterwards the task may be destroyed, unless the caller owns it.
void TaskState::settle(std::uintptr_t further_flags) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(w, (w & kFlags) | kSettled | further_flags, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
  }
  const bool last = further_flags & kFinished && w & kDetached;
  if (Continuation* then = continuation(w)) then->resume(*then);
  if (last) destroy();
}

// For a task that another thread has rejected, and may still be settling.
void TaskState::finish() noexcept {
  if (!Giving::up(*this))
    while (!settled()) StdPlatform::pause();
  if (word_.fetch_or(kFinished, std::memory_order_acq_rel) & kDetached) destroy();
}

// The pool rejects the task.
void TaskState::reject(const Rejection& rejection) noexcept {
  if (!set_rejected()) return finish();
  store_rejection(rejection);
  settle(kFinished);
}

Rejection TaskState::numbers(Reason reason) const noexcept {
  const Snapshot s = gate().snapshot();
  return {reason, gate().name(), s.in_flight, s.max_concurrent, s.waiting, s.max_queue};
}

// ---- the pool's side ----

void TaskState::on_decided() noexcept {
  Result<Permit> permit = result();
  if (!permit) return reject(permit.error());
  permit_ = *std::move(permit);
  core_.workers->add(*this);
}

// Releases the permit; a task that it admits runs on this thread.
void TaskState::hand_over() noexcept {
  const Workers::HandingOver handing_over;
  if (AsyncAcquire* heir = hand_on())
    core_.workers->add(static_cast<TaskState&>(*heir));
  else
    permit_.release();
}

void TaskState::execute() noexcept {
  PoolCore& core = core_;
  // Detached and not watched: no other thread can decide about it.
  if (!extras_ && word_.load(std::memory_order_acquire) == kDetached) {
    if (!run_watched(core)) permit_.fail();
    hand_over();
    return destroy();
  }
  const bool wanted = !(word_.fetch_or(kRunning, std::memory_order_acq_rel) & kRejected);
  if (wanted && !run_watched(core)) permit_.fail();
  const auto end = [&] {
    detail::MutexLock lock(core.mutex);
    ended_ = true;
    if (!std::exchange(abandoned_, false)) return;
    unlist();
    --core.abandoned;
    if (unspent_) --core.abandoned_total;  // it was rejected just before it began
  };
  if (rejected()) end();  // before its thread counts as free
  Workers::Settling settling;
  hand_over();  // before the result is visible, so that a caller that has the result finds the thread free
  StdPlatform::point("task.before_settle");
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & kRejected)) {
    if (!word_.compare_exchange_weak(w, (w & kFlags) | kSettled | kFinished, std::memory_order_acq_rel,
                                     std::memory_order_acquire))
      continue;
    settling.over();
    if (Continuation* then = continuation(w)) then->resume(*then);
    if (w & kDetached) destroy();
    return;
  }
  discard();
  end();
  finish();
  settling.over();
}

struct TaskState::Overrun final : Alarm {
  explicit Overrun(TaskState& t) : task(t) {}
  bool expire() noexcept override {
    if (!task.set_rejected()) return false;
    firing.store(true, std::memory_order_relaxed);
    return true;
  }
  void expired() noexcept override {
    TaskState& t = task;
    t.store_rejection(t.numbers(Reason::execution_timeout));
    t.abandon();
    if (std::stop_source* source = t.stop()) source->request_stop();
    t.settle(0);  // the worker waits for this before it destroys the alarm
  }
  TaskState& task;
  std::atomic<bool> firing{false};
};

// Runs the work with its context, stop_token and time limit. Most work has none of them.
bool TaskState::run_watched(PoolCore& core) noexcept {
  std::stop_source* const source = stop();
  if (!extras_ && !source) return call();

  struct GiveUp {
    TaskState& task;
    void operator()() const noexcept { task.give_up(Reason::cancelled); }
  };
  std::optional<std::stop_callback<GiveUp>> on_stop;
  std::optional<Overrun> overrun;
  if (extras_) {
    const AcquireOptions& options = extras_->watch.options();
    if (options.stop.stop_possible()) on_stop.emplace(options.stop, GiveUp{*this});
    if (extras_->execution_timeout != wait_forever || options.deadline != no_deadline) {
      overrun.emplace(*this);
      overrun->at = std::min(after(extras_->execution_timeout), options.deadline);
      core.clock.deadlines().arm(*overrun);
    }
  }
  bool stop_now = false;
  if (source) {
    detail::MutexLock lock(core.mutex);
    stoppable_ = true;
    if (!abandoned_) enlist();  // the caller may have given up just now
    stop_now = core.stopping;
  }
  if (stop_now) source->request_stop();
  const bool has_context = extras_ && extras_->context;
  if (has_context && core.context.enter) core.context.enter(extras_->context);
  // Its stop_token may have fired since its admission.
  const bool succeeded = rejected() || call();
  if (has_context && core.context.leave) core.context.leave(extras_->context);
  if (source) {
    detail::MutexLock lock(core.mutex);
    stoppable_ = false;
    if (!abandoned_) unlist();
  }
  if (overrun) {
    core.clock.deadlines().disarm(*overrun);
    // The alarm is on this stack: if it has fired, wait until it is done.
    while (overrun->firing.load(std::memory_order_acquire) && !settled()) StdPlatform::pause();
  }
  return succeeded;
}

void TaskState::abandon() noexcept {
  detail::MutexLock lock(core_.mutex);
  if (ended_) return;
  if (!stoppable_) enlist();
  abandoned_ = true;
  since = clock_.now().time_since_epoch().count();
  ++core_.abandoned;
  ++core_.abandoned_total;
}

void TaskState::enlist() noexcept {
  core_.mutex.assert_held();
  prev = nullptr;
  next = core_.running;
  if (next) next->prev = this;
  core_.running = this;
}

void TaskState::unlist() noexcept {
  core_.mutex.assert_held();
  if (prev)
    prev->next = next;
  else
    core_.running = static_cast<TaskState*>(next);
  if (next) next->prev = prev;
}

// ---- self-deadlock ----

// In a debug build: a worker, which holds `units`, waits for a task of its own pool. That works as long as another thread
// can run the task. If too few threads of the pool do not wait in this way, none ever will, and this aborts. Returns the
// workers if the calling thread is one of them; then the pool exists (a Task may outlive it).
Workers* TaskState::block_self([[maybe_unused]] std::uint32_t& units) const noexcept {
#if !defined(NDEBUG)
  Workers* own = Workers::of_this_thread(core_);
  if (!own) return nullptr;
  const TaskState* const mine = Workers::running_on_this_thread();
  units = mine ? mine->permit_.cost() : 0;
  const std::uint32_t blocked = own->block(units), threads = gate().snapshot().max_concurrent;
  if (word_.load() & (kRunning | kRejected) || blocked + cost <= threads) return own;
  const std::string text = base::join(
      {"bulkhead \"", gate().name(), "\": self-deadlock: ", std::to_string(blocked), " of ",
       std::to_string(threads), " threads of the pool wait for work that is queued behind them and needs ",
       std::to_string(cost), ". Submit it to another pool, or co_await it.\n"});
  std::fputs(text.c_str(), stderr);
  std::abort();
#else
  return nullptr;
#endif
}

bool TaskState::wait_until(TimePoint until) noexcept {
  if (settled()) return true;
  Parked parked;
  if (until == no_deadline)
    parked.blocked = block_self(parked.units);  // a wait with a time limit is no deadlock
  if (!attach(parked)) {
    parked.unblock();
    return true;
  }
  while (parked.signal.load(std::memory_order_acquire) == 0) {
    if (until != no_deadline && clock_.now() >= until) {
      if (detach(parked)) {
        parked.unblock();
        return false;
      }
      until = no_deadline;  // it is being settled; the signal is about to be set
    }
    clock_.wait(parked.signal, 0, until);
  }
  return true;
}

}  // namespace bulkhead::detail
