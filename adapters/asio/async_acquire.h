// async_acquire.h - a place in a gate or a bulkhead, as an Asio operation.
//
//   asio::awaitable<void> serve(bulkhead::Gate& db) {
//     auto permit = co_await bulkhead::async_acquire(db, {.timeout = 50ms}, asio::use_awaitable);
//     if (!permit) co_return reply(503, permit.error().message());
//     ...                                               // the slot returns when `permit` dies
//   }
//   bulkhead::async_acquire(db, {}, asio::bind_executor(strand, [](Result<Permit> permit) { ... }));
//
// Any completion token does: a callback, use_future, use_awaitable, deferred, as_tuple(...), a
// yield_context. Waiting operations stand in the gate's one line, beside its threads, coroutines and
// handlers.
//
// Completes on the handler's associated executor (system_executor if it has none; or say which as the
// first argument), with the memory of its associated allocator, and never inside the initiating
// function. A waiting operation is work: io_context::run() does not end before it is decided. The
// timeout and the deadline are an Asio timer's, unless the gate has a clock of its own; of a bulkhead they
// are its clock's: give it an AsioClock (asio_clock.h) for timers of the executor. A refusal is a value, so nothing throws; the executor gets no error_code.
// Cancellation: the handler's cancellation slot, any type of cancellation. It leaves the line at once
//   and completes with Reason::cancelled; if it was admitted first, it keeps the permit.
//   AcquireOptions::stop does the same from any thread.
// The end: an io_context destroyed with operations in line takes them out, and their handlers are
//   destroyed uncalled. A gate destroyed with operations in line refuses them (Reason::shutdown); it
//   waits for permits, also for one that lies in a completed handler nobody runs: destroy the io_context
//   first, or run it.
// Threads: any, as Gate. Cost: an operation that need not wait is a post; one that waits is a timer of
//   its io_context, and no allocation of its own beyond recycled blocks.
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

  // The gate must not end meanwhile: it is held by this one being in line, so whoever decides it waits
  // for us.
  void withdraw() noexcept override {
    {
      const std::lock_guard lock(this->mutex_);
      if (told_ || withdrawing_ != std::thread::id()) return;
      withdrawing_ = std::this_thread::get_id();
    }
    cancel();
    {
      const std::lock_guard lock(this->mutex_);
      withdrawing_ = {};
    }
    withdrawn_.notify_all();
  }

 private:
  void on_decided() noexcept override {
    const boost::intrusive_ptr<Acquire> line(this, false);
    {
      std::unique_lock lock(this->mutex_);
      withdrawn_.wait(lock, [this] {
        return withdrawing_ == std::thread::id() || withdrawing_ == std::this_thread::get_id();
      });
      told_ = true;
    }
    this->answer(std::tuple(result()));
  }

  void arm(Alarm& alarm) noexcept override { alarm_ = &alarm; }
  void disarm(Alarm&) noexcept override {
    const std::lock_guard lock(this->mutex_);  // expire() is not running now
    alarm_ = nullptr;
  }
  TimePoint until() const noexcept override { return alarm_ ? alarm_->at : no_deadline; }
  void time_is_up() noexcept override {
    Alarm* due = nullptr;
    {
      const std::lock_guard lock(this->mutex_);
      if (!alarm_ || std::chrono::steady_clock::now() < alarm_->at) return;
      due = std::exchange(alarm_, nullptr);
      if (!due->expire()) return;  // somebody is deciding it just now
    }
    due->expired();
  }

  AcquireWatch watch_;
  Alarm* alarm_ = nullptr;
  bool told_ = false;            // the gate has decided, and may be gone
  std::thread::id withdrawing_;  // who is inside cancel()
  std::condition_variable withdrawn_;
};

struct AcquireInitiation {
  template <class Handler, class Io>
  void operator()(Handler handler, Gate* gate, AcquireOptions options, const Io& io) const {
    auto executor = asio::get_associated_executor(handler, io);
    using Ex = decltype(executor);
    using Op = Operation<Ex, std::tuple<Result<Permit>>>;
    boost::intrusive_ptr<Acquire<Ex>> acquire(new Acquire<Ex>(*gate, std::move(options)));
    if (auto decided = acquire->begin()) {
      acquire.reset();
      Op::post(std::move(handler), std::tuple(*std::move(decided)), executor);
    } else {
      Op::park(std::move(acquire), std::move(handler), executor);
    }
  }

  template <class Handler, class Io>
  void operator()(Handler handler, Bulkhead* bulkhead, AcquireOptions options, const Io& io) const {
    auto executor = asio::get_associated_executor(handler, io);
    using Answer = std::tuple<Result<Call>>;
    using Op = StoppedOperation<decltype(executor), Answer>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    bulkhead->async_acquire(std::move(options),
                            [op](Result<Call> call) { op->answer(Answer(std::move(call))); });
    Op::park(std::move(op), std::move(handler), executor);
  }
};

}  // namespace asio_detail

// Completes with void(Result<Permit>).
template <asio_detail::Executor Io, boost::asio::completion_token_for<void(Result<Permit>)> Token>
auto async_acquire(const Io& executor, Gate& gate, AcquireOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(Result<Permit>)>(asio_detail::AcquireInitiation(), token,
                                                                  &gate, std::move(options), executor);
}
template <boost::asio::completion_token_for<void(Result<Permit>)> Token>
auto async_acquire(Gate& gate, AcquireOptions options, Token&& token) {
  return async_acquire(boost::asio::system_executor(), gate, std::move(options), std::forward<Token>(token));
}

// Completes with void(Result<Call>): the whole way of a bulkhead's call, whose end is for the caller to
// tell.
template <asio_detail::Executor Io, boost::asio::completion_token_for<void(Result<Call>)> Token>
auto async_acquire(const Io& executor, Bulkhead& bulkhead, AcquireOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(Result<Call>)>(asio_detail::AcquireInitiation(), token,
                                                                &bulkhead, std::move(options), executor);
}
template <boost::asio::completion_token_for<void(Result<Call>)> Token>
auto async_acquire(Bulkhead& bulkhead, AcquireOptions options, Token&& token) {
  return async_acquire(boost::asio::system_executor(), bulkhead, std::move(options),
                       std::forward<Token>(token));
}

}  // namespace bulkhead
