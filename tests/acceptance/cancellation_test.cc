// The cancellation cases of async-bulkhead-ts (test/bulkhead.test.ts, see tests/SOURCES.md): cancelled and
// timed-out waiters, for every way to wait.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class AsyncBulkheadTsWaiter : public ::testing::TestWithParam<Kind> {
 protected:
  ManualClock clock;
};
INSTANTIATE_TEST_SUITE_P(As, AsyncBulkheadTsWaiter, ::testing::ValuesIn(kinds), kind_name);

TEST_P(AsyncBulkheadTsWaiter, ACancelledCallLeavesAndIsNeverAdmittedLater) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  std::stop_source stop;
  Caller b(gate, {.stop = stop.get_token()}, GetParam());
  until_waiting(gate, 1);
  stop.request_stop();
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  EXPECT_EQ(b.reason(), Reason::cancelled);
  a->release();
  auto fresh = gate.try_acquire();
  EXPECT_TRUE(fresh);
  fresh->release();
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsWaiter, AStormOfCancellationsDoesNotStarveALaterWaiter) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.try_acquire();
  std::stop_source stop_b, stop_c;
  Caller b(gate, {.stop = stop_b.get_token()}, GetParam());
  Caller c(gate, {.stop = stop_c.get_token()}, GetParam());
  until_waiting(gate, 2);
  stop_b.request_stop();
  stop_c.request_stop();
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_EQ(c.reason(), Reason::cancelled);
  Caller d(gate, {}, GetParam());
  until_waiting(gate, 1);
  a->release();
  EXPECT_TRUE(d.admitted());
  d.release();
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsWaiter, CancelAgainstReleaseSettlesExactlyOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  unsigned admitted = 0;
  for (int i = 0; i < 300; ++i) {
    auto a = gate.try_acquire();
    ASSERT_TRUE(a) << "a permit was lost";
    std::stop_source stop;
    Caller b(gate, {.stop = stop.get_token()}, GetParam());
    until_waiting(gate, 1);
    std::atomic<bool> go = false;
    std::thread canceller([&] {
      while (!go) {
      }
      stop.request_stop();
    });
    go = true;
    a->release();
    canceller.join();
    if (b.admitted()) {
      ++admitted;
      EXPECT_TRUE(b.release());
    } else {
      EXPECT_EQ(b.reason(), Reason::cancelled);
    }
    expect_idle(gate);
  }
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.admitted, 300u + admitted);
  EXPECT_EQ(s.rejected(Reason::cancelled), 300u - admitted);
  EXPECT_EQ(s.rejected(), 300u - admitted);
}

TEST_P(AsyncBulkheadTsWaiter, TimeoutAgainstReleaseSettlesExactlyOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  for (int i = 0; i < 50; ++i) {
    auto a = gate.try_acquire();
    ASSERT_TRUE(a) << "a permit was lost";
    Caller b(gate, {.timeout = 1ms}, GetParam());
    until_waiting(gate, 1);
    std::atomic<bool> go = false;
    std::thread timer([&] {
      while (!go) {
      }
      clock.advance(1ms);
    });
    go = true;
    a->release();
    timer.join();
    if (b.admitted())
      EXPECT_TRUE(b.release());
    else
      EXPECT_EQ(b.reason(), Reason::timeout);
    expect_idle(gate);
  }
}

TEST_P(AsyncBulkheadTsWaiter, ATimedOutCallLeavesAndIsNeverAdmittedLater) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate, {.timeout = 10ms}, GetParam());
  until_waiting(gate, 1);
  clock.advance(10ms);
  EXPECT_EQ(b.reason(), Reason::timeout);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  a->release();
  auto fresh = gate.try_acquire();
  EXPECT_TRUE(fresh);
  fresh->release();
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsWaiter, ACancelledWaiterFreesItsPlaceAtOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.try_acquire();
  std::stop_source stop1, stop2;
  Caller b(gate, {.stop = stop1.get_token()}, GetParam());
  until_waiting(gate, 1);
  Caller c(gate, {.stop = stop2.get_token()}, GetParam());
  until_waiting(gate, 2);
  stop1.request_stop();
  EXPECT_EQ(gate.snapshot().waiting, 1u);  // at once: no release was needed
  stop2.request_stop();
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_EQ(c.reason(), Reason::cancelled);
  a->release();
  EXPECT_TRUE(gate.try_acquire());
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
