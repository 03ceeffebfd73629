#include "limiter/gain.h"

#include <gtest/gtest.h>

namespace bulkhead::limiter {
namespace {

TEST(Gain, AveragesWithLessDoubtTheMoreItHasSeen) {
  Gain g;
  for (const double gain : {0.1, 0.3, 0.1, 0.3}) EXPECT_TRUE(g.learn({.gain = gain, .noise = 0.2}));
  EXPECT_NEAR(g.value(), 0.2, 1e-9);
  EXPECT_NEAR(g.doubt(), 0.1, 1e-9);
  EXPECT_EQ(g.pairs(), 4);
}

TEST(Gain, ANoisyComparisonCountsForLess) {
  Gain g;
  g.learn({.gain = 0.2, .noise = 0.1});
  g.learn({.gain = 0.8, .noise = 1});
  EXPECT_LT(g.value(), 0.21);
}

TEST(Gain, ADifferenceBeyondChanceBeginsANewAverage) {
  Gain g;
  for (int i = 0; i < 10; ++i) g.learn({.gain = 0.1, .noise = 0.1});
  EXPECT_FALSE(g.learn({.gain = 1, .noise = 0.1}));
  EXPECT_EQ(g.value(), 1);
  EXPECT_EQ(g.pairs(), 1);
}

TEST(Gain, IsForgottenAsTheLimitMoves) {
  Gain g;
  for (int i = 0; i < 100; ++i) g.learn({.gain = 0.1, .noise = 0.4});
  const double doubt = g.doubt();
  g.move(0);
  EXPECT_EQ(g.doubt(), doubt);
  g.move(-1);
  EXPECT_GT(g.doubt(), 2 * doubt);
}

}  // namespace
}  // namespace bulkhead::limiter
