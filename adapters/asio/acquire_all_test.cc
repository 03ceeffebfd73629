#include "acquire_all.h"

#include <gtest/gtest.h>

#include <boost/asio/bind_executor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/use_future.hpp>

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

}  // namespace
}  // namespace bulkhead
