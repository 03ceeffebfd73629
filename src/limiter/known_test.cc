// The algorithms of Netflix concurrency-limits, by the cases of its own tests (VegasLimitTest, AIMDLimitTest,
// see tests/SOURCES.md) and by hand.
#include <gtest/gtest.h>

#include <cmath>

#include "limiter/algorithm.h"
#include "limiter/windows_test.h"

namespace bulkhead::limiter {
namespace {

using std::chrono::milliseconds;

Window window(std::uint32_t limit, milliseconds rtt, std::uint32_t in_flight, std::uint64_t timed_out = 0) {
  return {.limit = limit,
          .succeeded = 100,
          .timed_out = timed_out,
          .round_trip = static_cast<double>(nanoseconds(rtt).count()),
          .in_flight = static_cast<double>(in_flight),
          .max_in_flight = in_flight};
}

TEST(Aimd, GrowsByOneWhenHalfUsed) {
  const auto aimd = make_aimd({}, {1, 200}, 10);
  EXPECT_EQ(aimd->decide(window(10, milliseconds(10), 5)).to, 11u);
  EXPECT_EQ(aimd->decide(window(11, milliseconds(10), 5)).to, 11u);
}

TEST(Aimd, BacksOffOnADropAndOnASlowCall) {
  const auto aimd = make_aimd({}, {1, 200}, 30);
  EXPECT_EQ(aimd->decide(window(30, milliseconds(10), 30, 1)).to, 27u);
  EXPECT_EQ(aimd->decide(window(27, milliseconds(5001), 27)).to, 24u);
}

TEST(Aimd, StaysWithinItsBounds) {
  const auto aimd = make_aimd({}, {8, 12}, 10);
  for (int i = 0; i < 10; ++i) aimd->decide(window(10, milliseconds(1), 12));
  EXPECT_EQ(aimd->settled(), 12u);
  for (int i = 0; i < 10; ++i) aimd->decide(window(10, milliseconds(1), 12, 1));
  EXPECT_EQ(aimd->settled(), 8u);
}

TEST(Vegas, LearnsTheRoundTripWithoutLoadFirst) {
  const auto vegas = make_vegas({}, {1, 1000}, 10);
  EXPECT_EQ(vegas->decide(window(10, milliseconds(50), 10)).to, 10u);
  EXPECT_EQ(vegas->decide(window(10, milliseconds(10), 10)).to, 10u);  // less than before: learnt
  EXPECT_EQ(vegas->decide(window(10, milliseconds(10), 10)).to, 16u);  // no queue: up by beta
}

TEST(Vegas, ClimbsBelowAlphaHoldsBetweenAndFallsAboveBeta) {
  const auto vegas = make_vegas({}, {1, 1000}, 10);
  vegas->decide(window(10, milliseconds(10), 10));
  EXPECT_EQ(vegas->decide(window(10, milliseconds(12), 10)).to, 11u);  // queue 2
  EXPECT_EQ(vegas->decide(window(11, milliseconds(15), 11)).to, 11u);  // queue 4
  EXPECT_EQ(vegas->decide(window(11, milliseconds(50), 11)).to, 10u);  // queue 9
}

TEST(Vegas, FallsOnADropAndRestsWhenHalfUsed) {
  const auto vegas = make_vegas({}, {1, 1000}, 10);
  vegas->decide(window(10, milliseconds(10), 10));
  EXPECT_EQ(vegas->decide(window(10, milliseconds(10), 10, 1)).to, 9u);
  EXPECT_EQ(vegas->decide(window(9, milliseconds(10), 4)).to, 9u);
}

TEST(Vegas, SmoothsWhenAsked) {
  const auto vegas = make_vegas({.smoothing = 0.5}, {1, 1000}, 100);
  vegas->decide(window(100, milliseconds(10), 100));
  EXPECT_EQ(vegas->decide(window(100, milliseconds(20), 100, 1)).to, 99u);  // 0.5 * 100 + 0.5 * 98
}

TEST(Gradient2, GrowsByTheQueueWhenCallsAreAsFastAsEver) {
  const auto gradient = make_gradient2({}, {1, 1000}, 100);
  gradient->decide(window(100, milliseconds(10), 100));
  EXPECT_EQ(gradient->settled(), 100u);  // 100.8
  gradient->decide(window(100, milliseconds(10), 100));
  EXPECT_EQ(gradient->settled(), 101u);
}

TEST(Gradient2, ShrinksWhenCallsAreSlowerThanTolerated) {
  const auto gradient = make_gradient2({}, {1, 1000}, 100);
  for (int i = 0; i < 20; ++i) gradient->decide(window(100, milliseconds(10), 0));
  EXPECT_EQ(gradient->settled(), 100u);
  gradient->decide(window(100, milliseconds(40), 100));
  // The long average has moved by 2/601 of the difference; gradient = 1.5 * 10.1 / 40, held at 0.5.
  EXPECT_EQ(gradient->settled(), 90u);  // 0.8 * 100 + 0.2 * (50 + 4)
}

TEST(Gradient2, IgnoresDrops) {
  const auto a = make_gradient2({}, {1, 1000}, 100), b = make_gradient2({}, {1, 1000}, 100);
  for (int i = 0; i < 10; ++i)
    ASSERT_EQ(a->decide(window(100, milliseconds(10), 100)).to,
              b->decide(window(100, milliseconds(10), 100, 5)).to);
}

TEST(Known, AWindowOfFewerThanTenSamplesIsDiscarded) {
  for (const auto algorithm : {LimitAlgorithm::aimd, LimitAlgorithm::vegas, LimitAlgorithm::gradient2}) {
    const auto known = make_algorithm({.algorithm = algorithm}, 50);
    Window w = window(50, milliseconds(10), 50);
    w.succeeded = 9;
    for (int i = 0; i < 5; ++i) EXPECT_EQ(known->decide(w).to, 50u);
  }
}

}  // namespace
}  // namespace bulkhead::limiter
