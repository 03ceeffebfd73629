#include "acquire_all.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/bind_executor.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>
#include <optional>

#include "asio_clock.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

TEST(AsioAcquireAll, CompletesWithAllPermitsOnItsExecutor) {
  Gate slots{{.name = "slots", .max_concurrent = 1, .max_queue = 1}};
  Gate tokens{{.name = "tokens", .max_concurrent = 100, .max_queue = 1}};
  asio::io_context io;
  Permit busy = *tokens.acquire({.cost = 60});
  bool done = false;
  asio::co_spawn(
      io,
      [&]() -> asio::awaitable<void> {
        auto all =
            co_await async_acquire_all({{slots, 1}, {tokens, 50}}, {.timeout = 10s}, asio::use_awaitable);
        EXPECT_TRUE(all);
        EXPECT_EQ(tokens.in_flight(), 50u);
        all->of(tokens)->settle(7);
        EXPECT_EQ(tokens.in_flight(), 7u);
        done = true;
      },
      asio::detached);
  io.poll();
  EXPECT_FALSE(done);
  busy.release();
  io.run();
  EXPECT_TRUE(done);
  EXPECT_EQ(slots.in_flight() + tokens.in_flight(), 0u);
}

TEST(AsioAcquireAll, ARejectionIsAValue) {
  Gate slots{{.name = "slots", .max_concurrent = 1}};
  Gate tokens{{.name = "tokens", .max_concurrent = 100}};
  asio::io_context io;
  auto future = async_acquire_all(io.get_executor(), {{slots, 1}, {tokens, 101}}, {}, asio::use_future);
  io.run();
  Result<AllPermits> all = future.get();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().name.view(), "tokens");
  EXPECT_EQ(slots.in_flight(), 0u);
}

TEST(AsioAcquireAll, AHandlerWithAnExecutorRunsThere) {
  Gate slots{{.name = "slots", .max_concurrent = 1}};
  asio::io_context io;
  bool called = false;
  async_acquire_all({{slots}}, {},
                    asio::bind_executor(io, [&](const Result<AllPermits>& all) { called = bool{all}; }));
  EXPECT_FALSE(called);
  io.run();
  EXPECT_TRUE(called);
}

// Two gates in the order of their addresses, in which they are taken; the second one is full, so that a call holds units of the first while it
// waits.
class AsioAcquireAllThatWaits : public testing::Test {
 protected:
  AsioAcquireAllThatWaits() { full = *second.acquire({.cost = 10}); }
  void expect_waiting() {
    EXPECT_EQ(first.in_flight(), 2u) << "held while it waits";
    EXPECT_EQ(second.snapshot().waiting, 1u);
  }
  void expect_nothing_held() {
    EXPECT_EQ(first.in_flight(), 0u);
    EXPECT_EQ(second.snapshot().waiting, 0u);
    full.release();
    EXPECT_EQ(second.in_flight(), 0u);
  }
  GateCosts costs() { return {{second, 3}, {first, 2}}; }

  asio::io_context io;
  AsioClock clock{io.get_executor()};
  Gate first{{.name = "a", .max_concurrent = 10, .max_queue = 4, .clock = &clock}};
  Gate second{{.name = "b", .max_concurrent = 10, .max_queue = 4, .clock = &clock}};
  Permit full;
};

TEST_F(AsioAcquireAllThatWaits, IsCancelledByItsSlotAndHoldsNothing) {
  asio::cancellation_signal cancel;
  std::optional<Reason> told;
  async_acquire_all(io.get_executor(), costs(), {.timeout = wait_forever},
                    asio::bind_cancellation_slot(cancel.slot(), [&](const Result<AllPermits>& all) {
                      told = all ? Reason::shutdown : all.error().reason;
                    }));
  io.poll();
  expect_waiting();
  cancel.emit(asio::cancellation_type::terminal);
  io.restart();
  io.poll();
  EXPECT_EQ(told, Reason::cancelled);
  expect_nothing_held();
}

TEST_F(AsioAcquireAllThatWaits, TimesOutInTheEventLoopAndHoldsNothing) {
  std::optional<Rejection> told;
  async_acquire_all(io.get_executor(), costs(), {.timeout = 5ms}, [&](const Result<AllPermits>& all) {
    ASSERT_FALSE(all);
    told = all.error();
  });
  expect_waiting();
  while (!told) io.run_one();
  EXPECT_EQ(told->reason, Reason::timeout);
  EXPECT_EQ(told->name.view(), second.name());
  expect_nothing_held();
}

TEST_F(AsioAcquireAllThatWaits, EndsWithItsIoContextAndHoldsNothing) {
  bool told = false;
  {
    asio::io_context own;
    async_acquire_all(own.get_executor(), costs(), {.timeout = wait_forever},
                      [&](const Result<AllPermits>&) { told = true; });
    own.poll();
    expect_waiting();
  }
  EXPECT_FALSE(told) << "its handler is destroyed, not called";
  expect_nothing_held();
}

TEST_F(AsioAcquireAllThatWaits, EndsWithItsCoroutineAndHoldsNothing) {
  bool resumed = false;
  {
    asio::io_context own;
    asio::co_spawn(
        own,
        [&]() -> asio::awaitable<void> {
          (void)co_await async_acquire_all(costs(), {.timeout = wait_forever}, asio::use_awaitable);
          resumed = true;
        },
        asio::detached);
    own.poll();
    expect_waiting();
  }
  EXPECT_FALSE(resumed);
  expect_nothing_held();
}

}  // namespace
}  // namespace bulkhead
