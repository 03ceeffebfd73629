#include "config/sizing.h"

#include <gtest/gtest.h>

#include <cmath>

namespace bulkhead::config {
namespace {

using namespace std::chrono_literals;

TEST(Sizing, LittlesLawAndTheQueueRule) {
  const Size size = size_for({.rate = 200, .latency = 50ms, .tolerated_wait = 100ms, .buffer = 1.5});
  EXPECT_DOUBLE_EQ(size.in_flight, 10);
  EXPECT_EQ(size.max_concurrent, 15U);
  EXPECT_EQ(size.max_queue, 20U);
  const Size rounded = size_for({.rate = 3, .latency = 100ms, .tolerated_wait = 0s, .buffer = 1.1});
  EXPECT_EQ(rounded.max_concurrent, 1U);
  EXPECT_EQ(rounded.max_queue, 0U);
  EXPECT_EQ(size_for({.rate = 100, .latency = 70ms, .tolerated_wait = 10ms, .buffer = 1}).max_concurrent, 7U)
      << "0.07 x 100 is a little more than 7 in doubles";
}

// Worked out in exact fractions from the definition.
TEST(Sizing, ErlangCAgreesWithExactValues) {
  EXPECT_NEAR(erlang_c(1, 0.5), 0.5, 1e-12);
  EXPECT_NEAR(erlang_c(2, 1), 1.0 / 3, 1e-12);
  EXPECT_NEAR(erlang_c(10, 8), 0.40918015079644354, 1e-12);
  EXPECT_NEAR(erlang_c(20, 15), 0.1604293874169236, 1e-12);
  EXPECT_NEAR(erlang_c(100, 90), 0.2169404809063664, 1e-12);
}

TEST(Sizing, ErlangBAgreesWithExactValues) {
  EXPECT_NEAR(erlang_b(1, 1), 0.5, 1e-12);
  EXPECT_NEAR(erlang_b(2, 1), 0.2, 1e-12);
  EXPECT_NEAR(erlang_b(3, 2), 4.0 / 19, 1e-12);  // 2^3/3! over 1 + 2 + 2 + 4/3
  EXPECT_EQ(erlang_b(0, 2), 1);
}

TEST(Sizing, ErlangCIsStableForHundredThousandPlaces) {
  EXPECT_NEAR(erlang_c(100'000, 99'500), 0.070906199355113, 1e-10);
  EXPECT_EQ(erlang_c(100'000, 1), 0);
  EXPECT_EQ(erlang_c(100'000, 100'000), 1);
  EXPECT_EQ(erlang_c(5, 7), 1) << "overloaded";
}

TEST(Sizing, TheWaitFollowsFromIt) {
  const Wait wait = wait_of(10, 160, 50ms);  // 8 in flight
  const double waits = 0.40918015079644354;
  EXPECT_NEAR(wait.waits, waits, 1e-12);
  EXPECT_NEAR(static_cast<double>(wait.mean.count()), waits * 50e6 / 2, 1);
  EXPECT_NEAR(static_cast<double>(wait.p99.count()), std::log(waits / 0.01) * 50e6 / 2, 1);
  EXPECT_EQ(wait_of(100, 160, 50ms).p99, 0ns) << "fewer than one in a hundred waits";
  EXPECT_TRUE(wait_of(8, 160, 50ms).endless);
}

TEST(Sizing, TheFewestPlacesKeepTheP99AndOneFewerDoNot) {
  for (const auto target : {0ms, 5ms, 20ms, 200ms}) {
    const std::uint64_t places = places_for_p99(160, 50ms, target);
    EXPECT_LE(wait_of(places, 160, 50ms).p99, target) << places;
    const Wait fewer = wait_of(places - 1, 160, 50ms);
    EXPECT_TRUE(fewer.endless || fewer.p99 > target) << places;
  }
}

}  // namespace
}  // namespace bulkhead::config
