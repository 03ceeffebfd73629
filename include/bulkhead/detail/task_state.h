// task_state.h - what a Task and its Pool share. Not for direct use.
//
// Everything that decides about a task is one atomic word: its flags, and the continuation to call.
//
// Invariants
//  T1  Exactly one result. The work's own result is written by the worker, a refusal by whoever sets
//      `refused`; `settled` is set once, by the worker if `refused` is not, else by the one that set
//      it, and says which of the two counts.
//  T2  A worker sets `running` and runs the work only if `refused` was not set before. So work whose
//      caller gave up before it began does not run, and one who gives up on work that runs knows it.
//  T3  The permit is held from admission until the work has really ended, however the caller fares.
//  T4  Two owners: the Task, until `detached`, and the pool, until `finished`. Whoever sets the
//      second of the two destroys it. The pool is not finished with a task before it is settled, so
//      one who gives up may use the pool until then.
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

// What happens when a task is settled: at most one per task. Aligned, because its address shares a
// word with flags.
struct alignas(16) Continuation {
  void (*resume)(Continuation&) noexcept = nullptr;
};

// What only some tasks have: a time limit, a stop_token, a context. Kept apart so that a queue of plain
// work stays small.
struct TaskExtras {
  explicit TaskExtras(AcquireOptions options) noexcept : watch(std::move(options)) {}

  AcquireWatch watch;
  std::chrono::nanoseconds execution_timeout = wait_forever;
  std::shared_ptr<void> context;
};

class TaskState : public AsyncAcquire {
 public:
  bool settled() const noexcept { return word_.load(std::memory_order_acquire) & is_settled; }
  TimePoint after(std::chrono::nanoseconds timeout) const noexcept;

  // Parks until it is settled or `until` comes; false: it came.
  bool wait_until(TimePoint until) noexcept;
  // Settles it with `reason` unless it has a result, and keeps work that has not begun from running.
  void give_up(Reason reason) noexcept;
  // False: it is settled already, so the continuation will not be called.
  bool attach(Continuation& continuation) noexcept;
  bool detach(Continuation& continuation) noexcept;
  void let_go() noexcept { word_.store(is_detached, std::memory_order_relaxed); }  // before it is started
  void drop() noexcept {                                                           // the Task lets go
    if (word_.fetch_or(is_detached, std::memory_order_acq_rel) & is_finished) destroy();
  }

 protected:
  TaskState(PoolCore& core, Gate& gate, TaskExtras* extras) noexcept;
  ~TaskState() override;
  virtual void destroy() noexcept = 0;
  virtual bool call() noexcept = 0;     // runs the work and keeps what it returned or threw; false: it threw
  virtual void discard() noexcept = 0;  // drops that, because nobody wants it any more
  virtual void refuse(const Rejection& rejection) noexcept = 0;  // keeps it, or what the fallback makes of it
  virtual std::stop_source* stop() noexcept = 0;                 // of work that takes a stop_token

  bool refused() const noexcept { return word_.load(std::memory_order_acquire) & is_refused; }

 private:
  friend class bulkhead::Pool;
  friend class bulkhead::Workers;
  friend struct bulkhead::PoolCore;

  static constexpr std::uintptr_t is_running = 1, is_refused = 2, is_settled = 4, is_detached = 8,
                                  is_finished = 16, flags = 31;
  // An address below flags: 16-aligned and shifted by one, it leaves five bits (no address of a process uses
  // the top one).
  static std::uintptr_t pack(Continuation* c) noexcept { return reinterpret_cast<std::uintptr_t>(c) << 1; }
  static Continuation* continuation(std::uintptr_t w) noexcept {
    return reinterpret_cast<Continuation*>((w & ~flags) >> 1);  // NOLINT(performance-no-int-to-ptr)
  }

  struct Overrun;  // fires when the work has run for too long

  void on_decided() noexcept override;
  void execute() noexcept;  // on a worker, or on the caller's own thread without a permit
  bool run_watched(PoolCore& core) noexcept;
  void hand_over() noexcept;
  std::uintptr_t set_refused() noexcept;
  void settle(std::uintptr_t further_flags) noexcept;
  void finish() noexcept;  // the pool lets go of a task that was refused
  void reject(const Rejection& rejection) noexcept;
  Rejection numbers(Reason reason) const noexcept;
  void abandon() noexcept;
  Workers* block_self(std::uint32_t& units) const noexcept;

  // Among the ready; guarded by the lock of the workers.
  TaskState* next_ready() const noexcept { return static_cast<TaskState*>(next); }
  void set_next_ready(TaskState* task) noexcept { next = task; }

  PoolCore& core_;  // there until the task is settled, and no longer
  Clock& clock_;    // outlives both
  TaskExtras* const extras_;
  std::atomic<std::uintptr_t> word_{0};     // flags, and the address of the continuation
  bool abandoned_ = false, ended_ = false;  // guarded by the pool's lock

 protected:
  bool unspent_ = false;  // the work is still there
};

template <class R>
class TaskResult : public TaskState {
 public:
  using Returned = R;
  using TaskState::TaskState;

  Result<R> take() {
    if (refused()) {
      if (refusal_->thrown) std::rethrow_exception(std::move(refusal_->thrown));
      return std::move(refusal_->result);
    }
    if (auto* thrown = std::get_if<threw>(&result_)) std::rethrow_exception(std::move(*thrown));
    if constexpr (std::is_void_v<R>)
      return {};
    else
      return Result<R>(std::in_place, std::get<returned>(std::move(result_)));
  }

 protected:
  struct Nothing {};
  using Value = std::conditional_t<std::is_void_v<R>, Nothing, R>;
  static constexpr std::size_t returned = 1, threw = 2;  // what is in result_
  struct Refusal {  // apart, because the work may be writing its own result at the same time
    Result<R> result{std::unexpect};
    std::exception_ptr thrown{};  // by the fallback
  };

  ~TaskResult() override {
    if (!refusal_) return;
    refusal_->~Refusal();
    give_block(refusal_, sizeof(Refusal));
  }

  std::variant<std::monostate, Value, std::exception_ptr> result_;
  Refusal* refusal_ = nullptr;
};

struct NoFallback {};

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

  static constexpr bool takes_stop = std::is_invocable_v<F&, std::stop_token>;
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
      this->result_.template emplace<Base::threw>(std::current_exception());
    }
#else
    invoke();
#endif
    this->unspent_ = false;
    fn_.~F();  // what it captured goes before anybody learns that it has ended
    return succeeded;
  }

  void invoke() {
    const auto body = [this]() -> R {
      if constexpr (takes_stop)
        return fn_(stop_->get_token());
      else
        return fn_();
    };
    if constexpr (std::is_void_v<R>) {
      body();
      this->result_.template emplace<Base::returned>();
    } else {
      this->result_.template emplace<Base::returned>(body());
    }
  }

  void discard() noexcept override {  // NOLINT(bugprone-exception-escape)
    this->result_.template emplace<0>();
  }

  void refuse(const Rejection& rejection) noexcept override {
    auto* refusal = new (take_block(sizeof(*this->refusal_))) typename Base::Refusal;
    this->refusal_ = refusal;
    if constexpr (std::is_same_v<Fallback, NoFallback>) {
      refusal->result = std::unexpected(rejection);
    } else {
#if defined(__cpp_exceptions)
      try {
        fall_back(rejection);
      } catch (...) {
        refusal->thrown = std::current_exception();
      }
#else
      fall_back(rejection);
#endif
    }
  }
  void fall_back(const Rejection& rejection) {
    if constexpr (std::is_void_v<R>) {
      fallback_(rejection);
      this->refusal_->result.emplace();
    } else {
      this->refusal_->result = Result<R>(std::in_place, fallback_(rejection));
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
