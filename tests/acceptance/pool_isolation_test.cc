// What a pool is for: when all work of one is stuck, another does not notice. Measured in one run, solo and
// beside the stuck pool in turn, so that a noisy machine is noisy for both.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iostream>
#include <vector>

#include "bulkhead/pool.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

std::chrono::nanoseconds p99_of_round_trips(Pool& pool, int n) {
  std::vector<std::chrono::nanoseconds> times;
  for (int i = 0; i < n; ++i) {
    const auto begin = steady_clock::now();
    EXPECT_TRUE(pool.submit([] {}).get());
    times.push_back(steady_clock::now() - begin);
  }
  const auto at = times.begin() + n * 99 / 100;
  std::ranges::nth_element(times, at);
  return *at;
}

// A pool whose threads and queue are full of work that never ends by itself, and that rejects all else.
struct StuckPool {
  StuckPool() {
    for (int i = 0; i < 12; ++i)
      tasks.push_back(pool.submit([this] {
        ++inside;
        go.wait(false);
      }));
    tests::until([&] { return inside == 4; });
    EXPECT_EQ(pool.snapshot().gate.waiting, 8u);
    EXPECT_FALSE(pool.submit([] {}).get());
  }
  ~StuckPool() {
    go = true;
    go.notify_all();
  }
  std::atomic<int> inside = 0;
  std::atomic<bool> go = false;
  Pool pool{{.name = "stuck", .max_concurrent = 4, .max_queue = 8}};
  std::vector<Task<void>> tasks;
};

TEST(PoolIsolation, AStuckPoolDoesNotSlowDownAnother) {
  Pool other{{.name = "other", .max_concurrent = 2, .max_queue = 8}};
  p99_of_round_trips(other, 200);  // warm
  std::vector<std::chrono::nanoseconds> solo, beside;
  for (int round = 0; round < 9; ++round) {
    solo.push_back(p99_of_round_trips(other, 500));
    const StuckPool stuck;
    beside.push_back(p99_of_round_trips(other, 500));
  }
  // The medians of nine: one bad moment of the machine does not count.
  std::ranges::nth_element(solo, solo.begin() + 4);
  std::ranges::nth_element(beside, beside.begin() + 4);
  const auto us = [](std::chrono::nanoseconds t) { return static_cast<double>(t.count()) / 1000; };
  std::cout << "p99 of a round trip: " << us(solo[4]) << " us solo, " << us(beside[4])
            << " us beside a stuck pool\n";
  EXPECT_LE(beside[4], 4 * solo[4] + 200us);
}

TEST(PoolIsolation, AStuckPoolTakesNeitherThreadsNorPlacesOfAnother) {
  const StuckPool stuck;
  Pool other{{.max_concurrent = 2, .max_queue = 1}};
  for (int i = 0; i < 1000; ++i) EXPECT_TRUE(other.submit([] {}).get());
  EXPECT_EQ(other.snapshot().gate.rejected(), 0u);
}

}  // namespace
}  // namespace bulkhead
