// The drain() cases of async-bulkhead-ts (test/bulkhead.test.ts, see tests/SOURCES.md), alone and with
// close(); and a deadline, which its drain() does not have.
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// A thread in drain(); it has parked when the constructor returns.
class Drainer {
 public:
  Drainer(Gate& gate, WatchedClock& clock) {
    const int before = clock.parked();
    thread_ = std::jthread([this, &gate] {
      drained_ = gate.drain();
      over_ = true;
    });
    until([&] { return clock.parked() > before; });
  }
  bool over() const { return over_; }
  bool drained() {
    thread_.join();
    return drained_;
  }

 private:
  std::atomic<bool> over_ = false;
  bool drained_ = false;
  std::jthread thread_;
};

TEST(AsyncBulkheadTs, DrainReturnsAtOnceWhenIdle) {
  Gate gate{{.max_concurrent = 1}};
  EXPECT_TRUE(gate.drain());
  EXPECT_TRUE(gate.drain(TimePoint::min()));
}

TEST(AsyncBulkheadTs, DrainReturnsOnlyWithTheLastPermit) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 2, .clock = &clock}};
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  Drainer drainer(gate, clock);
  a->release();
  EXPECT_FALSE(drainer.over());
  EXPECT_FALSE(gate.drain(clock.now()));
  b->release();
  EXPECT_TRUE(drainer.drained());
}

TEST(AsyncBulkheadTs, ManyDrainsAtOnceAllReturn) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Drainer one(gate, clock), two(gate, clock), three(gate, clock);
  EXPECT_FALSE(one.over() || two.over() || three.over());
  a->release();
  EXPECT_TRUE(one.drained());
  EXPECT_TRUE(two.drained());
  EXPECT_TRUE(three.drained());
}

TEST(AsyncBulkheadTs, DrainWorksWithoutCloseAndLetsNewWorkInAfterwards) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Drainer drainer(gate, clock);
  a->release();
  EXPECT_TRUE(drainer.drained());
  EXPECT_TRUE(gate.try_acquire());
}

TEST(AsyncBulkheadTs, DrainWaitsForTheWaitersToo) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate);
  Drainer drainer(gate, clock);
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_FALSE(drainer.over());
  EXPECT_FALSE(gate.drain(clock.now()));
  b.release();
  EXPECT_TRUE(drainer.drained());
}

TEST(AsyncBulkheadTs, CloseThenDrainLetsTheRunningFinishAndRejectsTheWaiting) {
  Gate gate{{.max_concurrent = 2, .max_queue = 2}};
  std::latch end(1);
  std::atomic<int> finished = 0;
  std::vector<std::jthread> workers;
  for (int i = 0; i < 2; ++i)
    workers.emplace_back([&] {
      gate.run([&] {
            end.wait();
            ++finished;
          })
          .value();
    });
  until([&] { return gate.snapshot().in_flight == 2; });
  Caller c(gate), d(gate);
  gate.close();
  EXPECT_EQ(c.reason(), Reason::shutdown);
  EXPECT_EQ(d.reason(), Reason::shutdown);
  EXPECT_EQ(numbers(gate), Numbers(2, 0));
  end.count_down();
  EXPECT_TRUE(gate.drain());
  EXPECT_EQ(finished, 2);
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, DrainThenCloseStillWaitsForThePermit) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate);
  Drainer drainer(gate, clock);
  gate.close();
  EXPECT_EQ(b.reason(), Reason::shutdown);
  EXPECT_FALSE(drainer.over());
  a->release();
  EXPECT_TRUE(drainer.drained());
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, AClosedIdleGateIsDrainedAtOnce) {
  Gate gate{{.max_concurrent = 1}};
  gate.close();
  EXPECT_TRUE(gate.drain());
}

TEST(AsyncBulkheadTs, GracefulShutdownLosesNoResult) {
  Gate gate{{.max_concurrent = 3, .max_queue = 5}};
  std::latch end(1);
  std::vector<int> results(3);
  std::vector<std::jthread> workers;
  for (int i = 0; i < 3; ++i)
    workers.emplace_back([&, i] {
      results[static_cast<std::size_t>(i)] = gate.run([&] {
                                                   end.wait();
                                                   return i + 1;
                                                 })
                                                 .value();
    });
  until([&] { return gate.snapshot().in_flight == 3; });
  gate.close();
  end.count_down();
  EXPECT_TRUE(gate.drain());
  workers.clear();
  EXPECT_EQ(results, (std::vector{1, 2, 3}));
  EXPECT_TRUE(gate.snapshot().closed);
  expect_idle(gate);
}

// The order in which threads return from drain() is the kernel's; that the waiters come first is ours.
TEST(AsyncBulkheadTs, WaitersLearnOfTheCloseBeforeAnyDrainReturns) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate);
  Drainer one(gate, clock), two(gate, clock);
  gate.close();
  EXPECT_FALSE(b.pending());
  EXPECT_FALSE(c.pending());
  EXPECT_FALSE(one.over() || two.over());
  a->release();
  EXPECT_TRUE(one.drained());
  EXPECT_TRUE(two.drained());
}

TEST(AsyncBulkheadTs, ADrainIsOverAtTheIdleInstantWhoeverComesAfterIt) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Drainer drainer(gate, clock);
  a->release();
  auto b = gate.try_acquire();
  EXPECT_TRUE(b);
  EXPECT_TRUE(drainer.drained());
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
}

TEST(AsyncBulkheadTs, ADrainStaysPendingAcrossHandOffs) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 3, .clock = &clock}};
  auto a = gate.try_acquire();
  std::vector<Caller> line;
  for (int i = 0; i < 3; ++i) line.emplace_back(gate);
  Drainer drainer(gate, clock);
  a->release();
  for (Caller& caller : line) {
    EXPECT_TRUE(caller.admitted());
    EXPECT_FALSE(drainer.over());
    EXPECT_FALSE(gate.drain(clock.now()));
    caller.release();
  }
  EXPECT_TRUE(drainer.drained());
}

TEST(AsyncBulkheadTs, DrainCanBeUsedAgainAndAgain) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .clock = &clock}};
  for (int i = 0; i < 5; ++i) {
    auto a = gate.try_acquire();
    Drainer drainer(gate, clock);
    a->release();
    EXPECT_TRUE(drainer.drained());
    EXPECT_TRUE(gate.drain());
  }
}

TEST(AsyncBulkheadTs, WorkAdmittedLaterDelaysADrain) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 2, .clock = &clock}};
  auto a = gate.try_acquire();
  Drainer drainer(gate, clock);
  auto b = gate.try_acquire();
  ASSERT_TRUE(b);
  a->release();
  EXPECT_FALSE(drainer.over());
  EXPECT_FALSE(gate.drain(clock.now()));
  b->release();
  EXPECT_TRUE(drainer.drained());
}

TEST(AsyncBulkheadTs, DrainGivesUpAtItsDeadlineAndTheSnapshotSaysWhatIsLeft) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  Caller b(gate);
  bool drained = true;
  std::jthread drainer([&] { drained = gate.drain(clock.now() + 1s); });
  until([&] { return clock.parked() > 0; });
  clock.advance(1s);
  drainer.join();
  EXPECT_FALSE(drained);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  // It has left no trace: the gate works on, and a later drain succeeds.
  a->release();
  b.release();
  EXPECT_TRUE(gate.drain());
}

}  // namespace
}  // namespace bulkhead
