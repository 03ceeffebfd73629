#include "async_execute.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <filesystem>
#include <iterator>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "asio_clock.h"
#include "async_acquire.h"
#include "async_submit.h"
#include "counting_test.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

template <class R>
struct Got {
  std::exception_ptr thrown;
  std::optional<Result<R>> result;
  int calls = 0;
  auto handler(asio::io_context& io) {
    return asio::bind_executor(io, [this](std::exception_ptr e, Result<R> r) {
      ++calls;
      thrown = std::move(e);
      result.emplace(std::move(r));
    });
  }
  std::optional<Reason> reason() const {
    return result && !*result && !thrown ? std::optional(result->error().reason) : std::nullopt;
  }
};

class AsioSubmit : public testing::Test {
 protected:
  std::latch go{1};  // outlives the pool's threads
  Pool pool{{.name = "work", .max_concurrent = 1, .max_queue = 4}};
  asio::io_context io;
};

TEST_F(AsioSubmit, RunsInThePoolAndCompletesOnTheExecutor) {
  Got<std::thread::id> got;
  async_submit(pool, [] { return std::this_thread::get_id(); }, {}, got.handler(io));
  EXPECT_EQ(got.calls, 0);
  io.run();
  ASSERT_TRUE(got.result && *got.result);
  EXPECT_NE(**got.result, std::this_thread::get_id());
}

TEST_F(AsioSubmit, WhatTheWorkThrowsIsThrownByTheToken) {
  auto future = async_submit(
      io.get_executor(), pool, []() -> int { throw std::runtime_error("no"); }, {}, asio::use_future);
  io.run();
  EXPECT_THROW(static_cast<void>(future.get()), std::runtime_error);
}

TEST_F(AsioSubmit, CancelledInTheQueueItNeverRuns) {
  pool.submit([&] { go.wait(); }).detach();
  asio::cancellation_signal signal;
  Got<void> got;
  async_submit(
      pool, [] { ADD_FAILURE() << "ran"; }, {}, asio::bind_cancellation_slot(signal.slot(), got.handler(io)));
  signal.emit(asio::cancellation_type::total);
  io.run();
  EXPECT_EQ(got.reason(), Reason::cancelled);
  go.count_down();
}

TEST_F(AsioSubmit, AnIoContextThatGoesGivesUpItsWork) {
  pool.submit([&] { go.wait(); }).detach();
  auto alive = std::make_shared<int>();
  {
    asio::io_context going;
    async_submit(
        pool, [] { ADD_FAILURE() << "ran"; }, {},
        asio::bind_executor(going, [alive](std::exception_ptr, const Result<void>&) {}));
  }
  EXPECT_EQ(alive.use_count(), 1);
  go.count_down();
}

class AsioExecute : public testing::Test {
 protected:
  Bulkhead bulkhead{{.name = "pay", .max_concurrent = 1, .max_queue = 2}};
  asio::io_context io;
};

TEST_F(AsioExecute, RunsOnTheExecutorUnderItsPlace) {
  Got<int> got;
  async_execute(
      bulkhead,
      [&] {
        EXPECT_TRUE(io.get_executor().running_in_this_thread());
        EXPECT_EQ(bulkhead.gate().in_flight(), 1u);
        return 7;
      },
      {}, got.handler(io));
  EXPECT_EQ(got.calls, 0);
  io.run();
  ASSERT_TRUE(got.result && *got.result);
  EXPECT_EQ(**got.result, 7);
  EXPECT_EQ(bulkhead.snapshot().gate.succeeded, 1u);
}

TEST_F(AsioExecute, HoldsThePlaceUntilTheCoroutineHasEnded) {
  asio::steady_timer never(io, asio::steady_timer::time_point::max());
  Got<std::string> got;
  async_execute(
      bulkhead,
      [&]() -> asio::awaitable<std::string> {
        try {
          co_await never.async_wait(asio::use_awaitable);
        } catch (const boost::system::system_error&) {
        }
        co_return "done";
      },
      {}, got.handler(io));
  io.poll();
  EXPECT_EQ(bulkhead.gate().in_flight(), 1u);
  never.cancel();
  io.run();
  ASSERT_TRUE(got.result && *got.result);
  EXPECT_EQ(**got.result, "done");
  EXPECT_EQ(bulkhead.gate().in_flight(), 0u);
}

TEST_F(AsioExecute, WhenItsTimeIsUpTheCoroutineIsCancelled) {
  Got<void> got;
  bool aborted = false;
  async_execute(
      bulkhead,
      [&]() -> asio::awaitable<void> {
        asio::steady_timer never(co_await asio::this_coro::executor, asio::steady_timer::time_point::max());
        try {
          co_await never.async_wait(asio::use_awaitable);
        } catch (const boost::system::system_error& e) {
          aborted = e.code() == asio::error::operation_aborted;
          throw;
        }
      },
      {.execution_timeout = 5ms}, got.handler(io));
  io.run();
  EXPECT_TRUE(aborted);
  EXPECT_EQ(got.reason(), Reason::execution_timeout);
  EXPECT_EQ(bulkhead.snapshot().timed_out, 1u);
}

TEST_F(AsioExecute, WhatItThrowsIsThrownByTheTokenUnlessTheFallbackTakesIt) {
  std::string what;
  int fallback = 0;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        try {
          static_cast<void>(co_await async_execute(
              bulkhead, []() -> int { throw std::runtime_error("no"); }, {}, asio::use_awaitable));
        } catch (const std::runtime_error& e) {
          what = e.what();
        }
        fallback = *co_await async_execute(
            bulkhead,
            []() -> asio::awaitable<int> {
              throw std::runtime_error("no");
              co_return 0;
            },
            {.fallback = [](const Cause&) { return 3; }}, asio::use_awaitable);
      },
      asio::detached);
  io.run();
  EXPECT_EQ(what, "no");
  EXPECT_EQ(fallback, 3);
}

TEST_F(AsioExecute, WithThreadsOfItsOwnAPlainCallRunsThere) {
  Bulkhead pooled{{.name = "p", .isolation = Isolation::threads, .max_concurrent = 1, .max_queue = 1}};
  Got<bool> got;
  async_execute(pooled, [&] { return io.get_executor().running_in_this_thread(); }, {}, got.handler(io));
  io.run();
  ASSERT_TRUE(got.result && *got.result);
  EXPECT_FALSE(**got.result);
}

TEST_F(AsioExecute, CancelledInLineItNeverRuns) {
  auto held = bulkhead.acquire();
  asio::cancellation_signal signal;
  Got<void> got;
  async_execute(
      bulkhead, [] { ADD_FAILURE() << "ran"; }, {},
      asio::bind_cancellation_slot(signal.slot(), got.handler(io)));
  signal.emit(asio::cancellation_type::total);
  held->finish(Outcome::success);
  io.run();
  EXPECT_EQ(got.reason(), Reason::cancelled);
}

TEST_F(AsioExecute, AnIoContextThatGoesGivesThePlaceBackInEveryPhase) {
  auto alive = std::make_shared<int>();
  auto ignore = [&](asio::io_context& going) {
    return asio::bind_executor(going, [alive](std::exception_ptr, const Result<void>&) {});
  };
  for (const bool run : {false, true}) {
    {
      asio::io_context going;
      async_execute(  // its call has not begun, or waits in the middle
          bulkhead,
          [alive]() -> asio::awaitable<void> {
            asio::steady_timer never(co_await asio::this_coro::executor,
                                     asio::steady_timer::time_point::max());
            co_await never.async_wait(asio::use_awaitable);
          },
          {}, ignore(going));
      async_execute(bulkhead, [alive] { ADD_FAILURE() << "ran"; }, {}, ignore(going));  // in line
      if (run) going.poll();
      EXPECT_EQ(bulkhead.gate().in_flight(), 1u);
      EXPECT_EQ(bulkhead.snapshot().gate.waiting, 1u);
    }
    EXPECT_EQ(bulkhead.gate().in_flight(), 0u);
    EXPECT_EQ(bulkhead.snapshot().gate.waiting, 0u);
    EXPECT_EQ(alive.use_count(), 1) << run;
  }
}

// The thread that admits a call posts it to the io_context, which may be destroyed by then.
TEST(AsioExecuteEnd, AnIoContextThatGoesAfterTheAdmissionAndBeforeThePostGivesThePlaceBack) {
  std::optional<asio::io_context> io(std::in_place);
  bool armed = false;
  Bulkhead bulkhead{
      {.name = "pay", .max_concurrent = 1, .max_queue = 2, .hooks = {.on_admit = [&](const Event&) {
                                                             if (armed) io.reset();
                                                           }}}};
  auto alive = std::make_shared<int>();
  for (const bool coroutine : {false, true}) {
    if (!io) io.emplace();
    armed = false;
    auto held = bulkhead.acquire();
    auto ended =
        asio::bind_executor(*io, [alive](std::exception_ptr, const Result<void>&) { ADD_FAILURE(); });
    if (coroutine)
      async_execute(
          bulkhead, [alive]() -> asio::awaitable<void> { co_return ADD_FAILURE(), void(); }, {},
          std::move(ended));
    else
      async_execute(bulkhead, [alive] { ADD_FAILURE(); }, {}, std::move(ended));
    EXPECT_EQ(bulkhead.snapshot().gate.waiting, 1u);
    armed = true;
    held->finish(Outcome::success);
    EXPECT_FALSE(io);
    EXPECT_EQ(bulkhead.gate().in_flight(), 0u);
  }
  EXPECT_EQ(alive.use_count(), 1);
}

// ---- what Asio expects of every operation ----

// Each operation takes a token; what it gives is 1 in the end.
class AsioOperations : public testing::Test {
 protected:
  auto submit(auto&& token) {
    return async_submit(io.get_executor(), pool, [] { return 1; }, {}, std::forward<decltype(token)>(token));
  }
  auto execute(auto&& token) {
    return async_execute(
        io.get_executor(), bulkhead, [] { return 1; }, {}, std::forward<decltype(token)>(token));
  }
  auto acquire(auto&& token) {
    return async_acquire(io.get_executor(), bulkhead, AcquireOptions{}, std::forward<decltype(token)>(token));
  }
  void run() {
    io.run();
    io.restart();
  }
  Pool pool{{.name = "work", .max_concurrent = 1, .max_queue = 8}};
  Bulkhead bulkhead{{.name = "pay", .max_concurrent = 8}};
  asio::io_context io;
};

TEST_F(AsioOperations, TakeEveryCompletionToken) {
  std::future<Result<int>> submitted = submit(asio::use_future), executed = execute(asio::use_future);
  std::future<Result<Call>> acquired = acquire(asio::use_future);
  auto submits = submit(asio::deferred);
  auto executes = execute(asio::deferred);
  auto acquires = acquire(asio::deferred);
  int sum = 0, places = 0;
  const auto add = [&](const std::exception_ptr& thrown, const Result<int>& result) {
    if (!thrown) sum += result.value_or(0);
  };
  const auto place = [&](const Result<Call>& call) { places += call.has_value(); };
  submit(add);
  execute(add);
  acquire(place);
  run();
  EXPECT_EQ(submitted.get().value_or(0) + executed.get().value_or(0) + acquired.get().has_value(), 3);
  EXPECT_EQ(sum, 2);
  EXPECT_EQ(places, 1);
  std::move(submits)(add);  // deferred: they begin here
  std::move(executes)(add);
  std::move(acquires)(place);
  run();
  EXPECT_EQ(sum, 4);
  EXPECT_EQ(places, 2);
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        sum += (co_await submit(asio::use_awaitable)).value_or(0);
        sum += (co_await execute(asio::use_awaitable)).value_or(0);
        const Result<Call> call = co_await acquire(asio::use_awaitable);
        places += call.has_value();
      },
      asio::detached);
  run();
  EXPECT_EQ(sum, 6);
  EXPECT_EQ(places, 3);
}

TEST_F(AsioOperations, CompleteOnTheAssociatedExecutorWithMemoryOfTheAssociatedAllocator) {
  auto strand = asio::make_strand(io);
  int live = 0, total = 0, calls = 0;
  const auto bound = [&](auto handler) {
    return asio::bind_allocator(Counting<void*>(&live, &total), asio::bind_executor(strand, handler));
  };
  const auto check = [&] {
    EXPECT_TRUE(strand.running_in_this_thread());
    EXPECT_EQ(live, 0);  // all is back before the handler runs
    ++calls;
  };
  const auto ended = [&](const std::exception_ptr&, const Result<int>&) { check(); };
  const auto done = [&] {
    run();
    EXPECT_GT(std::exchange(total, 0), 0);
  };
  submit(bound(ended));
  done();
  execute(bound(ended));
  done();
  async_acquire(bulkhead, {}, bound([&](const Result<Call>&) { check(); }));
  done();
  EXPECT_EQ(calls, 3);
}

// The thread that gave the answer may lose the processor before it lets go of the operation.
TEST(AsioOperation, OutlivesTheIoContextOfItsHandler) {
  using Op = asio_detail::StoppedOperation<asio::io_context::executor_type, asio_detail::Ending<int>>;
  const boost::intrusive_ptr<Op> answering(new Op({}));
  Got<int> got;
  {
    asio::io_context io;
    Op::park(answering, got.handler(io), io.get_executor());
    answering->answer({nullptr, 1});
    io.run();
  }
  EXPECT_EQ(got.calls, 1);
}

// ---- AsioClock ----

std::ptrdiff_t threads() { return std::distance(std::filesystem::directory_iterator("/proc/self/task"), {}); }

class AsioBudgets : public testing::Test {
 protected:
  std::uint32_t in_use() const { return model.snapshot().budgets[0].in_use; }
  std::uint32_t waiting() const { return model.snapshot().budgets[0].waiting; }

  Bulkhead model{{.name = "model",
                  .max_concurrent = 4,
                  .max_queue = 4,
                  .max_wait = 20s,
                  .budgets = {{.name = "tokens", .max = 100, .per_call_max = 80}}}};
  asio::io_context io;
};

TEST_F(AsioBudgets, ACoroutineSettlesAndGrowsWhileItRuns) {
  std::vector<std::string> order;
  asio::steady_timer more(io, asio::steady_timer::time_point::max());
  const auto stream = [&](RunningCall& call) -> asio::awaitable<int> {
    order.emplace_back("first");
    EXPECT_EQ(call.held("tokens"), 70u);
    boost::system::error_code cancelled;
    co_await more.async_wait(asio::redirect_error(asio::use_awaitable, cancelled));
    EXPECT_FALSE(call.try_grow("tokens", 10)) << "the second one waits";
    EXPECT_TRUE(call.settle("tokens", 40));
    order.emplace_back("settled");
    EXPECT_FALSE(call.try_grow("tokens", 1));
    EXPECT_TRUE(call.settle("tokens", 10));
    EXPECT_TRUE(call.try_grow("tokens", 5));
    co_return static_cast<int>(call.held("tokens"));
  };
  const auto follower = [&](RunningCall& call) -> asio::awaitable<void> {
    order.emplace_back("second");
    EXPECT_EQ(call.held("tokens"), 60u);
    co_return;
  };
  Got<int> first;
  Got<void> second;
  async_execute(model, stream, {.costs = {{"tokens", 70}}}, first.handler(io));
  io.poll();
  async_execute(model, follower, {.costs = {{"tokens", 60}}}, second.handler(io));
  io.poll();
  EXPECT_EQ(in_use(), 70u);
  EXPECT_EQ(waiting(), 1u);
  more.cancel();
  io.restart();
  io.run();
  ASSERT_TRUE(first.result && *first.result);
  EXPECT_EQ(**first.result, 15);
  EXPECT_TRUE(second.result && *second.result);
  EXPECT_EQ(order, (std::vector<std::string>{"first", "settled", "second"}));
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(AsioBudgets, ACallThatIsCancelledInTheLineOfABudgetHoldsNothing) {
  Call busy = *model.acquire({.costs = {{"tokens", 80}}});
  asio::cancellation_signal cancel;
  Got<void> got;
  async_execute(
      model, [](RunningCall&) -> asio::awaitable<void> { co_return; }, {.costs = {{"tokens", 30}}},
      asio::bind_cancellation_slot(cancel.slot(), got.handler(io)));
  io.poll();
  EXPECT_EQ(waiting(), 1u);
  cancel.emit(asio::cancellation_type::terminal);
  io.restart();
  io.run();
  EXPECT_EQ(got.reason(), Reason::cancelled);
  EXPECT_EQ(waiting(), 0u);
  EXPECT_EQ(in_use(), 80u);
}

TEST_F(AsioBudgets, AnIoContextThatGoesGivesTheUnitsBack) {
  Got<void> running, in_line;
  Call busy = *model.acquire({.costs = {{"tokens", 40}}});
  {
    asio::io_context gone;
    asio::steady_timer never(gone, asio::steady_timer::time_point::max());
    async_execute(
        model,
        [&never](RunningCall&) -> asio::awaitable<void> { co_await never.async_wait(asio::use_awaitable); },
        {.costs = {{"tokens", 50}}}, running.handler(gone));
    gone.poll();
    async_execute(
        model, [](RunningCall&) -> asio::awaitable<void> { co_return; }, {.costs = {{"tokens", 30}}},
        in_line.handler(gone));
    gone.poll();
    EXPECT_EQ(in_use(), 90u);
    EXPECT_EQ(waiting(), 1u);
  }
  EXPECT_EQ(in_use(), 40u);
  EXPECT_EQ(waiting(), 0u);
  EXPECT_EQ(running.calls + in_line.calls, 0);
}

TEST_F(AsioBudgets, AnAcquiredCallSettlesFromAnotherHandler) {
  asio::strand<asio::io_context::executor_type> strand(io.get_executor());
  Call busy = *model.acquire({.costs = {{"tokens", 80}}});
  std::optional<Call> held;
  async_acquire(model, {.costs = {{"tokens", 50}}}, asio::bind_executor(strand, [&](Result<Call> call) {
                  ASSERT_TRUE(call);
                  EXPECT_TRUE(strand.running_in_this_thread());
                  held.emplace(*std::move(call));
                }));
  io.poll();
  EXPECT_FALSE(held);
  busy.settle("tokens", 50);
  io.restart();
  io.poll();
  ASSERT_TRUE(held);
  held->settle("tokens", 20);
  EXPECT_EQ(in_use(), 70u);
  EXPECT_TRUE(held->try_grow("tokens", 30));
  EXPECT_FALSE(held->try_grow("tokens", 1));
  held->finish(Outcome::success);
  EXPECT_EQ(in_use(), 50u);
}

TEST(AsioClock, TimeoutsInLineAndOfExecutionComeFromTheExecutorAndTheLibraryStartsNoThread) {
  const std::ptrdiff_t before = threads();
  asio::io_context io;
  AsioClock clock(io.get_executor());
  {
    Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    std::optional<Result<Call>> in_line;
    Got<void> late;
    auto held = bulkhead.acquire();
    async_acquire(io.get_executor(), bulkhead, {.timeout = 1ms},
                  [&](Result<Call> call) { in_line.emplace(std::move(call)); });
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(bulkhead.snapshot().gate.waiting, 1u) << "nobody runs the executor, so its time is not up";
    io.run();
    ASSERT_TRUE(in_line);
    EXPECT_EQ(in_line->error().reason, Reason::timeout);
    held->finish(Outcome::success);

    auto wait = [&](std::stop_token stop) -> asio::awaitable<void> {
      EXPECT_FALSE(stop.stop_requested());
      asio::steady_timer forever(io, TimePoint::max());
      co_await forever.async_wait(asio::use_awaitable);
    };
    async_execute(bulkhead, std::move(wait), {.execution_timeout = 5ms}, late.handler(io));
    io.restart();
    io.run();
    EXPECT_EQ(late.reason(), Reason::execution_timeout);
    EXPECT_EQ(threads(), before);
  }
}

TEST(AsioClock, WorkThatWaitsInAPoolOrRunsTooLongTimesOut) {
  asio::io_context io;
  AsioClock clock(io.get_executor());
  std::latch go{1};
  Pool pool{{.name = "work", .max_concurrent = 1, .max_queue = 4, .clock = &clock}};
  std::thread([] {}).join();  // with the first thread of a program ThreadSanitizer starts one of its own
  const std::ptrdiff_t before = threads();
  Got<void> running, queued;
  async_submit(pool, [&] { go.wait(); }, {.execution_timeout = 20ms}, running.handler(io));
  async_submit(pool, [] { ADD_FAILURE() << "ran"; }, {.timeout = 5ms}, queued.handler(io));
  io.run();
  EXPECT_EQ(running.reason(), Reason::execution_timeout);
  EXPECT_EQ(queued.reason(), Reason::timeout);
  go.count_down();
  EXPECT_LE(threads(), before + 1);  // the pool's own
}

TEST(AsioClock, AnEarlierTimeComesEarlierAndOneThatIsNotNeededKeepsNobody) {
  asio::io_context io;
  AsioClock clock(io.get_executor());
  Gate gate{{.name = "g", .max_concurrent = 1, .max_queue = 4, .clock = &clock}};
  auto held = gate.acquire();
  std::vector<int> order;
  std::stop_source stop;
  gate.async_acquire({.timeout = 1h, .stop = stop.get_token()}, [&](Result<Permit>) { order.push_back(3); });
  gate.async_acquire({.timeout = 20ms}, [&](Result<Permit> p) {
    EXPECT_EQ(p.error().reason, Reason::timeout);
    order.push_back(2);
    stop.request_stop();
  });
  gate.async_acquire({.timeout = 1ms}, [&](Result<Permit>) { order.push_back(1); });
  io.run();  // ends although an hour was asked for
  EXPECT_EQ(order, (std::vector{1, 2, 3}));
}

TEST(AsioClock, OneThatGoesBeforeItsHandlerHasRunIsNotTouched) {
  asio::io_context io;
  {
    AsioClock clock(io.get_executor());
    Gate gate{{.name = "g", .max_concurrent = 1, .max_queue = 4, .clock = &clock}};
    auto held = gate.acquire();
    gate.async_acquire({.timeout = 1ms}, [](Result<Permit>) {});
    gate.close();
    held = {};
  }
  io.run();
}

}  // namespace
}  // namespace bulkhead
