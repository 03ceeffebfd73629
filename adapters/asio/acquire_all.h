// acquire_all.h - acquires units of several gates as one Asio operation: all of them, or none.
//
//   asio::awaitable<void> serve(bulkhead::Gate& slots, bulkhead::Gate& tokens) {
//     auto all = co_await bulkhead::async_acquire_all({{slots, 1}, {tokens, 16'000}}, {.timeout = 50ms}, asio::use_awaitable);
//     if (!all) co_return reply(503, all.error().message());
//     ...                                               // all->of(tokens)->settle(used)
//   }
//
// The order, and why calls cannot wait for each other, is that of <bulkhead/acquire_all.h>; executors, cancellation,
// lifetimes and threads are those of async_acquire.h. Timeout and deadline use the clocks of the gates: give them an
// AsioClock (asio_clock.h) to have them in the event loop. While it waits for one gate the operation may hold units of
// another: destroying that one waits until the operation ends, so destroy or stop the io_context first.
#pragma once

#include <boost/asio/async_result.hpp>
#include <boost/asio/system_executor.hpp>
#include <tuple>
#include <type_traits>
#include <utility>

#include "async_acquire.h"
#include "bulkhead/acquire_all.h"
#include "bulkhead/detail/kept_options.h"
#include "detail/operation.h"

namespace bulkhead {
namespace asio_detail {

struct AcquireAllInitiation {
  template <class Handler, class Io>
  void operator()(Handler handler, GateCosts costs, bulkhead::detail::KeptOptions<AcquireAllOptions> kept,
                  const Io& io) const {
    AcquireAllOptions& options = kept.options;
    auto executor = asio::get_associated_executor(handler, io);
    using Answer = std::tuple<Result<AllPermits>>;
    using Op = StoppedOperation<decltype(executor), Answer>;
    boost::intrusive_ptr<Op> op(new Op(options.stop));
    options.stop = op->token();
    bulkhead::async_acquire_all(costs, options,
                                [op](Result<AllPermits> all) { op->answer(Answer(std::move(all))); });
    Op::park(std::move(op), std::move(handler), executor);
  }
};

}  // namespace asio_detail

// Completes with void(Result<AllPermits>). Without an executor the token must bring one: a plain function is a handler of
// <bulkhead/acquire_all.h>, and may run inside the initiating function.
template <asio_detail::Executor Io, boost::asio::completion_token_for<void(Result<AllPermits>)> Token>
auto async_acquire_all(const Io& executor, GateCosts costs, AcquireAllOptions options, Token&& token) {
  return boost::asio::async_initiate<Token, void(Result<AllPermits>)>(
      asio_detail::AcquireAllInitiation(), token, costs, detail::KeptOptions(std::move(options)), executor);
}
template <boost::asio::completion_token_for<void(Result<AllPermits>)> Token>
  requires(!detail::PlainHandler<std::decay_t<Token>>)
auto async_acquire_all(GateCosts costs, AcquireAllOptions options, Token&& token) {
  return async_acquire_all(boost::asio::system_executor(), costs, std::move(options),
                           std::forward<Token>(token));
}

}  // namespace bulkhead
