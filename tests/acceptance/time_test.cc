// Deadlines, stop tokens, fairness that can be seen without forcing threads, and the end of a gate.
#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class Deadline : public ::testing::TestWithParam<Kind> {
 protected:
  ManualClock clock;
};
INSTANTIATE_TEST_SUITE_P(As, Deadline, ::testing::ValuesIn(kinds), kind_name);

TEST_P(Deadline, AlreadyPastIsRejectedEvenIfThereIsRoom) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  for (TimePoint past : {clock.now(), clock.now() - 1ns, TimePoint{}, TimePoint::min()}) {
    EXPECT_EQ(Caller(gate, {.deadline = past}, GetParam()).reason(), Reason::deadline);
    EXPECT_EQ(gate.try_acquire({.deadline = past}).error().reason, Reason::deadline);
  }
  EXPECT_EQ(gate.snapshot().admitted, 0u);
  EXPECT_EQ(gate.snapshot().rejected(Reason::deadline), 8u);
}

TEST_P(Deadline, ThatComesInLineIsATimeout) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.acquire();
  Caller b(gate, {.deadline = clock.now() + 5ms}, GetParam());
  until_waiting(gate, 1);
  clock.advance(5ms);
  EXPECT_EQ(b.reason(), Reason::timeout);
}

TEST_P(Deadline, TheEarlierOfTimeoutAndDeadlineCounts) {
  for (const auto& [timeout, deadline] : {std::pair{5ms, 50ms}, std::pair{50ms, 5ms}}) {
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
    auto a = gate.acquire();
    Caller b(gate, {.timeout = timeout, .deadline = clock.now() + deadline}, GetParam());
    until_waiting(gate, 1);
    clock.advance(5ms);
    EXPECT_EQ(b.reason(), Reason::timeout);
  }
}

TEST_P(Deadline, FarAwayMeansForEver) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.acquire();
  Caller b(gate, {.timeout = wait_forever - 1ns, .deadline = no_deadline - 1ns}, GetParam());
  until_waiting(gate, 1);
  clock.advance(24h * 365 * 100);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  a->release();
  EXPECT_TRUE(b.admitted());
}

TEST_P(Deadline, ATimeBeforeTheEpochIsATimeLikeAnyOther) {
  for (const auto start : {-1h, 0h}) {
    ManualClock early{TimePoint(start)};
    Gate gate{{.max_concurrent = 1, .max_queue = 2, .clock = &early}};
    auto a = gate.acquire();
    Caller b(gate, {.timeout = 5ms}, GetParam()), c(gate, {.deadline = early.now() + 6ms}, GetParam());
    until_waiting(gate, 2);
    early.advance(4ms);
    EXPECT_EQ(gate.snapshot().waiting, 2u);
    early.advance(1ms);
    EXPECT_EQ(b.reason(), Reason::timeout);
    early.advance(1ms);
    EXPECT_EQ(c.reason(), Reason::timeout);
    EXPECT_EQ(Caller(gate, {.deadline = early.now()}, GetParam()).reason(), Reason::deadline);
  }
}

// The second wait has an alarm, or a look at the clock, on each side of the epoch.
TEST_P(Deadline, ATimeoutMayBeginBeforeTheEpochAndEndAfterIt) {
  ManualClock early{TimePoint(-5ms)};
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .clock = &early}};
  auto a = gate.acquire();
  Caller at_zero(gate, {.timeout = 5ms}, GetParam()), after(gate, {.timeout = 6ms}, GetParam());
  until_waiting(gate, 2);
  EXPECT_EQ(gate.try_acquire({.deadline = TimePoint(-5ms)}).error().reason, Reason::deadline);
  EXPECT_EQ(gate.try_acquire({.deadline = TimePoint(-4ms)}).error().reason, Reason::concurrency_limit);
  early.advance(5ms);
  EXPECT_EQ(at_zero.reason(), Reason::timeout);
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  early.advance(1ms);
  EXPECT_EQ(after.reason(), Reason::timeout);
}

// Nothing is added to a time so that it runs over: neither to the earliest there is, nor to the latest.
TEST_P(Deadline, TheEarliestTimeThereIsCanBeWaitedFrom) {
  ManualClock first{TimePoint::min()};
  Gate gate{{.max_concurrent = 1, .max_queue = 3, .measure_service = true, .clock = &first}};
  {
    auto sampled = gate.acquire();
    first.advance(1ms);
  }
  auto a = gate.acquire();
  Caller b(gate, {.timeout = 1ms}, GetParam());
  Caller c(gate, {.timeout = wait_forever - 1ns, .deadline = no_deadline - 1ns}, GetParam());
  until_waiting(gate, 2);
  first.advance(1ms);
  EXPECT_EQ(b.reason(), Reason::timeout);
  EXPECT_EQ(numbers(gate), Numbers(1, 1));
  a->release();
  EXPECT_TRUE(c.admitted());
}

TEST_P(Deadline, APredictedWaitThatIsTooLongIsRejectedAtOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 9, .measure_service = true, .clock = &clock}};
  {
    auto permit = gate.acquire();
    clock.advance(10ms);
  }
  auto a = gate.acquire();
  Caller b(gate), c(gate);
  EXPECT_EQ(Caller(gate, {.deadline = clock.now() + 19ms}, GetParam()).reason(), Reason::deadline);
  Caller patient(gate, {.deadline = clock.now() + 21ms}, GetParam());
  until_waiting(gate, 3);
  gate.close();
  EXPECT_EQ(patient.reason(), Reason::shutdown);
}

// Threads look at the clock for themselves, in any order.
TEST(Timeouts, OfAsynchronousCallsFireInOrderOfTime) {
  for (Kind kind : {Kind::handler, Kind::coroutine}) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 4, .clock = &clock}};
    auto a = gate.acquire();
    Caller late(gate, {.timeout = 30ms}, kind), early(gate, {.timeout = 10ms}, kind),
        middle(gate, {.timeout = 20ms}, kind);
    clock.advance(1s);
    EXPECT_LT(early.turn(), middle.turn());
    EXPECT_LT(middle.turn(), late.turn());
  }
}

class StopToken : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(As, StopToken, ::testing::ValuesIn(kinds), kind_name);

TEST_P(StopToken, OneTokenCancelsAllItsCallsAndNoOther) {
  Gate gate{{.max_concurrent = 1, .max_queue = 6}};
  auto a = gate.acquire();
  std::stop_source mine, other;
  std::deque<Caller> line;
  for (std::uint32_t i = 0; i < 6; ++i) {
    line.emplace_back(gate, AcquireOptions{.stop = (i % 2 ? mine : other).get_token()}, GetParam());
    until_waiting(gate, i + 1);
  }
  mine.request_stop();
  EXPECT_EQ(gate.snapshot().waiting, 3u);
  a->release();
  for (std::size_t i = 0; i < 6; ++i) {
    if (i % 2) {
      EXPECT_EQ(line[i].reason(), Reason::cancelled);
    } else {
      EXPECT_TRUE(line[i].admitted());
      line[i].release();
    }
  }
  expect_idle(gate);
}

TEST_P(StopToken, MayOutliveTheGate) {
  const auto stop = std::make_unique<std::stop_source>();
  {
    Gate gate{{.max_concurrent = 1, .max_queue = 1}};
    auto a = gate.acquire();
    Caller b(gate, {.stop = stop->get_token()}, GetParam());
    until_waiting(gate, 1);
    gate.close();
    EXPECT_EQ(b.reason(), Reason::shutdown);
  }
  stop->request_stop();
}

TEST(StopTokens, ACancelledHandlerMayCancelTheNext) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2}};
  auto a = gate.acquire();
  std::stop_source first, second;
  Reason reasons[2]{};
  gate.async_acquire({.stop = first.get_token()}, [&](Result<Permit> p) {
    reasons[0] = p.error().reason;
    second.request_stop();
  });
  gate.async_acquire({.stop = second.get_token()}, [&](Result<Permit> p) { reasons[1] = p.error().reason; });
  first.request_stop();
  EXPECT_EQ(reasons[0], Reason::cancelled);
  EXPECT_EQ(reasons[1], Reason::cancelled);
}

TEST(Fairness, HandlersGetTheirUnitsDirectlyInEveryMode) {
  for (Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    Gate gate{{.max_concurrent = 1, .max_queue = 3, .fairness = fairness}};
    auto a = gate.acquire();
    Caller b(gate), c(gate, {}, Kind::coroutine);
    a->release();
    EXPECT_FALSE(b.pending());
    b.release();
    EXPECT_FALSE(c.pending());
    c.release();
    expect_idle(gate);
  }
}

TEST(Fairness, EveryModeServesAParkedThread) {
  for (Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    Gate gate{{.max_concurrent = 1, .max_queue = 3, .fairness = fairness}};
    for (int i = 0; i < 50; ++i) {
      auto a = gate.acquire();
      Caller b(gate, {}, Kind::thread);
      until_waiting(gate, 1);
      a->release();
      EXPECT_TRUE(b.admitted());
    }
    expect_idle(gate);
  }
}

TEST(Destructor, RejectsTheWaitersOfEveryKindAndWaitsForThePermits) {
  for (Kind kind : kinds) {
    auto gate = std::make_unique<Gate>(GateOptions{.max_concurrent = 1, .max_queue = 1});
    Gate& it = *gate;
    auto a = it.acquire();
    Caller b(it, {}, kind);
    until_waiting(it, 1);
    std::atomic<bool> gone = false;
    std::jthread destroyer([&] {
      gate.reset();
      gone = true;
    });
    EXPECT_EQ(b.reason(), Reason::shutdown);
    EXPECT_FALSE(gone);
    a->release();
    destroyer.join();
  }
}

TEST(Destructor, WaitsForAReleaseThatIsStillInItsHook) {
  std::atomic<bool> in_hook = false, leave = false, gone = false;
  auto gate =
      std::make_unique<Gate>(GateOptions{.max_concurrent = 1, .hooks = {.on_release = [&](const Event&) {
                                                                in_hook = true;
                                                                until([&] { return leave.load(); });
                                                              }}});
  auto a = gate->acquire();
  std::jthread releaser([&] { a->release(); });
  until([&] { return in_hook.load(); });
  std::jthread destroyer([&] {
    gate.reset();
    gone = true;
  });
  EXPECT_FALSE(gone);
  leave = true;
  destroyer.join();
  EXPECT_TRUE(gone);
}

TEST(Permit, AssignmentReleasesWhatItHeld) {
  Gate gate{{.max_concurrent = 2}};
  Permit p = *gate.acquire();
  p = *gate.acquire();
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  Permit& same = p;
  p = std::move(same);
  EXPECT_TRUE(p);
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  p = Permit();
  expect_idle(gate);
  EXPECT_EQ(gate.snapshot().double_releases, 0u);
}

TEST(Permit, AFailureIsCountedWhicheverWayItIsTold) {
  Gate gate{{.max_concurrent = 3}};
  {
    auto p = gate.acquire();
  }
  gate.acquire()->fail();
  gate.acquire()->release(Outcome::failure);
  {
    auto p = gate.acquire();
    p->fail();
    Permit moved = *std::move(p);
  }
  EXPECT_EQ(gate.snapshot().succeeded, 1u);
  EXPECT_EQ(gate.snapshot().failed, 3u);
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
