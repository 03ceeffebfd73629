// Defects of other libraries that a gate could have, each excluded by the interleaving or the exception that
// shows it there. tests/SOURCES.md lists the libraries.
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
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

// Failsafe (failsafe-lib/failsafe#393): a waiter that has given up takes the next permit. Here the time of
// the waiter is up, and before it can leave it is given the unit.
TEST(PeerDefect, AWaiterAdmittedWhileItTimesOutKeepsThePermit) {
  ManualClock clock;
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  for (int i = 0; i < 10; ++i) {
    auto holder = gate.acquire();
    ASSERT_TRUE(holder);
    std::optional<Result<Permit>> result;
    points.hold("waiter", "withdraw.before_lock");
    std::jthread waiter = named("waiter", [&] { result.emplace(gate.acquire({.timeout = 1ms})); });
    until_waiting(gate, 1);
    clock.advance(1ms);
    points.until_held("waiter");
    holder->release();
    points.let_go("waiter");
    waiter.join();
    ASSERT_TRUE(result->has_value()) << "it was admitted first, so it keeps the permit";
    EXPECT_EQ(gate.snapshot().rejected(), 0u);
    result.reset();
    expect_idle(gate);
  }
}

// The other way round: the unit is on its way to the line, and the waiter leaves before it arrives.
TEST(PeerDefect, AWaiterThatLeavesWhileTheUnitIsOnItsWayLosesNoPermit) {
  ManualClock clock;
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto holder = gate.acquire();
  std::stop_source stop;
  Caller waiter(gate, {.stop = stop.get_token()}, Kind::thread);
  until_waiting(gate, 1);
  points.hold("releaser", "release.before_rouse");
  std::jthread releaser = named("releaser", [&] { holder->release(); });
  points.until_held("releaser");
  stop.request_stop();
  EXPECT_EQ(waiter.reason(), Reason::cancelled);
  points.let_go("releaser");
  releaser.join();
  EXPECT_TRUE(gate.try_acquire());
  expect_idle(gate);
}

// Failsafe: one rejection without waiting makes a bulkhead of size 1 unusable.
TEST(PeerDefect, ARejectionWithoutWaitingLeavesTheGateUsable) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  for (int i = 0; i < 100; ++i) {
    auto a = gate.acquire();
    ASSERT_TRUE(a);
    EXPECT_FALSE(gate.acquire({.timeout = 0ns}));
    EXPECT_FALSE(gate.try_acquire());
  }
  expect_idle(gate);
}

// resilience4j: an event consumer that throws leaks the permit, or turns a success into a failure.
TEST(PeerDefect, AThrowingHookLeaksNoPermitAndChangesNoResult) {
  const auto boom = [](const Event&) { throw std::runtime_error("consumer"); };
  Hooks hooks{.on_admit = boom, .on_release = boom};
  hooks.on_reject = [](const Event&, Reason) { throw std::runtime_error("consumer"); };
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = hooks}};
  EXPECT_EQ(gate.run([] { return 5; }).value(), 5);
  EXPECT_EQ(gate.snapshot().succeeded, 1u);
  auto holder = gate.acquire();
  Caller waiter(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  points.hold("releaser", "release.before_lock");
  std::jthread releaser = named("releaser", [&] { holder->release(); });
  points.until_held("releaser");
  EXPECT_FALSE(gate.try_acquire());  // its hook throws while the unit is between two owners
  points.let_go("releaser");
  EXPECT_TRUE(waiter.admitted());
  releaser.join();
  waiter.release();
  EXPECT_EQ(gate.snapshot().succeeded, 3u);
  EXPECT_EQ(gate.snapshot().hook_errors, 7u);
  expect_idle(gate);
}

// resilience4j decorateFuture: get(timeout) gives the permit back while the work still runs.
TEST(PeerDefect, APermitStaysWithTheWorkWhenItsObserverGivesUp) {
  Gate gate{{.max_concurrent = 1, .max_queue = 0}};
  std::stop_source observer;
  std::latch end(1);
  std::jthread worker(
      [&] { gate.run([&](std::stop_token) { end.wait(); }, {.stop = observer.get_token()}).value(); });
  until([&] { return gate.snapshot().in_flight == 1; });
  observer.request_stop();  // nobody looks at the result any more
  for (int i = 0; i < 5; ++i) EXPECT_EQ(gate.try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  end.count_down();
  worker.join();
  EXPECT_TRUE(gate.try_acquire());
}

// resilience4j decorateFuture: a cancel without a get never gives the permit back.
TEST(PeerDefect, AnAbandonedCallReleasesItsPermit) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  const auto hold = [](Gate& g) -> Coroutine {
    auto permit = co_await g.co_acquire();
    co_await std::suspend_always{};
  };
  auto a = gate.acquire();
  {
    Coroutine one = hold(gate), two = hold(gate);
    one.start();
    two.start();
    a->release();
    EXPECT_EQ(numbers(gate), Numbers(1, 1));
  }
  expect_idle(gate);
}

// resilience4j (#1460), cockatiel (#114): a cancelled call keeps its place in the queue and still runs. Here
// the canceller is held before it takes the waiter out, and while it is, the place counts; afterwards it is
// free before request_stop() returns, and the work never runs.
TEST(PeerDefect, ACancelledCallFreesItsPlaceInLineAndNeverRuns) {
  for (Kind kind : kinds) {
    SyncPoints points;
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto holder = gate.acquire();
    std::stop_source stop;
    Caller waiter(gate, {.stop = stop.get_token()}, kind);
    until_waiting(gate, 1);
    points.hold("canceller", "withdraw.before_lock");
    std::jthread canceller = named("canceller", [&] { stop.request_stop(); });
    points.until_held("canceller");
    EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
    points.let_go("canceller");
    canceller.join();
    Caller next(gate);
    EXPECT_TRUE(next.pending());
    holder->release();
    EXPECT_EQ(waiter.reason(), Reason::cancelled);
    EXPECT_TRUE(next.admitted());
  }
}

// resilience4j, Semian: a shrink blocks the thread that configures, or shows the old limit. Here a shrink
// while a unit is between its old owner and the line: it returns at once, shows at once, and the unit pays
// the debt instead of going to the waiter.
TEST(PeerDefect, AShrinkReturnsAtOnceAndShowsTheNewLimit) {
  SyncPoints points;
  Gate gate{{.max_concurrent = 2, .max_queue = 1}};
  auto a = gate.acquire();
  auto b = gate.acquire();
  Caller waiter(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  points.hold("releaser", "release.before_rouse");
  std::jthread releaser = named("releaser", [&] { a->release(); });
  points.until_held("releaser");
  gate.resize(1);
  EXPECT_EQ(gate.snapshot().max_concurrent, 1u);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  points.let_go("releaser");
  releaser.join();
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  EXPECT_FALSE(gate.try_acquire());
  b->release();
  EXPECT_TRUE(waiter.admitted());
}

// Netflix concurrency-limits (Lifo and BlockingLimiter): waiters are not woken when the limit grows. Here
// growth meets waiters in every state: settled in line, just joining, and about to give up.
TEST(PeerDefect, GrowthAdmitsTheWaitersThatNowFit) {
  WatchedClock clock;
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 5, .clock = &clock}};
  auto a = gate.acquire();
  Caller settled(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  std::optional<Result<Permit>> giving_up, joining;
  points.hold("giving up", "withdraw.before_lock");
  std::jthread one = named("giving up", [&] { giving_up.emplace(gate.acquire({.timeout = 1ms})); });
  until_waiting(gate, 2);
  clock.advance(1ms);
  points.until_held("giving up");
  points.hold("joining", "enter.before_lock");
  std::jthread two = named("joining", [&] { joining.emplace(gate.acquire()); });
  points.until_held("joining");
  gate.resize(4);
  EXPECT_EQ(numbers(gate), Numbers(3, 0));
  points.let_go("giving up");
  points.let_go("joining");
  one.join();
  two.join();
  EXPECT_TRUE(settled.admitted());
  EXPECT_TRUE(giving_up->has_value());
  EXPECT_TRUE(joining->has_value());
  EXPECT_EQ(numbers(gate), Numbers(4, 0));
}

// resilience4j, Netflix concurrency-limits, Semian: a second release adds capacity. Here the first release
// has given the unit back and is held before it can hand it on.
TEST(PeerDefect, ASecondReleaseAddsNoCapacity) {
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.acquire();
  Caller b(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  Caller c(gate);
  points.hold("releaser", "release.before_lock");
  std::jthread releaser = named("releaser", [&] {
    EXPECT_TRUE(a->release());
    EXPECT_FALSE(a->release());
  });
  points.until_held("releaser");
  EXPECT_FALSE(a->release());
  EXPECT_FALSE(gate.try_acquire());
  points.let_go("releaser");
  releaser.join();
  EXPECT_TRUE(b.admitted());
  EXPECT_FALSE(a->release());
  EXPECT_TRUE(c.pending());
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  EXPECT_EQ(gate.snapshot().double_releases, 3u);
  EXPECT_EQ(gate.snapshot().underflows, 0u);
  gate.close();
}

// Netflix concurrency-limits, failsafe-go: an exception between admission and release leaks the permit.
TEST(PeerDefect, AnExceptionBeforeTheReleaseLeaksNoPermit) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .measure_service = true, .clock = &clock}};
  // A call that takes no time at all, which some sampling cannot divide by.
  EXPECT_TRUE(gate.run([] {}));
  // Time that seems to run backwards cannot be had: the clock is monotonic. Anything can be thrown.
  EXPECT_THROW(static_cast<void>(gate.run([] { throw 1; })), int);
  EXPECT_THROW(static_cast<void>(gate.run([] { throw std::bad_alloc(); })), std::bad_alloc);
  gate.async_acquire({}, [](Result<Permit>) { throw std::runtime_error("task"); });
  auto a = gate.acquire();
  gate.async_acquire({}, [](Result<Permit>) { throw std::runtime_error("task"); });
  a->release();
  EXPECT_EQ(gate.snapshot().hook_errors, 2u);
  EXPECT_TRUE(gate.try_acquire());
  expect_idle(gate);
}

// cockatiel: a newcomer takes the slot, and the queued call that was admitted is rejected. Here the unit is
// free in the word and its releaser is held before it can hand it on: newcomers of every kind come by.
TEST(PeerDefect, ANewcomerDoesNotTakeTheUnitOfAWaiter) {
  for (Kind kind : kinds) {
    SyncPoints points;
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto holder = gate.acquire();
    Caller waiter(gate, {}, kind);
    until_waiting(gate, 1);
    points.hold("releaser", "release.before_rouse");
    std::jthread releaser = named("releaser", [&] { holder->release(); });
    points.until_held("releaser");
    EXPECT_EQ(gate.try_acquire().error().reason, Reason::concurrency_limit);
    EXPECT_FALSE(gate.acquire({.timeout = 0ns}));
    EXPECT_EQ(Caller(gate).reason(), Reason::queue_limit);
    points.let_go("releaser");
    releaser.join();
    EXPECT_TRUE(waiter.admitted());
    waiter.release();
    expect_idle(gate);
  }
}

// Sentinel (#628): the check and the increment are two steps. Here two newcomers have both seen one free
// unit, respectively one free place in line, before either acts on it.
TEST(PeerDefect, CallersThatSawTheSameFreeUnitDoNotAllEnter) {
  SyncPoints points;
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  std::optional<Result<Permit>> results[3];
  const char* names[] = {"one", "two", "three"};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < 3; ++i) {
    points.hold(names[i], "enter.before_lock");
    threads.push_back(named(names[i], [&, i] { results[i].emplace(gate.acquire()); }));
    points.until_held(names[i]);
  }
  holder->release();
  EXPECT_EQ(numbers(gate), Numbers(0, 0));
  points.let_go("one");
  threads[0].join();
  EXPECT_TRUE(results[0]->has_value());
  points.let_go("two");
  until_waiting(gate, 1);
  points.let_go("three");
  threads[2].join();
  EXPECT_EQ(results[2]->error().reason, Reason::queue_limit);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  (*results[0])->release();
  threads[1].join();
  EXPECT_TRUE(results[1]->has_value());
}

TEST(PeerDefect, ThePeakSeenFromInsideNeverExceedsTheLimit) {
  Gate gate{{.max_concurrent = 3, .max_queue = 2}};
  std::atomic<int> inside = 0, peak = 0;
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&] {
      while (!over) {
        auto permit = gate.acquire({.timeout = 10us});
        if (!permit) continue;
        const int now = ++inside;
        for (int seen = peak; seen < now && !peak.compare_exchange_weak(seen, now);) {
        }
        std::this_thread::yield();
        --inside;
      }
    });
  std::this_thread::sleep_for(300ms);
  over = true;
  threads.clear();
  EXPECT_LE(peak, 3);
  EXPECT_GT(peak, 0);
  expect_idle(gate);
}

// resilience4j: an interrupted wait is reported as "full". Here a cancellation comes in each stage of a call:
// before the line (and the line is full), in it.
TEST(PeerDefect, ACancelledCallIsReportedAsCancelledNotAsFull) {
  for (Kind kind : {Kind::handler, Kind::coroutine}) {
    SyncPoints points;
    std::vector<Reason> told;
    Hooks hooks{.on_reject = [&](const Event&, Reason reason) { told.push_back(reason); }};
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = hooks}};
    auto holder = gate.acquire();
    std::stop_source stop;
    std::optional<Caller> joining;
    points.hold("joining", "enter.before_lock");
    std::jthread thread =
        named("joining", [&] { joining.emplace(gate, AcquireOptions{.stop = stop.get_token()}, kind); });
    points.until_held("joining");
    Caller waiter(gate, {.stop = stop.get_token()}, Kind::thread);
    until_waiting(gate, 1);
    stop.request_stop();  // both: the one in line and the one that would find the line full
    EXPECT_EQ(waiter.reason(), Reason::cancelled);
    Caller filler(gate);
    points.let_go("joining");
    thread.join();
    EXPECT_EQ(joining->reason(), Reason::cancelled);
    EXPECT_EQ(told, (std::vector{Reason::cancelled, Reason::cancelled}));
    EXPECT_EQ(gate.snapshot().rejected(Reason::cancelled), 2u);
    EXPECT_EQ(gate.snapshot().rejected(), 2u);
    gate.close();
  }
}

static_assert(TimePoint::clock::is_steady);
static_assert(std::is_same_v<TimePoint::duration, std::chrono::nanoseconds>);

// Several libraries truncate waits to milliseconds, or compute deadlines from the wall clock.
TEST(PeerDefect, WaitsAreExactToTheNanosecond) {
  for (Kind kind : kinds) {
    WatchedClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.acquire();
    Caller b(gate, {.timeout = 900'001ns}, kind);
    until_waiting(gate, 1);
    clock.advance(900us);
    if (kind == Kind::thread) clock.until_looked_at();
    EXPECT_TRUE(b.pending());
    EXPECT_EQ(numbers(gate), Numbers(1, 1));
    clock.advance(1ns);
    EXPECT_EQ(b.reason(), Reason::timeout);
  }
}

}  // namespace
}  // namespace bulkhead
