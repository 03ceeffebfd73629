// async_execute.h - a protected call, as an Asio operation.
//
//   bulkhead::Result<Receipt> receipt = co_await bulkhead::async_execute(
//       payments, [&](std::stop_token) -> asio::awaitable<Receipt> { co_return co_await pay_async(order); },
//       {.execution_timeout = 800ms}, asio::use_awaitable);
//
// The stages are those of Bulkhead::execute: rate limit, breaker, admission, the call with its execution_timeout, its
// outcome, the fallback. `fn` is called as fn(), fn(std::stop_token) or fn(RunningCall&) on the executor of the handler (with
// Isolation::threads: on a thread of the pool, unless it is a coroutine). It returns R, or asio::awaitable<R>; then the call
// is in flight until the coroutine ends. At the execution_timeout, or when the caller cancels, the coroutine is cancelled
// (cancellation_type::terminal) and its operations end with operation_aborted.
// Completes with void(std::exception_ptr, Result<R>); an exception of `fn` is the exception_ptr, unless the fallback handles
// it. After a rejection the fallback runs on the thread that rejected the call, else where the call ended: it must not block.
// Cancellation, executor, work and lifetimes are as in async_acquire.h; destroying the io_context releases the permit.
// GCC 11 and 12 destroy a lambda twice that is written inside a co_await expression. This is harmless if it captures
// references and numbers. Otherwise name the lambda first, as in examples/asio_coroutines.cc; see
// docs/how-to/coroutines-on-gcc-11-and-12.md.
// Cost: a coroutine frame, a stop_source, a timer of the io_context, and a post for the call itself.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <stop_token>
#include <type_traits>
#include <utility>

#include "async_submit.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/kept_options.h"

namespace bulkhead {
namespace asio_detail {

template <class T>
struct AwaitableOf : std::false_type {
  using type = T;
};
template <class T, class Ex>
struct AwaitableOf<asio::awaitable<T, Ex>> : std::true_type {
  using type = T;
};
// What fn gives in the end.
template <class F>
using Executed = typename AwaitableOf<bulkhead::detail::ReturnOf<F>>::type;

// The coroutine that makes the call. No object owns it: it ends by itself, or with the io_context that should have
// resumed it.
struct Runner {
  struct promise_type {
    Runner get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
  std::coroutine_handle<> handle;
};

// Goes on with a coroutine exactly once: called, or destroyed uncalled with its io_context, which ends
// the runner.
class Baton {
 public:
  Baton(std::coroutine_handle<> next, std::coroutine_handle<> runner) noexcept
      : next_(next), runner_(runner) {}
  Baton(Baton&& other) noexcept : next_(std::exchange(other.next_, nullptr)), runner_(other.runner_) {}
  Baton& operator=(Baton&&) = delete;
  ~Baton() {
    if (next_) runner_.destroy();
  }
  void pass() { std::exchange(next_, nullptr).resume(); }

 private:
  std::coroutine_handle<> next_, runner_;
};

// co_await -> what fn returns, having called it on the executor.
template <class F, class Op>
class OnExecutor {
 public:
  using R = Executed<F>;
  static constexpr bool is_coroutine = AwaitableOf<bulkhead::detail::ReturnOf<F>>::value;

  OnExecutor(F& fn, RunningCall& running, boost::intrusive_ptr<Op> op, std::coroutine_handle<> runner)
      : fn_(fn), running_(running), stop_(running.stop_token()), op_(std::move(op)), runner_(runner) {}

  bool await_ready() const noexcept { return false; }
  // On the thread that admitted the call. If the io_context is gone, the baton ends the runner here, and with it
  // this object.
  void await_suspend(std::coroutine_handle<> next) {
    Baton baton(next, runner_);
    auto call = [this, baton = std::move(baton)]() mutable { begin(std::move(baton)); };
    const boost::intrusive_ptr<Op> op = op_;  // outlives the lock inside
    op->post_call(std::move(call));
  }
  R await_resume() {
    if (thrown_) std::rethrow_exception(std::move(thrown_));
    if constexpr (!std::is_void_v<R>) return *std::move(value_);
  }

 private:
  // Asio's signals belong to one thread: the executor's.
  struct Emit {
    boost::intrusive_ptr<Op> op;
    std::weak_ptr<asio::cancellation_signal> signal;
    void operator()() const {
      op->post_call([signal = signal] {
        if (const auto alive = signal.lock()) alive->emit(asio::cancellation_type::terminal);
      });
    }
  };
  // On the executor.
  void begin(Baton baton) {
    if constexpr (is_coroutine) {
      auto signal = std::make_shared<asio::cancellation_signal>();
      const auto slot = signal->slot();
      cancel_.emplace(stop_, Emit{op_, signal});
      asio::co_spawn(
          op_->executor(),
          [this]() -> asio::awaitable<void, typename bulkhead::detail::ReturnOf<F>::executor_type> {
            if constexpr (std::is_void_v<R>)
              co_await call();
            else
              value_.emplace(co_await call());
          },
          asio::bind_cancellation_slot(slot, [this, signal = std::move(signal),
                                              baton = std::move(baton)](std::exception_ptr thrown) mutable {
            thrown_ = std::move(thrown);
            cancel_.reset();
            baton.pass();
          }));
    } else {
      try {
        if constexpr (std::is_void_v<R>)
          call();
        else
          value_.emplace(call());
      } catch (...) {
        thrown_ = std::current_exception();
      }
      baton.pass();
    }
  }
  decltype(auto) call() {
    if constexpr (bulkhead::detail::takes_stop<F>)
      return fn_(stop_);
    else if constexpr (bulkhead::detail::takes_call<F>)
      return fn_(running_);
    else
      return fn_();
  }

  F& fn_;
  RunningCall& running_;
  std::stop_token stop_;
  boost::intrusive_ptr<Op> op_;
  std::coroutine_handle<> runner_;
  std::conditional_t<std::is_void_v<R>, std::monostate, std::optional<R>> value_;
  std::exception_ptr thrown_;
  std::optional<std::stop_callback<Emit>> cancel_;
};

struct Self {  // co_await -> the handle of this coroutine
  std::coroutine_handle<> handle;
  bool await_ready() const noexcept { return false; }
  bool await_suspend(std::coroutine_handle<> self) noexcept {
    handle = self;
    return false;
  }
  std::coroutine_handle<> await_resume() const noexcept { return handle; }
};

// A coroutine has to run on its executor, so with threads only plain functions run in the pool.
template <class Op, class F>
Runner run(boost::intrusive_ptr<Op> op, Bulkhead& bulkhead, F fn, CallOptions<Executed<F>> options) {
  using R = Executed<F>;
  const std::coroutine_handle<> self = co_await Self{};
  std::exception_ptr thrown;
  Result<R> result(unexpect);
  const bool pooled = bulkhead.isolation() == Isolation::threads;
  try {
    if constexpr (!OnExecutor<F, Op>::is_coroutine)
      if (pooled) result = co_await bulkhead.co_execute(std::move(fn), std::move(options));
    if (OnExecutor<F, Op>::is_coroutine || !pooled)
      result = co_await bulkhead.co_execute(
          [&](RunningCall& call) { return OnExecutor<F, Op>(fn, call, op, self); }, std::move(options));
  } catch (...) {
    thrown = std::current_exception();
  }
  op->answer(Ending<R>(std::move(thrown), std::move(result)));
}

struct ExecuteInitiation {
  template <class Handler, class F, class Io>
  void operator()(Handler handler, Bulkhead* bulkhead, F fn,
                  bulkhead::detail::KeptOptions<CallOptions<Executed<F>>> kept, const Io& io) const {
    CallOptions<Executed<F>>& options = kept.options;
    auto executor = asio::get_associated_executor(handler, io);
    using Op = StoppedOperation<decltype(executor), Ending<Executed<F>>>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    op->begin_on(executor);
    run(op, *bulkhead, std::move(fn), std::move(options)).handle.resume();
    Op::park(std::move(op), std::move(handler), executor);
  }
};

}  // namespace asio_detail

template <asio_detail::Executor Io, class F,
          boost::asio::completion_token_for<asio_detail::EndingSignature<asio_detail::Executed<F>>> Token>
auto async_execute(const Io& executor, Bulkhead& bulkhead, F fn,
                   CallOptions<asio_detail::Executed<F>> options, Token&& token) {
  return boost::asio::async_initiate<Token, asio_detail::EndingSignature<asio_detail::Executed<F>>>(
      asio_detail::ExecuteInitiation(), token, &bulkhead, std::move(fn),
      detail::KeptOptions(std::move(options)), executor);
}
template <class F,
          boost::asio::completion_token_for<asio_detail::EndingSignature<asio_detail::Executed<F>>> Token>
auto async_execute(Bulkhead& bulkhead, F fn, CallOptions<asio_detail::Executed<F>> options, Token&& token) {
  return async_execute(boost::asio::system_executor(), bulkhead, std::move(fn), std::move(options),
                       std::forward<Token>(token));
}

}  // namespace bulkhead
