#include "bulkhead/detail/task_state.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "base/futex.h"
#include "base/text.h"
#include "pool/core.h"

namespace bulkhead::detail {
namespace {

Continuation settled_mark;  // in place of a continuation: it is too late for one

struct Parked final : Continuation {
  Parked() {
    resume = [](Continuation& self) noexcept {
      auto* word = &static_cast<Parked&>(self).signal;
      word->store(1, std::memory_order_release);
      base::futex_wake(word);
    };
  }
  std::atomic<std::uint32_t> signal{0};
};

}  // namespace

TaskState::TaskState(Pool& pool, Gate& gate, TaskExtras* extras) noexcept
    : AsyncAcquire(gate, extras ? &extras->watch : nullptr, Tell::at_once), pool_(pool), extras_(extras) {}

TaskState::~TaskState() {
  if (!extras_) return;
  extras_->~TaskExtras();
  give_block(extras_, sizeof(TaskExtras));
}

TimePoint TaskState::after(std::chrono::nanoseconds timeout) const noexcept {
  if (settled()) return no_deadline;
  const TimePoint now = gate().clock().now();
  return timeout >= no_deadline - now ? no_deadline : now + timeout;
}

// ---- the caller's side ----

bool TaskState::attach(Continuation& continuation) noexcept {
  Continuation* none = nullptr;
  return continuation_.compare_exchange_strong(none, &continuation, std::memory_order_acq_rel);
}

bool TaskState::detach(Continuation& continuation) noexcept {
  Continuation* me = &continuation;
  return continuation_.compare_exchange_strong(me, nullptr, std::memory_order_acq_rel);
}

// T2: the claim comes before the look at phase_, and a worker sets phase_ before it looks at the outcome. So
// either the worker sees the claim and does not run the work, or this thread sees it running.
void TaskState::give_up(Reason reason) noexcept {
  if (!reject(reason)) return;
  if (std::stop_source* source = stop()) source->request_stop();
  if (phase_.load(std::memory_order_seq_cst) == Phase::waiting)
    cancel(reason);
  else
    abandon();
}

// ---- results ----

// While the outcome is open, so is the pool; a settled task may outlive it, and touches nothing of it.
bool TaskState::reject(Reason reason) noexcept {
  if (!claim()) return false;
  refuse(numbers(reason));
  settle();
  return true;
}

bool TaskState::reject(const Rejection& rejection) noexcept {
  if (!claim()) return false;
  refuse(rejection);
  settle();
  return true;
}

Rejection TaskState::numbers(Reason reason) const noexcept {
  const Snapshot s = gate().snapshot();
  return {reason, gate().name(), s.in_flight, s.max_concurrent, s.waiting, s.max_queue};
}

void TaskState::settle() noexcept {
  outcome_.store(Outcome::settled, std::memory_order_seq_cst);
  if (Continuation* then = continuation_.exchange(&settled_mark, std::memory_order_acq_rel))
    then->resume(*then);
}

// ---- the pool's side ----

void TaskState::on_decided() noexcept {
  Result<Permit> permit = result();
  if (permit) {
    permit_ = *std::move(permit);
    pool_.core_->workers->add(*this);
  } else {
    reject(permit.error());
    drop();
  }
}

void TaskState::execute() noexcept {
  PoolCore& core = *pool_.core_;
  phase_.store(Phase::running, std::memory_order_seq_cst);
  Ended ended{.succeeded = true, .claimed = false};
  if (outcome_.load(std::memory_order_seq_cst) == Outcome::open) ended = run_watched(core);
  if (!ended.claimed) {
    std::lock_guard lock(core.mutex);
    phase_.store(Phase::over, std::memory_order_seq_cst);
    if (abandoned_) std::erase_if(core.abandoned, [this](const auto& a) { return a.task == this; });
  }
  if (!ended.succeeded) permit_.fail();
  {
    // The slot first, so that whoever learns of the result finds it free; and what it admits goes on right
    // here.
    const Workers::HandingOver handing_over;
    permit_.release();
  }
  if (ended.claimed) settle();
  drop();
}

struct TaskState::Overrun final : Alarm {
  explicit Overrun(TaskState& t) : task(t) {}
  bool expire() noexcept override {
    if (!task.claim()) return false;
    task.references_.fetch_add(1, std::memory_order_relaxed);  // the work may end before expired() is through
    return true;
  }
  void expired() noexcept override {
    TaskState& t = task;
    t.refuse(t.numbers(Reason::timeout));
    t.abandon();
    if (std::stop_source* source = t.stop()) source->request_stop();
    t.settle();
    t.drop();
  }
  TaskState& task;
};

// Runs the work with everything around it that was asked for; most work asks for nothing.
TaskState::Ended TaskState::run_watched(PoolCore& core) noexcept {
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
  if (source) {
    std::lock_guard lock(core.mutex);
    core.stoppable.push_back(this);
  }
  const bool has_context = extras_ && extras_->context;
  if (has_context && core.context.enter) core.context.enter(extras_->context);
  const Ended ended = call();
  if (has_context && core.context.leave) core.context.leave(extras_->context);
  if (source) {
    std::lock_guard lock(core.mutex);
    std::erase(core.stoppable, this);
  }
  if (overrun) core.clock.deadlines().disarm(*overrun);
  return ended;
}

void TaskState::abandon() noexcept {
  PoolCore& core = *pool_.core_;
  std::lock_guard lock(core.mutex);
  if (phase_.load(std::memory_order_seq_cst) != Phase::running) return;
  abandoned_ = true;
  core.abandoned.push_back({this, core.clock.now()});
  ++core.abandoned_total;
}

// ---- self-deadlock ----

// In a debug build: a worker waits for a task of its own pool. That is allowed as long as another thread of
// the pool can come to it; when all of them wait so, none ever will.
struct TaskState::SelfWait {
  explicit SelfWait([[maybe_unused]] const TaskState& task) noexcept {
#if !defined(NDEBUG)
    Workers& own = *task.pool_.core_->workers;
    if (!own.on_worker()) return;
    workers = &own;
    const std::uint32_t blocked = own.block();
    if (blocked < task.gate().snapshot().max_concurrent || task.phase_.load() != Phase::waiting) return;
    const std::string text = base::join(
        {"bulkhead \"", task.gate().name(), "\": self-deadlock: all ", std::to_string(blocked),
         " threads of the pool wait for work that is queued behind them. Submit it to another pool, or "
         "co_await it.\n"});
    std::fputs(text.c_str(), stderr);
    std::abort();
#endif
  }
  ~SelfWait() {
    if (workers) workers->unblock();
  }
  SelfWait(const SelfWait&) = delete;
  SelfWait& operator=(const SelfWait&) = delete;
  Workers* workers = nullptr;
};

bool TaskState::wait_until(TimePoint until) noexcept {
  if (settled()) return true;
  const SelfWait self_wait(*this);
  Clock& clock = gate().clock();
  Parked parked;
  if (!attach(parked)) return true;
  while (parked.signal.load(std::memory_order_acquire) == 0) {
    if (until != no_deadline && clock.now() >= until) {
      if (detach(parked)) return false;
      until = no_deadline;  // settled just now, and the word is on its way
    }
    clock.wait(parked.signal, 0, until);
  }
  return true;
}

}  // namespace bulkhead::detail
