// The order of admission in async-bulkhead-ts (see tests/SOURCES.md), and what a release does.
#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

TEST(AsyncBulkheadTs, TryAcquireAfterAReleaseDoesNotBarge) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  Caller b(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  a->release();
  EXPECT_EQ(gate.try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_TRUE(b.admitted());
}

TEST(AsyncBulkheadTs, AcquireAfterAReleaseQueuesBehind) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.try_acquire();
  Caller b(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  a->release();
  Caller c(gate);
  EXPECT_TRUE(c.pending());
  EXPECT_TRUE(b.admitted());
  EXPECT_TRUE(c.pending());
  b.release();
  EXPECT_TRUE(c.admitted());
}

TEST(AsyncBulkheadTs, AHundredWaitersAreAdmittedInStrictOrder) {
  Gate gate{{.max_concurrent = 1, .max_queue = 100}};
  auto a = gate.try_acquire();
  std::vector<Caller> line;
  for (int i = 0; i < 100; ++i) line.emplace_back(gate, AcquireOptions{}, kinds[i % 2]);
  a->release();
  for (std::size_t i = 0; i < line.size(); ++i) {
    ASSERT_FALSE(line[i].pending());
    if (i + 1 < line.size()) {
      EXPECT_TRUE(line[i + 1].pending());
    }
    line[i].release();
  }
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, ThreadsHandlersAndCoroutinesShareOneStrictLine) {
  Gate gate{{.max_concurrent = 1, .max_queue = 100}};
  auto a = gate.try_acquire();
  std::vector<std::size_t> order;  // guarded by the gate itself
  const auto detached = [](Gate& g, std::vector<std::size_t>& out, std::size_t i) -> Detached {
    auto permit = co_await g.co_acquire();
    out.push_back(i);
  };
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 60; ++i) {
    if (i % 3 == 0)
      threads.emplace_back([&, i] {
        auto permit = gate.acquire();
        order.push_back(i);
      });
    else if (i % 3 == 1)
      gate.async_acquire({}, [&order, i](Result<Permit>) { order.push_back(i); });
    else
      detached(gate, order, i);
    until_waiting(gate, static_cast<std::uint32_t>(i + 1));
  }
  a->release();
  threads.clear();
  EXPECT_TRUE(gate.drain());
  ASSERT_EQ(order.size(), 60u);
  for (std::size_t i = 0; i < order.size(); ++i) EXPECT_EQ(order[i], i);
}

TEST(AsyncBulkheadTs, ACancelInMidLineKeepsTheOrderAndFreesItsPlace) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.try_acquire();
  std::stop_source stop;
  Caller b(gate);
  Caller c(gate, {.stop = stop.get_token()});
  Caller d(gate);
  EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
  stop.request_stop();
  Caller e(gate);
  EXPECT_TRUE(e.pending());
  a->release();
  EXPECT_TRUE(b.admitted());
  b.release();
  EXPECT_TRUE(d.admitted());
  d.release();
  EXPECT_TRUE(e.admitted());
  EXPECT_EQ(c.reason(), Reason::cancelled);
}

TEST(AsyncBulkheadTs, OneReleaseAdmitsOneWaiter) {
  Gate gate{{.max_concurrent = 3, .max_queue = 5}};
  Result<Permit> held[] = {gate.try_acquire(), gate.try_acquire(), gate.try_acquire()};
  std::vector<Caller> line;
  for (int i = 0; i < 5; ++i) line.emplace_back(gate);
  for (std::uint32_t n = 0; n < 3; ++n) {
    held[n]->release();
    EXPECT_EQ(numbers(gate), Numbers(3, 4 - n));
    EXPECT_FALSE(line[n].pending());
    EXPECT_TRUE(line[n + 1].pending());
  }
  gate.close();
}

TEST(AsyncBulkheadTs, TheHandOffIsDoneWhenReleaseReturns) {
  for (Kind kind : kinds) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto a = gate.try_acquire();
    Caller b(gate, {}, kind);
    until_waiting(gate, 1);
    a->release();
    const Snapshot s = gate.snapshot();
    EXPECT_EQ(s.in_flight, 1u);
    EXPECT_EQ(s.waiting, 0u);
    EXPECT_EQ(s.admitted, 2u);
    EXPECT_EQ(s.released, 1u);
    EXPECT_TRUE(b.admitted());
  }
}

TEST(AsyncBulkheadTs, ReleasingThriceNeverFreesAnotherHolder) {
  Gate gate{{.max_concurrent = 2}};
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  EXPECT_TRUE(a->release());
  EXPECT_FALSE(a->release());
  EXPECT_FALSE(a->release(Outcome::failure));
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 1u);
  EXPECT_EQ(s.double_releases, 2u);
  EXPECT_EQ(s.failed, 0u);
  EXPECT_TRUE(*b);
}

TEST(AsyncBulkheadTs, ADoubleReleaseDoesNotAdmitAWaiter) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate);
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_FALSE(a->release());
  EXPECT_TRUE(c.pending());
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  gate.close();
}

// A permit knows its gate: detached from the caller here means moved elsewhere.
TEST(AsyncBulkheadTs, APermitMovedAwayIsReleasedAfterClose) {
  Gate gate{{.max_concurrent = 1}};
  Permit kept;
  {
    auto a = gate.try_acquire();
    kept = *std::move(a);
    EXPECT_FALSE(*a);  // NOLINT(bugprone-use-after-move): a moved-from permit is empty
  }
  gate.close();
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  std::jthread([p = std::move(kept)]() mutable { EXPECT_TRUE(p.release()); }).join();
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().double_releases, 0u);
}

}  // namespace
}  // namespace bulkhead
