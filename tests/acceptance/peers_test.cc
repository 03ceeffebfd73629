// What the tests of failsafe-go (semaphore), resilience4j (SemaphoreBulkhead) and tower (limit/concurrency)
// check, on our gate. tests/SOURCES.md names the files.
#include <gtest/gtest.h>

#include <latch>
#include <memory>
#include <optional>
#include <stdexcept>
#include <thread>
#include <vector>

#include "bulkhead/compose.h"
#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class FailsafeGo : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(As, FailsafeGo, ::testing::ValuesIn(kinds), kind_name);

TEST_P(FailsafeGo, ReleaseGoesToTheWaitersFirstInFirstOut) {
  Gate gate{{.max_concurrent = 2, .max_queue = 5}};
  Result<Permit> held[] = {gate.acquire(), gate.acquire()};
  std::deque<Caller> line;
  for (std::uint32_t i = 0; i < 5; ++i) {
    line.emplace_back(gate, AcquireOptions{}, GetParam());
    until_waiting(gate, i + 1);
  }
  held[0]->release();
  EXPECT_TRUE(line[0].admitted());
  held[1]->release();
  EXPECT_TRUE(line[1].admitted());
  for (std::size_t i = 0; i < line.size(); ++i) {
    EXPECT_TRUE(line[i].admitted());
    for (std::size_t later = i + 2; later < line.size(); ++later) EXPECT_TRUE(line[later].pending());
    line[i].release();
  }
  expect_idle(gate);
}

TEST_P(FailsafeGo, AContextThatEndsUnblocksTheWaiter) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.acquire();
  std::stop_source context;
  Caller b(gate, {.stop = context.get_token()}, GetParam());
  until_waiting(gate, 1);
  context.request_stop();
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
}

TEST_P(FailsafeGo, TheMaxWaitOfTheGateUnblocksTheWaiter) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .max_wait = 1s, .clock = &clock}};
  auto a = gate.acquire();
  Caller b(gate, {}, GetParam());
  until_waiting(gate, 1);
  clock.advance(1s);
  EXPECT_EQ(b.reason(), Reason::timeout);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
}

TEST_P(FailsafeGo, ALargerSizeWakesTheWaitersThatNowFit) {
  Gate gate{{.max_concurrent = 1, .max_queue = 6}};
  auto a = gate.acquire();
  std::deque<Caller> line;
  for (std::uint32_t i = 0; i < 6; ++i) {
    line.emplace_back(gate, AcquireOptions{}, GetParam());
    until_waiting(gate, i + 1);
  }
  gate.resize(5);
  EXPECT_EQ(numbers(gate), Numbers(5, 2));
  for (std::size_t i = 0; i < 4; ++i) EXPECT_TRUE(line[i].admitted());
  EXPECT_TRUE(line[4].pending());
  EXPECT_TRUE(line[5].pending());
  gate.close();
}

TEST_P(FailsafeGo, ASmallerSizeBlocksUntilEnoughIsReleased) {
  Gate gate{{.max_concurrent = 3, .max_queue = 1}};
  Result<Permit> held[] = {gate.acquire(), gate.acquire(), gate.acquire()};
  gate.resize(1);
  EXPECT_EQ(gate.snapshot().max_concurrent, 1u);
  EXPECT_EQ(gate.snapshot().in_flight, 3u);
  Caller b(gate, {}, GetParam());
  until_waiting(gate, 1);
  held[0]->release();
  held[1]->release();
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  held[2]->release();
  EXPECT_TRUE(b.admitted());
  b.release();
  expect_idle(gate);
}

TEST_P(FailsafeGo, AGrantThatRacesWithTheTimeoutIsKept) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.acquire();
  Caller b(gate, {.timeout = 1s}, GetParam());
  until_waiting(gate, 1);
  a->release();
  clock.advance(1s);
  EXPECT_TRUE(b.admitted());
}

// Zero is not a size here, so that no gate is closed by a slip; close() is the way.
TEST(Resilience4j, ZeroMaxIsNoGateAndAClosedGateRejectsAll) {
  EXPECT_THROW(Gate({.max_concurrent = 0}), std::invalid_argument);
  Gate gate{{.max_concurrent = 1}};
  gate.close();
  EXPECT_FALSE(gate.try_acquire());
}

TEST(Resilience4j, EntryTimesOut) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .max_wait = 900us, .clock = &clock}};
  auto a = gate.acquire();
  Caller b(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  clock.advance(900us);
  EXPECT_EQ(b.reason(), Reason::timeout);
}

TEST(Resilience4j, AnInterruptIsToldAsCancelledNotAsFull) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.acquire();
  std::stop_source stop;
  Caller b(gate, {.timeout = 1h, .stop = stop.get_token()}, Kind::thread);
  until_waiting(gate, 1);
  stop.request_stop();
  EXPECT_EQ(b.reason(), Reason::cancelled);
  EXPECT_TRUE(stop.stop_requested());
}

TEST(Resilience4j, TheLimitChangesWhenIdle) {
  Gate gate{{.max_concurrent = 1}};
  gate.resize(2);
  auto a = gate.try_acquire();
  auto b = gate.try_acquire();
  EXPECT_TRUE(a && b);
  EXPECT_FALSE(gate.try_acquire());
}

TEST(Resilience4j, TheLimitChangesWhileOneRuns) {
  Gate gate{{.max_concurrent = 1}};
  auto a = gate.try_acquire();
  gate.resize(2);
  auto b = gate.try_acquire();
  EXPECT_TRUE(b);
  gate.resize(1);
  a->release();
  EXPECT_FALSE(gate.try_acquire());
  b->release();
  EXPECT_TRUE(gate.try_acquire());
}

TEST(Resilience4j, TheLimitChangesWhileOneWaits) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.try_acquire();
  Caller b(gate, {}, Kind::thread);
  until_waiting(gate, 1);
  gate.resize(2);
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(numbers(gate), Numbers(2, 0));
}

// The wait of a gate is fixed; the wait of a call is its own and does not touch those already in line.
TEST(Resilience4j, AnotherWaitAffectsOnlyTheCallsThatAskForIt) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .max_wait = 10s, .clock = &clock}};
  auto a = gate.acquire();
  Caller patient(gate);
  Caller hasty(gate, {.timeout = 1s});
  clock.advance(1s);
  EXPECT_EQ(hasty.reason(), Reason::timeout);
  EXPECT_TRUE(patient.pending());
  clock.advance(9s);
  EXPECT_EQ(patient.reason(), Reason::timeout);
}

TEST(Resilience4j, ConcurrentResizesAreSerialized) {
  Gate gate{{.max_concurrent = 5, .max_queue = 0}};
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t t = 1; t <= 4; ++t)
      threads.emplace_back([&gate, t] {
        for (int i = 0; i < 2000; ++i) gate.resize(t);
      });
  }
  gate.resize(3);
  std::vector<Result<Permit>> held;
  for (int i = 0; i < 3; ++i) held.push_back(gate.try_acquire());
  for (const auto& permit : held) EXPECT_TRUE(permit);
  EXPECT_FALSE(gate.try_acquire());
  held.clear();
  expect_idle(gate);
}

TEST(Resilience4j, EveryWayToCallReleasesOnSuccessAndOnException) {
  Gate gate{{.max_concurrent = 1}};
  auto decorated = wrap(gate, [](int x) { return x < 0 ? throw std::runtime_error("x") : x; });
  EXPECT_EQ(decorated(1).value(), 1);
  EXPECT_THROW(static_cast<void>(decorated(-1)), std::runtime_error);
  EXPECT_TRUE(gate.run([] {}));
  EXPECT_THROW(static_cast<void>(gate.run([] { throw 1; })), int);
  gate.async_acquire({}, [](Result<Permit>) {});
  gate.async_acquire({}, [](Result<Permit>) { throw 1; });
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().failed, 2u);
  EXPECT_EQ(gate.snapshot().succeeded, 4u);
}

TEST(Resilience4j, ChainedDecorationsHoldBothAndReleaseBoth) {
  Gate outer{{.max_concurrent = 1}}, inner{{.max_concurrent = 1}};
  auto chained =
      wrap(outer, wrap(inner, [&] { return outer.snapshot().in_flight + inner.snapshot().in_flight; }));
  EXPECT_EQ(chained().value().value(), 2u);
  auto held = inner.acquire();
  EXPECT_EQ(chained().value().error().reason, Reason::concurrency_limit);
  expect_idle(outer);
}

TEST(Tower, AReservedSlotThatIsNotUsedComesBack) {
  Gate gate{{.max_concurrent = 1}};
  {
    auto reserved = gate.try_acquire();
  }
  EXPECT_TRUE(gate.try_acquire());
  expect_idle(gate);
}

TEST(Tower, AFutureDroppedInLineLeavesTheLine) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto a = gate.acquire();
  const auto body = [](Gate& g, bool& ran) -> Coroutine {
    auto permit = co_await g.co_acquire();
    ran = true;
  };
  bool ran = false;
  {
    Coroutine dropped = body(gate, ran);
    dropped.start();
    EXPECT_EQ(numbers(gate), Numbers(1, 1));
  }
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  EXPECT_EQ(gate.snapshot().rejected(Reason::cancelled), 1u);
  a->release();
  EXPECT_FALSE(ran);
  expect_idle(gate);
}

TEST(Tower, AFutureDroppedWhileItHoldsReleases) {
  Gate gate{{.max_concurrent = 1}};
  const auto body = [](Gate& g) -> Coroutine {
    auto permit = co_await g.co_acquire();
    co_await std::suspend_always{};
  };
  {
    Coroutine holding = body(gate);
    holding.start();
    EXPECT_EQ(gate.snapshot().in_flight, 1u);
  }
  expect_idle(gate);
}

TEST(Tower, AFutureDroppedAfterItsTurnCameButBeforeItRanGivesTheUnitOn) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.acquire();
  std::optional<Coroutine> victim;
  const auto body = [](Gate& g, bool& ran) -> Coroutine {
    auto permit = co_await g.co_acquire();
    ran = true;
  };
  // The first handler gives its unit to the coroutine behind it, and then destroys that coroutine before its
  // resumption, which waits for this handler to return.
  gate.async_acquire({}, [&](Result<Permit> permit) {
    permit->release();
    EXPECT_EQ(gate.snapshot().in_flight, 1u);  // the coroutine has it
    victim.reset();
  });
  bool ran = false;
  victim.emplace(body(gate, ran));
  victim->start();
  Caller last(gate);
  a->release();
  EXPECT_FALSE(ran);
  EXPECT_TRUE(last.admitted());
  last.release();
  expect_idle(gate);
}

TEST(Tower, ManyWaitersAreAllServed) {
  Gate gate{{.max_concurrent = 1, .max_queue = 3}};
  auto a = gate.acquire();
  Caller b(gate, {}, Kind::coroutine), c(gate, {}, Kind::thread), d(gate, {}, Kind::handler);
  until_waiting(gate, 3);
  a->release();
  Caller* callers[] = {&b, &c, &d};
  for (int served = 0; served < 3; ++served) {
    Caller** it = nullptr;
    until([&] {
      for (Caller*& caller : callers)
        if (caller && !caller->pending()) it = &caller;
      return it != nullptr;
    });
    EXPECT_TRUE((*it)->admitted());
    (*it)->release();
    *it = nullptr;
  }
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
