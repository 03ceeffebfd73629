#include "base/counter_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bulkhead::base {
namespace {

using std::chrono::steady_clock;

std::int64_t system_now() { return steady_clock::now().time_since_epoch().count(); }

// A reading lies between two of the system's clock, but for the error of a tenth of a second.
TEST(CounterClock, AgreesWithTheSystemsClock) {
  constexpr std::int64_t tolerance = 100'000;
  const auto end = steady_clock::now() + std::chrono::milliseconds(350);
  std::uint64_t readings = 0;
  while (steady_clock::now() < end) {
    const std::int64_t before = system_now();
    const std::int64_t now = counter_now();
    const std::int64_t after = system_now();
    ASSERT_GE(now, before - tolerance);
    ASSERT_LE(now, after + tolerance);
    ++readings;
  }
  EXPECT_GT(readings, 0u);
}

TEST(CounterClock, ManyThreadsSeeOneTime) {
  std::atomic<std::int64_t> latest{0};
  std::atomic<std::uint64_t> wrong{0};
  const auto end = steady_clock::now() + std::chrono::milliseconds(250);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (steady_clock::now() < end) {
        const std::int64_t seen = latest.load();
        const std::int64_t now = counter_now();
        if (now < seen - 100'000) ++wrong;
        latest.store(now);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace bulkhead::base
