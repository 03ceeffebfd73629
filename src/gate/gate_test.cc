#include "bulkhead/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>

#include "bulkhead/compose.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

void until_waiting(const Gate& gate, std::uint32_t n) {
  while (gate.snapshot().waiting != n) std::this_thread::yield();
}

TEST(Gate, RejectionNamesTheGateTheReasonAndTheNumbers) {
  Gate gate{{.name = "db", .max_concurrent = 2, .max_queue = 1}};
  auto a = gate.acquire();
  auto b = gate.acquire();
  auto c = gate.try_acquire();
  ASSERT_FALSE(c);
  EXPECT_EQ(c.error().message(), "bulkhead \"db\" rejected (concurrency_limit): 2/2 running, 0/1 waiting");
}

TEST(Gate, RejectionSaysWhenToRetryIfThatIsKnown) {
  const Rejection rejected{
      .reason = Reason::rate_limit, .name = "api", .max_concurrent = 4, .retry_after = 1'200us};
  EXPECT_EQ(rejected.message(),
            "bulkhead \"api\" rejected (rate_limit): 0/4 running, 0/0 waiting, retry after 2 ms");
}

TEST(Gate, WrongOptionsNameTheSettingTheValueAndTheFix) {
  const auto message = [](GateOptions o) -> std::string {
    try {
      Gate gate{std::move(o)};
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.name = "db", .max_concurrent = 0}),
            "bulkhead \"db\": max_concurrent = 0 is out of range: give 1 to 268435455");
  EXPECT_THAT(message({.max_concurrent = 1u << 28}), HasSubstr("max_concurrent = 268435456"));
  EXPECT_THAT(message({.max_queue = 1u << 21}), HasSubstr("max_queue = 2097152"));
  EXPECT_THAT(message({.max_wait = -1ns}),
              HasSubstr("max_wait = -1 ns is negative: give 0 (do not wait) or more"));
  EXPECT_THAT(message({.critical_reserve = 1.5}), HasSubstr("critical_reserve = 1.5"));
  EXPECT_THAT(message({.critical_reserve = 1.0}), HasSubstr("a share from 0 to below 1"));
  EXPECT_THAT(message({.fairness = Fairness(9)}), HasSubstr("fairness = 9"));
  EXPECT_THAT(message({.max_barge = -2ns}), HasSubstr("max_barge = -2 ns"));
  EXPECT_THAT(message({.critical_reserve = std::numeric_limits<double>::quiet_NaN()}),
              HasSubstr("critical_reserve"));
  EXPECT_EQ(message({.max_concurrent = (1u << 28) - 1, .max_queue = (1u << 21) - 1}), "accepted");
}

TEST(Gate, ABadResizeChangesNothing) {
  Gate gate{{.max_concurrent = 3, .max_queue = 4}};
  EXPECT_THROW(gate.resize(0), std::invalid_argument);
  EXPECT_THROW(gate.resize_queue(1u << 21), std::invalid_argument);
  EXPECT_EQ(gate.snapshot().max_concurrent, 3u);
  EXPECT_EQ(gate.snapshot().max_queue, 4u);
}

TEST(Gate, TakesTheMemoryThatItsHeaderStates) {
  EXPECT_LE(sizeof(Gate), 1024u);
  EXPECT_LE(sizeof(decltype(std::declval<Gate&>().co_acquire())), 544u);
}

TEST(Gate, DestructorRejectsTheWaitersAndWaitsForThePermits) {
  auto gate = std::make_unique<Gate>(GateOptions{.max_concurrent = 1, .max_queue = 1});
  auto permit = gate->acquire();
  Reason reason{};
  std::thread waiter([&] { reason = gate->acquire().error().reason; });
  until_waiting(*gate, 1);
  std::atomic<bool> gone = false;
  std::thread destroyer([&] {
    gate.reset();
    gone = true;
  });
  waiter.join();
  EXPECT_EQ(reason, Reason::shutdown);
  EXPECT_FALSE(gone);
  permit->release();
  destroyer.join();
  EXPECT_TRUE(gone);
}

TEST(Gate, AHandlerMayDestroyItsGate) {
  auto gate = std::make_unique<Gate>(GateOptions{.max_concurrent = 1, .max_queue = 2});
  auto permit = gate->acquire();
  int called = 0;
  gate->async_acquire({}, [&](Result<Permit> p) {
    ++called;
    p->release();
    gate.reset();
    throw std::runtime_error("and throw");
  });
  gate->async_acquire({}, [&](Result<Permit> p) {
    ++called;
    EXPECT_TRUE(p);  // its turn came with the release above, before the gate went
  });
  permit->release();
  EXPECT_EQ(called, 2);
  EXPECT_FALSE(gate);
}

TEST(Gate, AThousandHandlersInARowDoNotDeepenTheStack) {
  Gate gate{{.max_concurrent = 1, .max_queue = 100'000}};
  auto permit = gate.acquire();
  int called = 0;
  for (int i = 0; i < 100'000; ++i) gate.async_acquire({}, [&](Result<Permit>) { ++called; });
  permit->release();
  EXPECT_EQ(called, 100'000);
}

TEST(Gate, HoldersAreListedWithLabelAgeAndPlace) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 3, .track_holders = true, .clock = &clock}};
  auto a = gate.acquire({.priority = Priority::critical, .cost = 2, .label = "checkout"});
  clock.advance(5s);
  const int line = __LINE__ + 1;
  auto b = gate.acquire();
  auto holders = gate.holders();
  ASSERT_EQ(holders.size(), 2u);
  EXPECT_EQ(holders[0].label, "checkout");
  EXPECT_EQ(holders[0].age, 5s);
  EXPECT_EQ(holders[0].priority, Priority::critical);
  EXPECT_EQ(holders[0].cost, 2u);
  EXPECT_EQ(holders[1].age, 0s);
  EXPECT_EQ(static_cast<int>(holders[1].where.line()), line);
  EXPECT_THAT(holders[1].where.file_name(), HasSubstr("gate_test.cc"));
  a->release();
  EXPECT_EQ(gate.holders().size(), 1u);
  b->release();
  EXPECT_TRUE(gate.holders().empty());
}

TEST(Gate, AHopelessDeadlineIsRejectedAtOnce) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 2, .max_queue = 100, .measure_service = true, .clock = &clock}};
  {
    auto permit = gate.acquire();
    clock.advance(100ms);
  }
  EXPECT_EQ(gate.snapshot().mean_hold, 100ms);
  auto a = gate.acquire();
  auto b = gate.acquire();
  int waiting = 0;
  for (int i = 0; i < 4; ++i) gate.async_acquire({}, [&](Result<Permit>) { --waiting; }), ++waiting;
  // Four ahead, two at a time, 100 ms each: 200 ms.
  auto rejected = gate.acquire({.deadline = clock.now() + 199ms});
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::deadline);
  EXPECT_THAT(rejected.error().message(),
              testing::HasSubstr("(deadline): the deadline would pass before its turn, 2/2"));
  bool called = false;
  gate.async_acquire({.deadline = clock.now() + 201ms}, [&](Result<Permit>) { called = true; });
  EXPECT_FALSE(called);  // it waits
  EXPECT_EQ(gate.snapshot().waiting, 5u);
  const auto late = gate.acquire({.deadline = clock.now()});
  EXPECT_EQ(late.error().reason, Reason::deadline);
  EXPECT_THAT(late.error().message(), testing::HasSubstr("(deadline): the deadline has passed, 2/2 running"));
  gate.close();
}

// A call of several units delays those behind it as much as as many light ones.
TEST(Gate, TheWaitForCallsOfSeveralUnitsIsPredictedByTheirCost) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 100, .max_queue = 100, .measure_service = true, .clock = &clock}};
  {
    auto permit = gate.acquire({.cost = 50});
    clock.advance(100ms);
  }
  auto a = gate.acquire({.cost = 50});
  auto b = gate.acquire({.cost = 50});
  for (int i = 0; i < 4; ++i) gate.async_acquire({.cost = 50}, [](const Result<Permit>&) {});
  // Four ahead, two at a time, 100 ms each: 200 ms.
  std::optional<Reason> told;
  gate.async_acquire({.deadline = clock.now() + 199ms},
                     [&](const Result<Permit>& r) { told = r.error().reason; });
  EXPECT_EQ(told, Reason::deadline);
  gate.async_acquire({.deadline = clock.now() + 201ms}, [](const Result<Permit>&) {});
  EXPECT_EQ(gate.snapshot().waiting, 5u);
  gate.close();
}

// Each sample moves the mean by an eighth of the difference; after the first sixteen calls, one in sixteen is one.
TEST(Gate, TheMeanHoldTimeFollowsTheCalls) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .measure_service = true, .clock = &clock}};
  const auto hold = [&](std::chrono::nanoseconds time) {
    auto permit = gate.acquire();
    clock.advance(time);
  };
  hold(80ms);
  EXPECT_EQ(gate.snapshot().mean_hold, 80ms);
  hold(160ms);
  EXPECT_EQ(gate.snapshot().mean_hold, 90ms);
  hold(10ms);
  EXPECT_EQ(gate.snapshot().mean_hold, 80ms);
  for (int i = 3; i < 17; ++i) hold(80ms);
  EXPECT_EQ(gate.snapshot().mean_hold, 80ms);
  for (int i = 17; i < 32; ++i) hold(8s);
  EXPECT_EQ(gate.snapshot().mean_hold, 80ms);  // none of these was sampled
  hold(160ms);
  EXPECT_EQ(gate.snapshot().mean_hold, 90ms);
}

TEST(Gate, ALabelIsKeptAsLongAsItsCallWaitsAndCutBetweenCharacters) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .track_holders = true}};
  auto first = gate.acquire();
  std::optional<Permit> second;
  {
    auto label = std::make_unique<std::string>(46, 'x');
    *label += "\u00e4 and more";
    gate.async_acquire({.label = *label}, [&](Result<Permit> r) { second = *std::move(r); });
    label->assign(label->size(), '?');
  }
  first->release();
  ASSERT_EQ(gate.holders().size(), 1u);
  EXPECT_EQ(gate.holders()[0].label, std::string(46, 'x'));
  second.reset();
  auto third = gate.acquire({.label = std::string_view("a\0b", 3)});
  EXPECT_EQ(gate.holders()[0].label, std::string("a\0b", 3));
}

TEST(AcquireAll, GivesBackWhatItTookWhenALaterGateRejects) {
  Gate outer{{.name = "outer", .max_concurrent = 1}};
  Gate inner{{.name = "inner", .max_concurrent = 1}};
  {
    auto both = acquire_all({}, outer, inner);
    ASSERT_TRUE(both);
    EXPECT_EQ(outer.snapshot().in_flight, 1u);
    EXPECT_EQ(inner.snapshot().in_flight, 1u);
  }
  auto held = inner.acquire();
  auto neither = acquire_all({}, outer, inner);
  ASSERT_FALSE(neither);
  EXPECT_EQ(neither.error().name, "inner");
  EXPECT_EQ(outer.snapshot().in_flight, 0u);
}

TEST(Gate, TheOldestHoldIsKnownWhereHoldersAre) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 2, .track_holders = true, .clock = &clock}};
  EXPECT_EQ(gate.snapshot().oldest_hold, 0ns);
  auto first = gate.acquire();
  clock.advance(3s);
  auto second = gate.acquire();
  clock.advance(1s);
  EXPECT_EQ(gate.snapshot().oldest_hold, 4s);
  first->release();
  EXPECT_EQ(gate.snapshot().oldest_hold, 1s);
  EXPECT_EQ(Gate({.max_concurrent = 1}).snapshot().oldest_hold, std::nullopt);
}

TEST(AcquireAll, OneTimeoutCoversAllGates) {
  ManualClock clock;
  Gate gates[] = {Gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}},
                  Gate{{.name = "inner", .max_concurrent = 1, .max_queue = 1, .clock = &clock}}};
  Gate &outer = gates[0], &inner = gates[1];  // taken in the order of their addresses
  auto first = outer.acquire();
  auto second = inner.acquire();
  const TimePoint began = clock.now();
  std::optional<Rejection> why;
  TimePoint ended;
  std::jthread caller([&] {
    auto both = acquire_all({.timeout = 100ms}, outer, inner);
    if (!both) why = both.error();
    ended = clock.now();
  });
  until_waiting(outer, 1);
  clock.advance(60ms);
  first->release();
  until_waiting(inner, 1);
  clock.advance(39ms);
  EXPECT_EQ(inner.snapshot().waiting, 1u);
  clock.advance(1ms);
  caller.join();
  ASSERT_TRUE(why);
  EXPECT_EQ(why->reason, Reason::timeout);
  EXPECT_EQ(why->name, "inner");
  EXPECT_EQ(ended - began, 100ms);
  EXPECT_EQ(outer.snapshot().in_flight, 0u);
}

TEST(Wrap, IsAsConstAsWhatItWraps) {
  Gate gate{{.max_concurrent = 1}};
  const auto twice = wrap(gate, [](int x) { return 2 * x; });
  EXPECT_EQ(twice(21).value(), 42);
  auto count = wrap(gate, [n = 0]() mutable { return ++n; });
  EXPECT_EQ(count().value(), 1);
  EXPECT_EQ(count().value(), 2);
  static_assert(!std::is_invocable_v<const decltype(count)&>);
}

TEST(Wrap, LiftsTheSignatureToAResult) {
  Gate gate{{.max_concurrent = 1}};
  auto twice = wrap(gate, [&](int x) {
    EXPECT_EQ(gate.snapshot().in_flight, 1u);
    return 2 * x;
  });
  static_assert(std::is_same_v<decltype(twice(1)), Result<int>>);
  EXPECT_EQ(twice(21).value(), 42);
  auto permit = gate.acquire();
  EXPECT_EQ(twice(21).error().reason, Reason::concurrency_limit);
}

}  // namespace
}  // namespace bulkhead
