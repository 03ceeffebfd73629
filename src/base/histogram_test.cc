#include "bulkhead/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

double quantile(const Histogram& histogram, double q) { return static_cast<double>(histogram.quantile(q)); }

TEST(Histogram, EveryValueLiesWithinItsBucket) {
  std::mt19937_64 random(1);
  for (int i = 0; i < 100'000; ++i) {
    const std::uint64_t v = (random() >> (random() % 40)) >> 22;  // below 2^42
    const std::size_t b = Histogram::bucket_of(v);
    EXPECT_LE(static_cast<double>(v), Histogram::upper_bound(b)) << v;
    if (b > 0) {
      EXPECT_GT(static_cast<double>(v), Histogram::upper_bound(b - 1)) << v;
    }
  }
}

TEST(Histogram, APowerOfTwoEndsItsBucket) {
  for (std::size_t k = 1; k < 42; ++k) {
    EXPECT_EQ(Histogram::bucket_of(std::uint64_t{1} << k), k * 8);
    EXPECT_GT(Histogram::bucket_of((std::uint64_t{1} << k) + 1), k * 8);
  }
  EXPECT_EQ(Histogram::bucket_of(0), 0u);
  EXPECT_EQ(Histogram::bucket_of(1), 0u);
  EXPECT_EQ(Histogram::bucket_of(~std::uint64_t{0}), Histogram::kBuckets - 1);
}

TEST(Histogram, QuantilesAreRightWithinFivePercent) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> spread(17, 1.5);  // around 24 ms, in ns
  Histogram histogram;
  std::vector<double> exact;
  for (int i = 0; i < 20'000; ++i) {
    const double v = std::floor(spread(random));
    exact.push_back(v);
    histogram.record(static_cast<std::uint64_t>(v));
  }
  std::sort(exact.begin(), exact.end());
  for (const double q : {0.001, 0.1, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const double wanted = exact[static_cast<std::size_t>(std::ceil(q * 20'000)) - 1];
    EXPECT_NEAR(quantile(histogram, q), wanted, 0.05 * wanted) << q;
  }
}

TEST(Histogram, AnEmptyOneAnswersZero) {
  Histogram histogram;
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.quantile(0.99), 0u);
  EXPECT_EQ(histogram.counts().mean(), 0);
  histogram.record(0);
  EXPECT_EQ(histogram.count(), 1u);
  EXPECT_EQ(histogram.quantile(1), 0u);
}

TEST(Histogram, MergedOnesAnswerAsOne) {
  Histogram fast, slow, both;
  for (int i = 0; i < 99; ++i) fast.record(1'000'000), both.record(1'000'000);
  slow.record(1'000'000'000), both.record(1'000'000'000);
  fast.merge(slow.counts());
  EXPECT_EQ(fast.counts().buckets, both.counts().buckets);
  EXPECT_EQ(fast.counts().sum, both.counts().sum);
  EXPECT_NEAR(quantile(fast, 0.99), 1e6, 5e4);
  EXPECT_NEAR(quantile(fast, 0.991), 1e9, 5e7);
}

TEST(Histogram, TheDifferenceOfTwoReadingsIsTheWindowBetween) {
  Histogram histogram;
  for (int i = 0; i < 1000; ++i) histogram.record(5'000'000);
  const auto before = histogram.counts();
  for (int i = 0; i < 10; ++i) histogram.record(80);
  auto window = histogram.counts();
  window -= before;
  EXPECT_EQ(window.count(), 10u);
  EXPECT_NEAR(static_cast<double>(window.quantile(0.99)), 80, 4);
  EXPECT_EQ(window.mean(), 80);
  histogram.reset();
  EXPECT_EQ(histogram.count(), 0u);
}

TEST(Histogram, NoRecordIsLostBetweenThreads) {
  Histogram histogram;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 50'000; ++i) histogram.record(static_cast<std::uint64_t>(i));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(histogram.count(), 200'000u);
  EXPECT_EQ(histogram.counts().sum, 4u * (50'000ull * 49'999 / 2));
}

}  // namespace
}  // namespace bulkhead
