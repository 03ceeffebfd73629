// Rows of docs/limiter.md that fit into seconds: one seed, shorter times. `make simulate` runs all of them.
#include "app/sim/worlds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "app/sim/dependency.h"

namespace bulkhead::sim {
namespace {

WorldRow row_of(const std::string& group, const std::string& name, double seconds = 150) {
  for (WorldRow& row : world_rows(seconds))
    if (row.group == group && row.name == name) return row;
  ADD_FAILURE() << "there is no row " << group << ": " << name;
  return {};
}

void holds(const std::string& group, const std::string& name) {
  const WorldRow row = row_of(group, name);
  const Contender knee{.target_latency =
                           std::chrono::nanoseconds(static_cast<std::int64_t>(row.target_ms * 1e6))};
  const Verdict v = judge(row, simulate(row.scenario, knee, 1), best_fixed(row, 1));
  EXPECT_TRUE(v.pass) << group << ": " << name << ": " << v.text();
}

TEST(LimiterInCompany, InstancesShareASaturatedDependency) {
  for (const char* name : {"2 x 50 slots, closed", "4 x 50 slots, open", "10 x 50 slots, closed, timeout 5x",
                           "10 x 50 slots, open, timeout 12x, retry", "40 x 50 slots, closed"})
    holds("In company", name);
}

TEST(LimiterInCompany, InstancesWithHundredsOfPlacesShareThem) {
  for (const char* name :
       {"2 x 500 slots, closed", "4 x 500 slots, open", "10 x 500 slots, open, timeout 5x"})
    holds("In company", name);
}

TEST(LimiterInCompany, InstancesMayJoinLeaveAndRestart) {
  for (const char* name :
       {"5 of 10 join at 120 s", "5 of 10 leave at 120 s", "one of two restarts", "rolling restart of 10"})
    holds("Instances that come and go", name);
}

TEST(LimiterInCompany, InstancesGiveUpPlacesThatTheyDoNotUseWhileCallsWait) {
  holds("Instances that come and go", "zipf demand, 10");
  holds("In company", "40 x 50 slots, open, timeout 5x");
}

TEST(LimiterWithTimeouts, RecoversFromAStateInWhichNothingSucceeds) {
  for (const char* name : {"initial 400 on 20 slots, timeout 5x", "a fifth of the capacity for 2 min, closed",
                           "a tenth of the capacity for 10 s, open, retry", "hangs for 30 s, open",
                           "initial 400 on 20 slots, timeout 5x, clients cancel",
                           "a fifth of the capacity for 2 min, closed, timeouts are failures"})
    holds("Nothing succeeds", name);
}

TEST(LimiterWithPulses, TakesRejectedCallsForDemand) {
  for (const char* name : {"60 per 100 ms, 50 slots", "on 50 ms, off 150 ms, open",
                           "on 50 ms, off 150 ms, closed", "batches of 128, open", "lockstep, closed"})
    holds("Pulses", name);
}

TEST(LimiterWithOtherDependencies, FindsTheirPeak) {
  for (const char* name :
       {"three stations of 1", "three stations of 10, 20, 30", "USL with a peak at 32", "thrashes above 60"})
    holds("Other dependencies", name);
}

TEST(LimiterThroughChanges, TellsSlowerCallsFromAQueue) {
  for (const char* name : {"10x longer without overload", "service times x4, closed",
                           "collections of 300 ms every 5 s, open", "service times x4, open"})
    holds("Changes", name);
}

TEST(LimiterWithFewCalls, KeepsSlowCallsAndRandomArrivalsBusy) {
  holds("Small, large, slow", "10 slots of 2 s, open");
}

TEST(LimiterWithATarget, KeepsTheRoundTripBelowIt) {
  for (const char* name : {"1 x 50 slots, closed", "4 x 50 slots, open"})
    holds("Target latency of two service times", name);
}

// The bounds tell good from bad: these are the conditions in which the known algorithms fail.
TEST(Worlds, ShowTheLimitsOfTheKnownAlgorithms) {
  const WorldRow row = row_of("In company", "10 x 50 slots, closed", 600);
  const Best best = best_fixed(row, 1);
  for (const LimitAlgorithm a : {LimitAlgorithm::aimd, LimitAlgorithm::gradient2}) {
    const Verdict v = judge(row, simulate(row.scenario, {.algorithm = a}, 1), best);
    EXPECT_FALSE(v.pass) << to_string(a) << ": " << v.text();
  }
}

TEST(Worlds, CompareWithTheBestFixedLimitThatMeetsTheBoundOfTheRoundTrip) {
  WorldRow row = row_of("Small, large, slow", "1 slot, open");
  const double bounded = best_fixed(row, 1).goodput;
  row.most_round_trip = 0;
  const double unbounded = best_fixed(row, 1).goodput;
  EXPECT_GT(bounded, 0.7 * unbounded);
  EXPECT_LT(bounded, 0.9 * unbounded);  // a queue that keeps one slot busy makes calls wait for longer
  row.most_round_trip = 0.5;            // no limit meets it
  EXPECT_EQ(best_fixed(row, 1).goodput, unbounded);
}

TEST(World, AClientThatGivesUpLeavesItsWorkBehindUnlessItIsCancelled) {
  // Ten seconds of five times the capacity, then half of it.
  Scenario s{.arrival = Arrival::open,
             .capacity = 10,
             .seconds = 30,
             .phases = {{0, 10, 5}, {10, 10, 0.5}},
             .timeout_ms = 200};
  EXPECT_LT(simulate(s, {.fixed = 1000}, 1).goodput(15, 30), 1);  // still at work for clients that have gone
  s.cancels = true;
  EXPECT_GT(simulate(s, {.fixed = 1000}, 1).goodput(15, 30), 115);
}

TEST(World, RetriesAddCalls) {
  Scenario s{
      .arrival = Arrival::open, .capacity = 10, .seconds = 20, .phases = {{0, 10, 1, Health::fails_fast}}};
  const auto calls = simulate(s, {.fixed = 1000}, 1).calls;
  s.retries = 1;
  EXPECT_NEAR(static_cast<double>(simulate(s, {.fixed = 1000}, 1).calls), 2.0 * static_cast<double>(calls),
              0.05 * static_cast<double>(calls));
}

TEST(World, InstancesShareTheSlots) {
  const sim::Run run = simulate({.seconds = 70, .instances = 4}, {.fixed = 50}, 1);
  EXPECT_NEAR(run.goodput(10, 70), 50 / 0.040, 60);
  EXPECT_GT(run.least_share(10, 70), 0.9);
}

TEST(World, APauseStopsTheWork) {
  const Scenario s{.seconds = 60, .pause_every = 5, .pause_ms = 500};
  EXPECT_NEAR(simulate(s, {.fixed = 50}, 1).goodput(10, 60), 0.9 * 50 / 0.040, 40);
}

TEST(World, ABatchTakesItsTimeOnce) {
  const Scenario s{.capacity = 64, .sigma = 0, .seconds = 20, .model = Model::batching, .batch_size = 64};
  EXPECT_NEAR(simulate(s, {.fixed = 64}, 1).goodput(5, 20), 64 / 0.042, 40);
  EXPECT_NEAR(simulate(s, {.fixed = 256}, 1).goodput(5, 20), 64 / 0.040, 40);
}

TEST(World, ASharedDependencyFollowsTheUniversalScalabilityLaw) {
  const Scenario s{.sigma = 0.1, .seconds = 30, .model = Model::shared, .contention = 0.05};
  EXPECT_NEAR(simulate(s, {.fixed = 20}, 1).goodput(5, 30), 20 / (1 + 0.05 * 19) / 0.040, 10);
}

}  // namespace
}  // namespace bulkhead::sim
