#include "bulkhead/service_times.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

TEST(ServiceTimes, CountsWhatItsOwnerAndTheOthersAdd) {
  ServiceTimes times;
  times.add(1000);  // this thread is the owner now
  std::jthread([&] {
    times.add(1000);
    times.add(1'000'000);
  }).join();
  const HistogramCounts counts = times.counts();
  EXPECT_EQ(counts.count(), 3u);
  EXPECT_EQ(counts.sum, 1'002'000u);
  EXPECT_EQ(counts.buckets[Histogram::bucket_of(1000)], 2u);
  EXPECT_EQ(counts.buckets[Histogram::bucket_of(1'000'000)], 1u);
}

TEST(ServiceTimes, ResetForgetsWhatWasAddedByAnybody) {
  ServiceTimes times;
  times.add(1000);
  std::jthread([&] { times.add(2000); }).join();
  times.reset();
  EXPECT_EQ(times.counts().count(), 0u);
  EXPECT_EQ(times.counts().sum, 0u);
  times.add(3000);
  std::jthread([&] { times.add(4000); }).join();
  EXPECT_EQ(times.counts().count(), 2u);
  EXPECT_EQ(times.counts().sum, 7000u);
  times.reset();
  EXPECT_EQ(times.counts().count(), 0u);
}

TEST(ServiceTimes, NothingIsLostWhenManyAddAtOnce) {
  constexpr std::uint64_t kThreads = 4, kEach = 10'000;
  ServiceTimes times;
  std::atomic<bool> done = false;
  {
    std::jthread reader([&] {
      for (std::uint64_t seen = 0; !done;) {
        const std::uint64_t now = times.counts().count();
        EXPECT_GE(now, seen);
        seen = now;
      }
    });
    {
      std::vector<std::jthread> threads;
      for (std::uint64_t t = 0; t < kThreads; ++t)
        threads.emplace_back([&times, t] {
          for (std::uint64_t i = 0; i < kEach; ++i) times.add(t * 1000 + 7);
        });
    }
    done = true;
  }
  EXPECT_EQ(times.counts().count(), kThreads * kEach);
  EXPECT_EQ(times.counts().sum, kEach * (0 + 1000 + 2000 + 3000 + 4 * 7));
}

}  // namespace
}  // namespace bulkhead
