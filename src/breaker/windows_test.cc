#include "breaker/windows.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace bulkhead::breaker {
namespace {

constexpr CallResult ok{}, bad{.failure = true}, slow{.slow = true}, both{.failure = true, .slow = true};

TEST(CallWindow, HoldsTheLastNCalls) {
  CallWindow w(3);
  w.begin(1);
  w.record(1, bad);
  w.record(1, both);
  EXPECT_EQ(w.record(1, ok), (Counts{3, 2, 1}));
  EXPECT_EQ(w.record(1, ok), (Counts{3, 1, 1}));
  EXPECT_EQ(w.record(1, slow), (Counts{3, 0, 1}));
  EXPECT_EQ(w.count(1), (Counts{3, 0, 1}));
}

TEST(CallWindow, EverySizeGoesRoundInOrder) {
  for (const std::uint32_t size : {1u, 2u, 3u, 7u, 16u, 17u, 100u, 1000u, 4095u, 32'767u, 32'768u}) {
    CallWindow w(size);
    w.begin(1);
    for (std::uint32_t i = 0; i < size; ++i) w.record(1, bad);
    ASSERT_EQ(w.hint(), (Counts{size, size, 0})) << size;
    for (std::uint32_t i = 1; i <= size; ++i)
      ASSERT_EQ(w.record(1, ok).failures, size - i) << "each success pushes out one failure, size " << size;
    ASSERT_EQ(w.count(1), (Counts{size, 0, 0}));
  }
}

TEST(CallWindow, ANewGenerationStartsEmptyAndTakesNoLateResults) {
  CallWindow w(2);
  w.begin(1);
  w.record(1, bad);
  w.record(1, bad);
  w.begin(2);
  EXPECT_EQ(w.hint(), Counts{});
  EXPECT_EQ(w.count(2), Counts{});
  w.record(2, ok);
  w.record(2, ok);
  w.record(1, bad);  // a thread that slept all the while
  w.record(1, bad);
  EXPECT_EQ(w.count(2), (Counts{2, 0, 0}));
  EXPECT_EQ(w.hint(), (Counts{2, 0, 0}));
}

TEST(CallWindow, GrowsAndShrinksWithANewGeneration) {
  CallWindow w(2);
  w.begin(1);
  w.resize(40);
  w.begin(2);
  for (int i = 0; i < 100; ++i) w.record(2, bad);
  EXPECT_EQ(w.count(2), (Counts{40, 40, 0}));
  w.resize(3);
  w.begin(3);
  for (int i = 0; i < 100; ++i) w.record(3, slow);
  EXPECT_EQ(w.count(3), (Counts{3, 0, 3}));
  EXPECT_EQ(w.hint(), (Counts{3, 0, 3}));
}

// Tags have 30 bits: half of that is as far as older and newer can be told apart.
TEST(CallWindow, CountsAfterAnyNumberOfGenerations) {
  constexpr std::uint64_t lap = std::uint64_t{1} << 30;
  for (const std::uint64_t gone : {lap / 2 + 1, lap - 1, lap, lap + 1, 3 * lap / 2 + 1, 100 * lap}) {
    CallWindow w(4);
    w.begin(1);
    for (int i = 0; i < 4; ++i) w.record(1, bad);
    w.begin(1 + gone);
    EXPECT_EQ(w.count(1 + gone), Counts{}) << gone;
    for (int i = 0; i < 3; ++i) w.record(1 + gone, bad);
    EXPECT_EQ(w.count(1 + gone), (Counts{3, 3, 0})) << gone;
    w.resize(40);  // slots that were never used
    w.begin(2 + gone);
    EXPECT_EQ(w.count(2 + gone), Counts{}) << gone;
    for (int i = 0; i < 40; ++i) w.record(2 + gone, bad);
    EXPECT_EQ(w.count(2 + gone), (Counts{40, 40, 0})) << gone;
  }
}

// C2: whatever the order of additions, the totals come to the sum of the slots.
TEST(CallWindow, TotalsAreTheSumOfTheSlotsOnceThreadsAreDone) {
  for (const std::uint32_t size : {1u, 2u, 5u, 100u}) {
    CallWindow w(size);
    for (std::uint64_t generation = 1; generation <= 20; ++generation) {
      w.begin(generation);
      std::vector<std::thread> threads;
      for (int t = 0; t < 4; ++t)
        threads.emplace_back([&w, generation, t] {
          for (int i = 0; i < 500; ++i)
            w.record(generation, {.failure = (i + t) % 3 == 0, .slow = (i * t) % 5 == 1});
        });
      for (auto& t : threads) t.join();
      ASSERT_EQ(w.hint(), w.count(generation));
      ASSERT_EQ(w.hint().calls, size);
    }
  }
}

TEST(TimeWindow, ForgetsByTenths) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  EXPECT_TRUE(w.record(1, bad, 50));
  EXPECT_TRUE(w.record(1, ok, 950));
  EXPECT_EQ(w.count(1, 999), (Counts{2, 1, 0}));
  EXPECT_EQ(w.count(1, 1000), (Counts{1, 0, 0})) << "the tenth of the failure is over";
  EXPECT_EQ(w.count(1, 1899), (Counts{1, 0, 0}));
  EXPECT_EQ(w.count(1, 1900), Counts{});
  EXPECT_FALSE(w.record(1, ok, 1900)) << "nothing bad in the window";
}

TEST(TimeWindow, AResultThatIsAWholeWindowLateIsDropped) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  w.record(1, ok, 5000);
  w.record(1, bad, 4000);
  EXPECT_EQ(w.count(1, 5000), (Counts{1, 0, 0}));
  w.record(1, bad, 4950);
  EXPECT_EQ(w.count(1, 5000), (Counts{2, 1, 0})) << "this one is just a little late";
}

TEST(TimeWindow, ANewGenerationStartsEmptyAndTakesNoLateResults) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  w.record(1, bad, 10);
  w.begin(2);
  EXPECT_EQ(w.count(2, 10), Counts{});
  w.record(2, ok, 20);
  w.record(1, bad, 30);
  EXPECT_EQ(w.count(2, 30), (Counts{1, 0, 0}));
}

TEST(TimeWindow, IdlingUntilTheTickCountWrapsAroundBringsNothingBack) {
  TimeWindow w;
  w.set_width(10);
  w.begin(1);
  for (std::int64_t t = 0; t < 10; ++t) w.record(1, bad, t);
  constexpr std::int64_t lap = std::int64_t{1} << 22;
  for (const std::int64_t laps : {1, 2, 1000}) {
    EXPECT_EQ(w.count(1, laps * lap + 5), Counts{});
    EXPECT_FALSE(w.record(1, ok, laps * lap + 5));
    EXPECT_EQ(w.count(1, laps * lap + 5), (Counts{1, 0, 0}));
  }
}

// A thread that slept in the middle of record() since another generation.
TEST(TimeWindow, AResultOfAnEndedGenerationNeitherCountsNorMovesTheWindow) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  w.record(1, bad, 10);
  w.begin(2);
  w.record(1, bad, 500'000);
  EXPECT_EQ(w.count(2, 500'000), Counts{});
  w.record(2, bad, 20);
  w.record(1, bad, 900'000);
  EXPECT_EQ(w.count(2, 30), (Counts{1, 1, 0}));
}

TEST(TimeWindow, AnEarlierResultOfTheFirstTicksFindsItsBucket) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  w.record(1, ok, 5950);
  w.record(1, bad, 5050);
  EXPECT_EQ(w.count(1, 5950), (Counts{2, 1, 0}));
  EXPECT_EQ(w.count(1, 6000), (Counts{1, 0, 0}));
}

TEST(TimeWindow, LosesNoResultWhenThreadsRace) {
  TimeWindow w;
  w.set_width(1000);
  w.begin(1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&w] {
      for (int i = 0; i < 1000; ++i) w.record(1, i % 2 ? bad : slow, i);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(w.count(1, 999), (Counts{4000, 2000, 2000}));
}

}  // namespace
}  // namespace bulkhead::breaker
