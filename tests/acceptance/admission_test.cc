// The admission cases of async-bulkhead-ts (test/bulkhead.test.ts, see tests/SOURCES.md): admission, the
// bounded line, counters.
#include <gtest/gtest.h>

#include <stdexcept>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

TEST(AsyncBulkheadTs, TryAcquireAdmitsUpToMaxConcurrent) {
  Gate gate{{.max_concurrent = 2}};
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  auto c = gate.try_acquire();
  EXPECT_TRUE(a);
  EXPECT_TRUE(b);
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().reason, Reason::concurrency_limit);
}

TEST(AsyncBulkheadTs, TryAcquireIgnoresMaxQueue) {
  Gate gate{{.max_concurrent = 1, .max_queue = 10}};
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().reason, Reason::concurrency_limit);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
}

TEST(AsyncBulkheadTs, ReleaseRestoresCapacity) {
  Gate gate{{.max_concurrent = 1}};
  auto a = gate.try_acquire();
  EXPECT_FALSE(gate.try_acquire());
  EXPECT_TRUE(a->release());
  EXPECT_TRUE(gate.try_acquire());
}

TEST(AsyncBulkheadTs, SnapshotTracksWhatIsInFlight) {
  Gate gate{{.max_concurrent = 2}};
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 2u);
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(s.max_concurrent, 2u);
  EXPECT_EQ(s.max_queue, 0u);
  a->release();
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  b->release();
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, BoundedQueueWaitsAndRejectsBeyondIt) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  Caller b(gate);
  EXPECT_TRUE(b.pending());
  Caller c(gate);
  EXPECT_EQ(c.reason(), Reason::queue_limit);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  b.release();
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, TheLineDrainsFirstInFirstOut) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.try_acquire();
  Caller b(gate);
  Caller c(gate);
  EXPECT_EQ(numbers(gate), Numbers(1, 2));
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_TRUE(c.pending());
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  b.release();
  EXPECT_TRUE(c.admitted());
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  c.release();
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, WithoutAQueueEveryAcquireFailsFast) {
  Gate gate{{.max_concurrent = 1, .max_queue = 0}};
  auto a = gate.try_acquire();
  EXPECT_EQ(gate.try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_EQ(gate.acquire().error().reason, Reason::concurrency_limit);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, {}, kind).reason(), Reason::concurrency_limit);
}

TEST(AsyncBulkheadTs, RunReleasesEvenOnAThrow) {
  Gate gate{{.max_concurrent = 1}};
  EXPECT_THROW(static_cast<void>(gate.run([]() -> int { throw std::runtime_error("boom"); })),
               std::runtime_error);
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().failed, 1u);
}

TEST(AsyncBulkheadTs, ASnapshotIsAPureRead) {
  const auto same = [](const Snapshot& x, const Snapshot& y) {
    return x.in_flight == y.in_flight && x.waiting == y.waiting && x.admitted == y.admitted &&
           x.released == y.released && x.rejected_by_reason == y.rejected_by_reason &&
           x.waiting_by_priority == y.waiting_by_priority;
  };
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  std::stop_source stop;
  Caller b(gate, {.stop = stop.get_token()});
  const Snapshot before = gate.snapshot();
  EXPECT_EQ(before.waiting, 1u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(same(gate.snapshot(), before));
  stop.request_stop();
  const Snapshot after = gate.snapshot();
  EXPECT_EQ(after.waiting, 0u);
  for (int i = 0; i < 10; ++i) EXPECT_TRUE(same(gate.snapshot(), after));
}

TEST(AsyncBulkheadTs, UnderflowIsZeroInNormalOperation) {
  Gate gate{{.max_concurrent = 2}};
  for (int i = 0; i < 100; ++i) {
    auto a = gate.try_acquire();
    auto b = gate.try_acquire();
    EXPECT_EQ(gate.snapshot().underflows, 0u);
  }
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, ADoubleReleaseIsCountedAndChangesNothing) {
  Gate gate{{.max_concurrent = 1}};
  auto a = gate.try_acquire();
  EXPECT_TRUE(a->release());
  EXPECT_FALSE(a->release());
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.double_releases, 1u);
  EXPECT_EQ(s.released, 1u);
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
