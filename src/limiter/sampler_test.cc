#include "limiter/sampler.h"

#include <gtest/gtest.h>

#include <random>
#include <thread>
#include <vector>

namespace bulkhead::limiter {
namespace {

TEST(Sampler, AWindowIsWhatCameSinceTheLast) {
  Sampler s;
  s.add(Outcome::success, 1000, 3);
  s.add(Outcome::failure, 1, 5);
  s.add(Outcome::timeout, 3000, 4);
  Window w = s.peek();
  EXPECT_EQ(w.succeeded, 1u);
  EXPECT_EQ(w.failed, 1u);
  EXPECT_EQ(w.timed_out, 1u);
  EXPECT_DOUBLE_EQ(w.round_trip, 2000);  // the failure says nothing about time
  EXPECT_DOUBLE_EQ(w.in_flight, 4);
  EXPECT_EQ(w.max_in_flight, 5u);
  s.take(w);
  w = s.peek();
  EXPECT_EQ(w.samples(), 0u);
  EXPECT_EQ(w.max_in_flight, 0u);
}

TEST(Sampler, KnowsHowMuchCallsVaryFromMicrosecondsToMinutes) {
  for (const double mean : {2e3, 5e6, 60e9}) {
    Sampler s;
    std::mt19937 random(1);
    std::exponential_distribution<> draw(1 / mean);
    s.add(Outcome::success, static_cast<std::int64_t>(mean), 1);
    s.take(s.peek());  // learns the scale
    for (int i = 0; i < 20'000; ++i) s.add(Outcome::success, static_cast<std::int64_t>(draw(random)), 1);
    EXPECT_NEAR(s.peek().cv2, 1, 0.1) << mean;
  }
}

TEST(Sampler, AClockThatStandsStillOrRunsBackwardsIsNoTrouble) {
  Sampler s;
  s.add(Outcome::success, 0, 1);
  s.add(Outcome::success, -5, 1);
  EXPECT_EQ(s.peek().succeeded, 2u);
  EXPECT_EQ(s.peek().round_trip, 0);
  EXPECT_EQ(s.peek().cv2, 0);
}

TEST(Sampler, NoCallIsLostBetweenThreads) {
  Sampler s;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 10'000; ++i) s.add(Outcome::success, 7, 2);
    });
  std::uint64_t seen = 0;
  for (int i = 0; i < 50; ++i) seen = std::max(seen, s.peek().succeeded);
  for (auto& t : threads) t.join();
  EXPECT_EQ(s.peek().succeeded, 40'000u);
  EXPECT_LE(seen, 40'000u);
  EXPECT_DOUBLE_EQ(s.peek().round_trip, 7);
  EXPECT_DOUBLE_EQ(s.peek().in_flight, 2);
}

}  // namespace
}  // namespace bulkhead::limiter
