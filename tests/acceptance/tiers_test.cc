// Priorities, eviction and the reserve.
#include <gtest/gtest.h>

#include <vector>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

const AcquireOptions critical{.priority = Priority::critical};
const AcquireOptions normal{.priority = Priority::normal};
const AcquireOptions best_effort{.priority = Priority::best_effort};

AcquireOptions tier(Priority priority) { return {.priority = priority}; }

TEST(Tiers, AreServedInOrderAndFirstInFirstOutWithinOne) {
  Gate gate{{.max_concurrent = 1, .max_queue = 9}};
  auto a = gate.acquire();
  struct Call {
    Priority priority;
    Caller caller;
  };
  std::deque<Call> calls;
  const Priority arrivals[] = {Priority::best_effort, Priority::normal,   Priority::critical,
                               Priority::normal,      Priority::critical, Priority::best_effort,
                               Priority::critical,    Priority::normal,   Priority::best_effort};
  for (std::size_t i = 0; i < 9; ++i)
    calls.push_back({arrivals[i], Caller(gate, tier(arrivals[i]), kinds[i % 2])});
  EXPECT_EQ(gate.snapshot().waiting_by_priority, (std::array<std::uint32_t, 3>{3, 3, 3}));
  a->release();
  std::vector<std::size_t> order;
  while (order.size() < 9)
    for (std::size_t i = 0; i < 9; ++i)
      if (!calls[i].caller.pending() && calls[i].caller.release()) order.push_back(i);
  EXPECT_EQ(order, (std::vector<std::size_t>{2, 4, 6, 1, 3, 7, 0, 5, 8}));
  expect_idle(gate);
}

TEST(Tiers, ANewcomerWaitsBehindItsOwnTier) {
  Gate gate{{.max_concurrent = 2, .max_queue = 5}};
  auto a = gate.acquire();
  Caller heavy(gate, {.cost = 2});  // waits although one unit is free
  EXPECT_TRUE(heavy.pending());
  EXPECT_FALSE(gate.try_acquire());
  Caller light(gate);
  EXPECT_TRUE(light.pending());
  EXPECT_FALSE(gate.try_acquire(best_effort));
  gate.close();
}

TEST(Tiers, ANewcomerMayOvertakeLowerTiersOnly) {
  Gate gate{{.max_concurrent = 2, .max_queue = 5}};
  auto a = gate.acquire();
  Caller heavy(gate, {.priority = Priority::normal, .cost = 2});
  auto overtaking = gate.try_acquire(critical);
  EXPECT_TRUE(overtaking);
  overtaking->release();
  EXPECT_TRUE(heavy.pending());
  EXPECT_FALSE(gate.try_acquire(normal));
  EXPECT_FALSE(gate.try_acquire(best_effort));
  a->release();
  EXPECT_TRUE(heavy.admitted());
}

TEST(Tiers, AFullLineEvictsTheNewestOfTheLowestTier) {
  Gate gate{{.max_concurrent = 1, .max_queue = 4}};
  auto a = gate.acquire();
  Caller n1(gate, normal), b1(gate, best_effort), b2(gate, best_effort), n2(gate, normal);
  Caller c1(gate, critical);
  EXPECT_EQ(b2.reason(), Reason::evicted);
  EXPECT_EQ(b2.rejection().waiting, 3u);
  EXPECT_TRUE(b1.pending());
  Caller n3(gate, normal);
  EXPECT_EQ(b1.reason(), Reason::evicted);
  EXPECT_EQ(Caller(gate, normal).reason(), Reason::queue_limit);
  Caller c2(gate, critical);
  EXPECT_EQ(n3.reason(), Reason::evicted);
  EXPECT_TRUE(n1.pending() && n2.pending() && c1.pending() && c2.pending());
  EXPECT_EQ(gate.snapshot().waiting_by_priority, (std::array<std::uint32_t, 3>{2, 2, 0}));
  EXPECT_EQ(gate.snapshot().rejected(Reason::evicted), 3u);
  gate.close();
}

TEST(Tiers, AFullLineOfItsOwnOrHigherTiersRejects) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.acquire();
  Caller n(gate, normal), c(gate, critical);
  EXPECT_EQ(Caller(gate, normal).reason(), Reason::queue_limit);
  EXPECT_EQ(Caller(gate, best_effort).reason(), Reason::queue_limit);
  EXPECT_TRUE(n.pending() && c.pending());
  gate.close();
}

TEST(Tiers, NobodyIsEvictedForACallThatWillNotWait) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.acquire();
  Caller b(gate, best_effort);
  EXPECT_EQ(Caller(gate, {.priority = Priority::critical, .timeout = 0ns}).reason(), Reason::timeout);
  EXPECT_FALSE(gate.try_acquire(critical));
  EXPECT_TRUE(b.pending());
  gate.close();
}

TEST(Tiers, EvictedThreadsAndCoroutinesLearnItToo) {
  for (Kind kind : kinds) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto a = gate.acquire();
    Caller b(gate, best_effort, kind);
    until_waiting(gate, 1);
    Caller c(gate, critical);
    EXPECT_EQ(b.reason(), Reason::evicted);
    EXPECT_EQ(gate.snapshot().waiting_by_priority, (std::array<std::uint32_t, 3>{1, 0, 0}));
    gate.close();
  }
}

TEST(Reserve, IsForCriticalCallsOnly) {
  Gate gate{{.max_concurrent = 10, .critical_reserve = 0.2}};
  std::vector<Result<Permit>> held;
  for (int i = 0; i < 8; ++i) held.push_back(gate.try_acquire(i % 2 ? normal : best_effort));
  for (const auto& permit : held) EXPECT_TRUE(permit);
  EXPECT_EQ(gate.try_acquire(normal).error().reason, Reason::concurrency_limit);
  EXPECT_EQ(gate.try_acquire(best_effort).error().reason, Reason::concurrency_limit);
  auto x = gate.try_acquire(critical);
  auto y = gate.try_acquire(critical);
  EXPECT_TRUE(x && y);
  EXPECT_FALSE(gate.try_acquire(critical));
  EXPECT_EQ(gate.snapshot().in_flight, 10u);
}

TEST(Reserve, CriticalCallsUseTheCommonPartToo) {
  Gate gate{{.max_concurrent = 4, .critical_reserve = 0.5}};
  std::vector<Result<Permit>> held;
  for (int i = 0; i < 4; ++i) held.push_back(gate.try_acquire(critical));
  EXPECT_TRUE(held.back());
  EXPECT_EQ(gate.snapshot().in_flight, 4u);
  // As critical calls end, the others get what is above the reserve, and not before.
  held.pop_back();
  EXPECT_FALSE(gate.try_acquire(normal));
  held.pop_back();
  EXPECT_FALSE(gate.try_acquire(normal));
  held.pop_back();
  EXPECT_TRUE(gate.try_acquire(normal));
}

TEST(Reserve, IsRoundedUpButNeverEverything) {
  Gate rounded{{.max_concurrent = 10, .critical_reserve = 0.01}};
  std::vector<Result<Permit>> held;
  for (int i = 0; i < 9; ++i) held.push_back(rounded.try_acquire());
  EXPECT_TRUE(held.back());
  EXPECT_FALSE(rounded.try_acquire());
  Gate one{{.max_concurrent = 1, .critical_reserve = 0.9}};
  EXPECT_TRUE(one.try_acquire(normal));
}

TEST(Reserve, FollowsAResize) {
  Gate gate{{.max_concurrent = 10, .critical_reserve = 0.5}};
  gate.resize(4);
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  EXPECT_TRUE(a && b);
  EXPECT_FALSE(gate.try_acquire());
  EXPECT_TRUE(gate.try_acquire(critical));
}

TEST(Reserve, ACriticalWaiterGetsAReleasedReserveUnitBeforeANormalOne) {
  Gate gate{{.max_concurrent = 2, .max_queue = 4, .critical_reserve = 0.5}};
  auto a = gate.acquire(normal);
  auto b = gate.acquire(critical);
  Caller n(gate, normal), c(gate, critical);
  b->release();  // the reserve: of no use to n
  EXPECT_TRUE(c.admitted());
  EXPECT_TRUE(n.pending());
  c.release();
  EXPECT_TRUE(n.pending());
  a->release();
  EXPECT_TRUE(n.admitted());
}

TEST(Reserve, ANormalCallDearerThanTheCommonPartIsRejectedAtOnce) {
  Gate gate{{.max_concurrent = 4, .max_queue = 4, .critical_reserve = 0.5}};
  EXPECT_EQ(gate.acquire({.cost = 3}).error().reason, Reason::concurrency_limit);
  EXPECT_TRUE(gate.acquire({.priority = Priority::critical, .cost = 4}));
}

}  // namespace
}  // namespace bulkhead
