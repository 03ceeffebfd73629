// Defects of others that appear where policies meet, each excluded by the test that carries its name; and
// those of our own that were found by review. tests/SOURCES.md lists the other libraries.
#include "bulkhead/bulkhead.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

struct BulkheadPeerDefects : testing::Test {
  ManualClock clock;
  BulkheadOptions options(std::uint32_t cap = 1) {
    return {.name = "db",
            .max_concurrent = cap,
            .breaker = BreakerOptions{.window_calls = 4,
                                      .minimum_calls = 4,
                                      .open_for = 1s,
                                      .half_open_calls = 1,
                                      .probe_lease = 5s},
            .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 1000},
            .clock = &clock};
  }
  static void trip(Bulkhead& b) {
    while (b.snapshot().breaker->state == BreakerState::closed)
      EXPECT_THROW(static_cast<void>(b.execute([] { throw 1; })), int);
  }
};

// resilience4j, Netflix concurrency-limits, Semian: a second release makes room for one more.
TEST_F(BulkheadPeerDefects, ACallEndedTwiceInflatesNothing) {
  Bulkhead b{options()};
  auto call = b.acquire();
  EXPECT_TRUE(call->finish(Outcome::success));
  EXPECT_FALSE(call->finish(Outcome::failure));
  Call moved = *std::move(call);
  EXPECT_FALSE(moved.finish(Outcome::failure));
  auto again = b.acquire();
  EXPECT_TRUE(again);
  EXPECT_EQ(b.try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_EQ(b.snapshot().breaker->calls, 1u);
  EXPECT_EQ(b.snapshot().breaker->failures, 0u);
}

// Netflix concurrency-limits, failsafe-go: what goes wrong between admission and release leaks the permit.
// Here: the call, its judge, its fallback, and a hook.
TEST_F(BulkheadPeerDefects, WhateverThrowsThePlaceComesBack) {
  for (const Isolation isolation : {Isolation::semaphore, Isolation::threads}) {
    BulkheadOptions o = options();
    o.isolation = isolation;
    o.breaker->mode = BreakerMode::forced_closed;
    o.adaptive = LimiterOptions{.floor = 1, .ceiling = 1};
    o.hooks.on_admit = o.hooks.on_release = [](const Event&) { throw 1; };
    o.breaker->on_transition = [](const BreakerTransition&) { throw 1; };
    Bulkhead b{o};
    for (int i = 0; i < 100; ++i) {
      EXPECT_THROW(static_cast<void>(b.execute([]() -> int { throw std::runtime_error("call"); })),
                   std::runtime_error);
      tests::until([&] { return b.gate().in_flight() == 0; });
      EXPECT_THROW(
          static_cast<void>(b.execute([]() -> int { throw 1; },
                                      [](const Cause&) -> int { throw std::logic_error("fallback"); })),
          std::logic_error);
      tests::until([&] { return b.gate().in_flight() == 0; });
      EXPECT_THROW(static_cast<void>(b.execute(
                       [] { return 1; }, {.judge = [](int) -> Opinion { throw std::logic_error("judge"); }})),
                   std::logic_error);
      tests::until([&] { return b.gate().in_flight() == 0; });
    }
    EXPECT_TRUE(b.execute([] {}));
    tests::until([&] { return b.gate().in_flight() == 0; });
    EXPECT_EQ(b.snapshot().gate.admitted, 301u);
    EXPECT_EQ(b.snapshot().gate.released, 301u);
  }
}

// Netflix concurrency-limits: a round trip of 0 made the algorithm throw before the release.
TEST_F(BulkheadPeerDefects, ACallThatTakesNoTimeIsACallLikeAnyOther) {
  BulkheadOptions o = options();
  o.adaptive = LimiterOptions{.floor = 1, .ceiling = 10};
  Bulkhead b{o};
  for (int i = 0; i < 900; ++i) EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.gate().in_flight(), 0u);
}

// Netflix concurrency-limits, partitioned limiter: a guarantee is kept by overshooting the total.
TEST_F(BulkheadPeerDefects, BulkheadsThatShareATotalNeverExceedIt) {
  Group group{{.name = "db",
               .total = 10,
               .members = {{.name = "a", .guaranteed = {.percent = 50}},
                           {.name = "b", .guaranteed = {.percent = 50}}},
               .clock = &clock}};
  Bulkhead a{{.gate = &group.member("a")}}, b{{.gate = &group.member("b")}};
  std::vector<Call> calls;
  for (int i = 0; i < 20; ++i)
    if (auto call = a.try_acquire()) calls.push_back(*std::move(call));
  for (int i = 0; i < 20; ++i)
    if (auto call = b.try_acquire()) calls.push_back(*std::move(call));
  EXPECT_EQ(calls.size(), 10u);
  EXPECT_EQ(group.snapshot().in_flight, 10u);
}

// failsafe-go: a call of a high tier waits behind the low ones that are in line already.
TEST_F(BulkheadPeerDefects, ACriticalCallDoesNotWaitBehindABacklog) {
  BulkheadOptions o = options();
  o.max_queue = 100;
  Bulkhead b{o};
  auto holder = b.acquire();
  std::vector<int> order;
  for (int i = 0; i < 50; ++i)
    b.async_execute([&] { return order.push_back(0), 0; }, {.priority = Priority::best_effort},
                    [](Ended<int>) {});
  b.async_execute([&] { return order.push_back(1), 1; }, {.priority = Priority::critical}, [](Ended<int>) {});
  holder->finish(Outcome::success);
  ASSERT_EQ(order.size(), 51u);
  EXPECT_EQ(order.front(), 1);
}

// failsafe-go: a limit's listener is called in the middle of the change, and what it does gets lost.
TEST_F(BulkheadPeerDefects, AHookThatChangesTheSettingsLosesNothing) {
  BulkheadOptions o = options();
  Bulkhead* self = nullptr;
  int told = 0;
  o.hooks.on_resize = [&](const Event&) {
    if (++told == 1) self->resize(7);
    EXPECT_GE(self->snapshot().gate.max_concurrent, 5u);
  };
  Bulkhead b{o};
  self = &b;
  b.resize(5);
  EXPECT_EQ(told, 2);
  EXPECT_EQ(b.snapshot().gate.max_concurrent, 7u);
  EXPECT_EQ(b.options().max_concurrent, 7u);
}

// resilience4j, Polly, Semian, Hystrix: a cancelled, late or hung probe closes the breaker or keeps it half
// open. Here a probe that is cancelled, rejected by the gate, or late decides nothing, and hung ones do not
// wedge.
TEST_F(BulkheadPeerDefects, OnlyAProbeThatEndsDecides) {
  Bulkhead b{options(2)};
  auto old = b.acquire();
  trip(b);
  clock.advance(1s);
  auto probe = b.acquire();
  ASSERT_TRUE(probe);
  EXPECT_EQ(b.try_acquire().error().reason, Reason::breaker_open);
  old->finish(Outcome::success);  // from before the trip
  EXPECT_EQ(b.snapshot().breaker->state, BreakerState::half_open);
  {
    const Call dies = *std::move(probe);
  }  // cancelled
  EXPECT_EQ(b.snapshot().breaker->state, BreakerState::half_open);
  auto hangs = b.acquire();
  ASSERT_TRUE(hangs);
  clock.advance(5s);
  static_cast<void>(b.execute([] {}));
  EXPECT_EQ(b.snapshot().breaker->reason, BreakerReason::probe_expired);
  clock.advance(1s);
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.snapshot().breaker->state, BreakerState::closed);
  hangs->finish(Outcome::failure);
  EXPECT_EQ(b.snapshot().breaker->state, BreakerState::closed);
  EXPECT_EQ(b.gate().in_flight(), 0u);
}

// Polly: a reload makes a second limiter beside the first, or is the last one after a bad one.
TEST_F(BulkheadPeerDefects, AnUpdateDoublesNothingAndABadOneIsNotTheLast) {
  Bulkhead b{options(2)};
  auto one = b.acquire(), two = b.acquire();
  BulkheadOptions o = options(2);
  o.execution_timeout = 10s;
  b.update(o);
  EXPECT_EQ(b.try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_NEAR(b.snapshot().rate_limit->available, 998, 0.01);
  BulkheadOptions bad = options(2);
  bad.rate_limit->rate = 0;
  EXPECT_THROW(b.update(bad), std::invalid_argument);
  EXPECT_EQ(b.options().execution_timeout, 10s);
  o.max_concurrent = 3;
  b.update(o);
  auto three = b.try_acquire();
  EXPECT_TRUE(three);
  EXPECT_FALSE(b.try_acquire());
}

// Netflix concurrency-limits, Sentinel: a call over the rate waits by sleeping on its thread.
TEST_F(BulkheadPeerDefects, NobodySleepsForTokens) {
  BulkheadOptions o = options();
  o.rate_limit->burst = 1;
  o.max_queue = 10;
  Bulkhead b{o};
  EXPECT_TRUE(b.execute([] {}));
  const Rejection why = b.execute([] {}).error();  // on a clock that stands still, a wait would never end
  EXPECT_EQ(why.reason, Reason::rate_limit);
  EXPECT_EQ(why.retry_after, 1h);
}

// Semian, resilience4j (#1656): rejections by the bulkhead itself open the breaker.
TEST_F(BulkheadPeerDefects, OurOwnRejectionsAreNoFailuresOfTheDependency) {
  BulkheadOptions o = options();
  o.rate_limit->burst = 60;
  Bulkhead b{o};
  auto holder = b.acquire();
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(b.execute([] {}));                                  // full
    EXPECT_FALSE(b.execute([] {}, {.deadline = clock.now() - 1s}));  // too late
    EXPECT_FALSE(b.execute([] {}, {.cost = 1000}));                  // too fast
  }
  holder->finish(Outcome::success);
  // And those of a bulkhead inside.
  Bulkhead inner{{.name = "inner", .clock = &clock}};
  auto full = inner.acquire();
  for (int i = 0; i < 20; ++i)
    EXPECT_FALSE(b.execute([&] { return inner.execute([] { return 1; }); })->has_value());
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.breaker->state, BreakerState::closed);
  EXPECT_EQ(s.breaker->calls, 1u);
  EXPECT_EQ(s.breaker->failures, 0u);
}

// Our own: with a hook, and now and then without one, a pass has to be noted; it was taken for
// none, and the unit was lost.
TEST_F(BulkheadPeerDefects, APassThatIsNotedIsAPass) {
  int admitted = 0;
  BulkheadOptions o = options(2);
  o.hooks.on_admit = [&](const Event&) { ++admitted; };
  o.track_holders = true;
  Bulkhead b{o};
  for (int i = 0; i < 100; ++i) {
    const auto listed = b.execute([&] { return b.holders(); }, {.label = "me"});
    ASSERT_EQ(listed->size(), 1u);
    EXPECT_EQ(listed->front().label, "me");
  }
  EXPECT_EQ(admitted, 100);
  tests::expect_idle(b.gate());
}

}  // namespace
}  // namespace bulkhead
