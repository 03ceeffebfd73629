// async_execute.h - a protected call, as an Asio operation.
//
//   bulkhead::Result<Receipt> receipt = co_await bulkhead::async_execute(
//       payments, [&](std::stop_token) -> asio::awaitable<Receipt> { co_return co_await pay(order); },
//       {.execution_timeout = 800ms}, asio::use_awaitable);
//
// The way of Bulkhead::execute: rate limit, breaker, place, the call with its time limit, its outcome,
// the fallback. `fn` is called as fn() or fn(std::stop_token) on the handler's executor (with
// Isolation::threads: on a thread of the pool, unless it is a coroutine). It returns R, or
// asio::awaitable<R>; then the place is held until that ends, and when the time is up or the caller
// cancels, the coroutine is cancelled (cancellation_type::terminal) and its operations end with
// operation_aborted.
// Completes with void(std::exception_ptr, Result<R>); what `fn` threw is the exception_ptr, unless the
// fallback takes it. A fallback after a refusal runs on the thread that refused, after a call where that
// ended: it must not block.
// Cancellation, executor, work and the end are as in async_acquire.h; an io_context destroyed meanwhile
// gives the place back.
// GCC 12 destroys some temporaries of a co_await expression twice: give `fn`, and options with functions in
// them, names of their own before you co_await, as in examples/asio_coroutines.cc.
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

// The coroutine that makes the call. It is nobody's: it ends by itself, or with the io_context that
// should have gone on with it.
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
template <class F, class Ex>
class OnExecutor {
 public:
  using R = Executed<F>;
  static constexpr bool is_coroutine = AwaitableOf<bulkhead::detail::ReturnOf<F>>::value;

  OnExecutor(F& fn, std::stop_token stop, Ex executor, std::coroutine_handle<> runner)
      : fn_(fn), stop_(std::move(stop)), executor_(std::move(executor)), runner_(runner) {}

  bool await_ready() const noexcept { return false; }
  void await_suspend(std::coroutine_handle<> next) {
    Baton baton(next, runner_);
    if constexpr (is_coroutine) {
      auto signal = std::make_shared<asio::cancellation_signal>();
      const auto slot = signal->slot();
      cancel_.emplace(stop_, Emit{executor_, signal});
      asio::co_spawn(
          executor_,
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
      asio::post(executor_, [this, baton = std::move(baton)]() mutable {
        try {
          if constexpr (std::is_void_v<R>)
            call();
          else
            value_.emplace(call());
        } catch (...) {
          thrown_ = std::current_exception();
        }
        baton.pass();
      });
    }
  }
  R await_resume() {
    if (thrown_) std::rethrow_exception(std::move(thrown_));
    if constexpr (!std::is_void_v<R>) return *std::move(value_);
  }

 private:
  // Asio's signals belong to one thread: the executor's.
  struct Emit {
    Ex executor;
    std::weak_ptr<asio::cancellation_signal> signal;
    void operator()() const {
      asio::post(executor, [signal = signal] {
        if (const auto alive = signal.lock()) alive->emit(asio::cancellation_type::terminal);
      });
    }
  };
  decltype(auto) call() {
    if constexpr (std::is_invocable_v<F&, std::stop_token>)
      return fn_(stop_);
    else
      return fn_();
  }

  F& fn_;
  std::stop_token stop_;
  Ex executor_;
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

template <class Op, class F, class Ex>
Runner run(boost::intrusive_ptr<Op> op, Bulkhead& bulkhead, F fn, CallOptions<Executed<F>> options,
           Ex executor) {
  using R = Executed<F>;
  const std::coroutine_handle<> self = co_await Self{};
  std::exception_ptr thrown;
  Result<R> result(std::unexpect);
  const bool pooled = bulkhead.isolation() == Isolation::threads;
  try {
    if constexpr (!OnExecutor<F, Ex>::is_coroutine)
      if (pooled) result = co_await bulkhead.co_execute(std::move(fn), std::move(options));
    if (OnExecutor<F, Ex>::is_coroutine || !pooled)
      result = co_await bulkhead.co_execute(
          [&](std::stop_token stop) { return OnExecutor<F, Ex>(fn, std::move(stop), executor, self); },
          std::move(options));
  } catch (...) {
    thrown = std::current_exception();
  }
  op->answer(Ending<R>(std::move(thrown), std::move(result)));
}

struct ExecuteInitiation {
  template <class Handler, class F, class Io>
  void operator()(Handler handler, Bulkhead* bulkhead, F fn, CallOptions<Executed<F>> options,
                  const Io& io) const {
    auto executor = asio::get_associated_executor(handler, io);
    using Op = StoppedOperation<decltype(executor), Ending<Executed<F>>>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    run(op, *bulkhead, std::move(fn), std::move(options), executor).handle.resume();
    Op::park(std::move(op), std::move(handler), executor);
  }
};

}  // namespace asio_detail

template <asio_detail::Executor Io, class F,
          boost::asio::completion_token_for<asio_detail::EndingSignature<asio_detail::Executed<F>>> Token>
auto async_execute(const Io& executor, Bulkhead& bulkhead, F fn,
                   CallOptions<asio_detail::Executed<F>> options, Token&& token) {
  return boost::asio::async_initiate<Token, asio_detail::EndingSignature<asio_detail::Executed<F>>>(
      asio_detail::ExecuteInitiation(), token, &bulkhead, std::move(fn), std::move(options), executor);
}
template <class F,
          boost::asio::completion_token_for<asio_detail::EndingSignature<asio_detail::Executed<F>>> Token>
auto async_execute(Bulkhead& bulkhead, F fn, CallOptions<asio_detail::Executed<F>> options, Token&& token) {
  return async_execute(boost::asio::system_executor(), bulkhead, std::move(fn), std::move(options),
                       std::forward<Token>(token));
}

}  // namespace bulkhead
