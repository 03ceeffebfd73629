// Permit::settle() and Permit::try_grow(). The property test compares random sequences of them with the model.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

std::string name_of(const testing::TestParamInfo<Fairness>& test) {
  constexpr std::array<const char*, 3> names{"Fifo", "Barging", "Adaptive"};
  return names[static_cast<std::size_t>(test.param)];
}

struct Waiting {  // asynchronous calls, in the order in which they were admitted
  std::vector<int> order;
  std::vector<Permit> permits;
  std::shared_ptr<bool> over = std::make_shared<bool>(false);  // calls may be admitted after the test

  ~Waiting() { *over = true; }
  void ask(Gate& gate, int id, AcquireOptions options) {
    gate.async_acquire(std::move(options), [this, id, ended = over](Result<Permit> permit) {
      if (!permit || *ended) return;
      order.push_back(id);
      permits.push_back(*std::move(permit));
    });
  }
};

TEST(Settle, AdmitsExactlyTheWaitersThatFit) {
  Gate gate{{.max_concurrent = 10, .max_queue = 8}};
  Permit permit = *gate.acquire({.cost = 10});
  Waiting waiting;
  for (int i = 0; i < 4; ++i) waiting.ask(gate, i, {.cost = 2});
  EXPECT_TRUE(permit.settle(5));
  EXPECT_EQ(waiting.order, (std::vector{0, 1}));
  EXPECT_EQ(gate.in_flight(), 9u);
  EXPECT_TRUE(permit.settle(4));
  EXPECT_EQ(waiting.order, (std::vector{0, 1, 2}));
  EXPECT_EQ(permit.cost(), 4u);
  EXPECT_EQ(gate.snapshot().permits, 4u);
}

TEST(Settle, OnlyLowers) {
  Gate gate{{.max_concurrent = 10}};
  Permit permit = *gate.acquire({.cost = 4});
  EXPECT_FALSE(permit.settle(5));
  EXPECT_TRUE(permit.settle(4));
  EXPECT_EQ(gate.in_flight(), 4u);
  permit.release();
  EXPECT_FALSE(permit.settle(0));
  EXPECT_FALSE(permit.try_grow(1));
  EXPECT_EQ(gate.in_flight(), 0u);
  EXPECT_FALSE(Permit().settle(0));
}

TEST(Settle, APermitOfNothingIsACallUntilItIsReleased) {
  Gate gate{{.max_concurrent = 1}};
  Permit permit = *gate.acquire();
  EXPECT_TRUE(permit.settle(0));
  EXPECT_EQ(gate.in_flight(), 0u);
  EXPECT_EQ(gate.snapshot().permits, 1u);
  EXPECT_EQ(gate.snapshot().admitted, 1u);
  EXPECT_FALSE(gate.drain(gate.clock().now())) << "a call is in flight";
  Permit other = *gate.acquire();  // its unit is free
  other.release();
  EXPECT_TRUE(permit.release());
  EXPECT_EQ(gate.snapshot().permits, 0u);
  EXPECT_EQ(gate.snapshot().released, 2u);
  EXPECT_TRUE(gate.drain(gate.clock().now()));
}

TEST(Settle, APermitOfNothingKeepsTheGateAlive) {
  std::atomic<bool> gone{false};
  auto gate = std::make_unique<Gate>(GateOptions{.max_concurrent = 3});
  Permit permit = *gate->acquire({.cost = 3});
  permit.settle(0);
  std::thread destroyer([&] {
    gate.reset();
    gone = true;
  });
  while (!permit.gate()->snapshot().closed) std::this_thread::yield();
  EXPECT_FALSE(gone);
  permit.release();
  destroyer.join();
}

TEST(Settle, TheDestructorOfAPermitOfNothingReleasesIt) {
  Gate gate{{.max_concurrent = 2}};
  {
    Permit permit = *gate.acquire({.cost = 2});
    permit.settle(0);
    const Permit moved = std::move(permit);
    EXPECT_EQ(gate.snapshot().permits, 1u);
  }
  EXPECT_EQ(gate.snapshot().permits, 0u);
  EXPECT_TRUE(gate.drain(gate.clock().now()));
}

TEST(Settle, AHandlerThatItAdmitsMayReleaseThePermit) {
  Gate gate{{.max_concurrent = 2, .max_queue = 1}};
  Permit permit = *gate.acquire({.cost = 2});
  Permit other;
  gate.async_acquire({}, [&](Result<Permit> admitted) {
    other = *std::move(admitted);
    permit.release();
  });
  EXPECT_TRUE(permit.settle(1));
  EXPECT_FALSE(permit);
  EXPECT_TRUE(other);
  EXPECT_EQ(gate.in_flight(), 1u);
}

TEST(Settle, TheHooksAreToldWhomItAdmits) {
  int admitted = 0, released = 0;
  Gate gate{{.max_concurrent = 2,
             .max_queue = 1,
             .hooks = {.on_admit = [&](const Event&) { ++admitted; },
                       .on_release = [&](const Event&) { ++released; }},
             .track_holders = true}};
  Permit permit = *gate.acquire({.cost = 2});
  Waiting waiting;
  waiting.ask(gate, 1, {});
  permit.settle(1);
  EXPECT_EQ(admitted, 2);
  EXPECT_EQ(released, 0);
  EXPECT_EQ(gate.holders().at(0).cost, 1u);
}

TEST(Grow, TakesMoreIfThereIsRoom) {
  Gate gate{{.max_concurrent = 10}};
  Permit permit = *gate.acquire();
  EXPECT_TRUE(permit.try_grow(9));
  EXPECT_EQ(permit.cost(), 10u);
  EXPECT_EQ(gate.in_flight(), 10u);
  EXPECT_EQ(gate.snapshot().permits, 1u);
  EXPECT_FALSE(permit.try_grow(1));
  EXPECT_TRUE(permit.settle(0));
  EXPECT_TRUE(permit.try_grow(2));
  EXPECT_FALSE(gate.drain(gate.clock().now()));
  EXPECT_TRUE(permit.release());
  EXPECT_TRUE(gate.drain(gate.clock().now()));
}

class GrowInMode : public testing::TestWithParam<Fairness> {};

TEST_P(GrowInMode, NotPastAWaiterOfItsTierOrAbove) {
  Gate gate{{.max_concurrent = 10, .max_queue = 4, .fairness = GetParam(), .max_barge = 1h}};
  Permit best_effort = *gate.acquire({.priority = Priority::best_effort, .cost = 4});
  Permit normal = *gate.acquire({.cost = 2});
  Permit critical = *gate.acquire({.priority = Priority::critical});
  Waiting waiting;
  waiting.ask(gate, 1, {.cost = 9});
  EXPECT_FALSE(best_effort.try_grow(1));
  EXPECT_FALSE(normal.try_grow(1));
  EXPECT_TRUE(critical.try_grow(1));
  EXPECT_EQ(gate.in_flight(), 8u);
}

INSTANTIATE_TEST_SUITE_P(All, GrowInMode,
                         testing::Values(Fairness::fifo, Fairness::barging, Fairness::adaptive), name_of);

TEST(Grow, OnlyCriticalPermitsGrowIntoTheReserve) {
  Gate gate{{.max_concurrent = 10, .critical_reserve = 0.5}};
  Permit normal = *gate.acquire({.cost = 5});
  Permit critical = *gate.acquire({.priority = Priority::critical});
  EXPECT_FALSE(normal.try_grow(1));
  EXPECT_TRUE(critical.try_grow(4));
  EXPECT_EQ(gate.in_flight(), 10u);
}

TEST(Settle, AMillionEstimatesLeaveNothing) {
  constexpr std::uint32_t max = 200'000;
  Gate gate{{.max_concurrent = max}};
  std::mt19937 random(7);  // the same every time
  std::vector<Permit> held(16);
  for (int i = 0; i < 1'000'000; ++i) {
    Permit& permit = held[random() % held.size()];
    permit = Permit();
    auto estimate = gate.try_acquire({.cost = 1 + static_cast<std::uint32_t>(random() % 32'000)});
    ASSERT_LE(gate.in_flight(), max);
    if (!estimate) continue;
    permit = *std::move(estimate);
    const std::uint32_t used = static_cast<std::uint32_t>(random() % 40'000);
    if (!permit.settle(used)) static_cast<void>(permit.try_grow(used - permit.cost()));
    if (i % 3 == 0) permit.settle(permit.cost() / 2);
    ASSERT_LE(gate.in_flight(), max);
  }
  held.clear();
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 0u);
  EXPECT_EQ(s.permits, 0u);
  EXPECT_EQ(s.admitted, s.released);
  EXPECT_EQ(s.underflows, 0u);
}

// Threads that reserve, settle, grow and release. The sum that they believe to hold, which is never more than what the
// gate has given, is never above the maximum; in the end it is 0, and nobody is left in line.
class SettleStress : public testing::TestWithParam<Fairness> {};

TEST_P(SettleStress, TheSumOfUnitsIsNeverAboveTheMaximum) {
  constexpr std::uint32_t max = 64;
  Gate gate{{.max_concurrent = max,
             .max_queue = 64,
             .critical_reserve = 0.1,
             .fairness = GetParam(),
             .max_barge = 100us,
             .measure_occupancy = true}};
  std::atomic<std::int64_t> sum{0};
  std::atomic<std::int64_t> most{0};
  std::atomic<std::uint64_t> calls{0}, grown{0};
  const auto add = [&](std::int64_t units) {
    const std::int64_t now = sum.fetch_add(units) + units;
    if (now > max) most = now;
  };
  const auto worker = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < 100'000; ++i) {
      const std::uint32_t cost = 1 + static_cast<std::uint32_t>(random() % 40);
      auto permit =
          gate.acquire({.priority = static_cast<Priority>(random() % 3), .cost = cost, .timeout = 5ms});
      if (!permit) continue;
      ++calls;
      add(cost);
      for (int step = 0; step < 3; ++step) {
        const std::uint32_t held = permit->cost();
        if (random() % 2 == 0) {
          const std::uint32_t to = static_cast<std::uint32_t>(random() % (held + 1));
          add(std::int64_t{to} - held);  // before the gate has them
          permit->settle(to);
        } else if (permit->try_grow(4)) {
          ++grown;
          add(4);
        }
      }
      add(-std::int64_t{permit->cost()});
      if (random() % 4 == 0) permit->fail();
      permit->release();
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(worker, i + 1);
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(most, 0);
  EXPECT_EQ(sum, 0);
  EXPECT_GT(grown, 0u);
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 0u);
  EXPECT_EQ(s.permits, 0u);
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(s.admitted, calls);
  EXPECT_EQ(s.released, calls);
  EXPECT_EQ(s.underflows, 0u);
  EXPECT_TRUE(gate.drain(gate.clock().now()));
}

INSTANTIATE_TEST_SUITE_P(All, SettleStress,
                         testing::Values(Fairness::fifo, Fairness::barging, Fairness::adaptive), name_of);

// ---- heavy and light calls ----

// The bound of fifo: from the moment a heavy call is in line, of its tier and below only the calls that were in flight
// or ahead of it run before it, however many light ones come.
TEST(Weights, AHeavyWaiterWaitsOnlyForThoseBeforeIt) {
  constexpr std::uint32_t limit = 8;
  Gate gate{{.max_concurrent = limit, .max_queue = 1000}};
  std::vector<Permit> before;
  for (std::uint32_t i = 0; i < limit; ++i) before.push_back(*gate.acquire());
  Waiting waiting;
  waiting.ask(gate, 0, {.cost = 3});  // ahead of it
  waiting.ask(gate, 1, {.cost = limit});
  for (std::uint32_t i = 0; i < limit; ++i) {
    waiting.ask(gate, 100, {});  // light ones come as fast as others go
    EXPECT_FALSE(gate.try_acquire());
    EXPECT_FALSE(gate.try_acquire({.priority = Priority::best_effort}));
    EXPECT_FALSE(before[i].try_grow(1));
    before[i].release();
  }
  ASSERT_EQ(waiting.order, std::vector{0});
  waiting.permits.at(0).settle(1);
  EXPECT_EQ(waiting.order, std::vector{0}) << "7 are free, and it needs 8";
  waiting.permits.at(0).release();
  EXPECT_EQ(waiting.order, (std::vector{0, 1}));
}

// Between tiers: calls of higher tiers go first, of its own and lower ones none passes it. With a reserve it is admitted
// as soon as its units fit below the reserve.
TEST(Weights, AHeavyWaiterIsPassedByHigherTiersOnly) {
  Gate gate{{.max_concurrent = 10, .max_queue = 100, .critical_reserve = 0.2}};
  std::vector<Permit> before;
  for (int i = 0; i < 8; ++i) before.push_back(*gate.acquire());
  EXPECT_FALSE(gate.try_acquire({.cost = 9})) << "it never fits below the reserve";
  Waiting waiting;
  waiting.ask(gate, 1, {.cost = 8});
  for (int i = 0; i < 8; ++i) {
    waiting.ask(gate, 100, {});
    waiting.ask(gate, 200, {.priority = Priority::best_effort});
    Result<Permit> critical = gate.try_acquire({.priority = Priority::critical});
    EXPECT_TRUE(critical) << "the reserve, and what the heavy call cannot use yet";
    critical->release();
    EXPECT_TRUE(waiting.order.empty());
    before[static_cast<std::size_t>(i)].release();
  }
  EXPECT_EQ(waiting.order, std::vector{1}) << "the release after which it fits, and no later one";
}

// Adaptive: as fifo once the heavy call has waited max_barge. Until then light calls may pass.
TEST(Weights, AdaptiveLetsLightCallsPassAHeavyOneForMaxBargeOnly) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 4,
             .max_queue = 8,
             .fairness = Fairness::adaptive,
             .max_barge = 1ms,
             .clock = &clock}};
  Permit one = *gate.acquire();
  Waiting waiting;
  waiting.ask(gate, 1, {.cost = 4});
  EXPECT_TRUE(gate.try_acquire()) << "passed";
  clock.advance(2ms);
  EXPECT_FALSE(gate.try_acquire()) << "its turn first";
  one.release();
  EXPECT_EQ(waiting.order, std::vector{1});
}

}  // namespace
}  // namespace bulkhead
