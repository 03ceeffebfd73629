// What a bulkhead owes to the calls that are in line or in flight when it goes, or when they do.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <thread>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;
using tests::until_waiting;

// A bulkhead that another thread destroys.
class Doomed {
 public:
  explicit Doomed(BulkheadOptions options) {
    options.hooks.on_close = [this](const Event&) { closed_ = true; };
    bulkhead_ = std::make_unique<Bulkhead>(options);
  }
  Bulkhead& operator*() { return *bulkhead_; }
  Bulkhead* operator->() { return bulkhead_.get(); }
  void destroy() {
    thread_ = std::jthread([this] {
      bulkhead_.reset();
      gone_ = true;
    });
  }
  void until_closed() {
    until([&] { return closed_.load(); });
  }
  void until_gone() { thread_.join(); }
  bool gone() const { return gone_; }
  // Gives a destructor that waits for nothing the time to end.
  bool stays() const {
    for (int i = 0; i < 2000 && !gone_; ++i) std::this_thread::yield();
    return !gone_;
  }

 private:
  std::atomic<bool> closed_ = false, gone_ = false;
  std::unique_ptr<Bulkhead> bulkhead_;
  std::jthread thread_;
};

BulkheadOptions with_everything(ManualClock& clock) {
  return {.name = "db",
          .max_concurrent = 1,
          .max_queue = 1,
          .breaker = BreakerOptions{},
          .rate_limit = RateLimiterOptions{.rate = 1000},
          .adaptive = LimiterOptions{.floor = 1, .ceiling = 1},
          .clock = &clock};
}

TEST(BulkheadLifetime, ACallInFlightStillFindsEveryPolicyWhenItEnds) {
  ManualClock clock;
  Doomed b(with_everything(clock));
  auto call = b->acquire();
  ASSERT_TRUE(call);
  b.destroy();
  b.until_closed();
  EXPECT_TRUE(b.stays());
  EXPECT_TRUE(call->finish(Outcome::failure));
  b.until_gone();
}

TEST(BulkheadLifetime, ACallOfASharedGateKeepsTheBulkheadButNotTheGateWaiting) {
  ManualClock clock;
  Gate gate{{.name = "shared", .max_concurrent = 1, .clock = &clock}};
  BulkheadOptions options = with_everything(clock);
  options.gate = &gate;
  Doomed b(options);
  auto call = b->acquire();
  ASSERT_TRUE(call);
  b.destroy();
  EXPECT_TRUE(b.stays());
  EXPECT_TRUE(call->finish(Outcome::success));
  b.until_gone();
  EXPECT_TRUE(gate.try_acquire());
}

TEST(BulkheadLifetime, ACallThatBypassesItKeepsItToo) {
  ManualClock clock;
  BulkheadOptions options = with_everything(clock);
  options.enabled = false;
  Doomed b(options);
  auto call = b->acquire();
  ASSERT_TRUE(call);
  EXPECT_TRUE(*call);
  b.destroy();
  EXPECT_TRUE(b.stays());
  EXPECT_TRUE(call->finish(Outcome::success));
  b.until_gone();
}

enum class Form { execute, handler, coroutine };

class BulkheadGoes : public testing::TestWithParam<Form> {
 protected:
  static tests::Detached co_call(Bulkhead& b, CallOptions<int> options, std::atomic<int>& out) {
    out = (co_await b.co_execute([] { return 1; }, std::move(options))).value_or(-1);
  }
  static void call(Form form, Bulkhead& b, CallOptions<int> options, std::atomic<int>& out) {
    if (form == Form::execute) out = b.execute([] { return 1; }, options).value_or(-1);
    if (form == Form::coroutine) co_call(b, std::move(options), out);
    if (form == Form::handler)
      b.async_execute([] { return 1; }, std::move(options),
                      [&](Ended<int> ended) { out = std::move(ended).get().value_or(-1); });
  }
};

TEST_P(BulkheadGoes, AndWaitsForTheFallbackOfWhoStoodInLine) {
  ManualClock clock;
  Doomed b(with_everything(clock));
  auto holder = b->acquire();
  ASSERT_TRUE(holder);
  std::atomic<int> out = 0;
  std::atomic<bool> stayed = false;
  std::jthread waiter([&] {
    call(GetParam(), *b,
         {.fallback =
              [&](const Cause& why) {
                EXPECT_EQ(why.rejection.reason, Reason::shutdown);
                stayed = b.stays();
                return 2;
              }},
         out);
  });
  until_waiting(b->gate(), 1);
  b.destroy();
  b.until_closed();
  holder->finish(Outcome::success);
  waiter.join();
  until([&] { return out != 0; });
  EXPECT_EQ(out, 2);
  EXPECT_TRUE(stayed);
  b.until_gone();
}

INSTANTIATE_TEST_SUITE_P(, BulkheadGoes, testing::Values(Form::execute, Form::handler, Form::coroutine),
                         [](const auto& test) {
                           return test.param == Form::execute   ? "Execute"
                                  : test.param == Form::handler ? "Handler"
                                                                : "Coroutine";
                         });

class BulkheadCoroutineDies : public testing::TestWithParam<Isolation> {};

tests::Coroutine in_line(Bulkhead& b) {
  static_cast<void>(co_await b.co_execute([] { return 1; }));
  ADD_FAILURE() << "resumed";
}

TEST_P(BulkheadCoroutineDies, AndItsProbeAndItsTokensAreBack) {
  ManualClock clock;
  std::atomic<bool> go_on = false;
  Bulkhead b{
      {.name = "db",
       .isolation = GetParam(),
       .max_concurrent = 1,
       .max_queue = 1,
       .breaker = BreakerOptions{.window_calls = 1, .minimum_calls = 1, .open_for = 1s, .half_open_calls = 1},
       .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 100},
       .clock = &clock}};
  std::jthread holder([&] { b.gate().run([&] { until([&] { return go_on.load(); }); }).value(); });
  until([&] { return b.gate().in_flight() == 1; });
  auto failing = b.breaker()->admit();
  b.breaker()->complete(*failing, Outcome::failure, 0s);
  clock.advance(1s);
  {
    auto waiting = in_line(b);
    waiting.start();
    EXPECT_EQ(b.snapshot().breaker->probes_in_flight, 1u);
    EXPECT_EQ(b.snapshot().gate.waiting, 1u);
    EXPECT_NEAR(b.snapshot().rate_limit->available, 99, 0.01);
  }
  EXPECT_EQ(b.snapshot().breaker->probes_in_flight, 0u);
  EXPECT_EQ(b.snapshot().gate.waiting, 0u);
  EXPECT_NEAR(b.snapshot().rate_limit->available, 100, 0.01);
  go_on = true;
}

INSTANTIATE_TEST_SUITE_P(, BulkheadCoroutineDies, testing::Values(Isolation::semaphore, Isolation::threads),
                         [](const auto& test) {
                           return test.param == Isolation::semaphore ? "Semaphore" : "Threads";
                         });

TEST(BulkheadLifetime, AHandlerMayDestroyTheBulkhead) {
  ManualClock clock;
  auto b = std::make_unique<Bulkhead>(with_everything(clock));
  auto holder = b->acquire();
  b->async_execute([] { return 1; }, {},
                   [&](Ended<int> ended) {
                     EXPECT_EQ(*std::move(ended).get(), 1);
                     b.reset();
                   });
  holder->finish(Outcome::success);
  EXPECT_FALSE(b);
}

// The calls hold and wait for units of a budget: a call that does so is counted, and the destructor waits for it.
class AHandlerThatDestroys : public testing::Test {
 protected:
  AHandlerThatDestroys() { hold_ = *b_->acquire({.costs = {{"tokens", 10}}}); }
  auto destroys() {
    return [this](auto) { b_.reset(); };
  }

  std::unique_ptr<Bulkhead> b_ = std::make_unique<Bulkhead>(BulkheadOptions{
      .name = "model", .max_concurrent = 2, .max_queue = 2, .budgets = {{.name = "tokens", .max = 10}}});
  Call hold_;
};

TEST_F(AHandlerThatDestroys, OfACallThatHasWaitedForABudget) {
  b_->async_execute([] { return 1; }, {.costs = {{"tokens", 10}}}, destroys());
  hold_.finish(Outcome::success);
  EXPECT_FALSE(b_);
}

TEST_F(AHandlerThatDestroys, OfACallThatHasTheUnitsAtOnce) {
  hold_.finish(Outcome::success);
  b_->async_execute([] { return 1; }, {.costs = {{"tokens", 10}}}, destroys());
  EXPECT_FALSE(b_);
}

TEST_F(AHandlerThatDestroys, OfACallThatEndsInIt) {
  b_->async_acquire({.costs = {{"tokens", 10}}}, [this](Result<Call> call) {
    call->finish(Outcome::success);
    b_.reset();
  });
  hold_.finish(Outcome::success);
  EXPECT_FALSE(b_);
}

TEST_F(AHandlerThatDestroys, OfARejectedCall) {
  for (const bool execute : {false, true}) {
    std::stop_source stop;
    const auto told = [this](auto) {
      hold_.finish(Outcome::success);
      b_.reset();
    };
    if (execute)
      b_->async_execute([] { return 1; }, {.stop = stop.get_token(), .costs = {{"tokens", 1}}}, told);
    else
      b_->async_acquire({.stop = stop.get_token(), .costs = {{"tokens", 1}}}, told);
    stop.request_stop();
    EXPECT_FALSE(b_);
    b_ = std::make_unique<Bulkhead>(
        BulkheadOptions{.name = "model", .max_queue = 2, .budgets = {{.name = "tokens", .max = 1}}});
    hold_ = *b_->acquire({.costs = {{"tokens", 1}}});
  }
}

TEST_F(AHandlerThatDestroys, InsideASettle) {
  b_->async_acquire({.costs = {{"tokens", 5}}}, [this](Result<Call> call) {
    call->finish(Outcome::success);
    hold_.finish(Outcome::success);
    b_.reset();
  });
  EXPECT_TRUE(hold_.settle("tokens", 1));
  EXPECT_FALSE(b_);
}

TEST_F(AHandlerThatDestroys, AtTheEndOfACallOfThisThread) {
  hold_.finish(Outcome::success);
  const auto done = b_->execute(
      [this](RunningCall& call) {
        b_->async_execute([] { return 1; }, {.costs = {{"tokens", 10}}}, destroys());
        EXPECT_EQ(call.held("tokens"), 10u);
        return 2;
      },
      {.costs = {{"tokens", 10}}});
  EXPECT_EQ(*done, 2);
  EXPECT_FALSE(b_);
}

TEST(BulkheadLifetime, AbandonedWorkEndsBeforeItsBulkheadDoes) {
  ManualClock clock;
  BulkheadOptions options = with_everything(clock);
  options.isolation = Isolation::threads;
  options.execution_timeout = 1s;
  std::atomic<bool> go_on = false, began = false, ended = false;
  Doomed b(options);
  std::jthread caller([&] {
    const auto result = b->execute([&] {
      began = true;
      until([&] { return go_on.load(); });
      ended = true;
      return 1;
    });
    EXPECT_EQ(result.error().reason, Reason::execution_timeout);
  });
  until([&] { return began.load(); });
  clock.advance(1s);
  caller.join();
  EXPECT_EQ(b->snapshot().pool->abandoned, 1u);
  EXPECT_EQ(b->snapshot().gate.in_flight, 1u);
  b.destroy();
  EXPECT_TRUE(b.stays());
  go_on = true;
  b.until_gone();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace bulkhead
