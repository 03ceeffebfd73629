// Holdback as a policy of a bulkhead: every kind of call, shadow mode, changes while it runs.
#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

std::vector<Call> fill(Bulkhead& bulkhead, int calls) {
  std::vector<Call> held;
  for (int i = 0; i < calls; ++i) {
    auto call = bulkhead.try_acquire({.priority = Priority::critical});
    EXPECT_TRUE(call) << i;
    if (call) held.push_back(*std::move(call));
  }
  return held;
}

const AcquireOptions kBestEffort{.priority = Priority::best_effort};

TEST(BulkheadHoldback, RejectsLowerPrioritiesFirstAndSaysWhy) {
  Bulkhead db({.name = "db", .max_concurrent = 100, .holdback = HoldbackOptions{}});
  auto calls = fill(db, 95);
  const auto rejected = db.try_acquire(kBestEffort);
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::holdback);
  EXPECT_EQ(rejected.error().message(), "bulkhead \"db\" rejected (holdback): 95/100 running, 0/0 waiting");
  EXPECT_TRUE(db.try_acquire());  // normal, at 95 %
  EXPECT_TRUE(db.try_acquire({.priority = Priority::critical}));
  calls.resize(70);
  EXPECT_TRUE(db.try_acquire(kBestEffort));

  const BulkheadSnapshot s = db.snapshot();
  EXPECT_EQ(s.gate.rejected(Reason::holdback), 1u);
  ASSERT_TRUE(s.holdback);
  EXPECT_EQ(s.holdback->held[2], 1u);
  EXPECT_NEAR(s.holdback->saturation, 0.75, 1e-3);  // 70 % and the hysteresis
}

TEST(BulkheadHoldback, IsOffByDefault) {
  Bulkhead db({.name = "db", .max_concurrent = 10});
  const auto calls = fill(db, 9);
  EXPECT_TRUE(db.try_acquire(kBestEffort));
  EXPECT_FALSE(db.snapshot().holdback);
}

TEST(BulkheadHoldback, AppliesToEveryFormOfCallAndItsFallback) {
  Bulkhead db({.name = "db", .max_concurrent = 20, .holdback = HoldbackOptions{}});
  const auto calls = fill(db, 19);
  EXPECT_EQ(db.execute([] { return 1; }, {.priority = Priority::best_effort}).error().reason,
            Reason::holdback);
  EXPECT_EQ(db.acquire(kBestEffort).error().reason, Reason::holdback);
  Reason seen{};
  db.async_acquire(kBestEffort, [&](Result<Call> call) { seen = call.error().reason; });
  EXPECT_EQ(seen, Reason::holdback);
  const auto instead = db.execute(
      [] { return 1; }, [](const Cause& cause) { return cause.rejection.reason == Reason::holdback ? 2 : 3; },
      Priority::best_effort);
  EXPECT_EQ(*instead, 2);
}

TEST(BulkheadHoldback, CountsTheLineAsRoom) {
  Bulkhead db({.name = "db", .max_concurrent = 2, .max_queue = 18, .holdback = HoldbackOptions{}});
  const auto calls = fill(db, 2);
  for (int i = 0; i < 14; ++i) db.async_acquire({}, [](Result<Call>) {});
  int ran = 0;
  db.async_acquire(kBestEffort, [&](Result<Call> call) { ran += !call; });  // 16 of 20: it may wait
  EXPECT_EQ(ran, 0);
  for (int i = 0; i < 2; ++i) db.async_acquire({}, [](Result<Call>) {});
  db.async_acquire(kBestEffort,
                   [&](Result<Call> call) { ran += call.error().reason == Reason::holdback; });  // 19
  EXPECT_EQ(ran, 1);
  db.close();
}

TEST(BulkheadHoldback, TheWaitInLineDrivesIt) {
  ManualClock clock;
  Bulkhead db({.name = "db",
               .max_concurrent = 1,
               .max_queue = 1000,
               .holdback = HoldbackOptions{.hysteresis = 0, .max_queue_age = 100ms},
               .clock = &clock});
  std::vector<Call> running;
  running.reserve(3);  // finish() below admits the next one
  for (int i = 0; i < 3; ++i)
    db.async_acquire({}, [&](Result<Call> call) {
      if (call) running.push_back(*std::move(call));
    });
  clock.advance(200ms);
  ASSERT_EQ(running.size(), 1u);
  running[0].finish(Outcome::success);  // the next one has waited 200 ms, and another still waits
  clock.advance(200ms);
  EXPECT_EQ(db.try_acquire(kBestEffort).error().reason, Reason::holdback);
  EXPECT_GE(db.snapshot().holdback->gauges, 1);
  db.close();
}

TEST(BulkheadHoldback, ADependencyThatHangsAgesTheLine) {
  for (const Isolation isolation : {Isolation::semaphore, Isolation::threads}) {
    ManualClock clock;
    Bulkhead db({.name = "db",
                 .isolation = isolation,
                 .max_concurrent = 1,
                 .max_queue = 1000,
                 .holdback = HoldbackOptions{.hysteresis = 0, .max_queue_age = 100ms},
                 .clock = &clock});
    auto hangs = db.try_acquire();
    int ran = 0;
    for (int i = 0; i < 3; ++i) db.async_acquire({}, [&](Result<Call> call) { ran += call.has_value(); });
    clock.advance(200ms);
    EXPECT_EQ(db.try_acquire(kBestEffort).error().reason, Reason::holdback) << static_cast<int>(isolation);
    EXPECT_EQ(ran, 0);
    db.close();
  }
}

TEST(BulkheadHoldback, CallsWhoseWaitIsOverDoNotAgeTheLine) {
  ManualClock clock;
  Bulkhead db({.name = "db",
               .max_concurrent = 1,
               .max_queue = 1000,
               .max_wait = 50ms,
               .holdback = HoldbackOptions{.hysteresis = 0, .max_queue_age = 100ms},
               .clock = &clock});
  auto hangs = db.try_acquire();
  for (int i = 0; i < 50; ++i) {
    db.async_acquire({}, [](Result<Call>) {});
    clock.advance(10ms);
  }
  db.async_acquire(kBestEffort, [](Result<Call> call) { EXPECT_NE(call.error().reason, Reason::holdback); });
  EXPECT_LT(db.snapshot().holdback->gauges, 1);
  db.close();
}

TEST(BulkheadHoldback, ShadowModeShowsWhatItWouldDo) {
  Bulkhead db({.name = "db", .max_concurrent = 20, .holdback = HoldbackOptions{}, .shadow = true});
  auto calls = fill(db, 19);
  auto call = db.try_acquire(kBestEffort);
  EXPECT_TRUE(call);
  EXPECT_EQ(db.snapshot().would_reject[static_cast<std::size_t>(Reason::holdback)], 1u);
  EXPECT_EQ(db.snapshot().gate.rejected(), 0u);

  Bulkhead only({.name = "only", .max_concurrent = 20, .holdback = HoldbackOptions{.shadow = true}});
  auto others = fill(only, 19);
  EXPECT_TRUE(only.try_acquire(kBestEffort));
  EXPECT_EQ(only.snapshot().holdback->held[2], 1u);
  EXPECT_EQ(only.snapshot().gate.rejected(), 0u);
}

TEST(BulkheadHoldback, CanBeAddedChangedAndTakenAway) {
  BulkheadOptions o{.name = "db", .max_concurrent = 20};
  Bulkhead db(o);
  const auto calls = fill(db, 19);
  EXPECT_TRUE(db.try_acquire(kBestEffort));
  o.holdback.emplace();
  db.update(o);
  EXPECT_FALSE(db.try_acquire(kBestEffort));
  o.holdback->best_effort_from = 2;
  EXPECT_THROW(db.update(o), std::invalid_argument);
  EXPECT_FALSE(db.try_acquire(kBestEffort));
  o.holdback->best_effort_from = o.holdback->normal_from = 1;
  o.holdback->hysteresis = 0;
  db.update(o);
  EXPECT_TRUE(db.try_acquire(kBestEffort));
  o.holdback.reset();
  db.update(o);
  EXPECT_FALSE(db.snapshot().holdback);
}

TEST(BulkheadHoldback, WorksWithPoolsAndGroups) {
  Bulkhead pool(
      {.name = "pool", .isolation = Isolation::threads, .max_concurrent = 20, .holdback = HoldbackOptions{}});
  const auto places = fill(pool, 19);
  EXPECT_EQ(pool.execute([] {}, {.priority = Priority::best_effort}).error().reason, Reason::holdback);

  Group group({.name = "all", .total = 20});
  Gate& member = group.add({.name = "member"});
  Bulkhead in_group({.holdback = HoldbackOptions{}, .gate = &member});
  const auto units = fill(in_group, 19);
  EXPECT_EQ(in_group.try_acquire(kBestEffort).error().reason, Reason::holdback);
}

TEST(BulkheadHoldback, NamesAGaugeThatCannotBeRead) {
  try {
    Bulkhead db({.name = "db",
                 .holdback = HoldbackOptions{.max_io_pressure = 0.1, .pressure_directory = "/nowhere"}});
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("/nowhere/io"), std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace bulkhead
