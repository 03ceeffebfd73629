// Barging and adaptive on virtual time, with the woken thread held where others may overtake it.
#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/sync_points.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// A gate of one unit, held; a thread named "waiter" in line, to be held when it is woken.
class Loose : public ::testing::Test {
 protected:
  void start(Fairness fairness, AcquireOptions options = {}) {
    gate.emplace(GateOptions{
        .max_concurrent = 1, .max_queue = 3, .fairness = fairness, .max_barge = 500us, .clock = &clock});
    holder = gate->acquire();
    points.hold("waiter", "wait.woken");
    waiter = std::jthread([this, options = std::move(options)] {
      SyncPoints::Name me("waiter");
      result.emplace(gate->acquire(options));
      done = true;
    });
    until_waiting(*gate, 1);
  }
  bool admitted() {
    points.let_go("waiter");
    waiter.join();
    return result->has_value();
  }

  WatchedClock clock;
  SyncPoints points;
  std::stop_source stop;
  std::optional<Gate> gate;
  Result<Permit> holder;
  std::optional<Result<Permit>> result;
  std::atomic<bool> done = false;
  std::jthread waiter;
};

TEST_F(Loose, BargingLetsANewcomerTakeWhatAWokenThreadHasNotTakenYet) {
  start(Fairness::barging);
  holder->release();
  points.until_held("waiter");
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(gate->try_acquire());
  EXPECT_EQ(numbers(*gate), Numbers(0, 1));
  points.let_go("waiter");
  EXPECT_TRUE(admitted());
}

TEST_F(Loose, AWokenThreadThatFindsNothingIsWokenAgain) {
  start(Fairness::barging);
  holder->release();
  points.until_held("waiter");
  auto barger = gate->try_acquire();
  ASSERT_TRUE(barger);
  const int parked = clock.parked();
  points.let_go("waiter");
  until([&] { return clock.parked() > parked; });  // it has tried, and sleeps again
  EXPECT_FALSE(done);
  EXPECT_EQ(numbers(*gate), Numbers(1, 1));
  barger->release();
  EXPECT_TRUE(admitted());
}

TEST_F(Loose, AWokenThreadThatIsCancelledPassesTheWakeOn) {
  start(Fairness::barging, {.stop = stop.get_token()});
  Caller next(*gate, {}, Kind::thread);
  until_waiting(*gate, 2);
  holder->release();
  points.until_held("waiter");
  stop.request_stop();
  EXPECT_TRUE(next.admitted());
  points.let_go("waiter");
  EXPECT_FALSE(admitted());
  EXPECT_EQ(result->error().reason, Reason::cancelled);
  next.release();
}

TEST_F(Loose, AWokenThreadWhoseTimeIsUpPassesTheWakeOn) {
  start(Fairness::barging, {.timeout = 1ms});
  Caller next(*gate, {}, Kind::thread);
  until_waiting(*gate, 2);
  holder->release();
  points.until_held("waiter");
  auto barger = gate->try_acquire();
  clock.advance(1ms);
  points.let_go("waiter");
  EXPECT_FALSE(admitted());
  EXPECT_EQ(result->error().reason, Reason::timeout);
  barger->release();
  EXPECT_TRUE(next.admitted());
  next.release();
}

TEST_F(Loose, ACloseReachesAWokenThread) {
  start(Fairness::barging);
  holder->release();
  points.until_held("waiter");
  gate->close();
  points.let_go("waiter");
  EXPECT_FALSE(admitted());
  EXPECT_EQ(result->error().reason, Reason::shutdown);
  expect_idle(*gate);
}

TEST_F(Loose, AdaptiveBargesWhileTheHeadHasNotWaitedLong) {
  start(Fairness::adaptive);
  clock.advance(500us);  // the bound itself is still within
  holder->release();
  points.until_held("waiter");
  EXPECT_TRUE(gate->try_acquire());
  points.let_go("waiter");
  EXPECT_TRUE(admitted());
}

TEST_F(Loose, AdaptiveHandsOverOnceTheHeadHasWaitedLong) {
  start(Fairness::adaptive);
  clock.advance(500us + 1ns);
  holder->release();
  EXPECT_EQ(numbers(*gate), Numbers(1, 0));  // straight to the head
  EXPECT_FALSE(gate->try_acquire());
  EXPECT_TRUE(admitted());
  result->value().release();
}

// A thread named "caller" that finds the only unit taken, to be held before it looks for it once more.
class Looking : public ::testing::Test {
 protected:
  void start(AcquireOptions options) {
    points.hold("caller", "acquire.look");
    caller = std::jthread([this, options = std::move(options)] {
      SyncPoints::Name me("caller");
      const auto permit = gate.acquire(options);
      admitted = permit.has_value();
      waited = admitted && permit->waited();
    });
  }

  ManualClock clock;
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .fairness = Fairness::adaptive, .clock = &clock}};
  Result<Permit> holder = gate.acquire();
  bool admitted = false, waited = false;
  std::jthread caller;
};

TEST_F(Looking, WhatComesBackWhileAnAdaptiveCallLooksIsTakenWithoutLiningUp) {
  start({.timeout = 500us});
  points.until_held("caller");
  holder->release();
  points.let_go("caller");
  caller.join();
  EXPECT_TRUE(admitted);
  EXPECT_FALSE(waited);
}

TEST_F(Looking, WhoCannotWaitMuchLongerLinesUpAtOnce) {
  start({.timeout = 499us});
  until_waiting(gate, 1);
  holder->release();
  caller.join();
  EXPECT_TRUE(admitted);
  EXPECT_TRUE(waited);
}

TEST_F(Looking, CriticalCallsLineUpAtOnce) {
  start({.priority = Priority::critical});
  until_waiting(gate, 1);
  holder->release();
  caller.join();
  EXPECT_TRUE(waited);
}

TEST_F(Loose, AdaptiveStopsBargingAtTheFirstLookAfterTheBound) {
  start(Fairness::adaptive);
  holder->release();
  points.until_held("waiter");
  auto barger = gate->try_acquire();
  ASSERT_TRUE(barger);
  const int parked = clock.parked();
  points.let_go("waiter");
  until([&] { return clock.parked() > parked; });
  clock.advance(1ms);
  EXPECT_FALSE(gate->try_acquire());
  barger->release();
  EXPECT_FALSE(gate->try_acquire());
  EXPECT_TRUE(admitted());
  result->value().release();
}

TEST_F(Loose, FifoHandsOverToAThreadThatHasNotTriedYet) {
  start(Fairness::fifo);
  holder->release();
  EXPECT_EQ(numbers(*gate), Numbers(1, 0));
  EXPECT_FALSE(gate->try_acquire());
  EXPECT_TRUE(admitted());
}

}  // namespace
}  // namespace bulkhead
