#include "app/sim/engine.h"

#include <gtest/gtest.h>

#include <memory>

#include "app/sim/world.h"

namespace bulkhead::sim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;

class OneBulkhead final : public Replica {
 public:
  explicit OneBulkhead(const BulkheadOptions& options) : bulkhead_(options) {}
  Result<Bulkhead*> bulkhead(std::uint32_t, std::uint32_t) override { return &bulkhead_; }
  std::uint32_t limit(std::uint32_t) override { return bulkhead_.gate().snapshot().max_concurrent; }

 private:
  Bulkhead bulkhead_;
};

Outcomes run(const Plan& plan, BulkheadOptions options, std::uint64_t seed = 1) {
  Engine engine(plan, seed);
  options.name = "dependency";
  options.clock = &engine.clock();
  return engine.run([&](std::uint32_t) { return std::make_unique<OneBulkhead>(options); });
}

// 50 slots of 40 ms, called 1.3 times as often as they can answer.
Plan overload(double seconds) {
  Plan plan{
      .streams = {Stream{.arrivals = {.rate = 1.3 * 50 / 0.04}, .service = {.mean = 40e6, .sigma = 0.5}}},
      .dependencies = {DependencyPlan{.shape = {.capacity = 50}}},
      .targets = 1,
      .duration = static_cast<Nanos>(seconds) * kSecond};
  return plan;
}

TEST(Engine, EachCallEndsOnce) {
  Plan plan = overload(20);
  plan.streams[0].client_timeout = kSecond / 5;
  plan.streams[0].client_cancels = true;
  plan.streams[0].retries = 2;
  plan.streams[0].backoff = kSecond / 100;
  plan.streams[0].failures = 0.05;
  plan.streams[0].hangs = {{5 * kSecond, 7 * kSecond}};
  plan.streams[0].fails = {{9 * kSecond, 10 * kSecond}};
  plan.streams[0].slower = {{12 * kSecond, 14 * kSecond, 20}};
  plan.replicas = 3;
  plan.deployments = {{.at = 8, .instance = 1, .stops = true, .starts = true},
                      {.at = 15, .instance = 2, .stops = true}};
  const Tally t = run(plan, {.max_concurrent = 30,
                             .max_queue = 20,
                             .max_wait = std::chrono::milliseconds(150),
                             .execution_timeout = std::chrono::milliseconds(400),
                             .breaker = BreakerOptions{.open_for = std::chrono::seconds(1), .seed = 7}})
                      .targets[0]
                      .all();
  EXPECT_GT(t.served, 10'000u);
  EXPECT_GT(t.retries, 1'000u);
  EXPECT_GT(t.gave_up, 10u);
  EXPECT_GT(t.failed, 100u);
  EXPECT_EQ(t.calls, t.served + t.rejected() + t.failed + t.timed_out + t.gave_up + t.unfinished);
  EXPECT_EQ(t.unfinished, 0u);
}

// Half of the time nothing happens, and only that half is measured; or only the other.
TEST(Engine, MeansOverTimeAreOfTheMeasuredTime) {
  Plan plan{.streams = {Stream{.arrivals = {.rate = 500}, .service = {.mean = 40e6, .sigma = 0}}},
            .dependencies = {DependencyPlan{.shape = {.capacity = 50}}},
            .targets = 1,
            .duration = 20 * kSecond};
  plan.streams[0].load = {{10 * kSecond, 20 * kSecond, 0.1}};
  plan.dependencies[0].slots = {{10 * kSecond, 20 * kSecond, 25}};
  const auto measured = [&](Nanos from, Nanos to) {
    plan.measure_from = from;
    plan.measure_to = to;
    return run(plan, {.max_concurrent = 100});
  };
  const Outcomes busy = measured(1 * kSecond, 9 * kSecond), calm = measured(11 * kSecond, 19 * kSecond);
  EXPECT_NEAR(busy.targets[0].in_flight, 20, 1.5);  // 500/s of 40 ms
  EXPECT_NEAR(calm.targets[0].in_flight, 2, 0.4);
  EXPECT_NEAR(busy.dependency_use[0], 20.0 / 50, 0.03);
  EXPECT_NEAR(calm.dependency_use[0], 2.0 / 25, 0.02);
  EXPECT_EQ(busy.measured, 8);
}

TEST(Engine, ALoadFactorChangesTheNumberOfClients) {
  Plan plan{.streams = {Stream{
                .arrivals = {.shape = Arrivals::Shape::closed, .clients = 10, .think = kSecond / 100},
                .service = {.mean = 40e6, .sigma = 0}}},
            .dependencies = {DependencyPlan{}},
            .targets = 1,
            .duration = 30 * kSecond,
            .points = 30};
  plan.streams[0].load = {{10 * kSecond, 20 * kSecond, 5}};
  const Outcomes outcomes = run(plan, {.max_concurrent = 1000});
  const auto& series = outcomes.targets[0].series;
  ASSERT_EQ(series.size(), 30u);
  EXPECT_NEAR(series[5].served, 200, 5);  // a call and a pause take 50 ms
  EXPECT_NEAR(series[15].served, 1000, 25);
  EXPECT_NEAR(series[25].served, 200, 5);
}

TEST(Engine, TheSeedDecidesAndTheConfigurationDoesNotChangeTheCalls) {
  const Plan plan = overload(10);
  const BulkheadOptions narrow{.max_concurrent = 20}, wide{.max_concurrent = 60};
  const Tally a = run(plan, narrow).targets[0].all(), b = run(plan, narrow).targets[0].all();
  EXPECT_EQ(a.served, b.served);
  EXPECT_EQ(a.total.sum, b.total.sum);
  EXPECT_EQ(a.calls, run(plan, wide).targets[0].all().calls);
  EXPECT_NE(a.calls, run(plan, narrow, 2).targets[0].all().calls);
}

TEST(Engine, AgreesWithTheWorldsOfTheLimiters) {
  const Scenario scenario{
      .arrival = Arrival::open, .capacity = 50, .service_ms = 40, .seconds = 60, .load = 1.3};
  for (const std::uint32_t limit : {30u, 55u}) {
    const sim::Run world = simulate(scenario, {.fixed = limit}, 1);
    const Outcomes engine = run(overload(60), {.max_concurrent = limit});
    EXPECT_NEAR(static_cast<double>(engine.targets[0].served_in_time) / 60, world.goodput(0, 60),
                0.01 * world.goodput(0, 60))
        << limit;
  }
  // The adaptive limiter settles at the capacity in both.
  const Outcomes adaptive =
      run(overload(60), {.max_concurrent = 20, .adaptive = LimiterOptions{.floor = 1, .ceiling = 1000}});
  const sim::Run world = simulate(scenario, {}, 1);
  EXPECT_NEAR(adaptive.targets[0].series.back().limit / 50, world.mean_limit(55, 60), 0.4);
  EXPECT_GT(static_cast<double>(adaptive.targets[0].served_in_time), 0.9 * world.goodput(0, 60) * 60);
}

}  // namespace
}  // namespace bulkhead::sim
