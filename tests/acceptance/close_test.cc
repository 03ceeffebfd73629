// The close() cases of async-bulkhead-ts (test/bulkhead.test.ts, see tests/SOURCES.md), and what its close()
// does beyond them: the order and the counters.
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

TEST(AsyncBulkheadTs, AfterCloseTryAcquireIsRejectedWithShutdown) {
  Gate gate{{.max_concurrent = 1}};
  gate.close();
  EXPECT_EQ(gate.try_acquire().error().reason, Reason::shutdown);
}

TEST(AsyncBulkheadTs, AfterCloseEveryAcquireIsRejectedWithShutdown) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  gate.close();
  EXPECT_EQ(gate.acquire().error().reason, Reason::shutdown);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, {}, kind).reason(), Reason::shutdown);
}

TEST(AsyncBulkheadTs, AfterCloseRunIsRejectedWithShutdownAndDoesNotCall) {
  Gate gate{{.name = "db", .max_concurrent = 1}};
  gate.close();
  bool called = false;
  const Result<void> result = gate.run([&] { called = true; });
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().reason, Reason::shutdown);
  EXPECT_EQ(result.error().message(), "bulkhead \"db\" rejected (shutdown): 0/1 running, 0/0 waiting");
  EXPECT_FALSE(called);
}

TEST(AsyncBulkheadTs, CloseRejectsAllWaitersAndLeavesThePermitsValid) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.try_acquire();
  Caller b(gate, {}, Kind::handler), c(gate, {}, Kind::coroutine), d(gate, {}, Kind::thread);
  until_waiting(gate, 3);
  gate.close();
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  EXPECT_EQ(b.reason(), Reason::shutdown);
  EXPECT_EQ(c.reason(), Reason::shutdown);
  EXPECT_EQ(d.reason(), Reason::shutdown);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  EXPECT_TRUE(a->release());
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, CloseDoesNotCutCallsInFlight) {
  Gate gate{{.max_concurrent = 2}};
  std::latch end(1);
  int result = 0;
  std::jthread worker([&] {
    result = gate.run([&] {
                   end.wait();
                   return 42;
                 })
                 .value();
  });
  until([&] { return gate.snapshot().in_flight == 1; });
  gate.close();
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  end.count_down();
  worker.join();
  EXPECT_EQ(result, 42);
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, CloseIsIdempotent) {
  int closed = 0;
  Gate gate{{.max_concurrent = 1, .hooks = {.on_close = [&](const Event&) { ++closed; }}}};
  gate.close();
  gate.close();
  gate.close();
  EXPECT_TRUE(gate.snapshot().closed);
  EXPECT_EQ(closed, 1);
}

TEST(AsyncBulkheadTs, TheSnapshotTellsWhetherItIsClosed) {
  Gate gate{{.max_concurrent = 1}};
  EXPECT_FALSE(gate.snapshot().closed);
  gate.close();
  EXPECT_TRUE(gate.snapshot().closed);
}

TEST(AsyncBulkheadTs, CloseDisarmsTimersAndCancellationsOfItsWaiters) {
  for (Kind kind : kinds) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 2, .clock = &clock}};
    auto a = gate.try_acquire();
    std::stop_source stop;
    Caller b(gate, {.timeout = 60s, .stop = stop.get_token()}, kind);
    until_waiting(gate, 1);
    gate.close();
    EXPECT_EQ(b.reason(), Reason::shutdown);
    EXPECT_EQ(clock.next_alarm(), no_deadline);
    stop.request_stop();
    clock.advance(60s);
    EXPECT_EQ(b.reason(), Reason::shutdown);
    EXPECT_EQ(gate.snapshot().rejected(), 1u);
  }
}

TEST(AsyncBulkheadTs, CloseSettlesTheWaitersInFifoOrderBeforeItReturns) {
  Gate gate{{.max_concurrent = 1, .max_queue = 8}};
  auto a = gate.try_acquire();
  std::vector<Caller> callers;
  for (int i = 0; i < 8; ++i) callers.emplace_back(gate, AcquireOptions{}, kinds[i % 2]);
  gate.close();
  for (std::size_t i = 0; i < callers.size(); ++i) {
    ASSERT_FALSE(callers[i].pending());
    EXPECT_EQ(callers[i].reason(), Reason::shutdown);
    if (i > 0) {
      EXPECT_GT(callers[i].turn(), callers[i - 1].turn());
    }
  }
}

TEST(AsyncBulkheadTs, EachRejectionByCloseIsCountedOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate), d(gate);
  gate.close();
  EXPECT_FALSE(gate.try_acquire());
  EXPECT_FALSE(gate.run([] {}));
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.rejected(Reason::shutdown), 5u);
  EXPECT_EQ(s.rejected(), 5u);
  EXPECT_EQ(s.admitted, 1u);
}

TEST(AsyncBulkheadTs, AnIdleGateClosesAndIsDrained) {
  int closed = 0;
  Gate gate{{.max_concurrent = 1, .hooks = {.on_close = [&](const Event& e) {
                                    ++closed;
                                    EXPECT_EQ(e.in_flight, 0u);
                                    EXPECT_EQ(e.waiting, 0u);
                                  }}}};
  gate.close();
  EXPECT_EQ(closed, 1);
  EXPECT_TRUE(gate.drain());
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
