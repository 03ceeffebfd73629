// The asynchronous forms: handlers and coroutines, on the caller's threads and in a pool.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::Detached;
using tests::until;

class BulkheadAsync : public testing::TestWithParam<Isolation> {
 protected:
  BulkheadOptions options() {
    return {.name = "db",
            .isolation = GetParam(),
            .max_concurrent = 1,
            .max_queue = 1,
            .breaker = BreakerOptions{},
            .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 100},
            .clock = &clock};
  }
  ManualClock clock;
};

INSTANTIATE_TEST_SUITE_P(, BulkheadAsync, testing::Values(Isolation::semaphore, Isolation::threads),
                         [](const auto& test) {
                           return test.param == Isolation::semaphore ? "Semaphore" : "Threads";
                         });

// One call in one of the two forms, as text: its value, "threw", or the reason.
template <class F>
Detached co_call(Bulkhead& b, F fn, CallOptions<int> options, std::string& out, std::atomic<bool>& done) {
  try {
    const Result<int> result = co_await b.co_execute(std::move(fn), std::move(options));
    out = result ? std::to_string(*result) : std::string(to_string(result.error().reason));
  } catch (const std::exception&) {
    out = "threw";
  }
  done = true;
}
template <class F>
std::string outcome(bool coroutine, Bulkhead& b, F fn, CallOptions<int> options = {}) {
  std::string out;
  std::atomic<bool> done = false;
  if (coroutine) {
    co_call(b, std::move(fn), std::move(options), out, done);
  } else {
    b.async_execute(std::move(fn), std::move(options), [&](Ended<int> ended) {
      try {
        const bool threw = ended.threw();
        const Result<int> result = std::move(ended).get();
        EXPECT_FALSE(threw);
        out = result ? std::to_string(*result) : std::string(to_string(result.error().reason));
      } catch (const std::exception&) {
        out = "threw";
      }
      done = true;
    });
  }
  until([&] { return done.load(); });
  until([&] { return b.gate().in_flight() == 0 || options.cost == 9; });
  return out;
}

TEST_P(BulkheadAsync, GivesWhatExecuteGives) {
  for (const bool coroutine : {false, true}) {
    Bulkhead b{options()};
    const auto fallback = [](const Cause& why) { return 100 + static_cast<int>(why.kind); };
    const auto throws = []() -> int { throw std::runtime_error("x"); };
    const auto slow = [&](std::stop_token stop) {
      clock.advance(1s);
      return stop.stop_requested() ? 6 : 7;
    };
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }), "5");
    EXPECT_EQ(outcome(coroutine, b, throws), "threw");
    EXPECT_EQ(outcome(coroutine, b, throws, {.fallback = fallback}), "102");
    EXPECT_EQ(outcome(coroutine, b, slow, {.execution_timeout = 1s}), "execution_timeout");
    EXPECT_EQ(outcome(coroutine, b, slow, {.fallback = fallback, .execution_timeout = 1s}), "101");
    EXPECT_EQ(outcome(coroutine, b, slow, {.execution_timeout = 2s}), "7");
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.cost = 2}), "concurrency_limit");
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.fallback = fallback, .cost = 2}), "100");
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.deadline = clock.now() - 1s}), "deadline");
    std::stop_source stop;
    stop.request_stop();
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.fallback = fallback, .stop = stop.get_token()}),
              "cancelled");
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.cost = 200}), "rate_limit");
    b.breaker()->set_mode(BreakerMode::forced_open);
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }), "breaker_open");
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.fallback = fallback}), "100");
    b.breaker()->set_mode(BreakerMode::automatic);

    const BulkheadSnapshot s = b.snapshot();
    EXPECT_NEAR(s.rate_limit->available, 100 - 6, 0.01);  // only calls that ran
    EXPECT_EQ(s.gate.admitted, 6u);
    EXPECT_EQ(s.gate.released, 6u);
    EXPECT_EQ(s.timed_out, 2u);
    EXPECT_EQ(s.service.count(), 6u);
    EXPECT_EQ(s.wait.count(), 6u);
    EXPECT_EQ(s.fallbacks, (std::array<std::uint64_t, 3>{2, 1, 1}));

    BulkheadOptions off = options();
    off.enabled = false;
    b.update(off);
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.cost = 200}), "5");
    off.enabled = true;
    off.shadow = true;
    b.update(off);
    EXPECT_EQ(outcome(coroutine, b, [] { return 5; }, {.cost = 200}), "5");
  }
}

TEST_P(BulkheadAsync, AHandlerThatThrowsIsCountedAndHurtsNobody) {
  Bulkhead b{options()};
  b.async_execute([] { return 1; }, {}, [](Ended<int>) { throw 1; });
  until([&] { return b.snapshot().handler_errors == 1; });
  until([&] { return b.gate().in_flight() == 0; });
  b.async_acquire({}, [](Result<Call> call) {
    EXPECT_TRUE(call);
    throw 1;
  });
  EXPECT_EQ(b.snapshot().handler_errors, 2u);
  EXPECT_EQ(b.gate().in_flight(), 0u);
  EXPECT_TRUE(b.execute([] {}));
}

TEST_P(BulkheadAsync, ACallInLineTakesNoThreadAndGoesOnWhenItsPlaceComes) {
  Bulkhead b{options()};
  auto holder = b.acquire();
  std::atomic<int> got = 0;
  b.async_execute([] { return 3; }, {}, [&](Ended<int> ended) { got = *std::move(ended).get(); });
  EXPECT_EQ(b.snapshot().gate.waiting, 1u);
  EXPECT_EQ(got, 0);
  clock.advance(1s);
  holder->finish(Outcome::success);
  until([&] { return got == 3; });
  EXPECT_NEAR(static_cast<double>(b.snapshot().wait.quantile(1)), 1e9, 5e7);
}

TEST_P(BulkheadAsync, RejectedInLineItGivesItsTokensBack) {
  Bulkhead b{options()};
  auto holder = b.acquire();
  std::atomic<bool> done = false;
  b.async_execute([] { return 3; }, {.timeout = 1s},
                  [&](Ended<int> ended) {
                    EXPECT_EQ(std::move(ended).get().error().reason, Reason::timeout);
                    done = true;
                  });
  EXPECT_NEAR(b.snapshot().rate_limit->available, 98, 0.01);
  clock.advance(1s);
  until([&] { return done.load(); });
  EXPECT_NEAR(b.snapshot().rate_limit->available, 99, 0.01);
  b.async_acquire({.timeout = 1s}, [](Result<Call> call) { EXPECT_FALSE(call); });
  clock.advance(1s);
  EXPECT_NEAR(b.snapshot().rate_limit->available, 99, 0.01);
}

Detached co_hold(Bulkhead& b, std::optional<Call>& out) {
  auto call = co_await b.co_acquire();
  if (call) out = *std::move(call);
}

TEST_P(BulkheadAsync, CoAcquireHandsOutACall) {
  Bulkhead b{options()};
  std::optional<Call> one, two;
  co_hold(b, one);
  ASSERT_TRUE(one);
  co_hold(b, two);
  EXPECT_FALSE(two);
  EXPECT_TRUE(one->finish(Outcome::failure));
  ASSERT_TRUE(two);
  EXPECT_TRUE(two->finish(Outcome::success));
  EXPECT_EQ(b.snapshot().breaker->calls, 2u);
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);
}

// Something to co_await that gives 1, when told.
struct Later {
  std::coroutine_handle<> waiting{};
  bool throws = false;
  struct Awaiter {
    Later& later;
    bool await_ready() const noexcept { return false; }
    void await_suspend(std::coroutine_handle<> h) noexcept { later.waiting = h; }
    int await_resume() {
      if (later.throws) throw std::runtime_error("later");
      return 1;
    }
  };
  Awaiter operator co_await() noexcept { return {*this}; }
};

TEST_P(BulkheadAsync, ThePlaceIsHeldUntilWhatItAwaitsIsThere) {
  Bulkhead b{options()};
  Later later;
  std::string out;
  std::atomic<bool> done = false;
  const auto fn = [&later]() -> Later::Awaiter { return {later}; };
  co_call(b, fn, {}, out, done);
  EXPECT_EQ(b.gate().in_flight(), 1u);
  EXPECT_FALSE(done);
  later.waiting.resume();
  EXPECT_TRUE(done);
  EXPECT_EQ(out, "1");
  EXPECT_EQ(b.gate().in_flight(), 0u);

  later.throws = true;
  done = false;
  co_call(b, fn, {}, out, done);
  later.waiting.resume();
  EXPECT_EQ(out, "threw");
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);

  later.throws = false;
  co_call(b, fn, {.execution_timeout = 1s}, out, done);
  clock.advance(1s);
  later.waiting.resume();
  EXPECT_EQ(out, "execution_timeout");
  EXPECT_EQ(b.gate().in_flight(), 0u);
}

tests::Coroutine co_forever(Bulkhead& b, Later& later) {
  static_cast<void>(co_await b.co_execute([&later]() -> Later::Awaiter { return {later}; }));
}

TEST_P(BulkheadAsync, ACoroutineDestroyedInTheMiddleOfItsCallIsIgnored) {
  Bulkhead b{options()};
  Later later;
  {
    auto coroutine = co_forever(b, later);
    coroutine.start();
    EXPECT_EQ(b.gate().in_flight(), 1u);
  }
  EXPECT_EQ(b.gate().in_flight(), 0u);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
}

TEST_P(BulkheadAsync, AProtectedFunctionTakesItsArgumentsAlong) {
  Bulkhead b{options()};
  auto add = protect(b, [](int x, const std::string& y) { return std::to_string(x) + y; });
  EXPECT_EQ(*add(1, "a"), "1a");
  until([&] { return b.gate().in_flight() == 0; });
  auto nothing = protect(b, [] {});
  EXPECT_TRUE(nothing());
  until([&] { return b.gate().in_flight() == 0; });
  auto owns = protect(b, [](std::unique_ptr<int> p) { return *p; });
  EXPECT_EQ(*owns(std::make_unique<int>(4)), 4);
  until([&] { return b.gate().in_flight() == 0; });
  auto throws = protect(b, [](int) -> int { throw std::runtime_error("x"); });
  EXPECT_THROW(static_cast<void>(throws(1)), std::runtime_error);
  until([&] { return b.gate().in_flight() == 0; });
  auto holder = b.acquire();
  b.resize_queue(0);
  EXPECT_EQ(add(1, "a").error().reason, Reason::concurrency_limit);
}

TEST_P(BulkheadAsync, AnAcquisitionInTwoStepsAnswersAtOnceOrGoesInLine) {
  Bulkhead b(options());
  Call begun;
  auto first = b.begin_acquire({}, begun);
  ASSERT_TRUE(first && *first);
  EXPECT_FALSE(begun);
  EXPECT_FALSE(b.begin_acquire({.deadline = clock.now() + 1h}, begun));
  EXPECT_TRUE(begun);
  EXPECT_EQ(b.snapshot().gate.rejected(), 0u);
  EXPECT_EQ(b.snapshot().rate_limit->available, 98);
  std::optional<Result<Call>> second;
  b.async_acquire(std::move(begun), {}, [&](Result<Call> call) { second.emplace(std::move(call)); });
  EXPECT_FALSE(second);
  Call none;
  const auto third = b.begin_acquire({}, none);  // the line is full
  ASSERT_TRUE(third);
  EXPECT_EQ(third->error().reason, Reason::queue_limit);
  (*first)->finish(Outcome::success);
  ASSERT_TRUE(second && *second);
  EXPECT_TRUE((*second)->finish(Outcome::timeout));
  EXPECT_FALSE((*second)->finish(Outcome::timeout));
  EXPECT_EQ(b.snapshot().gate.failed, 1u);
  EXPECT_EQ(b.snapshot().timed_out, 1u);
  b.set_draining(true);
  EXPECT_EQ(b.begin_acquire({}, none)->error().reason, Reason::draining);
}

TEST_P(BulkheadAsync, AnAcquisitionThatEndsAfterItsFirstStepHasTakenNothing) {
  Bulkhead b(options());
  auto held = b.try_acquire();
  {
    Call begun;
    EXPECT_FALSE(b.begin_acquire({}, begun));
  }
  EXPECT_EQ(b.snapshot().rate_limit->available, 99);
  held->finish(Outcome::success);
  EXPECT_TRUE(b.idle());
}

TEST_P(BulkheadAsync, ACallSaysHowLongItMayRun) {
  BulkheadOptions o = options();
  Bulkhead b(o);
  EXPECT_EQ(b.try_acquire()->execution_timeout(), wait_forever);
  o.execution_timeout = 5s;
  b.update(o);
  EXPECT_EQ(b.try_acquire()->execution_timeout(), 5s);
  o.shadow = true;
  b.update(o);
  EXPECT_EQ(b.try_acquire()->execution_timeout(), wait_forever);
}

}  // namespace
}  // namespace bulkhead
