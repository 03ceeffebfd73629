// async_submit.h - work for a pool, as an Asio operation.
//
//   bulkhead::Result<Report> report = co_await bulkhead::async_submit(
//       reports, [](std::stop_token stop) { return slow_report(stop); }, {.execution_timeout = 2s},
//       asio::use_awaitable);
//
// The work runs on a thread of the pool (pool.h); completes with void(std::exception_ptr, Result<R>) on
// the handler's executor. The exception_ptr is what the work threw, which use_awaitable and use_future
// throw on; the Result is then of no meaning.
// Cancellation by the handler's slot gives up: queued work never runs, running work is asked to stop and
// goes on alone, and the operation completes with Reason::cancelled. Executor, allocator, work and the
// end are as in async_acquire.h; the pool may end before the operation completes.
// (yield_context of Boost 1.81 does not compile for an exception_ptr with a value: give
// as_tuple(yield).)
// Cost: what Pool::submit costs, a stop_source, and a timer of the io_context.
#pragma once

#include <exception>
#include <tuple>
#include <utility>

#include "async_acquire.h"
#include "bulkhead/detail/kept_options.h"
#include "bulkhead/pool.h"

namespace bulkhead {
namespace asio_detail {

template <class R>
using Ending = std::tuple<std::exception_ptr, Result<R>>;

// Calls `produce`, which gives a Result<R> or throws.
template <class R, class F>
Ending<R> ending_of(F&& produce) noexcept {
  try {
    return {nullptr, std::forward<F>(produce)()};
  } catch (...) {
    return {std::current_exception(), Result<R>(unexpect)};
  }
}

struct SubmitInitiation {
  template <class Handler, class F, class Io>
  void operator()(Handler handler, Pool* pool, F fn, bulkhead::detail::KeptOptions<SubmitOptions> kept,
                  const Io& io) const {
    SubmitOptions& options = kept.options;
    using R = bulkhead::detail::ReturnOf<F>;
    auto executor = asio::get_associated_executor(handler, io);
    using Op = StoppedOperation<decltype(executor), Ending<R>>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    pool->submit(std::move(fn), options).then([op](Task<R> task) {
      op->answer(ending_of<R>([&] { return task.get(); }));
    });
    Op::park(std::move(op), std::move(handler), executor);
  }
};

template <class R>
using EndingSignature = void(std::exception_ptr, Result<R>);

}  // namespace asio_detail

template <asio_detail::Executor Io, class F,
          boost::asio::completion_token_for<asio_detail::EndingSignature<detail::ReturnOf<F>>> Token>
auto async_submit(const Io& executor, Pool& pool, F fn, SubmitOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, asio_detail::EndingSignature<detail::ReturnOf<F>>>(
      asio_detail::SubmitInitiation(), token, &pool, std::move(fn), detail::KeptOptions(std::move(options)),
      executor);
}
template <class F, boost::asio::completion_token_for<asio_detail::EndingSignature<detail::ReturnOf<F>>> Token>
auto async_submit(Pool& pool, F fn, SubmitOptions options, Token&& token) {
  return async_submit(boost::asio::system_executor(), pool, std::move(fn), std::move(options),
                      std::forward<Token>(token));
}

}  // namespace bulkhead
