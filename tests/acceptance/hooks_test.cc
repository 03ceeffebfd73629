// The order, payload and re-entrancy of the hooks of async-bulkhead-ts (see tests/SOURCES.md), with our names
// (on_admit, on_reject, on_release, on_resize, on_close).
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/watched_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;
using Trace = std::vector<std::string>;

// Writes every event as "admit 1/0": what happened, in flight, waiting.
Hooks tracing(Trace& trace) {
  const auto note = [&trace](std::string what) {
    return [&trace, what = std::move(what)](const Event& e) {
      trace.push_back(what + " " + std::to_string(e.in_flight) + "/" + std::to_string(e.waiting));
    };
  };
  Hooks hooks{.on_admit = note("admit"),
              .on_release = note("release"),
              .on_resize = note("resize"),
              .on_close = note("close")};
  hooks.on_reject = [&trace](const Event& e, Reason reason) {
    trace.push_back("reject " + std::string(to_string(reason)) + " " + std::to_string(e.in_flight) + "/" +
                    std::to_string(e.waiting));
  };
  return hooks;
}

TEST(AsyncBulkheadTs, HooksReportTheWholeLifeOfAGateInOrder) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  EXPECT_FALSE(gate.try_acquire());
  Caller b(gate);
  Caller c(gate);
  a->release();
  std::stop_source stop;
  Caller d(gate, {.stop = stop.get_token()});
  stop.request_stop();
  b.release();
  gate.close();
  EXPECT_FALSE(gate.try_acquire());
  EXPECT_EQ(trace, (Trace{"admit 1/0", "reject concurrency_limit 1/0", "reject queue_limit 1/1", "admit 1/0",
                          "release 1/0", "reject cancelled 1/0", "release 0/0", "close 0/0",
                          "reject shutdown 0/0"}));
}

TEST(AsyncBulkheadTs, OnAHandOffTheAdmissionComesBeforeTheRelease) {
  for (Kind kind : kinds) {
    Trace trace;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = tracing(trace)}};
    auto a = gate.try_acquire();
    Caller b(gate, {}, kind);
    until_waiting(gate, 1);
    a->release();
    EXPECT_TRUE(b.admitted());
    EXPECT_EQ(trace, (Trace{"admit 1/0", "admit 1/0", "release 1/0"}));
  }
}

TEST(AsyncBulkheadTs, CloseTellsTheRejectionsOneByOneAndThenTheClose) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .max_queue = 3, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate), d(gate);
  gate.close();
  EXPECT_EQ(trace, (Trace{"admit 1/0", "reject shutdown 1/2", "reject shutdown 1/1", "reject shutdown 1/0",
                          "close 1/0"}));
}

TEST(AsyncBulkheadTs, JoiningTheLineIsSilent) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate);
  EXPECT_EQ(trace, (Trace{"admit 1/0"}));
  gate.close();
}

TEST(AsyncBulkheadTs, ADoubleReleaseAndASecondCloseAreSilent) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  a->release();
  a->release();
  gate.close();
  gate.close();
  EXPECT_EQ(trace, (Trace{"admit 1/0", "release 0/0", "close 0/0"}));
}

TEST(AsyncBulkheadTs, AnEventCarriesTheNameTheTierAndTheNumbers) {
  std::vector<Event> events;
  std::string name;
  const auto note = [&](const Event& e) {
    events.push_back(e);
    name = e.name;
  };
  {
    Gate gate{
        {.name = "db", .max_concurrent = 2, .max_queue = 3, .hooks = {.on_admit = note, .on_release = note}}};
    auto a = gate.acquire({.priority = Priority::critical});
    auto b = gate.acquire({.priority = Priority::best_effort});
    b->release();
    EXPECT_EQ(name, "db");
    ASSERT_EQ(events.size(), 3u);
    EXPECT_EQ(events[0].priority, Priority::critical);
    EXPECT_EQ(events[1].priority, Priority::best_effort);
    EXPECT_EQ(events[1].in_flight, 2u);
    EXPECT_EQ(events[2].priority, Priority::best_effort);
    EXPECT_EQ(events[2].in_flight, 1u);
    EXPECT_EQ(events[2].waiting, 0u);
    EXPECT_EQ(events[2].max_concurrent, 2u);
    EXPECT_EQ(events[2].max_queue, 3u);
  }
  Gate unnamed{{.max_concurrent = 1, .hooks = {.on_admit = note}}};
  auto c = unnamed.acquire();
  EXPECT_EQ(name, "");
}

TEST(AsyncBulkheadTs, ThrowingHooksAreCountedAndChangeNothing) {
  const auto boom = [](const Event&) { throw std::runtime_error("hook"); };
  Hooks hooks{.on_admit = boom, .on_release = boom, .on_resize = boom, .on_close = boom};
  hooks.on_reject = [](const Event&, Reason) { throw 1; };
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = hooks}};
  auto a = gate.try_acquire();  // admit: 1
  EXPECT_TRUE(a);
  EXPECT_FALSE(gate.try_acquire());  // reject: 2
  Caller b(gate);
  EXPECT_TRUE(a->release());  // admit of b and release of a: 4
  EXPECT_TRUE(b.admitted());
  EXPECT_TRUE(b.release());  // release: 5
  gate.close();              // close: 6
  EXPECT_EQ(gate.snapshot().hook_errors, 6u);
  EXPECT_EQ(gate.snapshot().admitted, 2u);
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, AHookRunsBeforeTheCallerLearnsAndSeesItsAdmission) {
  for (Kind kind : kinds) {
    std::atomic<int> admissions = 0;
    std::uint32_t seen = 0;
    Caller* waiter = nullptr;
    bool told_before_hook = true;
    Gate* self = nullptr;
    Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = {.on_admit = [&](const Event& e) {
                                                      seen = e.in_flight;
                                                      EXPECT_EQ(self->snapshot().admitted,
                                                                static_cast<std::uint64_t>(admissions) + 1);
                                                      ++admissions;
                                                      if (waiter) told_before_hook = !waiter->pending();
                                                    }}}};
    self = &gate;
    auto a = gate.try_acquire();
    EXPECT_EQ(seen, 1u);
    Caller b(gate, {}, kind);
    until_waiting(gate, 1);
    waiter = &b;
    a->release();
    EXPECT_TRUE(b.admitted());
    EXPECT_FALSE(told_before_hook);
    EXPECT_EQ(admissions, 2);
  }
}

TEST(AsyncBulkheadTs, AReleaseHookMayTakeTheUnitAndHoldBackADrain) {
  WatchedClock clock;
  Gate* self = nullptr;
  std::optional<Result<Permit>> taken;
  bool armed = true;
  Gate gate{{.max_concurrent = 1,
             .hooks = {.on_release =
                           [&](const Event&) {
                             if (armed) taken.emplace(self->try_acquire());
                             armed = false;
                           }},
             .clock = &clock}};
  self = &gate;
  auto a = gate.try_acquire();
  std::atomic<bool> over = false;
  std::jthread drainer([&] {
    gate.drain();
    over = true;
  });
  until([&] { return clock.parked() > 0; });
  a->release();
  ASSERT_TRUE(taken);
  ASSERT_TRUE(taken->has_value());
  EXPECT_EQ(gate.snapshot().in_flight, 1u);
  EXPECT_FALSE(gate.drain(clock.now()));
  // A drain told too early needs a moment to show it; one that waits on does not care.
  const auto moment = std::chrono::steady_clock::now() + 20ms;
  while (!over && std::chrono::steady_clock::now() < moment) std::this_thread::yield();
  EXPECT_FALSE(over);
  (*taken)->release();
  drainer.join();
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, AHookMayCloseDuringAHandOffAndTheAdmittedStays) {
  Gate* self = nullptr;
  int admissions = 0;
  Gate gate{{.max_concurrent = 1, .max_queue = 3, .hooks = {.on_admit = [&](const Event&) {
                                                    if (++admissions == 2) self->close();
                                                  }}}};
  self = &gate;
  auto a = gate.try_acquire();
  Caller b(gate), c(gate), d(gate);
  a->release();
  EXPECT_TRUE(b.admitted());
  EXPECT_EQ(c.reason(), Reason::shutdown);
  EXPECT_EQ(d.reason(), Reason::shutdown);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  b.release();
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, CancellationsAndTimeoutsAreReportedAsRejections) {
  for (Kind kind : kinds) {
    Trace trace;
    ManualClock clock;
    Gate gate{{.max_concurrent = 1, .max_queue = 2, .hooks = tracing(trace), .clock = &clock}};
    auto a = gate.try_acquire();
    std::stop_source stop;
    Caller b(gate, {.stop = stop.get_token()}, kind);
    until_waiting(gate, 1);
    Caller c(gate, {.timeout = 10ms}, kind);
    until_waiting(gate, 2);
    stop.request_stop();
    EXPECT_EQ(b.reason(), Reason::cancelled);
    clock.advance(10ms);
    EXPECT_EQ(c.reason(), Reason::timeout);
    EXPECT_EQ(trace, (Trace{"admit 1/0", "reject cancelled 1/1", "reject timeout 1/0"}));
  }
}

// Not in async-bulkhead-ts: on_resize, and eviction.
TEST(Hooks, AResizeIsToldAfterTheAdmissionsItBrought) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  Caller b(gate), c(gate);
  gate.resize(3);
  gate.resize_queue(7);
  EXPECT_EQ(trace, (Trace{"admit 1/0", "admit 2/1", "admit 3/0", "resize 3/0", "resize 3/0"}));
}

TEST(Hooks, AnEvictionIsToldAsSuch) {
  Trace trace;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .hooks = tracing(trace)}};
  auto a = gate.try_acquire();
  Caller b(gate, {.priority = Priority::best_effort});
  Caller c(gate);
  EXPECT_EQ(b.reason(), Reason::evicted);
  EXPECT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace.back().substr(0, 14), "reject evicted");
  gate.close();
}

TEST(Hooks, AHookMayUseTheWholeGate) {
  Gate* self = nullptr;
  int depth = 0;
  const auto reenter = [&](const Event&) {
    if (++depth > 3) return;
    auto p = self->try_acquire();
    self->snapshot();
    self->resize(5);
  };
  Hooks hooks{.on_admit = reenter, .on_release = reenter};
  Gate gate{{.max_concurrent = 4, .max_queue = 1, .hooks = hooks}};
  self = &gate;
  auto a = gate.try_acquire();
  a->release();
  EXPECT_EQ(gate.snapshot().max_concurrent, 5u);
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
