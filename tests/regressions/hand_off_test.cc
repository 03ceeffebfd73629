// Interleavings of the hand-off itself, forced: a unit that comes back while somebody joins,
// leaves or closes.
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/sync_points.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class HandOff : public ::testing::TestWithParam<Kind> {
 protected:
  // A caller of the kind under test that starts on a thread named "joining".
  std::jthread join_line(Gate& gate, AcquireOptions options = {}) {
    return named("joining", [this, &gate, options = std::move(options)] {
      if (GetParam() == Kind::thread)
        result.emplace(gate.acquire(options));
      else
        caller.emplace(gate, options, GetParam());
    });
  }
  bool admitted() { return result ? result->has_value() : caller->admitted(); }
  Reason reason() { return result ? result->error().reason : caller->reason(); }
  void release() { result ? (*result)->release() : caller->release(); }

  SyncPoints points;
  std::optional<Result<Permit>> result;
  std::optional<Caller> caller;
};
INSTANTIATE_TEST_SUITE_P(As, HandOff, ::testing::ValuesIn(kinds), kind_name);

// The newcomer is in line and has not looked yet. The release must not pass by: it waits for the lock,
// or is found.
TEST_P(HandOff, AReleaseThatSeesNobodyIsFoundByTheOneThatJoins) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  points.hold("joining", "enter.before_recheck");
  std::jthread thread = join_line(gate);
  points.until_held("joining");
  std::jthread releaser([&] { holder->release(); });
  points.let_go("joining");
  thread.join();
  releaser.join();
  EXPECT_TRUE(admitted());
  release();
  result.reset();
  caller.reset();
  expect_idle(gate);
}

// The same a step later: it has looked, found nothing, and has not yet said that it waits.
TEST_P(HandOff, AReleaseBetweenTheLookAndTheFlagIsFoundByTheSecondLook) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  points.hold("joining", "quiet.before_change");
  std::jthread thread = join_line(gate);
  points.until_held("joining");
  holder->release();
  points.let_go("joining");
  thread.join();
  EXPECT_TRUE(admitted());
  release();
}

TEST_P(HandOff, AReleaseBeforeTheLineIsJoinedLetsTheCallIn) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  points.hold("joining", "enter.before_lock");
  std::jthread thread = join_line(gate);
  points.until_held("joining");
  holder->release();
  points.let_go("joining");
  thread.join();
  EXPECT_TRUE(admitted());
  release();
}

TEST_P(HandOff, ACloseBeforeTheLineIsJoinedIsShutdown) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  points.hold("joining", "enter.before_lock");
  std::jthread thread = join_line(gate);
  points.until_held("joining");
  gate.close();
  points.let_go("joining");
  thread.join();
  EXPECT_EQ(reason(), Reason::shutdown);
}

TEST_P(HandOff, AStopBeforeTheLineIsJoinedIsCancelledEvenIfAUnitIsFree) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  std::stop_source stop;
  points.hold("joining", "enter.before_lock");
  std::jthread thread = join_line(gate, {.stop = stop.get_token()});
  points.until_held("joining");
  stop.request_stop();
  holder->release();
  points.let_go("joining");
  thread.join();
  EXPECT_EQ(reason(), Reason::cancelled);
  EXPECT_EQ(gate.snapshot().rejected(), 1u);
  expect_idle(gate);
}

TEST_P(HandOff, AShrinkBelowTheCostBeforeTheLineIsJoinedIsRejected) {
  Gate gate{{.max_concurrent = 2, .max_queue = 1}};
  auto holder = gate.acquire();
  points.hold("joining", "enter.before_lock");
  std::jthread thread = join_line(gate, {.cost = 2});
  points.until_held("joining");
  gate.resize(1);
  points.let_go("joining");
  thread.join();
  EXPECT_EQ(reason(), Reason::concurrency_limit);
}

// The timer of an asynchronous waiter fires while its unit is already on the way.
TEST(HandOff, ATimerThatComesLateFindsItAdmitted) {
  for (Kind kind : {Kind::handler, Kind::coroutine}) {
    ManualClock clock;
    SyncPoints points;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto holder = gate.acquire();
    Caller b(gate, {.timeout = 1ms}, kind);
    points.hold("timer", "withdraw.before_lock");
    std::jthread timer = named("timer", [&] { clock.advance(1ms); });
    points.until_held("timer");
    points.hold("releaser", "release.before_lock");
    std::jthread releaser = named("releaser", [&] { holder->release(); });
    points.until_held("releaser");
    points.let_go("releaser");
    until_waiting(gate, 0);  // decided; its completion has to wait for the timer to let go of it
    points.let_go("timer");
    releaser.join();
    timer.join();
    EXPECT_TRUE(b.admitted());
    EXPECT_EQ(gate.snapshot().rejected(), 0u);
    b.release();
    expect_idle(gate);
  }
}

// The same for a cancellation: request_stop() is under way when the waiter is admitted.
TEST(HandOff, AStopThatComesLateFindsItAdmitted) {
  for (Kind kind : kinds) {
    SyncPoints points;
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto holder = gate.acquire();
    std::stop_source stop;
    Caller b(gate, {.stop = stop.get_token()}, kind);
    until_waiting(gate, 1);
    points.hold("canceller", "withdraw.before_lock");
    std::jthread canceller = named("canceller", [&] { stop.request_stop(); });
    points.until_held("canceller");
    std::jthread releaser([&] { holder->release(); });
    until_waiting(gate, 0);
    points.let_go("canceller");
    releaser.join();
    canceller.join();
    EXPECT_TRUE(b.admitted());
    EXPECT_EQ(gate.snapshot().rejected(), 0u);
    b.release();
    expect_idle(gate);
  }
}

bool asleep(pid_t thread) {
  std::ifstream file("/proc/self/task/" + std::to_string(thread) + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.compare(name_end, 3, ") S") == 0;
}

// The head of the line is woken before the release has the lock, and need not wait for it: it takes the unit itself.
TEST(HandOff, TheHeadIsWokenFirstAndServesItselfIfItIsQuicker) {
  for (Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    WatchedClock clock;
    SyncPoints points;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .fairness = fairness, .clock = &clock}};
    auto holder = gate.acquire();
    std::atomic<pid_t> thread = 0;
    std::atomic<bool> inside = false;
    std::jthread waiter([&] {
      thread = gettid();
      const auto permit = gate.acquire();
      inside = permit.has_value();
    });
    until([&] { return clock.parked() == 1 && asleep(thread); });
    points.hold("releaser", "release.before_lock");
    std::jthread releaser = named("releaser", [&] { holder->release(); });
    points.until_held("releaser");
    until([&] { return inside.load(); });
    points.let_go("releaser");
    releaser.join();
    waiter.join();
    expect_idle(gate);
  }
}

// Nobody is woken for a unit that is not there: it pays the debt of a shrink.
TEST(HandOff, AReleaseThatOnlyPaysADebtWakesNobody) {
  WatchedClock clock;
  Gate gate{{.max_concurrent = 2, .max_queue = 1, .clock = &clock}};
  auto a = gate.acquire();
  auto b = gate.acquire();
  std::atomic<pid_t> thread = 0;
  std::jthread waiter([&] {
    thread = gettid();
    const auto permit = gate.acquire();
  });
  until([&] { return clock.parked() == 1 && asleep(thread); });
  gate.resize(1);
  a->release();
  until([&] { return asleep(thread); });
  EXPECT_EQ(clock.parked(), 1) << "it woke up and went to sleep again";
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  b->release();
  waiter.join();
}

// A release that has given its unit back and not yet come to the line: the gate is not idle, nor may it die.
TEST(HandOff, ADrainWaitsForAReleaseThatIsOnItsWay) {
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  Caller b(gate);
  points.hold("releaser", "release.before_lock");
  std::jthread releaser = named("releaser", [&] { holder->release(); });
  points.until_held("releaser");
  gate.close();  // b goes, so nothing is in flight and nobody waits
  EXPECT_EQ(numbers(gate), Numbers(0, 0));
  std::atomic<bool> drained = false;
  std::jthread drainer([&] {
    gate.drain();
    drained = true;
  });
  EXPECT_FALSE(gate.drain(TimePoint::min()));
  EXPECT_FALSE(drained);
  points.let_go("releaser");
  drainer.join();
  EXPECT_TRUE(drained);
}

// A resize changes the word and the limit one after the other. Who looks in between is told the numbers of neither.
TEST(Numbers, OfARejectionAreOfOneInstantAlsoWhileTheLimitMoves) {
  Gate gate{{.name = "db", .max_concurrent = 8}};
  std::vector<Permit> held;
  for (int i = 0; i < 8; ++i) held.push_back(*gate.acquire());
  SyncPoints points;
  points.hold("resizing", "resize.halfway");
  std::jthread resizing = named("resizing", [&] { gate.resize(4); });
  points.until_held("resizing");
  std::string told;
  std::uint32_t in_flight = 0;
  points.hold("rejected", "look.torn");
  std::jthread rejected = named("rejected", [&] { told = gate.try_acquire().error().message(); });
  points.until_held("rejected");
  points.hold("looking", "look.torn");
  std::jthread looking = named("looking", [&] { in_flight = gate.in_flight(); });
  points.until_held("looking");
  for (const char* const thread : {"rejected", "looking", "resizing"}) points.let_go(thread);
  resizing.join();
  rejected.join();
  looking.join();
  EXPECT_EQ(told, "bulkhead \"db\" rejected (concurrency_limit): 8/4 running, 0/0 waiting");
  EXPECT_EQ(in_flight, 8u);
}

// Both are rejected by the same close(). What the first one's handler does is not the second one's business.
TEST(Numbers, OfARejectionAreThoseOfTheMomentItWasDecided) {
  Gate gate{{.name = "db", .max_concurrent = 1, .max_queue = 4}};
  auto holder = gate.acquire();
  std::vector<std::string> told;
  for (int i = 0; i < 2; ++i)
    gate.async_acquire({}, [&](const Result<Permit>& r) {
      told.push_back(r.error().message());
      gate.resize(7);
      gate.resize_queue(9);
    });
  gate.close();
  EXPECT_EQ(told,
            (std::vector<std::string>{"bulkhead \"db\" rejected (shutdown): 1/1 running, 1/4 waiting",
                                      "bulkhead \"db\" rejected (shutdown): 1/1 running, 0/4 waiting"}));
}

}  // namespace
}  // namespace bulkhead
