// async_acquire.h - acquires a permit, a bulkhead call or a lease of a resource pool as an Asio operation.
//
//   asio::awaitable<void> serve(bulkhead::Gate& db) {
//     auto permit = co_await bulkhead::async_acquire(db, {.timeout = 50ms}, asio::use_awaitable);
//     if (!permit) co_return reply(503, permit.error().message());
//     ...                                               // the slot returns when `permit` is destroyed
//   }
//
//   bulkhead::async_acquire(db, {}, asio::bind_executor(strand, [](bulkhead::Result<bulkhead::Permit> permit) { ... }));
//   auto permit = co_await db.co_acquire({.timeout = 50ms});   // the same as the first, in an asio::awaitable
//
// Every completion token works: a callback, use_future, use_awaitable, deferred, as_tuple(...), a yield_context. Waiting
// operations share the queue of the gate with threads, coroutines and handlers.
//
// An operation completes on the associated executor of the handler (system_executor by default; or pass one as the first
// argument), with the memory of its associated allocator, and never inside the initiating function. A waiting operation
// counts as work: io_context::run() does not return before it is decided. Timeout and deadline use an Asio timer, unless the
// gate has a clock of its own. Those of a bulkhead use the clock of the bulkhead: give it an AsioClock (asio_clock.h). A
// rejection is a value: nothing throws, and there is no error_code.
// Cancellation: by the cancellation slot of the handler, with any type. The operation leaves the queue and completes with
//   Reason::cancelled; if it was admitted before, it keeps the permit. AcquireOptions::stop does this from any thread.
// Lifetimes: destroying an io_context removes its waiting operations from the queue and destroys their handlers without
//   calling them. Destroying a gate rejects its waiting operations (Reason::shutdown) and waits for all permits, also for one
//   in a completed handler that has not run: destroy the io_context first, or run it.
// Threads: any, as Gate. Cost: an operation that does not wait is a post; one that waits uses a timer of its io_context, and
//   allocates only recycled blocks.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/execution/executor.hpp>
#include <boost/asio/is_executor.hpp>
#include <condition_variable>
#include <thread>
#include <tuple>
#include <type_traits>
#include <utility>

#include "bulkhead/async_acquire.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/kept_options.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/resource_pool.h"
#include "detail/operation.h"

namespace bulkhead {
namespace asio_detail {

template <class T>
concept Executor = asio::is_executor<T>::value || asio::execution::is_executor<T>::value;

// The waiter in line and, for its timeout, the driver: its timer is the one its handler waits in.
template <class Executor>
class Acquire final : public Operation<Executor, std::tuple<Result<Permit>>>,
                      private AsyncAcquire,
                      private DeadlineDriver {
 public:
  Acquire(Gate& gate, AcquireOptions options)
      : AsyncAcquire(gate, &watch_, Tell::at_once),
        watch_(std::move(options), &gate.clock() == &Clock::steady() ? this : nullptr) {}

  // The answer, if it need not wait.
  std::optional<Result<Permit>> begin() noexcept {
    intrusive_ptr_add_ref(this);  // the line's
    if (!start(watch_.options())) return std::nullopt;
    Result<Permit> decided = result();
    intrusive_ptr_release(this);
    return decided;
  }

  // The gate must not end meanwhile: this operation in its line keeps it alive, so the thread that decides it waits
  // for this one.
  void withdraw() noexcept override {
    {
      const detail::MutexLock lock(this->mutex_);
      if (told_ || withdrawing_ != std::thread::id()) return;
      withdrawing_ = std::this_thread::get_id();
    }
    cancel();
    {
      const detail::MutexLock lock(this->mutex_);
      withdrawing_ = {};
    }
    withdrawn_.notify_all();
  }

 private:
  void on_decided() noexcept override {
    const boost::intrusive_ptr<Acquire> line(this, false);
    {
      detail::UniqueLock lock(this->mutex_);
      while (withdrawing_ != std::thread::id() && withdrawing_ != std::this_thread::get_id())
        withdrawn_.wait(lock);
      told_ = true;
    }
    this->answer(std::tuple(result()));
  }

  // Called before the operation is in line, when no other thread has it.
  void arm(Alarm& alarm) noexcept override BULKHEAD_UNCHECKED_LOCKS { alarm_ = &alarm; }
  void disarm(Alarm&) noexcept override {
    const detail::MutexLock lock(this->mutex_);  // expire() is not running now
    alarm_ = nullptr;
  }
  TimePoint until() const noexcept override BULKHEAD_REQUIRES(this->mutex_) {
    return alarm_ ? alarm_->at : no_deadline;
  }
  void time_is_up() noexcept override {
    Alarm* due = nullptr;
    {
      const detail::MutexLock lock(this->mutex_);
      if (!alarm_ || std::chrono::steady_clock::now() < alarm_->at) return;
      due = std::exchange(alarm_, nullptr);
      if (!due->expire()) return;  // another thread is deciding it
    }
    due->expired();
  }

  AcquireWatch watch_;
  Alarm* alarm_ BULKHEAD_GUARDED_BY(this->mutex_) = nullptr;
  bool told_ BULKHEAD_GUARDED_BY(this->mutex_) = false;            // the gate has decided, and may be gone
  std::thread::id withdrawing_ BULKHEAD_GUARDED_BY(this->mutex_);  // the thread inside cancel()
  std::condition_variable withdrawn_;
};

// An operation may begin later than it is made: `use_awaitable` and `deferred` begin it when it is awaited.
struct AcquireInitiation {
  using Kept = bulkhead::detail::KeptOptions<AcquireOptions>;

  template <class Handler, class Io>
  void operator()(Handler handler, Gate* gate, Kept kept, const Io& io) const {
    auto executor = asio::get_associated_executor(handler, io);
    using Ex = decltype(executor);
    using Op = Operation<Ex, std::tuple<Result<Permit>>>;
    boost::intrusive_ptr<Acquire<Ex>> acquire(new Acquire<Ex>(*gate, std::move(kept.options)));
    if (auto decided = acquire->begin()) {
      acquire.reset();
      Op::post(std::move(handler), std::tuple(*std::move(decided)), executor);
    } else {
      Op::park(std::move(acquire), std::move(handler), executor);
    }
  }

  template <class Handler, class Io>
  void operator()(Handler handler, Bulkhead* bulkhead, Kept kept, const Io& io) const {
    AcquireOptions& options = kept.options;
    auto executor = asio::get_associated_executor(handler, io);
    using Answer = std::tuple<Result<Call>>;
    using Op = StoppedOperation<decltype(executor), Answer>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    bulkhead->async_acquire(std::move(options),
                            [op](Result<Call> call) { op->answer(Answer(std::move(call))); });
    Op::park(std::move(op), std::move(handler), executor);
  }

  template <class Handler, class T, class Io>
  void operator()(Handler handler, ResourcePool<T>* pool, Kept kept, const Io& io) const {
    AcquireOptions& options = kept.options;
    auto executor = asio::get_associated_executor(handler, io);
    using Answer = std::tuple<ResourceResult<T>>;
    using Op = StoppedOperation<decltype(executor), Answer>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    pool->async_acquire(std::move(options),
                        [op](ResourceResult<T> lease) { op->answer(Answer(std::move(lease))); });
    Op::park(std::move(op), std::move(handler), executor);
  }
};

}  // namespace asio_detail

// Completes with void(Result<Permit>).
template <asio_detail::Executor Io, boost::asio::completion_token_for<void(Result<Permit>)> Token>
auto async_acquire(const Io& executor, Gate& gate, AcquireOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(Result<Permit>)>(
      asio_detail::AcquireInitiation(), token, &gate,
      asio_detail::AcquireInitiation::Kept(std::move(options)), executor);
}
template <boost::asio::completion_token_for<void(Result<Permit>)> Token>
auto async_acquire(Gate& gate, AcquireOptions options, Token&& token) {
  return async_acquire(boost::asio::system_executor(), gate, std::move(options), std::forward<Token>(token));
}

// Completes with void(Result<Call>): the whole way of a bulkhead's call, whose end is for the caller to
// tell.
template <asio_detail::Executor Io, boost::asio::completion_token_for<void(Result<Call>)> Token>
auto async_acquire(const Io& executor, Bulkhead& bulkhead, AcquireOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(Result<Call>)>(
      asio_detail::AcquireInitiation(), token, &bulkhead,
      asio_detail::AcquireInitiation::Kept(std::move(options)), executor);
}
template <boost::asio::completion_token_for<void(Result<Call>)> Token>
auto async_acquire(Bulkhead& bulkhead, AcquireOptions options, Token&& token) {
  return async_acquire(boost::asio::system_executor(), bulkhead, std::move(options),
                       std::forward<Token>(token));
}

// Completes with void(ResourceResult<T>). What has to be opened is opened on a thread of the pool.
template <asio_detail::Executor Io, class T, boost::asio::completion_token_for<void(ResourceResult<T>)> Token>
auto async_acquire(const Io& executor, ResourcePool<T>& pool, AcquireOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(ResourceResult<T>)>(
      asio_detail::AcquireInitiation(), token, &pool,
      asio_detail::AcquireInitiation::Kept(std::move(options)), executor);
}
template <class T, boost::asio::completion_token_for<void(ResourceResult<T>)> Token>
auto async_acquire(ResourcePool<T>& pool, AcquireOptions options, Token&& token) {
  return async_acquire(boost::asio::system_executor(), pool, std::move(options), std::forward<Token>(token));
}

}  // namespace bulkhead
