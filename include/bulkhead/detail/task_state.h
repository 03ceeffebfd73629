// task_state.h - what a Task and its Pool share. Not for direct use.
//
// Invariants
//  T1  outcome_ goes open -> claimed -> settled, once. Whoever claims writes the result and settles; all
//  others find it
//      claimed and leave it. So every task has exactly one result, and a late one is dropped where it arises.
//  T2  phase_ goes waiting -> running -> over. A worker sets it to running, then looks at the outcome and
//  runs the work
//      only if that is open; who gives up claims the outcome, then looks at phase_. So work whose caller gave
//      up before it began does not run, and work that does is known to be abandoned.
//  T3  The permit is held from admission until the work has really ended, however the caller fares.
//  T4  Two references: the Task's and the pool's. The pool drops its own when the work has ended or never
//  will run.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <variant>

#include "bulkhead/detail/block_pool.h"
#include "bulkhead/gate.h"

namespace bulkhead {

class Pool;
class Workers;
struct PoolCore;

namespace detail {

// What happens when a task is settled: at most one per task.
struct Continuation {
  void (*resume)(Continuation&) noexcept = nullptr;
};

// What only some tasks have: a time limit, a stop_token, a context. Kept apart so that a queue of plain work
// stays small.
struct TaskExtras {
  explicit TaskExtras(AcquireOptions options) noexcept : watch(std::move(options)) {}

  AcquireWatch watch;
  std::chrono::nanoseconds execution_timeout = wait_forever;
  std::shared_ptr<void> context;
};

class TaskState : public AsyncAcquire {
 public:
  bool settled() const noexcept { return outcome_.load(std::memory_order_acquire) == Outcome::settled; }
  TimePoint after(std::chrono::nanoseconds timeout) const noexcept;

  // Parks until it is settled or `until` comes; false: it came.
  bool wait_until(TimePoint until) noexcept;
  // Settles it with `reason` unless it has a result, and keeps work that has not begun from running.
  void give_up(Reason reason) noexcept;
  // False: it is settled already, so the continuation will not be called.
  bool attach(Continuation& continuation) noexcept;
  bool detach(Continuation& continuation) noexcept;
  void drop() noexcept {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) destroy();
  }

 protected:
  TaskState(Pool& pool, Gate& gate, TaskExtras* extras) noexcept;
  ~TaskState() override;
  virtual void destroy() noexcept = 0;
  // Runs the work. If it can claim the outcome then, what the work returned or threw is the result.
  struct Ended {
    bool succeeded, claimed;
  };
  virtual Ended call() noexcept = 0;
  virtual void refuse(
      const Rejection& rejection) noexcept = 0;   // the rejection, or the fallback's value, as result
  virtual std::stop_source* stop() noexcept = 0;  // of work that takes a stop_token

  bool claim() noexcept {
    Outcome open = Outcome::open;
    return outcome_.compare_exchange_strong(open, Outcome::claimed, std::memory_order_seq_cst);
  }

 private:
  friend class bulkhead::Pool;
  friend class bulkhead::Workers;
  friend struct bulkhead::PoolCore;

  enum class Phase : std::uint8_t { waiting, running, over };
  enum class Outcome : std::uint8_t { open, claimed, settled };
  struct Overrun;   // fires when the work has run for too long
  struct SelfWait;  // around a wait, for the check against self-deadlock

  void on_decided() noexcept override;
  void execute() noexcept;  // on a worker, or on the caller's own thread without a permit
  Ended run_watched(PoolCore& core) noexcept;
  bool reject(Reason reason) noexcept;
  bool reject(const Rejection& rejection) noexcept;
  Rejection numbers(Reason reason) const noexcept;
  Rejection turn_away(Priority priority, Reason reason) noexcept {
    return AsyncAcquire::refuse(priority, reason);
  }
  void settle() noexcept;
  void abandon() noexcept;

  // Among the ready; guarded by the lock of the workers.
  TaskState* next_ready() const noexcept { return static_cast<TaskState*>(next); }
  void set_next_ready(TaskState* task) noexcept { next = task; }

  Pool& pool_;
  TaskExtras* const extras_;
  std::atomic<Continuation*> continuation_{nullptr};
  Permit permit_;
  std::atomic<std::uint32_t> references_{2};
  std::atomic<Outcome> outcome_{Outcome::open};
  std::atomic<Phase> phase_{Phase::waiting};
  bool abandoned_ = false;  // guarded by the pool's lock
};

template <class R>
class TaskResult : public TaskState {
 public:
  using TaskState::TaskState;

  Result<R> take() {
    if (auto* thrown = std::get_if<std::exception_ptr>(&result_)) std::rethrow_exception(std::move(*thrown));
    return std::get<Result<R>>(std::move(result_));
  }

 protected:
  std::variant<std::monostate, Result<R>, std::exception_ptr> result_;
};

struct NoFallback {};

template <class R, class F, class Fallback>
class TaskOf final : public TaskResult<R> {
 public:
  template <class... Args>
  static TaskOf* make(F&& fn, Fallback&& fallback, Args&&... args) {
    static_assert(alignof(TaskOf) <= alignof(std::max_align_t), "over-aligned callables are not supported");
    void* block = take_block(sizeof(TaskOf));
    return new (block) TaskOf(std::move(fn), std::move(fallback), std::forward<Args>(args)...);
  }

 private:
  template <class... Args>
  TaskOf(F&& fn, Fallback&& fallback, Args&&... args)
      : TaskResult<R>(std::forward<Args>(args)...), fn_(std::move(fn)), fallback_(std::move(fallback)) {
    if constexpr (takes_stop) stop_.emplace();
  }
  ~TaskOf() override = default;

  static constexpr bool takes_stop = std::is_invocable_v<F&, std::stop_token>;
  struct NoStop {};
  using Stop = std::conditional_t<takes_stop, std::optional<std::stop_source>, NoStop>;

  void destroy() noexcept override {
    this->~TaskOf();
    give_block(this, sizeof(TaskOf));
  }

  typename TaskState::Ended call() noexcept override {
    bool succeeded = true;
    bool claimed = false;
#if defined(__cpp_exceptions)
    try {
      claimed = invoke();
    } catch (...) {
      succeeded = false;
      claimed = this->claim();
      if (claimed) this->result_ = std::current_exception();
    }
#else
    claimed = invoke();
#endif
    fn_.reset();  // what it captured goes before anybody learns that it has ended
    return {succeeded, claimed};
  }

  bool invoke() {
    const auto body = [this]() -> R {
      if constexpr (takes_stop)
        return (*fn_)(stop_->get_token());
      else
        return (*fn_)();
    };
    if constexpr (std::is_void_v<R>) {
      body();
      const bool claimed = this->claim();
      if (claimed) this->result_.template emplace<1>();
      return claimed;
    } else {
      R value = body();
      const bool claimed = this->claim();
      if (claimed) this->result_.template emplace<1>(std::in_place, std::move(value));
      return claimed;
    }
  }

  void refuse(const Rejection& rejection) noexcept override {
    if constexpr (std::is_same_v<Fallback, NoFallback>) {
      this->result_.template emplace<1>(std::unexpect, rejection);
    } else {
#if defined(__cpp_exceptions)
      try {
        fall_back(rejection);
      } catch (...) {
        this->result_ = std::current_exception();
      }
#else
      fall_back(rejection);
#endif
    }
  }
  void fall_back(const Rejection& rejection) {
    if constexpr (std::is_void_v<R>) {
      fallback_(rejection);
      this->result_.template emplace<1>();
    } else {
      this->result_.template emplace<1>(std::in_place, fallback_(rejection));
    }
  }

  std::stop_source* stop() noexcept override {
    if constexpr (takes_stop)
      return &*stop_;
    else
      return nullptr;
  }

  std::optional<F> fn_;
  [[no_unique_address]] Fallback fallback_;
  [[no_unique_address]] Stop stop_;
};

}  // namespace detail
}  // namespace bulkhead
