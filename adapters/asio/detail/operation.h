// operation.h - what the asynchronous operations of this adapter share: a completion handler that waits
// on its executor until another thread has the answer. Not for direct use.
//
// The handler waits inside an Asio timer, and the answer cancels that timer. This gives for free what
// Asio expects of an operation: it counts as work of its io_context, it completes on its executor and
// never inside the initiating function, its memory comes from the handler's allocator and is given back
// before the handler runs, and when the io_context is destroyed the handler is destroyed with it.
#pragma once

#include <atomic>
#include <boost/asio/append.hpp>
#include <boost/asio/associated_allocator.hpp>
#include <boost/asio/associated_cancellation_slot.hpp>
#include <boost/asio/associated_executor.hpp>
#include <boost/asio/basic_waitable_timer.hpp>
#include <boost/asio/cancellation_type.hpp>
#include <boost/asio/execution/context.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/execution_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/query.hpp>
#include <boost/smart_ptr/intrusive_ptr.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <tuple>
#include <utility>

#include "bulkhead/detail/block_pool.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/gate.h"

namespace bulkhead::asio_detail {

namespace asio = boost::asio;

// An operation that can be cancelled until its answer is there.
class Withdrawable {
 public:
  Withdrawable(const Withdrawable&) = delete;
  Withdrawable& operator=(const Withdrawable&) = delete;

  // Cancels: if there is no answer yet, the answer is Reason::cancelled. From any thread.
  virtual void withdraw() noexcept = 0;

  static void* operator new(std::size_t size) { return bulkhead::detail::take_block(size); }
  static void operator delete(void* block, std::size_t size) noexcept {
    bulkhead::detail::give_block(block, size);
  }
  friend void intrusive_ptr_add_ref(Withdrawable* self) noexcept {
    self->references_.fetch_add(1,
                                std::memory_order_relaxed);  // made from another reference, which orders it
  }
  friend void intrusive_ptr_release(Withdrawable* self) noexcept {
    // acq_rel: what the other owners did to the object comes before its end.
    if (self->references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete self;
  }

 protected:
  Withdrawable() = default;
  virtual ~Withdrawable() = default;

 private:
  std::atomic<std::uint32_t> references_{0};
};

// What stands in the handler's cancellation slot. It keeps the operation's shell, so that a signal which
// outlives the io_context finds something to call.
struct Cancel {
  boost::intrusive_ptr<Withdrawable> operation;
  void operator()(asio::cancellation_type type) const noexcept {
    if (type != asio::cancellation_type::none) operation->withdraw();
  }
};

// Closed when an io_context is destroyed. A thread that does not run the io_context posts to it, or cancels one
// of its timers, only inside pass(): Asio forbids both during the destruction, and a handler that is just being
// moved from the timer's queue to the next would not be found by it. `touch` runs no code of users.
struct Door {
  detail::SharedMutex mutex;
  bool closed BULKHEAD_GUARDED_BY(mutex) = false;

  // False: it is closed, and `touch` was not called.
  template <class F>
  bool pass(F&& touch) {
    const detail::SharedLock lock(mutex);
    if (closed) return false;
    touch();
    return true;
  }
};

// One for each io_context. Services are shut down before any of them is destroyed, the newest first. So the door must
// be newer than the service of the timers, which destroys the handlers of all that wait.
class DoorKeeper final : public asio::execution_context::service {
 public:
  using key_type = DoorKeeper;
  static inline asio::execution_context::id id;
  explicit DoorKeeper(asio::execution_context& context) : service(context) {}

  template <class Executor>
  static std::shared_ptr<Door> door_of(const Executor& executor) {
    asio::execution_context& context = context_of(executor);
    if (!asio::has_service<DoorKeeper>(context))
      asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>,
                                 Executor>
          makes_the_service_of_timers(executor);
    return asio::use_service<DoorKeeper>(context).door_;
  }

 private:
  template <class Executor>
  static asio::execution_context& context_of(const Executor& executor) {
    if constexpr (asio::execution::is_executor<Executor>::value)
      return asio::query(executor, asio::execution::context);
    else
      return executor.context();
  }
  void shutdown() override {
    const detail::MutexLock lock(door_->mutex);
    door_->closed = true;
  }
  const std::shared_ptr<Door> door_ = std::make_shared<Door>();
};

template <class Handler>
void clear_slot(const Handler& handler) {
  if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected()) slot.clear();
}

// Answer: a tuple of what the handler is called with.
//
// Invariants, under mutex_: answer_ is set at most once, and never after abandoned_. The timer is
// touched only here, so that the thread with the answer and the executor's may both use it. It is released when the
// answer is taken or abandoned_ is set; the io_context may be destroyed after that.
template <class Executor, class Answer>
class Operation : public Withdrawable {
  using Timer = asio::basic_waitable_timer<std::chrono::steady_clock,
                                           asio::wait_traits<std::chrono::steady_clock>, Executor>;

 public:
  // From the initiating function, once; the answer may be there already.
  template <class Handler>
  static void park(boost::intrusive_ptr<Operation> self, Handler handler, const Executor& executor) {
    if (auto slot = asio::get_associated_cancellation_slot(handler); slot.is_connected())
      slot.template emplace<Cancel>(self);
    if (std::optional<Answer> early = self->take()) {
      clear_slot(handler);
      self.reset();
      return post(std::move(handler), *std::move(early), executor);
    }
    Completion<Handler>(std::move(self), std::move(handler), executor).wait();
  }

  template <class Handler>
  static void post(Handler handler, Answer answer, const Executor& executor) {
    std::apply(
        [&](auto&&... parts) { asio::post(executor, asio::append(std::move(handler), std::move(parts)...)); },
        std::move(answer));
  }

  // From any thread, once, by the holder of a reference.
  void answer(Answer answer) noexcept {
    const detail::MutexLock lock(mutex_);
    if (abandoned_) return;  // `answer` is destroyed after the lock, with its permit
    answer_.emplace(std::move(answer));
    if (timer_) door_->pass([&timer = *timer_] { timer.cancel(); });
  }

  // For an operation that itself calls something on its executor, before park(). Nothing else keeps the executor:
  // one that is a strand must not be destroyed after its io_context.
  void begin_on(const Executor& executor) BULKHEAD_UNCHECKED_LOCKS {
    door_ = DoorKeeper::door_of(executor);
    executor_ = executor;
  }
  // From any thread, until it is answered. False: the handler, or the io_context, is gone, and `call` as it was.
  template <class F>
  bool post_call(F&& call) {
    const detail::MutexLock lock(mutex_);
    return executor_ &&
           door_->pass([&executor = *executor_, &call] { asio::post(executor, std::forward<F>(call)); });
  }
  Executor executor() const BULKHEAD_UNCHECKED_LOCKS {
    return *executor_;
  }  // on the executor, before the answer

  // Takes the timer, too: the thread that gave the answer may still hold a reference when the handler has run and the
  // io_context is destroyed.
  std::optional<Answer> take() noexcept {
    std::optional<Timer> timer;
    std::optional<Executor> executor;
    const detail::MutexLock lock(mutex_);
    if (answer_) {
      timer.swap(timer_);
      executor.swap(executor_);
    }
    return std::exchange(answer_, std::nullopt);
  }

 protected:
  virtual void time_is_up() noexcept {}  // on the executor, outside the lock
  virtual TimePoint until() const noexcept BULKHEAD_REQUIRES(mutex_) { return no_deadline; }

  bool decided() const noexcept BULKHEAD_REQUIRES(mutex_) { return answer_ || abandoned_; }
  detail::StdMutex mutex_;

 private:
  template <class Handler>
  class Completion {
   public:
    using executor_type = Executor;
    using allocator_type = asio::associated_allocator_t<Handler>;

    Completion(boost::intrusive_ptr<Operation> operation, Handler handler, const Executor& executor)
        : operation_(std::move(operation)), handler_(std::move(handler)), executor_(executor) {}
    Completion(Completion&&) = default;
    Completion& operator=(Completion&&) = delete;
    ~Completion() {
      if (operation_) operation_->abandon();
    }

    executor_type get_executor() const noexcept { return executor_; }
    allocator_type get_allocator() const noexcept { return asio::get_associated_allocator(handler_); }

    // noexcept: the call is in line already, and there is no way back from here without memory.
    void wait() && noexcept {
      Operation& operation = *operation_;
      operation.wait(std::move(*this));
    }

    void operator()(boost::system::error_code) {
      std::optional<Answer> answer = operation_->take();
      if (!answer) {
        operation_->time_is_up();
        if (!(answer = operation_->take())) return std::move(*this).wait();
      }
      clear_slot(handler_);
      Handler handler = std::move(handler_);
      operation_.reset();  // its memory is back before the handler runs
      std::apply(std::move(handler), *std::move(answer));
    }

   private:
    boost::intrusive_ptr<Operation> operation_;
    Handler handler_;
    Executor executor_;
  };

  template <class Handler>
  void wait(Completion<Handler> completion) {
    const detail::MutexLock lock(mutex_);
    if (!timer_) {
      timer_.emplace(completion.get_executor());
      door_ = DoorKeeper::door_of(completion.get_executor());
    }
    timer_->expires_at(answer_ ? TimePoint() : until());
    timer_->async_wait(std::move(completion));
  }

  // The handler is gone, with its io_context or without having been called.
  void abandon() noexcept {
    std::optional<Answer> unwanted;
    std::optional<Timer> timer;
    std::optional<Executor> executor;
    {
      const detail::MutexLock lock(mutex_);
      abandoned_ = true;
      unwanted.swap(answer_);
      timer.swap(timer_);
      executor.swap(executor_);
    }
    withdraw();
  }

  std::optional<Answer> answer_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<Timer> timer_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<Executor> executor_ BULKHEAD_GUARDED_BY(mutex_);  // see begin_on()
  std::shared_ptr<Door> door_;                                    // of the timer's io_context
  bool abandoned_ BULKHEAD_GUARDED_BY(mutex_) = false;
};

// An operation that a stop_token takes back.
template <class Executor, class Answer>
class StoppedOperation final : public Operation<Executor, Answer> {
 public:
  explicit StoppedOperation(const std::stop_token& callers) : either_(callers, stop_.get_token()) {}
  std::stop_token token() const noexcept { return either_.token(); }
  void withdraw() noexcept override { stop_.request_stop(); }

 private:
  std::stop_source stop_;
  bulkhead::detail::EitherStop either_;
};

}  // namespace bulkhead::asio_detail
