#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "limiter/algorithm.h"
#include "limiter/windows_test.h"

namespace bulkhead::limiter {
namespace {

struct Trial {
  Formula world;
  std::unique_ptr<Algorithm> knee;
  std::uint32_t limit;

  Trial(Formula formula, std::uint32_t initial, Bounds bounds = {1, 1000})
      : world(formula), knee(make_knee({}, {}, bounds, initial)), limit(initial) {}
  LimitDecision step() {
    const LimitDecision d = knee->decide(world.window(limit, knee->plan(world.now)));
    limit = d.to;
    return d;
  }
  void steps(int n) {
    while (n-- > 0) step();
  }
};

TEST(Knee, FindsTheCapacityFromBelow) {
  Trial t({.capacity = 400}, 20);
  t.steps(60);
  EXPECT_GE(t.knee->settled(), 360u);
  EXPECT_LE(t.knee->settled(), 500u);
}

TEST(Knee, FindsTheCapacityFromAbove) {
  Trial t({.capacity = 10}, 1000);
  t.steps(120);
  EXPECT_GE(t.knee->settled(), 9u);
  EXPECT_LE(t.knee->settled(), 14u);
}

TEST(Knee, StaysThereForTenThousandWindowsOfOverload) {
  Trial t({.capacity = 50}, 20);
  t.steps(100);
  for (int i = 0; i < 10'000; ++i) {
    t.step();
    ASSERT_GE(t.knee->settled(), 40u) << i;
    ASSERT_LE(t.knee->settled(), 75u) << i;
  }
}

TEST(Knee, NeverProbesLowerThanHalfWhileNothingChanges) {
  Trial t({.capacity = 100}, 100);
  t.steps(100);
  int deep = 0;
  for (int i = 0; i < 1000; ++i) {
    t.step();
    // Half of the limit in force; the decision that begins the probe may raise the settled one by 15 %.
    ASSERT_GE(t.limit, 0.5 / 1.15 * t.knee->settled() - 1);
    deep += t.limit < 0.8 * t.knee->settled();
  }
  EXPECT_LT(deep, 60);  // and rarely lower than the dip
}

TEST(Knee, FollowsALossOfTwoThirdsAndTheRecovery) {
  Trial t({.capacity = 150}, 20);
  t.steps(100);
  t.world.capacity = 50;
  t.steps(25);
  EXPECT_LE(t.knee->settled(), 75u);
  EXPECT_GE(t.knee->settled(), 40u);
  t.world.capacity = 150;
  t.steps(40);
  EXPECT_GE(t.knee->settled(), 120u);
}

TEST(Knee, SlowerCallsAtTheSameCapacityDoNotLowerTheLimitForLong) {
  Trial t({.capacity = 100}, 20);
  t.steps(100);
  t.world.service *= 3;  // looks like a loss of capacity at first
  t.steps(60);
  EXPECT_GE(t.knee->settled(), 80u);
}

TEST(Knee, DoesNothingWhileDemandIsTheBound) {
  Trial t({.capacity = 100, .demand = 30}, 80);
  int idle = 0;
  for (int i = 0; i < 1000; ++i) {
    const LimitDecision d = t.step();
    ASSERT_EQ(t.limit, 80u) << d.text();
    idle += d.verdict == LimitVerdict::demand_bound;
  }
  EXPECT_GT(idle, 100);
}

TEST(Knee, DemandThatGoesAwayEndsTheProbes) {
  Trial t({.capacity = 50}, 50);
  t.steps(60);
  while (t.limit == t.knee->settled()) t.step();
  t.world.demand = 10;
  t.steps(20);
  const std::uint32_t settled = t.knee->settled();
  for (int i = 0; i < 100; ++i) {
    t.step();
    ASSERT_EQ(t.limit, settled);
  }
}

TEST(Knee, CallsThatAreRejectedAreDemandHoweverFewPlacesAreTakenOnAverage) {
  // 60 calls arrive at once every 100 ms and take 40 ms: 20 places are taken for 40 % of the time.
  const auto knee = make_knee({}, {}, {1, 1000}, 20);
  std::uint32_t limit = knee->settled();
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 400; ++i) {
    const WindowPlan plan = knee->plan(now);
    const auto pulses = std::max<std::uint64_t>(
        1, static_cast<std::uint64_t>(plan.min_time / std::chrono::milliseconds(100)));
    const std::uint64_t served = std::min(limit, 60u) * pulses;
    Window w{.begin = now, .limit = limit, .succeeded = served, .round_trip = 40e6, .cv2 = 0.25};
    now += pulses * std::chrono::milliseconds(100);
    w.end = now;
    w.in_flight = limit / 2.0;
    w.max_in_flight = std::min(limit, 60u);
    w.rejected = 60 * pulses - served;
    limit = knee->decide(w).to;
  }
  EXPECT_GE(knee->settled(), 55u);
}

TEST(Knee, AllCallsTimingOutHalvesTheLimitDownToTheFloor) {
  Trial t({.capacity = 50}, 20, {2, 1000});
  t.steps(100);
  const std::uint32_t before = t.knee->settled();
  t.world.timing_out = 1;
  t.steps(20);
  EXPECT_EQ(t.limit, 2u);
  t.world.timing_out = 0;
  t.steps(40);
  EXPECT_GE(t.knee->settled(), before * 9 / 10);
}

TEST(Knee, AFewTimeoutsAmongFewCallsAreNoOutage) {
  Trial t({.capacity = 50}, 50);
  t.steps(60);
  const std::uint32_t before = t.knee->settled();
  Window w = t.world.window(t.limit, t.knee->plan(t.world.now));
  w.succeeded = 0;
  w.timed_out = 3;
  t.knee->decide(w);
  EXPECT_EQ(t.knee->settled(), before);
}

TEST(Knee, DipsInTheEvenSlotsOfTheSharedClock) {
  for (const auto offset : {std::chrono::milliseconds(0), std::chrono::milliseconds(1700)}) {
    Trial t({.capacity = 50}, 50);
    t.knee->align(offset);
    t.steps(200);
    for (int i = 0; i < 500; ++i) {
      const TimePoint begin = t.world.now;
      const std::uint32_t settled = t.knee->settled();
      const LimitDecision d = t.step();
      if (d.from + 1 >= settled || d.from < 0.6 * settled) continue;  // no dip
      ASSERT_EQ((begin.time_since_epoch() + offset) / std::chrono::seconds(1) % 2, 0) << d.text();
    }
  }
}

TEST(Knee, WithATargetItFindsTheHighestLimitWhoseRoundTripStaysBelow) {
  Formula world{.capacity = 50, .service = 0.04};
  const auto knee = make_knee({}, std::chrono::milliseconds(100), {1, 1000}, 20);
  std::uint32_t limit = 20;
  for (int i = 0; i < 600; ++i) limit = knee->decide(world.window(limit, knee->plan(world.now))).to;
  EXPECT_GE(knee->settled(), 100u);  // 80 ms
  EXPECT_LE(knee->settled(), 125u);  // 100 ms
  world.capacity = 10;
  for (int i = 0; i < 600; ++i) limit = knee->decide(world.window(limit, knee->plan(world.now))).to;
  EXPECT_LE(knee->settled(), 25u);
}

TEST(Knee, FailuresDoNotRaiseTheLimitHoweverFastTheyCome) {
  Trial t({.capacity = 50}, 20);
  t.steps(100);
  const std::uint32_t settled = t.knee->settled();
  t.world.failing = 1;
  t.world.capacity = 1e9;
  for (int i = 0; i < 200; ++i) {
    t.step();
    ASSERT_LE(t.limit, settled);
  }
  EXPECT_EQ(t.limit, settled);  // nor lower it
}

TEST(Knee, AMajorityOfFastFailuresDoesNotRaiseItEither) {
  Trial t({.capacity = 50}, 20);
  t.steps(100);
  const std::uint32_t settled = t.knee->settled();
  t.world.failing = 0.8;
  t.world.capacity = 1e9;
  t.steps(300);
  EXPECT_LE(t.knee->settled(), settled);
}

TEST(Knee, TimeoutsDoNotRaiseTheLimit) {
  Trial t({.capacity = 50}, 20);
  t.steps(100);
  const std::uint32_t settled = t.knee->settled();
  t.world.timing_out = 0.3;
  t.world.capacity = 1e9;
  t.steps(300);
  EXPECT_LE(t.knee->settled(), settled);
}

TEST(Knee, LeavesTheFloorWhenThereIsCapacity) {
  Trial t({.capacity = 1}, 1);
  t.steps(100);
  EXPECT_LE(t.limit, 2u);
  t.world.capacity = 40;
  t.steps(900);
  EXPECT_GE(t.knee->settled(), 32u);
}

TEST(Knee, ACapacityBelowTheFloorLeavesItNearTheFloor) {
  Trial t({.capacity = 3}, 100, {20, 1000});
  t.steps(400);
  EXPECT_GE(t.knee->settled(), 20u);
  EXPECT_LE(t.knee->settled(), 24u);
}

TEST(Knee, LeavesTheCeilingWhenTheCapacityGoesLittleByLittle) {
  Trial t({.capacity = 5000}, 20, {1, 200});
  t.steps(200);
  EXPECT_EQ(t.knee->settled(), 200u);
  for (t.world.capacity = 300; t.world.capacity > 100; t.world.capacity -= 1) t.step();
  t.steps(60);
  EXPECT_LE(t.knee->settled(), 150u);
}

TEST(Knee, TheWindowAfterAChangeDecidesNothing) {
  Trial t({.capacity = 50}, 20);
  for (int i = 0; i < 500; ++i) {
    const std::uint32_t before = t.limit;
    const LimitDecision d = t.step();
    if (d.to == before) continue;
    const std::uint32_t settled = t.knee->settled();
    Window mixed = t.world.window(t.limit, t.knee->plan(t.world.now));
    mixed.succeeded *= 5;
    ASSERT_EQ(t.knee->decide(mixed).to, t.limit);
    ASSERT_EQ(t.knee->settled(), settled);
  }
}

TEST(Knee, NewBoundsTakeTheLimitAlong) {
  Trial t({.capacity = 50}, 50);
  t.steps(100);
  t.knee->set_bounds({1, 30});
  EXPECT_EQ(t.knee->settled(), 30u);
  t.knee->set_bounds({200, 300});
  EXPECT_EQ(t.knee->settled(), 200u);
}

TEST(Knee, ADecisionSaysWhatWasCompared) {
  Trial t({.capacity = 1000}, 20);
  LimitDecision d;
  do d = t.step();
  while (d.verdict != LimitVerdict::raised);
  EXPECT_EQ(d.low, 20u);
  EXPECT_EQ(d.high, 40u);
  EXPECT_NEAR(d.gain, 1, 0.05);
  EXPECT_NE(d.text().find("(raised): goodput 2000/s at 20, "), std::string::npos) << d.text();
}

// Whatever the windows claim, the limit stays within its bounds, and nothing traps.
RC_GTEST_PROP(KneeProperty, HoldsItsBoundsWhateverTheWindowsClaim, ()) {
  const auto floor = *rc::gen::inRange<std::uint32_t>(1, 50);
  const auto ceiling = floor + *rc::gen::inRange<std::uint32_t>(0, 500);
  const auto knee = make_knee({}, {}, {floor, ceiling}, *rc::gen::inRange<std::uint32_t>(1, 600));
  std::uint32_t limit = knee->settled();
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 200; ++i) {
    Window w{.begin = now, .limit = limit};
    now += std::chrono::milliseconds(*rc::gen::inRange(1, 5000));
    w.end = now;
    w.succeeded = *rc::gen::inRange<std::uint64_t>(0, 5000);
    w.failed = *rc::gen::inRange<std::uint64_t>(0, 100);
    w.timed_out = *rc::gen::inRange<std::uint64_t>(0, 100);
    w.round_trip = *rc::gen::inRange(0, 1'000'000'000);
    w.cv2 = *rc::gen::inRange(0, 20);
    const bool pressed = *rc::gen::arbitrary<bool>();
    w.max_in_flight = pressed ? limit : limit / 2;
    w.in_flight = w.max_in_flight;
    const std::uint32_t settled = knee->settled();
    const LimitDecision d = knee->decide(w);
    RC_ASSERT(d.to >= floor);
    RC_ASSERT(d.to <= ceiling);
    RC_ASSERT(knee->settled() >= floor);
    RC_ASSERT(knee->settled() <= ceiling);
    if (w.succeeded == 0) RC_ASSERT(knee->settled() <= settled);
    const WindowPlan plan = knee->plan(now);
    RC_ASSERT(plan.samples >= 1);
    RC_ASSERT(plan.max_time > std::chrono::nanoseconds(0));
    limit = d.to;
  }
}

// Any capacity, from any start: found, and kept.
RC_GTEST_PROP(KneeProperty, FindsAnyCapacityFromAnyStart, ()) {
  const auto capacity = *rc::gen::inRange<std::uint32_t>(2, 800);
  const auto initial = *rc::gen::inRange<std::uint32_t>(1, 1000);
  Trial t({.capacity = static_cast<double>(capacity)}, initial);
  t.steps(200);
  RC_ASSERT(t.knee->settled() >= 0.8 * capacity);
  RC_ASSERT(t.knee->settled() <= 1.5 * capacity + 3);  // + 3: a step is a large part of a small limit
}

// Half load, failures and hanging calls: wherever the limit is, nothing raises it.
RC_GTEST_PROP(KneeProperty, NothingRaisesTheLimitAtHalfLoadOrWhileCallsFailOrHang, ()) {
  const auto capacity = *rc::gen::inRange<std::uint32_t>(2, 800);
  Trial t({.capacity = static_cast<double>(capacity)}, *rc::gen::inRange<std::uint32_t>(1, 1000));
  t.steps(200);
  switch (*rc::gen::inRange(0, 3)) {
    case 0:
      t.world.demand = capacity / 2.0;
      break;
    case 1:
      t.world.failing = 1;
      break;
    default:
      t.world.timing_out = 1;
  }
  // The pair of slots in which the load changes mixes both loads: it may end with one last small step.
  const std::uint32_t before = t.knee->settled();
  t.steps(40);
  const std::uint32_t settled = t.knee->settled();
  RC_ASSERT(settled <= before + 1 + before / 5);
  for (int i = 0; i < 300; ++i) {
    t.step();
    RC_ASSERT(t.knee->settled() <= settled);
  }
}

}  // namespace
}  // namespace bulkhead::limiter
