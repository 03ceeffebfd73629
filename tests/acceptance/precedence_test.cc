// Construction, the order of decisions and timeouts in async-bulkhead-ts (see tests/SOURCES.md). Where this
// library decides differently, the comment says so. The last cases exclude defects of async-bulkhead-ts.
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

AcquireOptions cancelled_already() {
  static const std::stop_source stop = [] {
    std::stop_source source;
    source.request_stop();
    return source;
  }();
  return {.stop = stop.get_token()};
}

constexpr std::chrono::nanoseconds unwilling[] = {0ns, -1ns, -1h, gate_default + 1ns};

// uint32_t rules out fractions, NaN and strings; what is left are 0 and values too large.
TEST(AsyncBulkheadTs, AMaxConcurrentOutOfRangeIsRejected) {
  for (std::uint32_t bad : {0u, 1u << 28, std::numeric_limits<std::uint32_t>::max()})
    EXPECT_THROW(Gate({.max_concurrent = bad}), std::invalid_argument) << bad;
}

TEST(AsyncBulkheadTs, AMaxQueueOutOfRangeIsRejected) {
  for (std::uint32_t bad : {1u << 21, std::numeric_limits<std::uint32_t>::max()})
    EXPECT_THROW(Gate({.max_queue = bad}), std::invalid_argument) << bad;
}

TEST(AsyncBulkheadTs, WithoutASettingThereIsNoQueue) {
  Gate gate{{.max_concurrent = 3}};
  EXPECT_EQ(gate.snapshot().max_queue, 0u);
}

TEST(AsyncBulkheadTs, AFreshSnapshotIsAllZero) {
  Gate gate{{.max_concurrent = 2, .max_queue = 3}};
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.max_concurrent, 2u);
  EXPECT_EQ(s.max_queue, 3u);
  EXPECT_FALSE(s.closed);
  EXPECT_EQ(s.in_flight + s.waiting + s.permits, 0u);
  EXPECT_EQ(s.admitted + s.released + s.succeeded + s.failed, 0u);
  EXPECT_EQ(s.double_releases + s.hook_errors + s.underflows + s.rejected(), 0u);
  EXPECT_EQ(s.waiting_by_priority, (std::array<std::uint32_t, 3>{}));
  EXPECT_EQ(s.mean_hold, 0ns);
}

TEST(AsyncBulkheadTs, MaxConcurrentIsCheckedFirst) {
  try {
    Gate gate{{.max_concurrent = 0, .max_queue = 1u << 21}};
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_NE(std::string(e.what()).find("max_concurrent"), std::string::npos);
  }
}

// Different on purpose: async-bulkhead-ts ignores an aborted signal if there is room. Here a cancelled call
// never runs.
TEST(AsyncBulkheadTs, ACancelledCallIsNotAdmittedEvenIfThereIsRoom) {
  Gate gate{{.max_concurrent = 1}};
  EXPECT_EQ(gate.try_acquire(cancelled_already()).error().reason, Reason::cancelled);
  EXPECT_EQ(gate.acquire(cancelled_already()).error().reason, Reason::cancelled);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, cancelled_already(), kind).reason(), Reason::cancelled);
  EXPECT_EQ(gate.snapshot().admitted, 0u);
}

TEST(AsyncBulkheadTs, ACallUnwillingToWaitIsAdmittedIfThereIsRoom) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  for (auto timeout : unwilling) {
    EXPECT_TRUE(gate.acquire({.timeout = timeout}));
    for (Kind kind : kinds) EXPECT_TRUE(Caller(gate, {.timeout = timeout}, kind).admitted());
  }
}

TEST(AsyncBulkheadTs, RunDoesNotCallForACancelledCall) {
  Gate gate{{.max_concurrent = 1}};
  bool called = false;
  EXPECT_EQ(gate.run([&] { called = true; }, cancelled_already()).error().reason, Reason::cancelled);
  EXPECT_FALSE(called);
}

// Different on purpose: async-bulkhead-ts checks the limits before the signal.
TEST(AsyncBulkheadTs, CancelledComesBeforeConcurrencyLimit) {
  Gate gate{{.max_concurrent = 1}};
  auto a = gate.try_acquire();
  EXPECT_EQ(gate.try_acquire(cancelled_already()).error().reason, Reason::cancelled);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, cancelled_already(), kind).reason(), Reason::cancelled);
}

TEST(AsyncBulkheadTs, CancelledComesBeforeQueueLimit) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  Caller b(gate);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, cancelled_already(), kind).reason(), Reason::cancelled);
  EXPECT_TRUE(b.pending());
}

TEST(AsyncBulkheadTs, ShutdownComesBeforeCancelled) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  gate.close();
  EXPECT_EQ(gate.try_acquire(cancelled_already()).error().reason, Reason::shutdown);
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, cancelled_already(), kind).reason(), Reason::shutdown);
}

TEST(AsyncBulkheadTs, ACancelledCallNeverJoinsTheLineAndIsCounted) {
  std::uint32_t most_waiting = 0;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = {.on_reject = [&](const Event& e, Reason) {
                                                    most_waiting = std::max(most_waiting, e.waiting);
                                                  }}}};
  auto a = gate.try_acquire();
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, cancelled_already(), kind).reason(), Reason::cancelled);
  EXPECT_EQ(most_waiting, 0u);
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(s.rejected(Reason::cancelled), 3u);
  EXPECT_EQ(s.rejected(), 3u);
}

TEST(AsyncBulkheadTs, CancelledComesBeforeDeadlineAndTimeout) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  AcquireOptions options = cancelled_already();
  options.timeout = -1ns;
  options.deadline = clock.now() - 1ns;
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, options, kind).reason(), Reason::cancelled);
  options.stop = {};
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, options, kind).reason(), Reason::deadline);
}

// Different on purpose: a timeout of 0 means "do not wait" here, instead of "until the next tick".
TEST(AsyncBulkheadTs, ATimeoutOfZeroIsRejectedAtOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  for (Kind kind : kinds) EXPECT_EQ(Caller(gate, {.timeout = 0ns}, kind).reason(), Reason::timeout);
  EXPECT_EQ(gate.snapshot().rejected(Reason::timeout), 3u);
}

TEST(AsyncBulkheadTs, AReleaseBeforeTheShortestTimeoutEndsAdmits) {
  for (Kind kind : kinds) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.try_acquire();
    Caller b(gate, {.timeout = 1ns}, kind);
    until_waiting(gate, 1);
    a->release();
    clock.advance(1ns);
    EXPECT_TRUE(b.admitted());
  }
}

// An infinite timeout waits for ever here, see HugeTimeoutsWaitInsteadOfWrappingAround; other odd values mean
// "do not wait".
TEST(AsyncBulkheadTs, ANegativeTimeoutIsRejectedAtOnceAndNeverWaits) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  for (auto timeout : unwilling)
    for (Kind kind : kinds) {
      Caller b(gate, {.timeout = timeout}, kind);
      EXPECT_EQ(b.reason(), Reason::timeout);
      EXPECT_EQ(b.rejection().waiting, 0u);
    }
  EXPECT_EQ(gate.snapshot().rejected(), 12u);
}

TEST(AsyncBulkheadTs, WithoutATimeoutACallWaitsForEver) {
  for (Kind kind : kinds) {
    WatchedClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.try_acquire();
    Caller b(gate, {}, kind);
    until_waiting(gate, 1);
    clock.advance(24h * 365 * 100);
    EXPECT_EQ(numbers(gate), Numbers(1, 1));
    a->release();
    EXPECT_TRUE(b.admitted());
  }
}

TEST(AsyncBulkheadTs, AdmissionDisarmsTheTimer) {
  for (Kind kind : {Kind::handler, Kind::coroutine}) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.try_acquire();
    Caller b(gate, {.timeout = 10ms}, kind);
    EXPECT_EQ(clock.next_alarm(), clock.now() + 10ms);
    a->release();
    EXPECT_EQ(clock.next_alarm(), no_deadline);
    clock.advance(1s);
    EXPECT_TRUE(b.admitted());
    EXPECT_EQ(gate.snapshot().rejected(), 0u);
  }
}

TEST(AsyncBulkheadTs, ATimeoutFreesThePlaceInLineAtOnce) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate, {.timeout = 10ms});
  EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
  clock.advance(10ms);
  EXPECT_EQ(b.reason(), Reason::timeout);
  Caller c(gate);
  EXPECT_TRUE(c.pending());
  a->release();
  EXPECT_TRUE(c.admitted());
}

TEST(AsyncBulkheadTs, ATimeoutBoundsTheWaitNotTheCall) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  const auto result = gate.run(
      [&] {
        clock.advance(1h);
        return 7;
      },
      {.timeout = 1ms});
  EXPECT_EQ(result.value(), 7);
  EXPECT_EQ(gate.snapshot().rejected(), 0u);
}

// In async-bulkhead-ts a broken options object takes a place in line for ever. Here no options object can be
// broken; the nearest case is a call whose odd options keep it out of the line.
TEST(AsyncBulkheadTs, OddOptionsNeverLeakAPlaceInLine) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  for (int i = 0; i < 100; ++i) {
    for (Kind kind : {Kind::handler, Kind::coroutine}) {
      EXPECT_FALSE(Caller(gate, {.timeout = -1ns}, kind).admitted());
      EXPECT_FALSE(Caller(gate, {.deadline = TimePoint::min()}, kind).admitted());
      EXPECT_FALSE(Caller(gate, {.cost = std::numeric_limits<std::uint32_t>::max()}, kind).admitted());
      EXPECT_FALSE(Caller(gate, cancelled_already(), kind).admitted());
    }
    EXPECT_EQ(numbers(gate), Numbers(1, 0));
  }
  Caller b(gate, {.cost = 0});  // counts as 1
  EXPECT_TRUE(b.pending());
  a->release();
  EXPECT_TRUE(b.admitted());
  b.release();
  EXPECT_TRUE(gate.drain());
  expect_idle(gate);
}

// In async-bulkhead-ts an infinite timeout, or one above 2^31 - 1 ms, ends within a millisecond.
TEST(AsyncBulkheadTs, HugeTimeoutsWaitInsteadOfWrappingAround) {
  const std::chrono::nanoseconds huge[] = {wait_forever, wait_forever - 1ns, wait_forever - 1h,
                                           std::chrono::milliseconds(std::int64_t{1} << 31) + 1ms};
  for (auto timeout : huge)
    for (Kind kind : kinds) {
      WatchedClock clock;
      Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
      auto a = gate.try_acquire();
      Caller b(gate, {.timeout = timeout}, kind);
      until_waiting(gate, 1);
      clock.advance(24h * 24);
      EXPECT_EQ(numbers(gate), Numbers(1, 1));
      a->release();
      EXPECT_TRUE(b.admitted());
    }
}

TEST(AsyncBulkheadTs, HugeTimeoutsWaitOnTheRealClockToo) {
  for (auto timeout : {wait_forever - 1ns, std::chrono::nanoseconds(24h * 365 * 200)})
    for (Kind kind : kinds) {
      Gate gate{{.max_concurrent = 1, .max_queue = 1}};
      auto a = gate.try_acquire();
      Caller b(gate, {.timeout = timeout, .deadline = no_deadline - 1ns}, kind);
      until_waiting(gate, 1);
      a->release();
      EXPECT_TRUE(b.admitted());
    }
}

// async-bulkhead-ts reads the caller's options object at every call, so a change to it resizes without
// validation.
TEST(AsyncBulkheadTs, ChangingTheOptionsAfterwardsChangesNothing) {
  int called = 0;
  GateOptions options{.name = "db", .max_concurrent = 1, .max_queue = 1};
  options.hooks.on_admit = [&](const Event&) { ++called; };
  Gate gate{options};
  options.name = "other";
  options.max_concurrent = 100;
  options.hooks.on_admit = nullptr;
  auto a = gate.try_acquire();
  EXPECT_EQ(called, 1);
  auto b = gate.try_acquire();
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().name, "db");
  EXPECT_EQ(b.error().max_concurrent, 1u);
}

// That a gate with the largest queue allocates nothing for it is proved in allocation_test.cc.
TEST(AsyncBulkheadTs, TheLargestQueueIsAsLightAsNone) {
  Gate gate{{.max_concurrent = 1, .max_queue = (1u << 21) - 1}};
  auto a = gate.try_acquire();
  Caller b(gate);
  EXPECT_TRUE(b.pending());
  a->release();
  EXPECT_TRUE(b.admitted());
}

}  // namespace
}  // namespace bulkhead
