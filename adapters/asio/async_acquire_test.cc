#include "async_acquire.h"

#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/bind_allocator.hpp>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <latch>
#include <memory>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "counting_test.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

// Keeps what a handler was called with.
struct Got {
  std::optional<Result<Permit>> result;
  int calls = 0;
  auto handler(asio::io_context& io) {
    return asio::bind_executor(io, [this](Result<Permit> r) {
      ++calls;
      result.emplace(std::move(r));
    });
  }
  bool admitted() const { return result && *result; }
  std::optional<Reason> reason() const {
    return result && !*result ? std::optional(result->error().reason) : std::nullopt;
  }
};

class AsioAcquire : public testing::Test {
 protected:
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 8}};
  asio::io_context io;
};

TEST_F(AsioAcquire, CompletesOnItsExecutorAndNeverInsideTheInitiatingFunction) {
  Got got;
  async_acquire(gate, {}, got.handler(io));
  EXPECT_EQ(got.calls, 0);
  EXPECT_EQ(gate.in_flight(), 1u);  // but it is decided
  io.run();
  EXPECT_TRUE(got.admitted());
}

TEST_F(AsioAcquire, ARejectionTooComesThroughTheExecutor) {
  gate.close();
  Got got;
  async_acquire(gate, {}, got.handler(io));
  EXPECT_EQ(got.calls, 0);
  io.run();
  EXPECT_EQ(got.reason(), Reason::shutdown);
}

TEST_F(AsioAcquire, AWaitingOperationIsWork) {
  auto held = gate.try_acquire();
  Got got;
  async_acquire(gate, {}, got.handler(io));
  EXPECT_EQ(io.poll(), 0u);
  EXPECT_FALSE(io.stopped());
  held->release();
  EXPECT_EQ(got.calls, 0);
  io.run();
  EXPECT_TRUE(got.admitted());
  EXPECT_TRUE((*got.result)->waited());
  EXPECT_TRUE(io.stopped());
}

TEST_F(AsioAcquire, ItsTimeoutIsATimerOfItsExecutor) {
  auto held = gate.try_acquire();
  Got got;
  const auto began = std::chrono::steady_clock::now();
  async_acquire(gate, {.timeout = 20ms}, got.handler(io));
  io.run();
  EXPECT_EQ(got.reason(), Reason::timeout);
  EXPECT_GE(std::chrono::steady_clock::now() - began, 20ms);
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  // Nobody runs the loop: nobody times out, although the library's own timers would.
  Got late;
  io.restart();
  async_acquire(gate, {.timeout = 1ns}, late.handler(io));
  Got behind;  // its time comes through the library, and shows that that one is at work
  std::latch told(1);
  gate.async_acquire({.timeout = 5ms}, [&](const Result<Permit>& r) {
    EXPECT_EQ(r.error().reason, Reason::timeout);
    told.count_down();
  });
  told.wait();
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  io.run();
  EXPECT_EQ(late.reason(), Reason::timeout);
}

TEST_F(AsioAcquire, ADeadlineThatHasPassedIsRejectedAtOnce) {
  auto held = gate.try_acquire();
  Got got;
  async_acquire(gate, {.deadline = std::chrono::steady_clock::now() - 1s}, got.handler(io));
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  io.run();
  EXPECT_EQ(got.reason(), Reason::deadline);
}

TEST_F(AsioAcquire, AGateWithAClockOfItsOwnKeepsItsTime) {
  ManualClock clock;
  Gate slow{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto held = slow.try_acquire();
  Got got;
  async_acquire(slow, {.timeout = 1h}, got.handler(io));
  io.poll();
  EXPECT_EQ(got.calls, 0);
  clock.advance(1h);
  io.run();
  EXPECT_EQ(got.reason(), Reason::timeout);
}

TEST_F(AsioAcquire, CancellationLeavesTheLineAtOnceAndCompletesOnce) {
  auto held = gate.try_acquire();
  asio::cancellation_signal signal;
  Got got, behind;
  async_acquire(gate, {}, asio::bind_cancellation_slot(signal.slot(), got.handler(io)));
  async_acquire(gate, {}, behind.handler(io));
  signal.emit(asio::cancellation_type::total);
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  EXPECT_EQ(got.calls, 0);  // decided, but told on its executor
  signal.emit(asio::cancellation_type::terminal);
  held->release();
  io.run();
  EXPECT_EQ(got.reason(), Reason::cancelled);
  EXPECT_EQ(got.calls, 1);
  EXPECT_TRUE(behind.admitted());
  EXPECT_FALSE(signal.slot().has_handler());
}

TEST_F(AsioAcquire, CancelledAfterItWasAdmittedItKeepsThePermit) {
  auto held = gate.try_acquire();
  asio::cancellation_signal signal;
  Got got;
  async_acquire(gate, {}, asio::bind_cancellation_slot(signal.slot(), got.handler(io)));
  held->release();
  signal.emit(asio::cancellation_type::total);
  io.run();
  EXPECT_TRUE(got.admitted());
}

TEST_F(AsioAcquire, AStopTokenWorksFromAnyThread) {
  auto held = gate.try_acquire();
  std::stop_source stop;
  Got got;
  async_acquire(gate, {.stop = stop.get_token()}, got.handler(io));
  std::thread([&] { stop.request_stop(); }).join();
  io.run();
  EXPECT_EQ(got.reason(), Reason::cancelled);
}

TEST_F(AsioAcquire, TakesEveryCompletionToken) {
  std::future<Result<Permit>> future = async_acquire(io.get_executor(), gate, {}, asio::use_future);
  auto lazy = async_acquire(io.get_executor(), gate, {}, asio::deferred);
  EXPECT_EQ(gate.snapshot().waiting, 0u);  // deferred has not begun
  Got from_deferred;
  std::move(lazy)(from_deferred.handler(io));
  bool awaited = false, in_tuple = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        Result<Permit> permit = co_await async_acquire(gate, {}, asio::use_awaitable);
        awaited = permit.has_value();
        if (permit) permit->release();
        auto [also] = co_await async_acquire(gate, {}, asio::as_tuple(asio::use_awaitable));
        in_tuple = also.has_value();
      },
      asio::detached);
  io.poll();
  Result<Permit> first = future.get();
  ASSERT_TRUE(first);
  first->release();
  io.poll();
  ASSERT_TRUE(from_deferred.admitted());
  (*from_deferred.result)->release();
  io.run();
  EXPECT_TRUE(awaited);
  EXPECT_TRUE(in_tuple);
  EXPECT_EQ(gate.in_flight(), 0u);
}

// The operation of a coroutine that is not Asio's, in one that is.
TEST_F(AsioAcquire, CoAcquireCanBeAwaitedInAnAsioCoroutineAndResumesOnItsExecutor) {
  Bulkhead bulkhead{{.name = "pay", .max_concurrent = 1, .max_queue = 4}};
  auto strand = asio::make_strand(io);
  int admitted = 0;
  std::optional<Reason> late, cancelled;
  auto held = gate.try_acquire();
  auto busy = bulkhead.acquire();
  const auto wait = [&]() -> asio::awaitable<void> {
    const std::stop_source source;
    auto permit = co_await gate.co_acquire({.stop = source.get_token()});
    EXPECT_TRUE(strand.running_in_this_thread());
    admitted += permit.has_value();
    auto none = co_await gate.co_acquire({.timeout = 1ms});
    late = none.error().reason;
    auto call = co_await bulkhead.co_acquire();
    EXPECT_TRUE(strand.running_in_this_thread());
    admitted += call.has_value();
    if (call) call->finish(Outcome::success);
  };
  asio::co_spawn(strand, wait, asio::detached);
  io.poll();
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  std::thread([&] { held->release(), busy->finish(Outcome::success); }).join();
  io.run();
  EXPECT_EQ(admitted, 2);
  EXPECT_EQ(late, Reason::timeout);

  asio::cancellation_signal signal;
  held = gate.try_acquire();
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        auto permit = co_await gate.co_acquire();
        cancelled = permit.error().reason;
      },
      asio::bind_cancellation_slot(signal.slot(), asio::detached));
  io.restart();
  io.poll();
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  EXPECT_EQ(cancelled, Reason::cancelled);
}

TEST_F(AsioAcquire, OfAResourcePoolGivesALease) {
  ResourcePool<int> pool{
      {.name = "r", .max = 1, .open = [](const Opening&) { return 7; }, .gate = {.max_queue = 4}}};
  std::optional<ResourceResult<int>> first, second;
  async_acquire(io.get_executor(), pool, {}, [&](ResourceResult<int> r) { first.emplace(std::move(r)); });
  io.run();
  ASSERT_TRUE(first && *first);
  EXPECT_EQ(***first, 7);
  std::stop_source stop;
  async_acquire(io.get_executor(), pool, {.stop = stop.get_token()},
                [&](ResourceResult<int> r) { second.emplace(std::move(r)); });
  stop.request_stop();
  io.restart();
  io.run();
  ASSERT_TRUE(second && !*second);
  EXPECT_EQ(second->error().rejection->reason, Reason::cancelled);
}

TEST_F(AsioAcquire, ACoroutineIsCancelledWhileItWaits) {
  auto held = gate.try_acquire();
  asio::cancellation_signal signal;
  std::optional<Reason> reason;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        auto permit = co_await async_acquire(gate, {}, asio::use_awaitable);
        if (!permit) reason = permit.error().reason;
      },
      asio::bind_cancellation_slot(signal.slot(), asio::detached));
  io.poll();
  signal.emit(asio::cancellation_type::terminal);
  io.run();
  EXPECT_EQ(reason, Reason::cancelled);
}

TEST_F(AsioAcquire, AStrandIsKept) {
  asio::thread_pool threads(4);
  auto strand = asio::make_strand(threads);
  int inside = 0;  // not atomic: the strand is what protects it
  constexpr int kCalls = 200;
  std::latch done(kCalls);
  Gate wide{{.max_concurrent = 2, .max_queue = kCalls}};
  for (int i = 0; i < kCalls; ++i)
    async_acquire(wide, {.timeout = 1min}, asio::bind_executor(strand, [&](Result<Permit> permit) {
                    EXPECT_TRUE(strand.running_in_this_thread());
                    EXPECT_TRUE(permit);
                    ++inside;
                    done.count_down();
                  }));
  done.wait();
  threads.join();
  EXPECT_EQ(inside, kCalls);
}

TEST_F(AsioAcquire, UsesTheHandlersAllocatorAndHasGivenAllBackWhenTheHandlerRuns) {
  int live = 0, total = 0, live_inside = -1;
  auto held = gate.try_acquire();
  async_acquire(
      gate, {.timeout = 1min},
      asio::bind_allocator(Counting<void*>(&live, &total),
                           asio::bind_executor(io, [&](const Result<Permit>&) { live_inside = live; })));
  EXPECT_EQ(live, 1);
  held->release();
  io.run();
  EXPECT_EQ(live_inside, 0);
  EXPECT_EQ(total, 1);
}

TEST_F(AsioAcquire, AnIoContextThatGoesTakesItsOperationsOutOfTheLine) {
  auto held = gate.try_acquire();
  auto alive = std::make_shared<int>();
  asio::cancellation_signal signal;  // outlives the io_context
  {
    asio::io_context going;
    async_acquire(gate, {.timeout = 1min},
                  asio::bind_executor(going, [alive](const Result<Permit>&) { ADD_FAILURE() << "called"; }));
    async_acquire(gate, {},
                  asio::bind_cancellation_slot(
                      signal.slot(), asio::bind_executor(going, [alive](const Result<Permit>&) {})));
    asio::co_spawn(
        going,
        [](Gate& g, std::shared_ptr<int>) -> asio::awaitable<void> {
          static_cast<void>(co_await async_acquire(g, {}, asio::use_awaitable));
        }(gate, alive),
        asio::detached);
    going.poll();
    EXPECT_EQ(gate.snapshot().waiting, 3u);
    EXPECT_EQ(alive.use_count(), 4);
  }
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  EXPECT_EQ(alive.use_count(), 1);
  signal.emit(asio::cancellation_type::terminal);
  held->release();
  EXPECT_EQ(gate.in_flight(), 0u);
}

TEST_F(AsioAcquire, AnIoContextThatGoesWithAPermitNobodyTookGivesItBack) {
  {
    asio::io_context going;
    async_acquire(gate, {}, asio::bind_executor(going, [](const Result<Permit>&) {}));
    EXPECT_EQ(gate.in_flight(), 1u);
  }
  EXPECT_EQ(gate.in_flight(), 0u);
}

TEST_F(AsioAcquire, AGateThatGoesRejectsTheOperationsInItsLine) {
  Got got;
  std::optional<Gate> going(std::in_place, GateOptions{.max_concurrent = 1, .max_queue = 1});
  auto held = going->try_acquire();
  async_acquire(*going, {.timeout = 1min}, got.handler(io));
  std::thread end([&] { going.reset(); });  // waits for the permit
  io.run();
  EXPECT_EQ(got.reason(), Reason::shutdown);
  held->release();
  end.join();
}

TEST_F(AsioAcquire, OfABulkheadGoesItsWholeWay) {
  Bulkhead bulkhead{{.name = "pay", .max_concurrent = 1, .max_queue = 1}};
  auto held = bulkhead.acquire();
  asio::cancellation_signal signal;
  std::vector<std::string> log;
  auto note = [&](std::string what) {
    return asio::bind_executor(io, [&log, what](Result<Call> call) {
      log.push_back(what + (call ? " ok" : " " + std::string(to_string(call.error().reason))));
    });
  };
  async_acquire(bulkhead, {}, asio::bind_cancellation_slot(signal.slot(), note("first")));
  async_acquire(bulkhead, {}, note("second"));
  signal.emit(asio::cancellation_type::total);
  async_acquire(bulkhead, {}, note("third"));
  held->finish(Outcome::success);
  io.run();
  EXPECT_EQ(log, (std::vector<std::string>{"second queue_limit", "first cancelled", "third ok"}));
}

// Counts how often it was destroyed, other than by being moved from.
struct Count {
  std::atomic<int>* destroyed;
  explicit Count(std::atomic<int>& d) : destroyed(&d) {}
  Count(Count&& o) noexcept : destroyed(std::exchange(o.destroyed, nullptr)) {}
  ~Count() {
    if (destroyed) ++*destroyed;
  }
};

// Everything at once: releases, cancellations, timeouts and the end of the io_context, on different threads.
TEST(AsioAcquireRaces, EveryHandlerGoesExactlyOnceAndNoPermitIsLost) {
  constexpr int kOps = 60;
  for (int round = 0; round < 40; ++round) {
    Gate gate{{.max_concurrent = 2, .max_queue = 64}};
    std::atomic<int> told = 0, destroyed = 0;
    std::atomic<bool> stop = false;
    std::vector<std::stop_source> stops(kOps);
    std::thread churn([&] {  // takes and gives permits, so that the line moves
      while (!stop)
        if (auto p = gate.acquire({.priority = Priority::critical, .timeout = 1ms}))
          std::this_thread::yield();
    });
    std::thread canceller;
    {
      asio::io_context io;
      for (int i = 0; i < kOps; ++i)
        async_acquire(gate, {.timeout = std::chrono::microseconds(50 + 40 * i), .stop = stops[i].get_token()},
                      asio::bind_executor(io, [&, c = Count(destroyed)](Result<Permit> permit) {
                        ++told;
                        if (permit) permit->release();
                      }));
      canceller = std::thread([&] {
        for (int i = 0; i < kOps; i += 3) stops[i].request_stop();
      });
      std::thread runner([&] { io.run_for(std::chrono::microseconds(50 * round)); });
      io.run_for(std::chrono::microseconds(50 * round));
      runner.join();
      io.stop();
    }  // here it goes, while others still decide
    EXPECT_EQ(destroyed, kOps);
    EXPECT_LE(told, kOps);
    canceller.join();
    stop = true;
    churn.join();
    EXPECT_EQ(gate.in_flight(), 0u);
    EXPECT_EQ(gate.snapshot().waiting, 0u);
  }
}

}  // namespace
}  // namespace bulkhead
