// The same server from one thread: coroutines on an event loop.
#include "async.h"

#include <gtest/gtest.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <filesystem>
#include <thread>

#include "server_test.h"

namespace bulkhead::postgres::tests {
namespace {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using std::chrono::steady_clock;

PoolOptions options(std::string name, std::uint32_t max) {
  return {.name = std::move(name),
          .max = max,
          .gate = {.max_queue = 64},
          .connection = {.conninfo = Server::get().conninfo()}};
}

// Runs them all on this thread, to their end.
template <class... Coroutine>
void run(Coroutine... coroutines) {
  boost::asio::io_context loop;
  const auto rethrow = [](const std::exception_ptr& e) {
    if (e) std::rethrow_exception(e);
  };
  (boost::asio::co_spawn(loop, std::move(coroutines), rethrow), ...);
  loop.run();
}

std::size_t threads() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

TEST(PostgresAsync, ManyCoroutinesShareAFewConnectionsOnOneThread) {
  Pool pool(options("async", 4));
  std::thread([] {}).join();  // with the first thread of a program ThreadSanitizer starts one of its own
  const std::size_t before = threads();
  int served = 0, running = 0, most = 0;
  std::size_t most_threads = 0;
  boost::asio::io_context loop;
  for (int i = 0; i < 24; ++i)
    boost::asio::co_spawn(
        loop,
        [&, i]() -> awaitable<void> {
          auto db = co_await async_acquire(pool);
          EXPECT_TRUE(db) << db.error().message();
          if (!db) co_return;
          most = std::max(most, ++running);
          auto rows = co_await async_query(**db, "select $1::int, pg_sleep(0.01)", i);
          EXPECT_TRUE(rows) << rows.error().message();
          EXPECT_EQ((*rows)[0].integer(0), i);
          EXPECT_EQ((*co_await async_prepared(**db, "select $1::int + 1", i))[0].integer(0), i + 1);
          --running;
          ++served;
          most_threads = std::max(most_threads, threads());
        },
        boost::asio::detached);
  loop.run();
  EXPECT_EQ(served, 24);
  EXPECT_EQ(most, 4);
  EXPECT_EQ(pool.snapshot().most_alive, 4u);
  EXPECT_LE(most_threads, before + 3) << "a timer and a helper or two for the pool's upkeep, none per query";
}

TEST(PostgresAsync, TheDeadlineCancelsAndTheConnectionGoesOn) {
  Pool pool(options("async_deadline", 1));
  run([&]() -> awaitable<void> {
    const auto began = steady_clock::now();
    {
      auto db = co_await async_acquire(pool, {.deadline = began + 100ms});
      EXPECT_TRUE(db);
      auto rows = co_await async_query(**db, "select pg_sleep(30)");
      EXPECT_FALSE(rows);
      EXPECT_TRUE(rows.error().timed_out()) << rows.error().message();
      EXPECT_LT(steady_clock::now() - began, 10s);
    }
    auto db = co_await async_acquire(pool);
    EXPECT_EQ((*co_await async_query(**db, "select 3"))[0].integer(0), 3);
    EXPECT_TRUE((co_await async_query(**db, "select * from nowhere")).error().is("42P01"));
  });
  EXPECT_EQ(pool.snapshot().opened, 1u);
}

TEST(PostgresAsync, AStaleConnectionIsValidatedAndADeadOneReplaced) {
  PoolOptions o = options("async_stale", 2);
  o.validate_after = 0ns;
  Pool pool(o);
  run([&]() -> awaitable<void> {
    int pid = 0;
    {
      auto db = co_await async_acquire(pool);
      pid = (*db)->backend_pid();
    }
    {
      auto db = co_await async_acquire(pool);
      EXPECT_EQ((*db)->backend_pid(), pid);
      auto killer = Connection::open({.conninfo = Server::get().conninfo()});
      EXPECT_TRUE(killer->query("select pg_terminate_backend($1, 5000)", {pid}));
    }
    auto db = co_await async_acquire(pool);
    EXPECT_TRUE(db) << db.error().message();
    EXPECT_NE((*db)->backend_pid(), pid);
    EXPECT_TRUE(co_await async_query(**db, "select 1"));
  });
}

TEST(PostgresAsync, ACoroutineThatIsDestroyedInTheMiddleOfAQueryLosesNoLease) {
  Pool pool(options("async_destroyed", 1));
  {
    boost::asio::io_context loop;
    boost::asio::co_spawn(
        loop,
        [&]() -> awaitable<void> {
          auto db = co_await async_acquire(pool);
          co_await async_query(**db, "select pg_sleep(30)");
        },
        boost::asio::detached);
    loop.run_for(300ms);
    EXPECT_EQ(pool.snapshot().used, 1u);
  }
  auto db = pool.acquire({.timeout = 5s});
  ASSERT_TRUE(db) << db.error().message();
  EXPECT_TRUE((*db)->query("select 1"));
}

TEST(PostgresAsync, AServerThatIsDownIsTold) {
  PoolOptions o = options("async_down", 1);
  o.connection.conninfo = "host=/nowhere";
  Pool pool(o);
  run([&]() -> awaitable<void> {
    const auto none = co_await async_acquire(pool);
    EXPECT_FALSE(none);
    EXPECT_TRUE(none.error().failed());
    EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);
    EXPECT_EQ(pool.snapshot().alive, 0u);
  });
}

}  // namespace
}  // namespace bulkhead::postgres::tests
