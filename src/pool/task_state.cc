#include "bulkhead/detail/task_state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/futex.h"
#include "base/text.h"
#include "pool/core.h"

namespace bulkhead::detail {
namespace {

struct Parked final : Continuation {
  Parked() {
    resume = [](Continuation& self) noexcept {
      auto& parked = static_cast<Parked&>(self);
      parked.unblock();  // it can go on, however long it takes to wake up
      auto* word = &parked.signal;
      word->store(1, std::memory_order_release);
      base::futex_wake(word);
    };
  }
  void unblock() const noexcept {
    if (blocked) blocked->unblock(units);
  }
  std::atomic<std::uint32_t> signal{0};
  Workers* blocked = nullptr;  // of the pool that this thread belongs to and waits for
  std::uint32_t units = 0;     // that this thread holds
};

}  // namespace

TaskState::TaskState(PoolCore& core, Gate& gate, TaskExtras* extras) noexcept
    : AsyncAcquire(gate, extras ? &extras->watch : nullptr, Tell::at_once),
      core_(core),
      clock_(core.clock),
      extras_(extras) {}

TaskState::~TaskState() {
  if (!extras_) return;
  extras_->~TaskExtras();
  give_block(extras_, sizeof(TaskExtras));
}

TimePoint TaskState::after(std::chrono::nanoseconds timeout) const noexcept {
  if (settled()) return no_deadline;
  const TimePoint now = clock_.now();
  return timeout >= no_deadline - now ? no_deadline : now + timeout;
}

// ---- the caller's side ----

bool TaskState::attach(Continuation& waiter) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & is_settled))
    if (word_.compare_exchange_weak(w, w | pack(&waiter), std::memory_order_acq_rel,
                                    std::memory_order_acquire))
      return true;
  return false;
}

bool TaskState::detach(Continuation& waiter) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (continuation(w) == &waiter)
    if (word_.compare_exchange_weak(w, w & flags, std::memory_order_acq_rel, std::memory_order_acquire))
      return true;
  return false;
}

namespace {
// The tasks that this thread is giving up, innermost first: telling the pool may come back to them.
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
  const std::uintptr_t before = set_refused();
  if (!before) return;
  const Giving giving(*this);
  // Until it is settled, below, the pool is there (T4).
  refuse(numbers(reason));
  if (std::stop_source* source = stop()) source->request_stop();
  if (before & is_running)
    abandon();
  else
    cancel(reason);  // if it is admitted already, the worker will find it refused
  settle(0);
}

// ---- results ----

// 0: it was refused or settled before. Else what the word was, and is_refused.
std::uintptr_t TaskState::set_refused() noexcept {
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & (is_refused | is_settled)))
    if (word_.compare_exchange_weak(w, w | is_refused, std::memory_order_acq_rel, std::memory_order_acquire))
      return w | is_refused;
  return 0;
}

// Tells whoever waits. Afterwards the task is gone, unless the caller owns it.
void TaskState::settle(std::uintptr_t further_flags) noexcept {
  std::uintptr_t w = word_.load(std::memory_order_relaxed);
  while (!word_.compare_exchange_weak(w, (w & flags) | is_settled | further_flags, std::memory_order_acq_rel,
                                      std::memory_order_relaxed)) {
  }
  const bool last = further_flags & is_finished && w & is_detached;
  if (Continuation* then = continuation(w)) then->resume(*then);
  if (last) destroy();
}

// Refused by another thread, which may still be at it.
void TaskState::finish() noexcept {
  if (!Giving::up(*this))
    while (!settled()) StdPlatform::pause();
  if (word_.fetch_or(is_finished, std::memory_order_acq_rel) & is_detached) destroy();
}

// Refused by the pool itself.
void TaskState::reject(const Rejection& rejection) noexcept {
  if (!set_refused()) return finish();
  refuse(rejection);
  settle(is_finished);
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

// What the release admits goes on right here.
void TaskState::hand_over() noexcept {
  const Workers::HandingOver handing_over;
  if (AsyncAcquire* heir = hand_on())
    core_.workers->add(static_cast<TaskState&>(*heir));
  else
    permit_.release();
}

void TaskState::execute() noexcept {
  PoolCore& core = core_;
  // Let go by its owner, and nothing watches it: nobody else decides about it any more.
  if (!extras_ && word_.load(std::memory_order_acquire) == is_detached) {
    if (!run_watched(core)) permit_.fail();
    hand_over();
    return destroy();
  }
  const bool wanted = !(word_.fetch_or(is_running, std::memory_order_acq_rel) & is_refused);
  if (wanted && !run_watched(core)) permit_.fail();
  const auto end = [&] {
    std::lock_guard lock(core.mutex);
    ended_ = true;
    if (!std::exchange(abandoned_, false)) return;
    std::erase_if(core.abandoned, [this](const auto& a) { return a.task == this; });
    if (unspent_) --core.abandoned_total;  // it was refused just before it would have begun
  };
  if (refused()) end();  // before its thread is shown as free
  hand_over();           // the slot first, so that whoever learns of the result finds it free
  std::uintptr_t w = word_.load(std::memory_order_acquire);
  while (!(w & is_refused)) {
    if (!word_.compare_exchange_weak(w, (w & flags) | is_settled | is_finished, std::memory_order_acq_rel,
                                     std::memory_order_acquire))
      continue;
    if (Continuation* then = continuation(w)) then->resume(*then);
    if (w & is_detached) destroy();
    return;
  }
  discard();
  end();
  finish();
}

struct TaskState::Overrun final : Alarm {
  explicit Overrun(TaskState& t) : task(t) {}
  bool expire() noexcept override {
    if (!task.set_refused()) return false;
    firing.store(true, std::memory_order_relaxed);
    return true;
  }
  void expired() noexcept override {
    TaskState& t = task;
    t.refuse(t.numbers(Reason::timeout));
    t.abandon();
    if (std::stop_source* source = t.stop()) source->request_stop();
    t.settle(0);  // the worker waits for this before it lets go of the task, and so of this alarm
  }
  TaskState& task;
  std::atomic<bool> firing{false};
};

// Runs the work with everything around it that was asked for; most work asks for nothing.
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
    std::lock_guard lock(core.mutex);
    core.stoppable.push_back(this);
    stop_now = core.stopping;
  }
  if (stop_now) source->request_stop();
  const bool has_context = extras_ && extras_->context;
  if (has_context && core.context.enter) core.context.enter(extras_->context);
  // Its stop_token may have fired between its admission and here.
  const bool succeeded = refused() || call();
  if (has_context && core.context.leave) core.context.leave(extras_->context);
  if (source) {
    std::lock_guard lock(core.mutex);
    std::erase(core.stoppable, this);
  }
  if (overrun) {
    core.clock.deadlines().disarm(*overrun);
    // The alarm is on this stack: if it fires, it must be through.
    while (overrun->firing.load(std::memory_order_acquire) && !settled()) StdPlatform::pause();
  }
  return succeeded;
}

void TaskState::abandon() noexcept {
  std::lock_guard lock(core_.mutex);
  if (ended_) return;
  abandoned_ = true;
  core_.abandoned.push_back({this, clock_.now()});
  ++core_.abandoned_total;
}

// ---- self-deadlock ----

// In a debug build: a worker, which holds `units`, waits for a task of its own pool. That is allowed as long as
// other threads of the pool can come to it; when those that do not wait so are too few for it, none ever will. Gives
// the workers if this is one of them, which also means that the pool is there: a Task may outlive it.
Workers* TaskState::block_self([[maybe_unused]] std::uint32_t& units) const noexcept {
#if !defined(NDEBUG)
  Workers* own = Workers::of_this_thread(core_);
  if (!own) return nullptr;
  const TaskState* const mine = Workers::running_on_this_thread();
  units = mine ? mine->permit_.cost() : 0;
  const std::uint32_t blocked = own->block(units), threads = gate().snapshot().max_concurrent;
  if (word_.load() & (is_running | is_refused) || blocked + cost <= threads) return own;
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
    parked.blocked = block_self(parked.units);  // one that gives up in time is no deadlock
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
      until = no_deadline;  // settled just now, and the word is on its way
    }
    clock_.wait(parked.signal, 0, until);
  }
  return true;
}

}  // namespace bulkhead::detail
