// task_state.h - the state that a Task and its Pool share. Not for direct use.
//
// One atomic word has all that decides about a task: its flags, and the continuation to call.
//
// Invariants
//  T1  Exactly one result. The worker writes the work's own result, the thread that sets kRejected writes the
//      rejection. kSettled is set once: by the thread that set kRejected, otherwise by the worker. It says which result
//      counts.
//  T2  A worker sets kRunning and runs the work only if kRejected was not set before. So work does not run if its
//      caller gave up before it began, and a caller that gives up on running work sees kRunning.
//  T3  The permit is held from admission until the work has ended, even if the caller has given up.
//  T4  Two owners: the Task until kDetached, the pool until kFinished. The thread that sets the second flag destroys the
//      state. The pool does not finish with a task before it is settled, so a caller that gives up may use the pool
//      until then.
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

// Called when a task is settled; at most one per task. Aligned because its address shares a word with the flags.
struct alignas(16) Continuation {
  void (*resume)(Continuation&) noexcept = nullptr;
};

// The parts that only some tasks have: a time limit, a stop_token, a context. Separate so that plain work stays small.
struct TaskExtras {
  explicit TaskExtras(AcquireOptions options) noexcept : watch(std::move(options)) {}

  AcquireWatch watch;
  std::chrono::nanoseconds execution_timeout = wait_forever;
  std::shared_ptr<void> context;

  struct Delete {
    void operator()(TaskExtras* extras) const noexcept {
      extras->~TaskExtras();
      give_block(extras, sizeof(TaskExtras));
    }
  };
};
using TaskExtrasPtr = std::unique_ptr<TaskExtras, TaskExtras::Delete>;

class TaskState : public AsyncAcquire {
 public:
  bool settled() const noexcept { return word_.load(std::memory_order_acquire) & kSettled; }
  TimePoint after(std::chrono::nanoseconds timeout) const noexcept;

  // Parks until the task is settled; false: `until` came first.
  bool wait_until(TimePoint until) noexcept;
  // Settles the task with `reason` unless it has a result; work that has not begun will not run.
  void give_up(Reason reason) noexcept;
  // False: the task is settled already, and the continuation will not be called.
  bool attach(Continuation& continuation) noexcept;
  bool detach(Continuation& continuation) noexcept;
  void let_go() noexcept { word_.store(kDetached, std::memory_order_relaxed); }  // before start()
  void drop() noexcept {  // the Task gives up its ownership
    if (word_.fetch_or(kDetached, std::memory_order_acq_rel) & kFinished) destroy();
  }

 protected:
  TaskState(PoolCore& core, Gate& gate, TaskExtrasPtr extras) noexcept;
  ~TaskState() override;
  virtual void destroy() noexcept = 0;
  virtual bool call() noexcept = 0;     // runs the work and keeps what it returned or threw; false: it threw
  virtual void discard() noexcept = 0;  // drops that result: the task is rejected
  virtual void store_rejection(
      const Rejection& rejection) noexcept = 0;   // stores it, or the result of the fallback
  virtual std::stop_source* stop() noexcept = 0;  // null if the work takes no stop_token

  bool rejected() const noexcept { return word_.load(std::memory_order_acquire) & kRejected; }

 private:
  friend class bulkhead::Pool;
  friend class bulkhead::Workers;
  friend struct bulkhead::PoolCore;

  static constexpr std::uintptr_t kRunning = 1, kRejected = 2, kSettled = 4, kDetached = 8, kFinished = 16,
                                  kFlags = 31;
  // The address of the continuation and the flags share a word: addresses are 16-aligned and do not use the top bit, so
  // shifting by one leaves five bits.
  static std::uintptr_t pack(Continuation* c) noexcept { return reinterpret_cast<std::uintptr_t>(c) << 1; }
  static Continuation* continuation(std::uintptr_t w) noexcept {
    return reinterpret_cast<Continuation*>((w & ~kFlags) >> 1);  // NOLINT(performance-no-int-to-ptr)
  }

  struct Overrun;  // the alarm of execution_timeout

  void on_decided() noexcept override;
  void execute() noexcept;  // on a worker, or on the submitting thread without a permit
  bool run_watched(PoolCore& core) noexcept;
  void hand_over() noexcept;
  std::uintptr_t set_rejected() noexcept;
  void settle(std::uintptr_t further_flags) noexcept;
  void finish() noexcept;  // the pool gives up its ownership of a rejected task
  void reject(const Rejection& rejection) noexcept;
  Rejection numbers(Reason reason) const noexcept;
  void abandon() noexcept;
  void enlist() noexcept;  // under the pool's lock
  void unlist() noexcept;
  Workers* block_self(std::uint32_t& units) const noexcept;

  // The list of ready tasks; guarded by the lock of the workers.
  TaskState* next_ready() const noexcept { return static_cast<TaskState*>(next); }
  void set_next_ready(TaskState* task) noexcept { next = task; }

  PoolCore& core_;  // valid until the task is settled
  Clock& clock_;    // outlives task and pool
  const TaskExtrasPtr extras_;
  std::atomic<std::uintptr_t> word_{0};  // flags, and the address of the continuation
  // Guarded by the pool's lock, as are `next` and `prev` while the task is in the pool's list of running tasks.
  bool abandoned_ = false, ended_ = false, stoppable_ = false, told_ = false;

 protected:
  bool unspent_ = false;  // the callable has not been destroyed
};

template <class R>
class TaskResult : public TaskState {
 public:
  using Returned = R;
  using TaskState::TaskState;

  // A rejection without memory for its numbers has its reason only.
  Result<R> take() {
    if (rejected()) {
      if (!rejected_) {
        Rejection why;
        why.reason = reason_;
        return Result<R>(unexpect, why);
      }
      if (rejected_->thrown) std::rethrow_exception(std::move(rejected_->thrown));
      return std::move(rejected_->result);
    }
    if (auto* thrown = std::get_if<kThrew>(&result_)) std::rethrow_exception(std::move(*thrown));
    if constexpr (std::is_void_v<R>)
      return {};
    else
      return Result<R>(std::in_place, std::get<kReturned>(std::move(result_)));
  }

 protected:
  struct Nothing {};
  using Value = std::conditional_t<std::is_void_v<R>, Nothing, R>;
  static constexpr std::size_t kReturned = 1, kThrew = 2;  // indices of result_
  struct RejectedResult {  // separate: the work may write its own result at the same time
    Result<R> result{unexpect};
    std::exception_ptr thrown{};  // by the fallback
  };

  ~TaskResult() override {
    if (!rejected_) return;
    rejected_->~RejectedResult();
    give_block(rejected_, sizeof(RejectedResult));
  }

  // Null: no memory. Then only the reason of the rejection is kept.
  RejectedResult* make_rejected_result(Reason reason) noexcept {
    reason_ = reason;
#if defined(__cpp_exceptions)
    try {
      return rejected_ = new (take_block(sizeof(RejectedResult))) RejectedResult;
    } catch (...) {
      return nullptr;
    }
#else
    return rejected_ = new (take_block(sizeof(RejectedResult))) RejectedResult;
#endif
  }

  std::variant<std::monostate, Value, std::exception_ptr> result_;
  RejectedResult* rejected_ = nullptr;
  Reason reason_{};
};

struct NoFallback {};

// How work is called, and what it returns.
template <class F>
struct WorkForm {
  static constexpr bool stop_and_permit = std::is_invocable_v<F&, std::stop_token, Permit&>;
  static constexpr bool stop = !stop_and_permit && std::is_invocable_v<F&, std::stop_token>;
  static constexpr bool permit = !stop_and_permit && !stop && std::is_invocable_v<F&, Permit&>;
  static constexpr bool known = stop_and_permit || stop || permit || std::is_invocable_v<F&>;
  static constexpr bool takes_stop = stop_and_permit || stop;
  using Returned = typename std::conditional_t<
      stop_and_permit, std::invoke_result<F&, std::stop_token, Permit&>,
      std::conditional_t<
          stop, std::invoke_result<F&, std::stop_token>,
          std::conditional_t<permit, std::invoke_result<F&, Permit&>, std::invoke_result<F&>>>>::type;
};

template <class R, class F, class Fallback>
class TaskOf final : public TaskResult<R> {
  using Base = TaskResult<R>;

 public:
  template <class... Args>
  static TaskOf* make(F&& fn, Fallback&& fallback, Args&&... args) {
    static_assert(alignof(TaskOf) <= alignof(std::max_align_t), "over-aligned callables are not supported");
    struct Block {
      void* address = take_block(sizeof(TaskOf));
      ~Block() {  // the work may throw while it is moved
        if (address) give_block(address, sizeof(TaskOf));
      }
    } block;
    auto* task = new (block.address) TaskOf(std::move(fn), std::move(fallback), std::forward<Args>(args)...);
    block.address = nullptr;
    return task;
  }

 private:
  template <class... Args>
  TaskOf(F&& fn, Fallback&& fallback, Args&&... args)
      : TaskResult<R>(std::forward<Args>(args)...), fallback_(std::move(fallback)) {
    if constexpr (takes_stop) stop_.emplace();
    new (&fn_) F(std::move(fn));
    this->unspent_ = true;
  }
  ~TaskOf() override {
    if (this->unspent_) fn_.~F();
  }

  using Form = WorkForm<F>;
  static constexpr bool takes_stop = Form::takes_stop;
  struct NoStop {};
  using Stop = std::conditional_t<takes_stop, std::optional<std::stop_source>, NoStop>;

  void destroy() noexcept override {
    this->~TaskOf();
    give_block(this, sizeof(TaskOf));
  }

  // Emplacing an exception_ptr, or nothing, does not throw, whatever a variant may do in general.
  bool call() noexcept override {  // NOLINT(bugprone-exception-escape)
    bool succeeded = true;
#if defined(__cpp_exceptions)
    try {
      invoke();
    } catch (...) {
      succeeded = false;
      this->result_.template emplace<Base::kThrew>(std::current_exception());
    }
#else
    invoke();
#endif
    this->unspent_ = false;
    fn_.~F();  // destroys the captures before the result is visible
    return succeeded;
  }

  void invoke() {
    const auto body = [this]() -> R {
      if constexpr (Form::stop_and_permit)
        return fn_(stop_->get_token(), this->permit_);
      else if constexpr (Form::stop)
        return fn_(stop_->get_token());
      else if constexpr (Form::permit)
        return fn_(this->permit_);
      else
        return fn_();
    };
    if constexpr (std::is_void_v<R>) {
      body();
      this->result_.template emplace<Base::kReturned>();
    } else {
      this->result_.template emplace<Base::kReturned>(body());
    }
  }

  void discard() noexcept override {  // NOLINT(bugprone-exception-escape)
    this->result_.template emplace<0>();
  }

  // With a fallback the result is what that returns or throws.
  void store_rejection(const Rejection& rejection) noexcept override {
    auto* rejected = this->make_rejected_result(rejection.reason);
    if (!rejected) return;
    if constexpr (std::is_same_v<Fallback, NoFallback>) {
      rejected->result = Unexpected(rejection);
    } else {
#if defined(__cpp_exceptions)
      try {
        fall_back(rejection);
      } catch (...) {
        rejected->thrown = std::current_exception();
      }
#else
      fall_back(rejection);
#endif
    }
  }
  void fall_back(const Rejection& rejection) {
    if constexpr (std::is_void_v<R>) {
      fallback_(rejection);
      this->rejected_->result.emplace();
    } else {
      this->rejected_->result = Result<R>(std::in_place, fallback_(rejection));
    }
  }

  std::stop_source* stop() noexcept override {
    if constexpr (takes_stop)
      return &*stop_;
    else
      return nullptr;
  }

  [[no_unique_address]] Fallback fallback_;
  [[no_unique_address]] Stop stop_;
  union {
    F fn_;  // while unspent_
  };
};

}  // namespace detail
}  // namespace bulkhead
