// The same server from one thread: coroutines on an event loop.
#include "async.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <boost/asio/bind_cancellation_slot.hpp>
#include <boost/asio/cancellation_signal.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/strand.hpp>
#include <filesystem>
#include <latch>
#include <thread>

#include "server_test.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/no_threads.h"

namespace bulkhead::postgres::tests {
namespace {

using namespace std::chrono_literals;
using boost::asio::awaitable;
using bulkhead::tests::NoThreads;
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

TEST(PostgresAsync, WithoutAThreadToCancelADeadlineStillEndsTheQuery) {
  PoolOptions o = options("async_no_threads", 1);
  o.connection.cancel_grace = 200ms;
  Pool pool(o);
  run([&]() -> awaitable<void> {
    auto db = co_await async_acquire(pool, {.deadline = steady_clock::now() + 300ms});
    EXPECT_TRUE(db);
    const NoThreads none;
    auto rows = co_await async_query(**db, "select pg_sleep(30)");
    EXPECT_FALSE(rows);
    EXPECT_TRUE(rows.error().timed_out()) << rows.error().message();
    EXPECT_FALSE((*db)->good());
    EXPECT_GT(NoThreads::failed(), 1) << "it is tried again";
  });
}

TEST(PostgresAsync, WithoutFileDescriptorsACallIsRejectedAndALaterOneServed) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  Pool pool(options("async_no_descriptors", 1));
  run([&]() -> awaitable<void> {
    {
      const bulkhead::tests::NoDescriptors none;
      auto db = co_await async_acquire(pool, {.timeout = 30s});
      EXPECT_FALSE(db);
    }
    const auto began = steady_clock::now();
    auto db = co_await async_acquire(pool);
    while (!db && steady_clock::now() < began + 10s)
      db = co_await async_acquire(pool);  // it opens none for some time
    EXPECT_TRUE(db) << db.error().message();
    if (!db) co_return;
    EXPECT_EQ((*co_await async_query(**db, "select 3"))[0].integer(0), 3);
    const bulkhead::tests::NoDescriptors none;  // what is open goes on
    EXPECT_EQ((*co_await async_query(**db, "select 4"))[0].integer(0), 4);
  });
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
          static_cast<void>(co_await async_query(**db, "select pg_sleep(30)"));
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

// ---- on a strand, with two threads: as beast::Server{.threads = 2} runs its handlers ----

TEST(PostgresAsync, OnAStrandWithTwoThreads) {
  PoolOptions o = options("async_strand", 4);
  o.validate_after = 0ns;
  Pool pool(o);
  boost::asio::io_context loop;
  std::atomic<int> served = 0;
  const auto shared = std::make_shared<std::string>("a text that a std::string does not keep inside");
  for (int i = 0; i < 24; ++i)
    boost::asio::co_spawn(
        boost::asio::make_strand(loop),
        [&, i, keep = shared]() -> awaitable<void> {
          for (int round = 0; round < 4; ++round) {
            const std::stop_source source;
            auto db =
                co_await async_acquire(pool, {.timeout = 1min, .stop = source.get_token(), .label = "x"});
            EXPECT_TRUE(db) << db.error().message();
            if (!db) co_return;
            auto rows = co_await async_query(**db, "select $1::int, $2::text", i, *keep);
            EXPECT_TRUE(rows) << rows.error().message();
            EXPECT_EQ(rows ? std::string((*rows)[0][1]) : "", *shared);
            EXPECT_TRUE(co_await async_prepared(**db, "select $1::int + 1", i));
          }
          ++served;
        },
        boost::asio::detached);
  std::thread second([&] { loop.run(); });
  loop.run();
  second.join();
  EXPECT_EQ(served, 24);
  EXPECT_EQ(shared.use_count(), 1);
  EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);
}

// ---- prepared statements ----

TEST(PostgresAsync, AStatementThatCannotBePreparedDoesNotSpoilTheConnection) {
  Pool pool(options("async_prepare", 1));
  run([&]() -> awaitable<void> {
    auto db = co_await async_acquire(pool);
    for (int i = 0; i < 3; ++i)
      EXPECT_TRUE(
          (co_await async_prepared(**db, "select * from comes_later where id = $1", 1)).error().is("42P01"));
    EXPECT_EQ((*co_await async_prepared(**db, "select $1::int", 3))[0].integer(0), 3);
    EXPECT_TRUE(co_await async_query(**db, "create temporary table comes_later (id int)"));
    EXPECT_TRUE(co_await async_prepared(**db, "select * from comes_later where id = $1", 1));
    EXPECT_TRUE(co_await async_query(**db, "deallocate all"));
    EXPECT_TRUE((co_await async_prepared(**db, "select $1::int", 3)).error().is("26000"));
    EXPECT_TRUE(co_await async_prepared(**db, "select $1::int", 3)) << "it is prepared anew";
  });
}

// ---- a server that is slow to connect to ----

// Clients of its port are connected, and wait until let_through(): then it forwards between them and the server.
class Turnpike {
 public:
  explicit Turnpike(std::uint16_t server) : server_(server) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a = loopback(0);
    socklen_t size = sizeof a;
    if (bind(listener_, reinterpret_cast<sockaddr*>(&a), size) != 0 || listen(listener_, 16) != 0 ||
        getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &size) != 0)
      ADD_FAILURE() << "no listener";
    port_ = ntohs(a.sin_port);
  }
  ~Turnpike() {
    for (std::jthread& t : threads_) t.request_stop();
    threads_.clear();
    close(listener_);
  }
  std::uint16_t port() const { return port_; }
  // The next one; returns when it is being forwarded.
  void let_through() {
    const int client = accept(listener_, nullptr, nullptr);
    const int server = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a = loopback(server_);
    if (client < 0 || connect(server, reinterpret_cast<sockaddr*>(&a), sizeof a) != 0) ADD_FAILURE();
    threads_.emplace_back([client, server](const std::stop_token& stop) {
      std::array<pollfd, 2> ends{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
      for (bool open = true; open && !stop.stop_requested();) {
        if (poll(ends.data(), 2, 20) <= 0) continue;
        for (int i = 0; i < 2; ++i) {
          if (!ends[i].revents) continue;
          char bytes[4096];
          const ssize_t n = recv(ends[i].fd, bytes, sizeof bytes, 0);
          open = open && n > 0 && send(ends[1 - i].fd, bytes, static_cast<std::size_t>(n), MSG_NOSIGNAL) == n;
        }
      }
      close(client);
      close(server);
    });
  }

 private:
  static sockaddr_in loopback(std::uint16_t port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    a.sin_port = htons(port);
    return a;
  }
  std::uint16_t server_, port_ = 0;
  int listener_ = -1;
  std::vector<std::jthread> threads_;
};

class PostgresAsyncSlow : public testing::Test {
 protected:
  PoolOptions slow(std::string name) const {
    PoolOptions o = options(std::move(name), 1);
    o.connection.conninfo = Server::get().tcp_conninfo(turnpike.port());
    o.connect_timeout = 20s;
    return o;
  }
  // The connection that its caller did not wait for.
  void expect_no_failure_and_that_it_is_kept(Pool& pool) {
    EXPECT_EQ(pool.snapshot().open_failures, 0u);
    EXPECT_EQ(pool.snapshot().retry_after, 0ns);
    turnpike.let_through();
    auto db = pool.acquire({.timeout = 20s});
    ASSERT_TRUE(db) << db.error().message();
    EXPECT_TRUE((*db)->query("select 1"));
    EXPECT_EQ(pool.snapshot().opened, 1u);
    EXPECT_EQ(pool.snapshot().open_failures, 0u);
  }
  Turnpike turnpike{Server::get().port()};
};

TEST_F(PostgresAsyncSlow, ACallersOwnDeadlineIsNoFailureOfTheServerAndTheConnectionIsKept) {
  Pool pool(slow("async_deadline"));
  run([&]() -> awaitable<void> {
    const auto none = co_await async_acquire(pool, {.deadline = steady_clock::now() + 20ms});
    EXPECT_FALSE(none);
    if (none) co_return;
    EXPECT_FALSE(none.error().failed()) << none.error().message();
    EXPECT_TRUE(none.error().rejection && none.error().rejection->reason == Reason::deadline);
  });
  expect_no_failure_and_that_it_is_kept(pool);
}

TEST_F(PostgresAsyncSlow, NeitherIsItsTimeout) {
  Pool pool(slow("async_timeout"));
  run([&]() -> awaitable<void> {
    const auto none = co_await async_acquire(pool, {.timeout = 20ms});
    EXPECT_TRUE(!none && none.error().rejection && none.error().rejection->reason == Reason::timeout);
  });
  expect_no_failure_and_that_it_is_kept(pool);
}

TEST_F(PostgresAsyncSlow, NorAStopOrACancellation) {
  for (const bool by_slot : {false, true}) {
    Pool pool(slow(by_slot ? "async_cancelled" : "async_stopped"));
    std::stop_source stop;
    boost::asio::cancellation_signal signal;
    boost::asio::io_context loop;
    std::optional<Reason> reason;
    boost::asio::co_spawn(
        loop,
        [&]() -> awaitable<void> {
          const auto none = co_await async_acquire(pool, {.stop = stop.get_token()});
          if (!none && none.error().rejection) reason = none.error().rejection->reason;
        },
        boost::asio::bind_cancellation_slot(signal.slot(), boost::asio::detached));
    while (pool.snapshot().opening == 0) loop.poll();
    if (by_slot)
      signal.emit(boost::asio::cancellation_type::terminal);
    else
      std::thread([&] { stop.request_stop(); }).join();
    loop.run();
    EXPECT_EQ(reason, Reason::cancelled);
    expect_no_failure_and_that_it_is_kept(pool);
  }
}

TEST_F(PostgresAsyncSlow, AServerThatDoesNotAnswerWithinTheConnectTimeoutHasFailed) {
  PoolOptions o = slow("async_silent");
  o.connect_timeout = 50ms;
  Pool silent(o);
  run([&]() -> awaitable<void> {
    const auto none = co_await async_acquire(silent, {.deadline = steady_clock::now() + 20s});
    EXPECT_TRUE(!none && none.error().failed());
  });
  EXPECT_EQ(silent.snapshot().open_failures, 1u);
}

// A caller that gives up while an idle connection is validated: that says nothing about the connection.
TEST(PostgresAsync, ACallerThatGivesUpDuringValidationGivesTheConnectionBack) {
  PoolOptions o = options("async_validate", 1);
  o.validate_after = 0ns;
  o.reset_timeout = 20s;
  o.connection.cancel_grace = 20s;
  for (const Reason limit : {Reason::deadline, Reason::timeout, Reason::cancelled}) {
    Pool pool(o);
    int pid = 0;
    {
      auto db = pool.acquire();
      ASSERT_TRUE(db) << db.error().message();
      pid = (*db)->backend_pid();
    }
    ASSERT_EQ(kill(pid, SIGSTOP), 0);  // it answers once it goes on
    std::stop_source stop;
    const auto began = steady_clock::now();
    AcquireOptions asked{.stop = stop.get_token()};
    if (limit == Reason::deadline) asked.deadline = began + 50ms;
    if (limit == Reason::timeout) asked.timeout = 50ms;
    std::thread other([&] {
      if (limit != Reason::cancelled) return;
      while (pool.snapshot().gate.in_flight == 0) std::this_thread::yield();
      stop.request_stop();
    });
    run([&]() -> awaitable<void> {
      const auto none = co_await async_acquire(pool, asked);
      EXPECT_FALSE(none);
      if (!none) {
        EXPECT_EQ(none.error().rejection.value_or(Rejection()).reason, limit);
      }
    });
    EXPECT_LT(steady_clock::now() - began, 10s) << to_string(limit);
    other.join();
    kill(pid, SIGCONT);
    auto db = pool.acquire({.timeout = 20s});
    ASSERT_TRUE(db) << db.error().message();
    EXPECT_EQ((*db)->backend_pid(), pid);
  }
}

// Back in line after a validation that has failed, a call has the rest of its time.
TEST(PostgresAsync, ATimeoutIsForAllAttemptsTogether) {
  PoolOptions o = options("async_attempts", 1);
  o.validate_after = 0ns;
  o.reset_timeout = 1s;
  o.connection.cancel_grace = 1ms;
  Pool pool(o);
  int pid = 0;
  {
    auto db = pool.acquire();
    ASSERT_TRUE(db) << db.error().message();
    pid = (*db)->backend_pid();
  }
  ASSERT_EQ(kill(pid, SIGSTOP), 0);
  std::latch over(1);
  std::thread next;  // in line behind it, so that it gets the slot of the connection that has failed
  const auto began = steady_clock::now();
  run(
      [&]() -> awaitable<void> {
        auto none = co_await async_acquire(pool, {.timeout = 1200ms});
        EXPECT_FALSE(none);
        if (!none) {
          EXPECT_EQ(none.error().rejection.value_or(Rejection()).reason, Reason::timeout);
        }
      },
      [&]() -> awaitable<void> {
        next = std::thread([&] {
          auto db = pool.acquire({.timeout = 20s});
          EXPECT_TRUE(db) << db.error().message();
          over.wait();
        });
        while (pool.snapshot().gate.waiting == 0) std::this_thread::yield();
        co_return;
      });
  EXPECT_LT(steady_clock::now() - began, 2200ms);
  over.count_down();
  next.join();
  kill(pid, SIGCONT);
}

// ---- the end ----

TEST(PostgresAsync, AnIoContextThatGoesWithCoroutinesInLineTakesThemOut) {
  Pool pool(options("async_end", 1));
  const auto alive = std::make_shared<int>();
  auto held = pool.acquire();
  ASSERT_TRUE(held);
  {
    boost::asio::io_context loop;
    for (int i = 0; i < 3; ++i)
      boost::asio::co_spawn(
          boost::asio::make_strand(loop),
          [&pool, keep = alive]() -> awaitable<void> {
            const auto db = co_await async_acquire(pool);
            ADD_FAILURE() << "resumed";
          },
          boost::asio::detached);
    loop.poll();
    EXPECT_EQ(pool.snapshot().gate.waiting, 3u);
  }
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  EXPECT_EQ(alive.use_count(), 1);
  held->release();
  EXPECT_TRUE(pool.acquire({.timeout = 5s}));
}

// ---- values ----

TEST(PostgresAsync, AValueOrAStatementWithANulByteIsRejectedAndTheConnectionGoesOn) {
  Pool pool(options("async_nul", 1));
  run([&]() -> awaitable<void> {
    auto db = co_await async_acquire(pool);
    const std::string cut("ab\0cd", 5);
    const auto value = co_await async_query(**db, "select $1::text, $2::text", "whole", cut);
    EXPECT_FALSE(value);
    if (value) co_return;
    EXPECT_EQ(value.error().kind, Error::Kind::invalid);
    EXPECT_NE(value.error().message().find("$2"), std::string::npos) << value.error().message();
    const auto prepared = co_await async_prepared(**db, "select $1::text", cut);
    EXPECT_TRUE(!prepared && prepared.error().kind == Error::Kind::invalid);
    const std::string statement("select 1\0; drop table x", 23);
    const auto text = co_await async_query(**db, statement);
    EXPECT_TRUE(!text && text.error().kind == Error::Kind::invalid);
    EXPECT_EQ((*db)->query(statement).error().kind, Error::Kind::invalid);
    EXPECT_EQ((*db)->run(statement).error().kind, Error::Kind::invalid);
    EXPECT_EQ((*db)->prepared(statement).error().kind, Error::Kind::invalid);
    EXPECT_TRUE((*db)->good());
    EXPECT_TRUE(co_await async_query(**db, "select 1"));
  });
}

}  // namespace
}  // namespace bulkhead::postgres::tests
