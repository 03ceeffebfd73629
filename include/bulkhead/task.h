// task.h - the one result of a piece of work given to a Pool.
//
//   bulkhead::Task<Rows> task = pool.submit([] { return query(); });
//   bulkhead::Result<Rows> rows = task.get_for(50ms);      // Rows, or why not; rethrows what query() threw
//   bulkhead::Result<Rows> more = co_await pool.submit([] { return query(); });
//
// Exactly one result: what the work returned or threw, or a Rejection (no place, evicted, timeout, cancelled, shutdown). A
// Task has one owner, like a unique_ptr, and returns its result once. It may outlive its pool.
// Giving up (get_for or get_until after its time, cancel(), destroying the Task without get or detach): work in the queue
//   never runs and frees its place at once; running work keeps its thread until it ends, its stop_token fires, and the pool
//   counts it as abandoned.
// An empty Task (moved from, or its result was taken or given up) has no result: get, wait, then and co_await throw a
//   std::logic_error, or abort with its text in a build without exceptions; cancel() and detach() do nothing.
// Threads: a Task is used by one thread at a time.
// Cost: waiting parks on a futex; nothing here allocates, except then().
#pragma once

#include "bulkhead/detail/language.h"

#include <chrono>
#include <coroutine>
#include <utility>

#include "bulkhead/detail/task_state.h"
#include "bulkhead/result.h"

namespace bulkhead {

namespace detail {
[[noreturn]] void empty_task();
inline void check_not_empty(const TaskState* state) {
  if (!state) [[unlikely]]
    empty_task();
}
}  // namespace detail

template <class R>
class [[nodiscard]] Task {
 public:
  Task() noexcept = default;
  Task(Task&& other) noexcept : state_(std::exchange(other.state_, nullptr)) {}
  Task& operator=(Task&& other) noexcept {
    if (this != &other) {
      cancel();
      state_ = std::exchange(other.state_, nullptr);
    }
    return *this;
  }
  ~Task() { cancel(); }

  bool valid() const noexcept { return state_; }  // false once the result is taken or given up
  bool ready() const noexcept { return state_ && state_->settled(); }  // get() will not wait

  // Waits for the result and takes it; the Task is empty afterwards. With a time: gives up at that time, with
  // Reason::timeout.
  Result<R> get() { return get_until(no_deadline); }
  Result<R> get_for(std::chrono::nanoseconds timeout) {
    return get_until(state_ ? state_->after(timeout) : no_deadline);
  }
  Result<R> get_until(TimePoint deadline) {
    detail::check_not_empty(state_);
    auto* state = std::exchange(state_, nullptr);
    if (!state->wait_until(deadline)) {
      state->give_up(Reason::timeout);
      state->wait_until(
          no_deadline);  // the work may have ended at that moment: wait until its result is written
    }
    return take(state);
  }

  // Only waits; the Task keeps its result.
  bool wait_for(std::chrono::nanoseconds timeout) {
    detail::check_not_empty(state_);
    return state_->wait_until(state_->after(timeout));
  }

  // Gives up: the work ends with Reason::cancelled. The Task is empty afterwards.
  void cancel() noexcept {
    if (auto* state = std::exchange(state_, nullptr)) {
      state->give_up(Reason::cancelled);
      state->drop();
    }
  }
  // Lets the work run without a Task. An exception of the work is only counted as failed.
  void detach() noexcept {
    if (auto* state = std::exchange(state_, nullptr)) state->drop();
  }

  // Calls handler(Task<R>) with this Task once it is ready, on the thread that finished it; at once if it is ready now.
  // The handler must neither block nor throw.
  template <class H>
  void then(H handler) &&;

  // co_await std::move(task) -> Result<R>; resumes on the thread that finished it. Rethrows like get().
  auto operator co_await() && noexcept;
  // co_await task.settled() resumes when it is ready, and the Task keeps its result. Do not move the Task meanwhile.
  auto settled() noexcept;

 private:
  friend class Pool;
  using State = detail::TaskResult<R>;
  explicit Task(State* state) noexcept : state_(state) {}

  static Result<R> take(State* state) {
    struct Drop {
      State* state;
      ~Drop() { state->drop(); }
    } drop{state};
    return state->take();
  }

  State* state_ = nullptr;
};

// The block is freed before the handler runs, which may take long or destroy the pool.
template <class R>
template <class H>
void Task<R>::then(H handler) && {
  struct Call final : detail::Continuation {
    Call(State* s, H h) : state(s), handler(std::move(h)) {
      resume = [](detail::Continuation& self) noexcept {
        auto* call = static_cast<Call*>(&self);
        Task task(call->state);
        H take_over = std::move(call->handler);
        delete call;
        take_over(std::move(task));
      };
    }
    State* state;
    H handler;
  };
  detail::check_not_empty(state_);
  auto* call = new Call(state_, std::move(handler));
  auto* state = std::exchange(state_, nullptr);
  if (!state->attach(*call)) call->resume(*call);
}

namespace detail {
// A coroutine that waits until a task is settled. If it is destroyed before, it is not resumed.
struct SettledAwaiter : Continuation {
  explicit SettledAwaiter(TaskState* s) : state(s) {}
  SettledAwaiter(const SettledAwaiter&) = delete;
  SettledAwaiter& operator=(const SettledAwaiter&) = delete;
  ~SettledAwaiter() {
    if (state && coroutine) state->detach(*this);
  }
  bool await_ready() const {
    check_not_empty(state);
    return state->settled();
  }
  bool await_suspend(std::coroutine_handle<> handle) noexcept {
    coroutine = handle;
    resume = [](Continuation& self) noexcept { static_cast<SettledAwaiter&>(self).coroutine.resume(); };
    return state->attach(*this);
  }
  void await_resume() const noexcept {}

  TaskState* state;
  std::coroutine_handle<> coroutine;
};
}  // namespace detail

template <class R>
auto Task<R>::settled() noexcept {
  return detail::SettledAwaiter(state_);
}

template <class R>
auto Task<R>::operator co_await() && noexcept {
  struct Awaiter final : detail::SettledAwaiter {
    using detail::SettledAwaiter::SettledAwaiter;
    ~Awaiter() {  // destroying a waiting coroutine gives up
      if (!this->state) return;
      this->state->detach(*this);
      this->state->give_up(Reason::cancelled);
      std::exchange(this->state, nullptr)->drop();
    }
    Result<R> await_resume() { return take(static_cast<State*>(std::exchange(this->state, nullptr))); }
  };
  return Awaiter(std::exchange(state_, nullptr));
}

}  // namespace bulkhead
