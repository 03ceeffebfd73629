// What run() does in async-bulkhead-ts (see tests/SOURCES.md).
#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// run() calls on the caller's thread: there is no tick between admission and the call.
TEST(AsyncBulkheadTs, RunHoldsThePermitForTheCallAndReleasesBeforeItReturns) {
  Gate gate{{.max_concurrent = 1}};
  const auto inside = gate.run([&] { return numbers(gate); });
  EXPECT_EQ(inside.value(), Numbers(1, 0));
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().succeeded, 1u);
}

TEST(AsyncBulkheadTs, AThrowTravelsUnchangedAndCountsAsFailure) {
  Gate gate{{.max_concurrent = 1}};
  try {
    gate.run([] { throw 42; }).value();
    FAIL();
  } catch (int thrown) {
    EXPECT_EQ(thrown, 42);
  }
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().failed, 1u);
}

TEST(AsyncBulkheadTs, TheValuePassesThrough) {
  Gate gate{{.max_concurrent = 1}};
  EXPECT_EQ(gate.run([] { return std::make_unique<int>(7); }).value().operator*(), 7);
  int x = 1;
  gate.run([&]() -> int& { return x; }).value().get() = 5;
  EXPECT_EQ(x, 5);
  EXPECT_TRUE(gate.run([] {}));
  EXPECT_TRUE(gate.run([](Permit& permit) { permit.fail(); }));
  EXPECT_EQ(gate.snapshot().failed, 1u);
}

TEST(AsyncBulkheadTs, TheCallGetsTheVeryStopTokenOfTheCaller) {
  Gate gate{{.max_concurrent = 1}};
  std::stop_source stop;
  EXPECT_TRUE(
      gate.run([&](std::stop_token t) { return t == stop.get_token(); }, {.stop = stop.get_token()}).value());
  EXPECT_FALSE(gate.run([](std::stop_token t) { return t.stop_possible(); }).value());
}

TEST(AsyncBulkheadTs, ARejectionTellsReasonAndNumbersAndNeverCalls) {
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
  Gate unqueued{{.name = "api", .max_concurrent = 1}};
  auto a = gate.try_acquire();
  auto b = unqueued.try_acquire();
  Caller waiter(gate);
  bool called = false;
  const auto rejection = [&](Gate& g) { return g.run([&] { called = true; }).error().message(); };
  EXPECT_EQ(rejection(unqueued), "bulkhead \"api\" rejected (concurrency_limit): 1/1 running, 0/0 waiting");
  EXPECT_EQ(rejection(gate), "bulkhead \"db\" rejected (queue_limit): 1/1 running, 1/1 waiting");
  gate.close();
  EXPECT_EQ(rejection(gate), "bulkhead \"db\" rejected (shutdown): 1/1 running, 0/1 waiting");
  EXPECT_FALSE(called);
}

TEST(AsyncBulkheadTs, AQueuedRunThatIsRejectedNeverCalls) {
  ManualClock clock;
  std::atomic<bool> called = false;
  for (Reason expected : {Reason::timeout, Reason::cancelled, Reason::shutdown}) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.try_acquire();
    std::stop_source stop;
    Reason reason{};
    std::jthread runner([&] {
      reason = gate.run([&] { called = true; }, {.timeout = 10ms, .stop = stop.get_token()}).error().reason;
    });
    until_waiting(gate, 1);
    if (expected == Reason::timeout) clock.advance(10ms);
    if (expected == Reason::cancelled) stop.request_stop();
    if (expected == Reason::shutdown) gate.close();
    runner.join();
    EXPECT_EQ(reason, expected);
    a->release();
    expect_idle(gate);
  }
  EXPECT_FALSE(called);
}

TEST(AsyncBulkheadTs, ACallAdmittedBeforeTheCloseStillRuns) {
  Gate gate{{.max_concurrent = 1}};
  const auto result = gate.run([&] {
    gate.close();
    return 3;
  });
  EXPECT_EQ(result.value(), 3);
  EXPECT_EQ(gate.run([] {}).error().reason, Reason::shutdown);
}

}  // namespace
}  // namespace bulkhead
