// A task costs its block, which is reused, and nothing else.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <stop_token>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/pool.h"
#include "tests/support/allocations.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// Work of this many bytes.
template <std::size_t Bytes>
struct Sized {
  std::array<unsigned char, Bytes> load{};
  int operator()() { return load[0]; }
};

// The worker of `pool` is up, idle and has its first task behind it; blocks for `tasks` at once are there.
void warm(Pool& pool, int tasks) {
  std::atomic<bool> go = false;
  std::vector<Task<int>> held;
  held.push_back(pool.submit([&] { return go.wait(false), 1; }));
  for (int i = 1; i < tasks; ++i) held.push_back(pool.submit([] { return 1; }));
  go = true;
  go.notify_all();
  for (auto& task : held) EXPECT_TRUE(task.get());
  until([&] { return pool.snapshot().idle == 1; });
}

TEST(PoolAllocation, TheCounterCounts) {
  EXPECT_EQ(allocations_in([] { ::operator delete(::operator new(1)); }), 1u);
}

TEST(PoolAllocation, NoneByWorkOfUpToSixtyFourBytesOnceItsBlocksAreThere) {
  Pool pool{{.max_concurrent = 1, .max_queue = 16}};
  warm(pool, 17);
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 1'000; ++i) {
                EXPECT_TRUE(pool.submit([] {}).get());
                EXPECT_TRUE(pool.submit(Sized<64>()).get());
              }
            }),
            0u);
}

TEST(PoolAllocation, NoneByWorkThatWaitsInTheQueue) {
  Pool pool{{.max_concurrent = 1, .max_queue = 16}};
  warm(pool, 17);
  std::atomic<bool> go = false;
  std::array<Task<int>, 17> tasks;
  EXPECT_EQ(allocations_in([&] {
              tasks[0] = pool.submit([&] { return go.wait(false), 1; });
              for (std::size_t i = 1; i < tasks.size(); ++i) tasks[i] = pool.submit(Sized<64>());
              go = true;
              go.notify_all();
              for (auto& task : tasks) EXPECT_TRUE(task.get());
            }),
            0u);
}

TEST(PoolAllocation, NoneByTimeLimitsRejectionsAndThoseWhoGiveUp) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .max_queue = 2, .clock = &clock}};
  std::atomic<bool> go = true;
  const auto round = [&] {
    go = false;
    std::atomic<bool> begun = false;
    auto running = pool.submit([&] { return begun = true, go.wait(false), 1; }, {.execution_timeout = 1h});
    until([&] { return begun.load(); });
    auto late = pool.submit(Sized<64>(), {.timeout = 1ms, .deadline = clock.now() + 1h});
    auto cancelled = pool.submit(Sized<64>());
    auto full = pool.submit(Sized<64>());
    auto fallen_back = pool.submit_or(Sized<64>(), [](const Rejection&) { return 2; });
    cancelled.cancel();
    clock.advance(1ms);
    EXPECT_FALSE(late.get() || full.get());
    EXPECT_TRUE(fallen_back.get());
    EXPECT_FALSE(running.get_until(clock.now()));
    go = true;
    go.notify_all();
    until([&] { return pool.snapshot().idle == 1; });
  };
  round();  // blocks, and room for the list of the abandoned
  EXPECT_EQ(allocations_in(round), 0u);
}

// A stop_source of the standard library allocates its shared state; that is all.
TEST(PoolAllocation, OneByWorkThatTakesAStopToken) {
  Pool pool{{.max_concurrent = 1, .max_queue = 16}};
  warm(pool, 4);
  const auto one = [&] { EXPECT_TRUE(pool.submit([](std::stop_token) {}).get()); };
  one();
  EXPECT_EQ(allocations_in(one), 1u);
}

TEST(PoolAllocation, LargeWorkCostsOneAllocation) {
  Pool pool{{.max_concurrent = 1, .max_queue = 16}};
  warm(pool, 4);
  const auto one = [&] { EXPECT_TRUE(pool.submit(Sized<1024>()).get()); };
  one();
  EXPECT_EQ(allocations_in(one), 1u);
}

}  // namespace
}  // namespace bulkhead
