// Every coroutine form, written as a user writes it: options in braces with a stop_token, a fallback and
// captures, on a strand, with two threads on the io_context. GCC 11 and 12 destroy some temporaries of a
// co_await expression twice (docs/how-to/coroutines-on-gcc-11-and-12.md), which AddressSanitizer sees: the
// lane asan-gcc runs these tests.
#include <gtest/gtest.h>

#include <atomic>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/deferred.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <coroutine>
#include <latch>
#include <memory>
#include <stop_token>
#include <string>
#include <thread>

#include "acquire_all.h"
#include "asio_clock.h"
#include "async_acquire.h"
#include "async_execute.h"
#include "async_submit.h"
#include "bulkhead/group.h"
#include "bulkhead/resource_pool.h"

namespace bulkhead {
namespace {

namespace asio = boost::asio;
using namespace std::chrono_literals;

constexpr int kCoroutines = 8, kRounds = 10;
const std::string kLong = "a text that is too long to be kept inside of a std::string";

// Runs `coroutine` on strands of an io_context with two threads, several at once so that most have to wait.
template <class Make>
void on_strands(Make make) {
  asio::io_context io;
  std::atomic<int> ended = 0;
  for (int i = 0; i < kCoroutines; ++i)
    asio::co_spawn(asio::make_strand(io), make(), [&](const std::exception_ptr& thrown) {
      EXPECT_FALSE(thrown);
      ++ended;
    });
  std::thread second([&] { io.run(); });
  io.run();
  second.join();
  EXPECT_EQ(ended, kCoroutines);
}

asio::awaitable<void> pause() {
  asio::steady_timer timer(co_await asio::this_coro::executor, 100us);
  co_await timer.async_wait(asio::use_awaitable);
}

// What a call captures: its owner count says whether it was destroyed once for each time it was made.
class CoroutineForms : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(shared.use_count(), 1); }
  std::shared_ptr<std::string> shared = std::make_shared<std::string>(kLong);
};

TEST_F(CoroutineForms, AsioAcquireOfAGate) {
  Gate gate{{.name = "g", .max_concurrent = 2, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      const std::stop_token stop = source.get_token();
      auto permit =
          co_await async_acquire(gate, {.timeout = 1min, .stop = stop, .label = "x"}, asio::use_awaitable);
      EXPECT_TRUE(permit);
      co_await pause();
      permit->release();
      auto again = co_await async_acquire(co_await asio::this_coro::executor, gate,
                                          {.stop = source.get_token()}, asio::use_awaitable);
      EXPECT_TRUE(again);
      EXPECT_FALSE(stop.stop_requested());
    }
  });
}

TEST_F(CoroutineForms, AsioAcquireOfABulkhead) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 2, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      auto call = co_await async_acquire(bulkhead, {.timeout = 1min, .stop = source.get_token()},
                                         asio::use_awaitable);
      EXPECT_TRUE(call);
      co_await pause();
      if (call) call->finish(Outcome::success);
      EXPECT_FALSE(source.stop_requested());
    }
  });
}

// Lambdas that capture references, options in braces with a fallback: all inside the co_await expression.
TEST_F(CoroutineForms, AsioExecuteWithAFallbackInBraces) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64}};
  std::atomic<int> fallbacks = 0;
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      std::string order = kLong;
      const Result<std::string> receipt = co_await async_execute(
          bulkhead,
          [&](std::stop_token) -> asio::awaitable<std::string> {
            co_await pause();
            if (i % 2) throw std::runtime_error("no");
            co_return order;
          },
          {.fallback = [&](const Cause&) { return ++fallbacks, order; },
           .stop = source.get_token(),
           .judge = [&](const std::string&) -> Opinion { return std::nullopt; }},
          asio::use_awaitable);
      EXPECT_EQ(receipt.value_or(""), kLong);
    }
  });
  EXPECT_EQ(fallbacks, kCoroutines * kRounds / 2);
}

// Lambdas that own what they capture have names.
TEST_F(CoroutineForms, AsioExecuteWithCaptures) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      auto pay = [order = kLong, keep = shared, i]() -> asio::awaitable<std::string> {
        if (i % 2) throw std::runtime_error("no");
        co_return order;
      };
      auto instead = [keep = shared](const Cause&) { return *keep; };
      const Result<std::string> receipt = co_await async_execute(
          bulkhead, pay, {.fallback = instead, .stop = source.get_token()}, asio::use_awaitable);
      EXPECT_EQ(receipt.value_or(""), kLong);
      CallOptions<std::string> options{.fallback = std::move(instead), .stop = source.get_token()};
      const Result<std::string> moved =
          co_await async_execute(bulkhead, std::move(pay), std::move(options), asio::use_awaitable);
      EXPECT_EQ(moved.value_or(""), kLong);
    }
  });
}

// Or the operation has.
TEST_F(CoroutineForms, AsioExecuteNamedBeforeItIsAwaited) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      auto paying = async_execute(
          bulkhead,
          [order = kLong, keep = shared, i](std::stop_token) {
            if (i % 2) throw std::runtime_error("no");
            return order;
          },
          {.fallback = [keep = shared](const Cause&) { return *keep; }, .stop = source.get_token()},
          asio::use_awaitable);
      EXPECT_EQ((co_await std::move(paying)).value_or(""), kLong);
    }
  });
}

TEST_F(CoroutineForms, AsioExecuteWithTimesOfAnAsioClock) {
  asio::io_context io;
  AsioClock clock(io.get_executor());
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64, .clock = &clock}};
  std::atomic<int> late = 0;
  for (int i = 0; i < kCoroutines; ++i)
    asio::co_spawn(
        asio::make_strand(io),
        [&, i]() -> asio::awaitable<void> {
          std::string order = kLong;
          const std::stop_source source;
          const Result<std::string> receipt = co_await async_execute(
              bulkhead,
              [&](std::stop_token) -> asio::awaitable<std::string> {
                asio::steady_timer timer(co_await asio::this_coro::executor, i % 2 ? 1h : 100us);
                co_await timer.async_wait(asio::use_awaitable);
                co_return order;
              },
              {.fallback = [&](const Cause&) { return ++late, order; },
               .execution_timeout = 20ms,
               .stop = source.get_token()},
              asio::use_awaitable);
          EXPECT_EQ(receipt.value_or(""), kLong);
        },
        asio::detached);
  std::thread second([&] { io.run(); });
  io.run();
  second.join();
  EXPECT_GE(late, kCoroutines / 2);
}

TEST_F(CoroutineForms, AsioSubmit) {
  Pool pool{{.name = "p", .max_concurrent = 1, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      std::string order = kLong;
      const std::stop_source source;
      const Result<std::string> result = co_await async_submit(
          pool, [&](std::stop_token) { return order; },
          {.execution_timeout = 1min, .stop = source.get_token()}, asio::use_awaitable);
      EXPECT_EQ(result.value_or(""), kLong);
      auto work = [order, keep = shared] { return order + *keep; };
      const Result<std::string> named =
          co_await async_submit(pool, work, {.stop = source.get_token()}, asio::use_awaitable);
      EXPECT_EQ(named.value_or(""), kLong + kLong);
    }
  });
}

TEST_F(CoroutineForms, AsioAcquireOfTwoGates) {
  Gate slots{{.name = "slots", .max_concurrent = 2, .max_queue = 64}};
  Gate tokens{{.name = "tokens", .max_concurrent = 100, .max_queue = 64}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      auto all = co_await async_acquire_all({{slots, 1}, {tokens, 60}},
                                            {.timeout = 1min, .stop = source.get_token(), .label = kLong},
                                            asio::use_awaitable);
      EXPECT_TRUE(all);
      co_await pause();
      if (all) {
        EXPECT_TRUE(all->of(tokens)->settle(10));
      }
    }
  });
  EXPECT_EQ(tokens.in_flight(), 0u);
}

TEST_F(CoroutineForms, AsioCallsWithBudgets) {
  Bulkhead bulkhead{{.name = "b",
                     .max_concurrent = 2,
                     .max_queue = 64,
                     .budgets = {{.name = "tokens", .max = 100, .per_call_max = 60}}}};
  on_strands([&]() -> asio::awaitable<void> {
    for (int i = 0; i < kRounds; ++i) {
      const std::stop_source source;
      auto call = co_await bulkhead.co_acquire(
          {.timeout = 1min, .stop = source.get_token(), .costs = {{"tokens", 60}}});
      EXPECT_TRUE(call);
      co_await pause();
      if (call) {
        EXPECT_TRUE(call->settle("tokens", 1));
      }
      call = Unexpected(Rejection());
      auto work = [keep = shared](RunningCall& running) -> asio::awaitable<std::string> {
        co_await pause();
        EXPECT_TRUE(running.settle("tokens", 1));
        co_await pause();
        co_return *keep;
      };
      const Result<std::string> done =
          co_await async_execute(bulkhead, std::move(work),
                                 {.fallback = [&](const Cause&) { return std::string(); },
                                  .stop = source.get_token(),
                                  .costs = {{"tokens", 50}}},
                                 asio::use_awaitable);
      EXPECT_EQ(done.value_or(""), kLong);
    }
  });
  EXPECT_EQ(bulkhead.snapshot().budgets.front().in_use, 0u);
}

// ---- named before it is awaited: the texts that it refers to may be gone ----

class LaterForms : public testing::Test {
 protected:
  // Temporaries, as long as the library keeps them.
  static std::string label() { return std::string(Holder::kMaxLabel, 'l'); }
  static std::string tokens() { return std::string(kMaxBudgetName, 't'); }
  static void expect_label(const Gate& gate) {
    const auto holders = gate.holders();
    EXPECT_EQ(holders.size(), 1u);
    if (!holders.empty()) {
      EXPECT_EQ(holders.front().label, label());
    }
  }
  template <class Coroutine>
  static void play(Coroutine coroutine) {
    asio::io_context io;
    asio::co_spawn(io, std::move(coroutine), [](const std::exception_ptr& thrown) { EXPECT_FALSE(thrown); });
    io.run();
  }

  Gate gate{{.name = "g", .track_holders = true}};
  Bulkhead bulkhead{{.name = "b", .track_holders = true, .budgets = {{.name = tokens(), .max = 10}}}};
};

TEST_F(LaterForms, OfAsio) {
  ResourcePool<int> lent{
      {.name = "r", .max = 1, .open = [](const Opening&) { return 1; }, .gate = {.track_holders = true}}};
  Pool pool{{.name = "p", .track_holders = true}};
  play([&]() -> asio::awaitable<void> {
    {
      auto later = async_acquire(gate, {.label = label()}, asio::use_awaitable);
      const auto permit = co_await std::move(later);
      EXPECT_TRUE(permit);
      expect_label(gate);
    }
    {
      auto later = async_acquire(gate, {.label = label()}, asio::deferred);
      const auto permit = co_await std::move(later)(asio::use_awaitable);
      EXPECT_TRUE(permit);
      expect_label(gate);
    }
    {
      auto later = gate.co_acquire({.label = label()});
      const auto permit = co_await std::move(later);
      EXPECT_TRUE(permit);
      expect_label(gate);
    }
    {
      auto later = async_acquire_all({{gate, 1}}, {.label = label()}, asio::use_awaitable);
      const auto permits = co_await std::move(later);
      EXPECT_TRUE(permits);
      expect_label(gate);
    }
    {
      auto later = async_acquire(bulkhead, {.label = label(), .costs = {{tokens(), 1}}}, asio::use_awaitable);
      const auto call = co_await std::move(later);
      EXPECT_TRUE(call);
      expect_label(bulkhead.gate());
    }
    {
      auto later = bulkhead.co_acquire({.label = label(), .costs = {{tokens(), 1}}});
      const auto call = co_await std::move(later);
      EXPECT_TRUE(call);
      expect_label(bulkhead.gate());
    }
    {
      auto later = async_execute(
          bulkhead, [&] { expect_label(bulkhead.gate()); }, {.label = label(), .costs = {{tokens(), 1}}},
          asio::use_awaitable);
      EXPECT_TRUE(co_await std::move(later));
    }
    {
      auto later = async_submit(
          pool, [&] { return pool.holders().at(0).label; }, {.label = label()}, asio::use_awaitable);
      EXPECT_EQ((co_await std::move(later)).value_or(""), label());
    }
    {
      auto later = async_acquire(lent, {.label = label()}, asio::use_awaitable);
      const auto lease = co_await std::move(later);
      EXPECT_TRUE(lease);
      expect_label(lent.gate());
    }
  });
}

// ---- without Asio ----

struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// Runs them from two threads.
template <class Make>
void on_two_threads(Make make) {
  std::latch done(kCoroutines);
  const auto start = [&] {
    for (int i = 0; i < kCoroutines / 2; ++i) make(done);
  };
  std::thread second(start);
  start();
  second.join();
  done.wait();
}

Detached acquire_of(Gate& gate, std::latch& done) {
  for (int i = 0; i < kRounds; ++i) {
    const std::stop_source source;
    auto permit = co_await gate.co_acquire({.timeout = 1min, .stop = source.get_token(), .label = "x"});
    EXPECT_TRUE(permit);
    EXPECT_FALSE(source.stop_requested());
  }
  done.count_down();
}

TEST_F(CoroutineForms, CoAcquireOfAGate) {
  Gate gate{{.name = "g", .max_concurrent = 1, .max_queue = 64}};
  on_two_threads([&](std::latch& done) { acquire_of(gate, done); });
}

TEST_F(CoroutineForms, CoAcquireOfAGroupsMember) {
  Group group{{.name = "g",
               .total = 2,
               .members = {{.name = "a", .guaranteed = {.units = 1}, .gate = {.max_queue = 64}},
                           {.name = "b", .guaranteed = {.units = 1}, .gate = {.max_queue = 64}}}}};
  on_two_threads([&](std::latch& done) { acquire_of(group.member("a"), done); });
}

Detached execute_on(Bulkhead& bulkhead, std::shared_ptr<std::string> shared, std::latch& done) {
  for (int i = 0; i < kRounds; ++i) {
    const std::stop_source source;
    std::string order = kLong;
    const auto work = [&](std::stop_token) {
      if (i % 2) throw std::runtime_error("no");
      return order;
    };
    const Result<std::string> braces = co_await bulkhead.co_execute(
        [&](std::stop_token stop) { return work(stop); },
        {.fallback = [&](const Cause&) { return order; }, .timeout = 1min, .stop = source.get_token()});
    EXPECT_EQ(braces.value_or(""), kLong);
    auto call = bulkhead.co_execute(
        [order, shared, i] {
          if (i % 2) throw std::runtime_error("no");
          return order;
        },
        {.fallback = [shared](const Cause&) { return *shared; }, .stop = source.get_token()});
    const Result<std::string> named = co_await call;
    EXPECT_EQ(named.value_or(""), kLong);
  }
  shared.reset();
  done.count_down();
}

TEST_F(CoroutineForms, CoExecute) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64}};
  on_two_threads([&](std::latch& done) { execute_on(bulkhead, shared, done); });
}

TEST_F(CoroutineForms, CoExecuteOnThreadsOfItsOwn) {
  std::latch done(kCoroutines);
  Bulkhead bulkhead{{.name = "b", .isolation = Isolation::threads, .max_concurrent = 1, .max_queue = 64}};
  for (int i = 0; i < kCoroutines; ++i) execute_on(bulkhead, shared, done);
  done.wait();
}

Detached acquire_call(Bulkhead& bulkhead, std::latch& done) {
  for (int i = 0; i < kRounds; ++i) {
    const std::stop_source source;
    auto call = co_await bulkhead.co_acquire({.timeout = 1min, .stop = source.get_token()});
    EXPECT_TRUE(call);
    if (call) call->finish(Outcome::success);
  }
  done.count_down();
}

TEST_F(CoroutineForms, CoAcquireOfABulkhead) {
  Bulkhead bulkhead{{.name = "b", .max_concurrent = 1, .max_queue = 64}};
  on_two_threads([&](std::latch& done) { acquire_call(bulkhead, done); });
}

Detached lease(ResourcePool<std::string>& pool, std::latch& done) {
  for (int i = 0; i < kRounds; ++i) {
    const std::stop_source source;
    auto text = co_await pool.co_acquire({.timeout = 1min, .stop = source.get_token()});
    EXPECT_TRUE(text);
    EXPECT_EQ(text ? **text : "", kLong);
  }
  done.count_down();
}

TEST_F(CoroutineForms, CoAcquireOfAResourcePool) {
  ResourcePool<std::string> pool{
      {.name = "r", .max = 1, .open = [](const Opening&) { return kLong; }, .gate = {.max_queue = 64}}};
  on_two_threads([&](std::latch& done) { lease(pool, done); });
}

Detached acquire_two(Gate& slots, Gate& tokens, std::latch& done) {
  for (int i = 0; i < kRounds; ++i) {
    const std::stop_source source;
    auto all = co_await co_acquire_all({{slots, 1}, {tokens, 60}},
                                       {.timeout = 1min, .stop = source.get_token(), .label = kLong});
    EXPECT_TRUE(all);
  }
  done.count_down();
}

TEST_F(CoroutineForms, CoAcquireOfTwoGates) {
  Gate slots{{.name = "slots", .max_concurrent = 2, .max_queue = 64}};
  Gate tokens{{.name = "tokens", .max_concurrent = 100, .max_queue = 64}};
  on_two_threads([&](std::latch& done) { acquire_two(slots, tokens, done); });
}

Detached start_later(Bulkhead& bulkhead, ResourcePool<int>& lent, std::string label, std::string tokens,
                     std::latch& done) {
  {
    auto later = bulkhead.co_acquire({.label = std::string(label), .costs = {{std::string(tokens), 1}}});
    const auto call = co_await later;
    EXPECT_TRUE(call);
    EXPECT_EQ(bulkhead.gate().holders().at(0).label, label);
  }
  {
    auto later = bulkhead.co_execute([&] { return bulkhead.gate().holders().at(0).label; },
                                     {.label = std::string(label), .costs = {{std::string(tokens), 1}}});
    const Result<std::string> seen = co_await later;
    EXPECT_EQ(seen.value_or(""), label);
  }
  {
    auto later = bulkhead.co_execute(
        [&]() -> detail::Lazy<std::string> { co_return bulkhead.gate().holders().at(0).label; },
        {.label = std::string(label), .costs = {{std::string(tokens), 1}}});
    const Result<std::string> seen = co_await later;
    EXPECT_EQ(seen.value_or(""), label);
  }
  {
    auto later = lent.co_acquire({.label = std::string(label)});
    const auto lease = co_await later;
    EXPECT_TRUE(lease);
    EXPECT_EQ(lent.gate().holders().at(0).label, label);
  }
  done.count_down();
}

TEST_F(LaterForms, OfTheLibrary) {
  ResourcePool<int> lent{
      {.name = "r", .max = 1, .open = [](const Opening&) { return 1; }, .gate = {.track_holders = true}}};
  std::latch done(1);
  start_later(bulkhead, lent, label(), tokens(), done);
  done.wait();
}

// The handler waits for a budget, and what it runs is given to a thread of the pool after that.
TEST_F(LaterForms, AHandlerThatHasWaitedForABudget) {
  Bulkhead threads{{.name = "b",
                    .isolation = Isolation::threads,
                    .max_queue = 4,
                    .track_holders = true,
                    .budgets = {{.name = tokens(), .max = 10}}}};
  auto held = threads.acquire({.costs = {{tokens(), 10}}});
  ASSERT_TRUE(held);
  std::latch done(1);
  std::string seen;
  threads.async_execute([&] { return threads.gate().holders().at(0).label; },
                        {.label = label(), .costs = {{tokens(), 1}}},
                        [&](Ended<std::string> ended) {
                          seen = std::move(ended).get().value_or("");
                          done.count_down();
                        });
  held->finish(Outcome::success);
  done.wait();
  EXPECT_EQ(seen, label());
}

}  // namespace
}  // namespace bulkhead
