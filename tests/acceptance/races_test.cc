// The races of async-bulkhead-ts (see tests/SOURCES.md): the first of two events decides, for every way to
// wait; then with real threads.
#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class AsyncBulkheadTsRace : public ::testing::TestWithParam<Kind> {
 protected:
  // A full gate with one waiter in line.
  AsyncBulkheadTsRace() { until_waiting(gate, 1); }

  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  Result<Permit> a = gate.try_acquire();
  std::stop_source stop;
  Caller b{gate, {.timeout = 10ms, .stop = stop.get_token()}, GetParam()};
};
INSTANTIATE_TEST_SUITE_P(As, AsyncBulkheadTsRace, ::testing::ValuesIn(kinds), kind_name);

TEST_P(AsyncBulkheadTsRace, ReleaseThenCancelIsAdmitted) {
  a->release();
  stop.request_stop();
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  EXPECT_TRUE(b.release());
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsRace, CancelThenReleaseIsCancelledAndTheUnitIsFree) {
  stop.request_stop();
  a->release();
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_EQ(gate.snapshot().in_flight, 0u);
  EXPECT_TRUE(gate.try_acquire());
}

TEST_P(AsyncBulkheadTsRace, CancelAfterAdmissionDoesNotReleaseThePermit) {
  a->release();
  EXPECT_TRUE(b.admitted());
  stop.request_stop();
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  EXPECT_FALSE(gate.try_acquire());
  b.release();
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsRace, CloseThenReleaseIsShutdownAndTheUnitIsNotHandedOn) {
  gate.close();
  a->release();
  EXPECT_EQ(b.reason(), Reason::shutdown);
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsRace, ReleaseThenCloseIsAdmittedAndSurvives) {
  a->release();
  gate.close();
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  EXPECT_TRUE(b.release());
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsRace, CancelThenCloseIsCountedOnceAsCancelled) {
  stop.request_stop();
  gate.close();
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_EQ(gate.snapshot().rejected(Reason::cancelled), 1u);
  EXPECT_EQ(gate.snapshot().rejected(), 1u);
}

TEST_P(AsyncBulkheadTsRace, CloseThenCancelThenTimerIsCountedOnceAsShutdown) {
  gate.close();
  stop.request_stop();
  clock.advance(10ms);
  EXPECT_EQ(b.reason(), Reason::shutdown);
  EXPECT_EQ(gate.snapshot().rejected(Reason::shutdown), 1u);
  EXPECT_EQ(gate.snapshot().rejected(), 1u);
}

TEST(AsyncBulkheadTs, RunAdmittedThenCancelledStillCalls) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  std::stop_source stop;
  bool saw_stop = false;
  const auto result = gate.run(
      [&](std::stop_token token) {
        stop.request_stop();
        saw_stop = token.stop_requested();
        return 1;
      },
      {.stop = stop.get_token()});
  EXPECT_EQ(result.value(), 1);
  EXPECT_TRUE(saw_stop);
}

// The pairs above with their two sides on two threads at once: either order may win, never both or neither.
class AsyncBulkheadTsThreads : public ::testing::TestWithParam<Kind> {
 protected:
  template <class First, class Second>
  static void at_once(First&& first, Second&& second) {
    std::latch both(2);
    std::thread other([&] {
      both.arrive_and_wait();
      second();
    });
    both.arrive_and_wait();
    first();
    other.join();
  }
  static constexpr int rounds = 200;
};
INSTANTIATE_TEST_SUITE_P(As, AsyncBulkheadTsThreads, ::testing::ValuesIn(kinds), kind_name);

TEST_P(AsyncBulkheadTsThreads, ReleaseAgainstCancelSettlesOnceAndLosesNoPermit) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  for (int i = 0; i < rounds; ++i) {
    auto a = gate.try_acquire();
    ASSERT_TRUE(a) << "a permit was lost";
    std::stop_source stop;
    Caller b(gate, {.stop = stop.get_token()}, GetParam());
    until_waiting(gate, 1);
    at_once([&] { a->release(); }, [&] { stop.request_stop(); });
    const bool admitted = b.admitted();
    EXPECT_EQ(numbers(gate), Numbers(admitted ? 1 : 0, 0));
    if (admitted)
      b.release();
    else
      EXPECT_EQ(b.reason(), Reason::cancelled);
  }
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsThreads, RunAdmittedWhileItIsCancelledCallsOrIsCancelled) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  for (int i = 0; i < rounds; ++i) {
    std::stop_source stop;
    bool called = false;
    bool ran = false;
    at_once([&] { ran = gate.run([&] { called = true; }, {.stop = stop.get_token()}).has_value(); },
            [&] { stop.request_stop(); });
    EXPECT_EQ(called, ran);
    expect_idle(gate);
  }
}

TEST_P(AsyncBulkheadTsThreads, ReleaseAgainstCloseSettlesExactlyOnce) {
  for (int i = 0; i < rounds; ++i) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto a = gate.try_acquire();
    Caller b(gate, {}, GetParam());
    until_waiting(gate, 1);
    at_once([&] { a->release(); }, [&] { gate.close(); });
    if (b.admitted())
      b.release();
    else
      EXPECT_EQ(b.reason(), Reason::shutdown);
    expect_idle(gate);
    EXPECT_FALSE(gate.try_acquire());
  }
}

TEST_P(AsyncBulkheadTsThreads, CancelAgainstCloseIsCountedOnce) {
  for (int i = 0; i < rounds; ++i) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto a = gate.try_acquire();
    std::stop_source stop;
    Caller b(gate, {.stop = stop.get_token()}, GetParam());
    until_waiting(gate, 1);
    at_once([&] { stop.request_stop(); }, [&] { gate.close(); });
    const Reason reason = b.reason();
    EXPECT_TRUE(reason == Reason::cancelled || reason == Reason::shutdown);
    EXPECT_EQ(gate.snapshot().rejected(reason), 1u);
    EXPECT_EQ(gate.snapshot().rejected(), 1u);
  }
}

TEST_P(AsyncBulkheadTsThreads, CloseAgainstTimeoutIsCountedOnce) {
  for (int i = 0; i < rounds / 4; ++i) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.try_acquire();
    Caller b(gate, {.timeout = 1ms}, GetParam());
    until_waiting(gate, 1);
    at_once([&] { clock.advance(1ms); }, [&] { gate.close(); });
    const Reason reason = b.reason();
    EXPECT_TRUE(reason == Reason::timeout || reason == Reason::shutdown);
    EXPECT_EQ(gate.snapshot().rejected(reason), 1u);
    EXPECT_EQ(gate.snapshot().rejected(), 1u);
  }
}

}  // namespace
}  // namespace bulkhead
