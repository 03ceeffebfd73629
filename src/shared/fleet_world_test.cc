#include "shared/fleet_world_test.h"

#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <random>

namespace bulkhead::shared {
namespace {

struct Total {
  std::uint64_t violations = 0, requests = 0, by_op[5] = {};
  std::uint32_t worst = 0;
  double leased = 0;
};

Total run(Without without, int seeds, int events, std::uint64_t first = 1) {
  Total total;
  for (int seed = 0; seed < seeds; ++seed) {
    FleetWorld world(first + static_cast<std::uint64_t>(seed), without);
    world.run(events);
    total.violations += world.violations();
    total.requests += world.requests();
    total.worst = std::max(total.worst, world.worst());
    total.leased += world.leased() / seeds;
    for (int op = 0; op < 5; ++op) total.by_op[op] += world.requests(static_cast<StoreOp>(op));
  }
  return total;
}

TEST(Fleet, ValidLeasesNeverExceedTheLimitWhateverFails) {
  const Total total = run(Without::nothing, 150, 8000);
  EXPECT_EQ(total.violations, 0u) << "worst: " << total.worst;
  EXPECT_EQ(total.worst, FleetWorld::kLimit);
  EXPECT_GT(total.leased, 0.25);  // and it is not safe by granting nothing
  EXPECT_GT(total.requests, 100'000u);
  for (int op = 0; op < 5; ++op) EXPECT_GT(total.by_op[op], 500u) << to_string(static_cast<StoreOp>(op));
  std::printf("%llu requests, %.0f %% of the limit leased\n", static_cast<unsigned long long>(total.requests),
              100 * total.leased);
}

// Other events each time. The seed of a failure is in the output: BULKHEAD_SEED plays it again.
TEST(Fleet, ValidLeasesNeverExceedTheLimitWithAFreshSeed) {
  const char* const given = std::getenv("BULKHEAD_SEED");
  const std::uint64_t seed = given ? std::strtoull(given, nullptr, 10) : std::random_device()();
  EXPECT_EQ(run(Without::nothing, 20, 8000, seed).violations, 0u) << "BULKHEAD_SEED=" << seed;
}

// Each rule is needed: without it the same events break the limit.
class EachRuleIsNeeded : public testing::TestWithParam<Without> {};

TEST_P(EachRuleIsNeeded, WithoutItTheLimitBreaks) {
  const Total total = run(GetParam(), 150, 8000);
  EXPECT_GT(total.violations, 0u);
  EXPECT_GT(total.worst, FleetWorld::kLimit);
  std::printf("%llu violations, worst %u of %u\n", static_cast<unsigned long long>(total.violations),
              total.worst, FleetWorld::kLimit);
}

std::string rule_name(const testing::TestParamInfo<Without>& rule) {
  constexpr const char* all[] = {"Nothing", "Sequence",      "Learning", "EmptyClaim",
                                 "Margin",  "StepDetection", "Measuring"};
  return all[static_cast<int>(rule.param)];
}

INSTANTIATE_TEST_SUITE_P(Fleet, EachRuleIsNeeded,
                         testing::Values(Without::sequence, Without::learning, Without::empty_claim,
                                         Without::margin, Without::step_detection, Without::measuring),
                         rule_name);

}  // namespace
}  // namespace bulkhead::shared
