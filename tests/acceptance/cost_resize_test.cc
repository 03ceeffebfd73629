// Weighted calls and live resize.
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

TEST(Cost, UnitsAreCountedAndPermitsAreCountedApart) {
  Gate gate{{.max_concurrent = 10}};
  auto a = gate.acquire({.cost = 7});
  auto b = gate.acquire({.cost = 3});
  EXPECT_TRUE(a && b);
  EXPECT_EQ(a->cost(), 7u);
  Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 10u);
  EXPECT_EQ(s.permits, 2u);
  EXPECT_EQ(s.admitted, 2u);
  EXPECT_FALSE(gate.try_acquire());
  a->release(Outcome::failure);
  s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 3u);
  EXPECT_EQ(s.permits, 1u);
  EXPECT_EQ(s.failed, 1u);
  b->release();
  expect_idle(gate);
}

TEST(Cost, AboveTheLimitIsRejectedAtOnce) {
  Gate gate{{.max_concurrent = 4, .max_queue = 4}};
  for (std::uint32_t cost : {5u, 1u << 28, (1u << 30) + 1, std::numeric_limits<std::uint32_t>::max()}) {
    EXPECT_EQ(gate.try_acquire({.cost = cost}).error().reason, Reason::concurrency_limit);
    for (Kind kind : kinds)
      EXPECT_EQ(Caller(gate, {.cost = cost}, kind).reason(), Reason::concurrency_limit) << cost;
  }
  EXPECT_TRUE(gate.acquire({.cost = 4}));
  expect_idle(gate);
}

TEST(Cost, AboveTheLimitIsRejectedAlsoWhenTheLineIsFull) {
  Gate gate{{.max_concurrent = 2, .max_queue = 1}};
  auto a = gate.acquire({.cost = 2});
  Caller b(gate);
  EXPECT_EQ(Caller(gate, {.cost = 3}).reason(), Reason::concurrency_limit);
  EXPECT_EQ(Caller(gate, {.cost = 2}).reason(), Reason::queue_limit);
  gate.close();
}

TEST(Cost, AHeavyHeadIsNotOvertakenByLightOnesBehindIt) {
  for (Kind kind : kinds) {
    Gate gate{{.max_concurrent = 3, .max_queue = 4}};
    auto a = gate.acquire(), b = gate.acquire(), c = gate.acquire();
    Caller heavy(gate, {.cost = 3}, kind);
    until_waiting(gate, 1);
    Caller light(gate, {}, kind);
    until_waiting(gate, 2);
    a->release();
    b->release();
    EXPECT_EQ(numbers(gate), Numbers(1, 2));
    c->release();
    EXPECT_TRUE(heavy.admitted());
    EXPECT_TRUE(light.pending());
    heavy.release();
    EXPECT_TRUE(light.admitted());
  }
}

TEST(Cost, OneHeavyReleaseAdmitsAllThatFit) {
  Gate gate{{.max_concurrent = 4, .max_queue = 5}};
  auto heavy = gate.acquire({.cost = 4});
  std::deque<Caller> line;
  for (std::uint32_t cost : {1u, 2u, 1u, 1u}) line.emplace_back(gate, AcquireOptions{.cost = cost});
  heavy->release();
  EXPECT_TRUE(line[0].admitted() && line[1].admitted() && line[2].admitted());
  EXPECT_TRUE(line[3].pending());
  EXPECT_EQ(numbers(gate), Numbers(4, 1));
  gate.close();
}

TEST(Cost, AHeavyHeadThatLeavesLetsTheLightOnesThrough) {
  Gate gate{{.max_concurrent = 2, .max_queue = 4}};
  auto a = gate.acquire();
  std::stop_source stop;
  Caller heavy(gate, {.cost = 2, .stop = stop.get_token()});
  Caller light(gate);
  EXPECT_TRUE(light.pending());
  stop.request_stop();
  EXPECT_EQ(heavy.reason(), Reason::cancelled);
  EXPECT_TRUE(light.admitted());  // nobody released anything: the leaving itself made way
}

TEST(Resize, GrowingAdmitsExactlyTheWaitersThatFit) {
  Gate gate{{.max_concurrent = 1, .max_queue = 6}};
  auto a = gate.acquire();
  std::deque<Caller> line;
  for (std::uint32_t cost : {1u, 2u, 1u}) {
    gate.resize(2);
    line.emplace_back(gate, AcquireOptions{.cost = cost});
    if (line.size() == 1) {
      EXPECT_TRUE(line[0].admitted());
    }
  }
  EXPECT_EQ(numbers(gate), Numbers(2, 2));
  gate.resize(3);
  EXPECT_EQ(numbers(gate), Numbers(2, 2));  // the head needs two
  gate.resize(4);
  EXPECT_TRUE(line[1].admitted());
  EXPECT_TRUE(line[2].pending());
  gate.resize(5);
  EXPECT_TRUE(line[2].admitted());
}

TEST(Resize, ShrinkingCutsNobodyAndIsVisibleAtOnce) {
  Gate gate{{.max_concurrent = 4, .max_queue = 1}};
  std::vector<Result<Permit>> held;
  for (int i = 0; i < 3; ++i) held.push_back(gate.acquire());
  gate.resize(2);
  EXPECT_EQ(gate.snapshot().max_concurrent, 2u);
  EXPECT_EQ(gate.snapshot().in_flight, 3u);
  EXPECT_EQ(gate.snapshot().underflows, 0u);
  EXPECT_FALSE(gate.try_acquire());
  held.pop_back();
  EXPECT_FALSE(gate.try_acquire());
  held.pop_back();
  EXPECT_TRUE(gate.try_acquire());
}

TEST(Resize, WaitersWhoseCostNoLongerFitsAreRejected) {
  for (Kind kind : kinds) {
    Gate gate{{.max_concurrent = 4, .max_queue = 4}};
    auto a = gate.acquire({.cost = 4});
    Caller heavy(gate, {.cost = 3}, kind);
    until_waiting(gate, 1);
    Caller light(gate, {.cost = 2}, kind);
    until_waiting(gate, 2);
    gate.resize(2);
    EXPECT_EQ(heavy.reason(), Reason::concurrency_limit);
    EXPECT_EQ(numbers(gate), Numbers(4, 1));
    a->release();
    EXPECT_TRUE(light.admitted());
  }
}

TEST(Resize, ASmallerQueueKeepsThoseInLineAndRejectsNewcomers) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.acquire();
  Caller b(gate), c(gate), d(gate);
  gate.resize_queue(1);
  EXPECT_EQ(gate.snapshot().max_queue, 1u);
  EXPECT_EQ(gate.snapshot().waiting, 3u);
  EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
  gate.resize_queue(3);
  Caller e(gate);
  EXPECT_TRUE(e.pending());
  gate.close();
}

TEST(Resize, AQueueOfZeroFailsFast) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.acquire();
  gate.resize_queue(0);
  EXPECT_EQ(gate.acquire().error().reason, Reason::concurrency_limit);
}

TEST(Resize, AClosedGateStaysClosed) {
  Gate gate{{.max_concurrent = 1}};
  gate.close();
  gate.resize(10);
  EXPECT_EQ(gate.try_acquire().error().reason, Reason::shutdown);
}

}  // namespace
}  // namespace bulkhead
