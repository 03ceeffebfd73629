// Which settings are valid, what can be changed on a live bulkhead, and what it shares with a group.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;

class BulkheadUpdate : public testing::Test {
 protected:
  BulkheadOptions plain() { return {.name = "db", .max_concurrent = 2, .max_queue = 1, .clock = &clock}; }
  BulkheadOptions full() {
    BulkheadOptions o = plain();
    o.breaker = BreakerOptions{.window_calls = 2, .minimum_calls = 2};
    o.rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 10};
    return o;
  }
  ManualClock clock;
};

TEST_F(BulkheadUpdate, AddsPoliciesChangesThemAndTakesThemAway) {
  Bulkhead b{plain()};
  EXPECT_EQ(b.breaker(), nullptr);
  auto before = b.acquire();
  b.update(full());
  EXPECT_TRUE(b.snapshot().breaker);
  EXPECT_EQ(b.snapshot().rate_limit->burst, 10u);
  // One that began without a breaker ends without one.
  before->finish(Outcome::failure);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  auto with = b.acquire();
  with->finish(Outcome::failure);
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);

  BulkheadOptions o = full();
  o.rate_limit->burst = 5;
  b.update(o);
  EXPECT_EQ(b.snapshot().rate_limit->burst, 5u);
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);  // what was learnt stays
  EXPECT_EQ(b.snapshot().gate.admitted, 2u);

  // One that began with a breaker tells it, although it is no longer asked.
  auto last = b.acquire();
  Breaker& breaker = *b.breaker();
  b.update(plain());
  EXPECT_EQ(b.breaker(), nullptr);
  EXPECT_FALSE(b.snapshot().breaker);
  EXPECT_FALSE(b.snapshot().rate_limit);
  last->finish(Outcome::failure);
  EXPECT_EQ(breaker.snapshot().state, BreakerState::open);
  EXPECT_TRUE(b.execute([] {}));
  b.update(full());
  EXPECT_EQ(b.execute([] {}).error().reason, Reason::breaker_open);
}

TEST_F(BulkheadUpdate, ChangesTheBreakersModeIfItAsksForAnother) {
  Bulkhead b{full()};
  BulkheadOptions o = full();
  o.breaker->mode = BreakerMode::forced_open;
  b.update(o);
  EXPECT_EQ(b.acquire().error().reason, Reason::breaker_open);

  b.breaker()->set_mode(BreakerMode::disabled);  // by an operator
  o.max_queue = 2;
  b.update(o);
  EXPECT_EQ(b.snapshot().breaker->mode, BreakerMode::disabled);
  b.update(full());
  EXPECT_EQ(b.snapshot().breaker->mode, BreakerMode::automatic);
}

TEST_F(BulkheadUpdate, ResettingTheStatisticsResetsThoseOfThePoolToo) {
  Bulkhead b{{.name = "reports",
              .isolation = Isolation::threads,
              .pool = {.on_reject = OnReject::caller_runs},
              .clock = &clock}};
  {
    auto held = b.acquire();
    EXPECT_TRUE(b.execute([] {}));  // on this thread: there is no other
  }
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_TRUE(b.drain());
  EXPECT_EQ(b.snapshot().pool->caller_runs, 1u);
  EXPECT_EQ(b.snapshot().pool->gate.admitted, 2u);
  b.reset_statistics();
  EXPECT_EQ(b.snapshot().pool->caller_runs, 0u);
  EXPECT_EQ(b.snapshot().pool->gate.admitted, 0u);
  EXPECT_EQ(b.snapshot().pool->gate.rejected(), 0u);
}

TEST_F(BulkheadUpdate, IsInForceFromTheNextCallOn) {
  Bulkhead b{plain()};
  BulkheadOptions o = plain();
  o.max_concurrent = 1;
  o.max_queue = 0;
  o.execution_timeout = 1s;
  o.fallback_on = FallbackOn::failure;
  o.histograms = false;
  b.update(o);
  EXPECT_EQ(b.options().max_concurrent, 1u);
  EXPECT_EQ(b.snapshot().gate.max_concurrent, 1u);
  EXPECT_EQ(b.snapshot().gate.max_queue, 0u);
  const auto late = b.execute([&] { return clock.advance(1s), 1; }, [] { return 2; });
  EXPECT_EQ(late.error().reason, Reason::execution_timeout);
  o.shadow = true;
  b.update(o);
  auto one = b.acquire(), two = b.acquire();
  EXPECT_TRUE(one && two);
  EXPECT_EQ(b.snapshot().over_limit, 1u);
  o.shadow = false;
  b.update(o);
  EXPECT_EQ(b.try_acquire().error().reason, Reason::concurrency_limit);
  two->finish(Outcome::success);
  EXPECT_EQ(b.snapshot().over_limit, 0u);
}

TEST_F(BulkheadUpdate, RejectsWhatCannotChangeAndThenNothingHas) {
  Bulkhead b{full()};
  Gate other{{.name = "other"}};
  ManualClock other_clock;
  const auto rejects = [&](auto change, std::string_view setting) {
    BulkheadOptions o = full();
    o.max_concurrent = 7;
    o.max_queue = 7;
    o.breaker->window_calls = 50;
    o.rate_limit->burst = 7;
    change(o);
    try {
      b.update(o);
      ADD_FAILURE() << setting << " was taken";
    } catch (const std::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find(setting), std::string::npos) << e.what();
      EXPECT_NE(std::string(e.what()).find("\"db\""), std::string::npos) << e.what();
    }
    const BulkheadSnapshot s = b.snapshot();
    EXPECT_EQ(s.gate.max_concurrent, 2u);
    EXPECT_EQ(s.gate.max_queue, 1u);
    EXPECT_EQ(s.rate_limit->burst, 10u);
    EXPECT_FALSE(s.adaptive);
    EXPECT_EQ(b.options().max_concurrent, 2u);
  };
  rejects([](auto& o) { o.name = "x"; }, "name");
  rejects([](auto& o) { o.isolation = Isolation::threads; }, "isolation");
  rejects([](auto& o) { o.fairness = Fairness::barging; }, "fairness");
  rejects([](auto& o) { o.max_barge = 1ms; }, "max_barge");
  rejects([](auto& o) { o.critical_reserve = 0.5; }, "critical_reserve");
  rejects([](auto& o) { o.critical_queue_reserve = 0.5; }, "critical_queue_reserve");
  rejects([&](auto& o) { o.gate = &other; }, "gate");
  rejects([&](auto& o) { o.clock = &other_clock; }, "clock");
  rejects([](auto& o) { o.max_concurrent = 0; }, "max_concurrent");
  rejects([](auto& o) { o.execution_timeout = -1s; }, "execution_timeout");
  rejects([](auto& o) { o.breaker->failure_rate = 2; }, "failure_rate");
  rejects([](auto& o) { o.rate_limit->rate = 0; }, "rate");
  rejects([](auto& o) { o.adaptive = LimiterOptions{.floor = 5, .ceiling = 4}; }, "ceiling");
  EXPECT_THROW(b.resize(0), std::invalid_argument);
  EXPECT_TRUE(b.execute([] {}));
}

TEST_F(BulkheadUpdate, TriesNewSettingsWithoutAnybodyNoticing) {
  int told = 0, started = 0;
  BulkheadOptions o = plain();
  o.isolation = Isolation::threads;
  o.hooks.on_close = o.hooks.on_resize = [&](const Event&) { ++told; };
  o.pool.min_threads = 1;
  o.pool.on_thread_start = [&](std::size_t) { ++started; };
  {
    Bulkhead b{o};
    EXPECT_TRUE(b.execute([] {}));
    o.adaptive = LimiterOptions{.floor = 1, .ceiling = 2, .initial = 2};
    b.update(o);
    EXPECT_EQ(told, 0);
  }
  EXPECT_EQ(told, 1);
  EXPECT_EQ(started, 1);
}

TEST_F(BulkheadUpdate, CallsThatAResizeLetsInMayUseTheBulkhead) {
  BulkheadOptions o = plain();
  o.max_concurrent = 1;
  Bulkhead b{o};
  auto holder = b.acquire();
  int ran = 0;
  b.async_execute(
      [&] {
        EXPECT_EQ(b.snapshot().gate.in_flight, 2u);
        EXPECT_EQ(b.options().name, "db");
        b.reset_statistics();
        b.resize_queue(3);
        return ++ran;
      },
      {}, [](Ended<int>) {});
  b.resize(2);
  EXPECT_EQ(ran, 1);
  EXPECT_EQ(b.snapshot().gate.max_queue, 3u);
  EXPECT_EQ(b.options().max_concurrent, 2u);
}

TEST_F(BulkheadUpdate, AnAdaptiveLimitComesAndGoes) {
  for (const Isolation isolation : {Isolation::semaphore, Isolation::threads}) {
    BulkheadOptions o = plain();
    o.isolation = isolation;
    o.max_concurrent = 4;
    Bulkhead b{o};
    const auto limit = [&] { return b.snapshot().gate.max_concurrent; };
    o.adaptive = LimiterOptions{.floor = 6, .ceiling = 9};
    b.update(o);
    EXPECT_EQ(limit(), 6u);
    EXPECT_EQ(b.snapshot().adaptive->limit, 6u);
    if (isolation == Isolation::threads) {
      EXPECT_EQ(b.snapshot().pool->gate.max_concurrent, 6u);
    }
    b.resize(5);  // for when nothing else decides
    EXPECT_EQ(limit(), 6u);
    o.max_concurrent = 5;
    o.adaptive.reset();
    b.update(o);
    EXPECT_EQ(limit(), 5u);
    EXPECT_FALSE(b.snapshot().adaptive);
    b.resize(3);
    EXPECT_EQ(limit(), 3u);
    if (isolation == Isolation::threads) {
      EXPECT_EQ(b.snapshot().pool->gate.max_concurrent, 3u);
    }
    EXPECT_THROW(b.resize(0), std::invalid_argument);
    EXPECT_EQ(limit(), 3u);
    o.adaptive = LimiterOptions{.floor = 8, .ceiling = 9};
    b.update(o);
    EXPECT_EQ(limit(), 8u);
    EXPECT_EQ(b.snapshot().adaptive->limit, 8u);
    EXPECT_TRUE(b.execute([] {}));
  }
}

// ---- the gate of a group ----

class BulkheadInAGroup : public testing::Test {
 protected:
  ManualClock clock;
  Group group{{.name = "db",
               .total = 2,
               .lend = Lend::revocable(),
               .members = {{.name = "owner", .guaranteed = {.units = 2}, .gate = {.max_queue = 4}},
                           {.name = "guest", .gate = {.max_queue = 4}}},
               .clock = &clock}};
};

TEST_F(BulkheadInAGroup, UsesItsNameItsLimitAndItsClock) {
  Bulkhead owner{{.max_concurrent = 77, .gate = &group.member("owner")}};
  EXPECT_EQ(owner.name(), "owner");
  EXPECT_EQ(&owner.clock(), &clock);
  EXPECT_EQ(owner.snapshot().gate.max_concurrent, group.snapshot().find("owner")->max);
  auto one = owner.acquire(), two = owner.acquire();
  EXPECT_EQ(group.snapshot().in_flight, 2u);
  EXPECT_FALSE(owner.try_acquire());
}

TEST_F(BulkheadInAGroup, ACallWhoseUnitIsWantedBackIsToldAndNotHeldAgainstTheDependency) {
  Bulkhead owner{{.gate = &group.member("owner")}};
  Bulkhead guest{{.breaker = BreakerOptions{}, .gate = &group.member("guest")}};
  auto one = owner.acquire();
  std::optional<Call> wanted;
  EXPECT_THROW(static_cast<void>(guest.execute([&](std::stop_token stop) -> int {
                 EXPECT_FALSE(stop.stop_requested());
                 owner.async_acquire({}, [&](Result<Call> call) { wanted = *std::move(call); });
                 EXPECT_TRUE(stop.stop_requested());
                 throw std::runtime_error("stopped");
               })),
               std::runtime_error);
  EXPECT_TRUE(wanted);
  EXPECT_EQ(guest.snapshot().breaker->calls, 0u);
}

TEST_F(BulkheadInAGroup, CannotHaveItsLimitMovedByALimiter) {
  EXPECT_THROW((Bulkhead{{.adaptive = LimiterOptions{}, .gate = &group.member("owner")}}),
               std::invalid_argument);
  Bulkhead owner{{.gate = &group.member("owner")}};
  EXPECT_THROW(owner.update({.adaptive = LimiterOptions{}, .gate = &group.member("owner")}),
               std::invalid_argument);
  EXPECT_THROW(owner.resize(5), std::invalid_argument);
  EXPECT_TRUE(owner.execute([] {}));
}

// A call that a change of settings admits runs on the thread that makes the change, but outside its lock.
TEST(BulkheadSettings, ACallAdmittedByAChangeMayWaitForAnotherThreadsChange) {
  const auto changes = {+[](Bulkhead& b) { b.resize(2); },
                        +[](Bulkhead& b) {
                          BulkheadOptions o = b.options();
                          o.max_concurrent = 2;
                          b.update(o);
                        }};
  for (const auto change : changes) {
    Bulkhead b{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
    const auto holder = b.acquire();
    bool ran = false;
    b.async_execute(
        [&] {
          std::jthread operators([&] { b.set_draining(true); });
          operators.join();
          return ran = true;
        },
        {}, [](const Ended<bool>&) {});
    change(b);
    EXPECT_TRUE(ran);
  }
}

TEST(Bulkhead, SettingsThatMakeNoSenseAreRejectedWithTheSettingAndTheFix) {
  const auto message = [](const BulkheadOptions& o) -> std::string {
    try {
      const Bulkhead b(o);
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({.name = "db", .execution_timeout = 0s}),
            "bulkhead \"db\": execution_timeout is not positive: give more than 0, or wait_forever");
  Gate gate{{.name = "g"}};
  EXPECT_NE(message({.isolation = Isolation::threads, .gate = &gate}).find("bulkhead \"g\": gate"),
            std::string::npos);
  EXPECT_NE(message({.name = "db", .max_concurrent = 0}).find("max_concurrent"), std::string::npos);
  EXPECT_NE(message({.name = "db", .breaker = BreakerOptions{.failure_rate = 2}}).find("\"db\""),
            std::string::npos);
}

}  // namespace
}  // namespace bulkhead
