#include "bulkhead/bulkhead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;
using Kind = Cause::Kind;

// What a call comes to does not depend on where it runs.
class BulkheadCall : public testing::TestWithParam<Isolation> {
 protected:
  BulkheadOptions options() {
    return {.name = "db",
            .isolation = GetParam(),
            .max_concurrent = 2,
            .max_queue = 2,
            .breaker = BreakerOptions{.window_calls = 4, .minimum_calls = 4, .open_for = 1s},
            .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 100},
            .clock = &clock};
  }
  static void expect_idle(Bulkhead& b) {
    const BulkheadSnapshot s = b.snapshot();
    until([&] { return b.gate().in_flight() == 0; });  // a pool's permit comes back after the result
    EXPECT_EQ(s.gate.waiting, 0u);
    EXPECT_EQ(s.over_limit, 0u);
    EXPECT_EQ(s.breaker->probes_in_flight, 0u);
  }
  ManualClock clock;
};

INSTANTIATE_TEST_SUITE_P(, BulkheadCall, testing::Values(Isolation::semaphore, Isolation::threads),
                         [](const auto& test) {
                           return test.param == Isolation::semaphore ? "Semaphore" : "Threads";
                         });

TEST_P(BulkheadCall, GivesWhatItReturns) {
  Bulkhead b{options()};
  EXPECT_EQ(*b.execute([] { return 42; }), 42);
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(*b.execute([](std::stop_token stop) { return stop.stop_requested(); }), false);
  EXPECT_EQ(**b.execute([p = std::make_unique<int>(5)]() mutable { return std::move(p); }), 5);
  const Result<int, std::string> inner = *b.execute([] { return Result<int, std::string>(3); });
  EXPECT_EQ(*inner, 3);
  EXPECT_EQ(*b.execute([] { return 7; }, {}), 7);  // not ambiguous
  expect_idle(b);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.admitted, 6u);
  EXPECT_EQ(s.service.count(), 6u);
  EXPECT_EQ(s.wait.count(), 6u);
  EXPECT_EQ(s.breaker->calls, 4u);
  EXPECT_EQ(s.breaker->failures, 0u);
  EXPECT_EQ(s.isolation, GetParam());
  EXPECT_EQ(s.name, "db");
}

TEST_P(BulkheadCall, ThrowsWhatItThrows) {
  Bulkhead b{options()};
  EXPECT_THROW(static_cast<void>(b.execute([]() -> int { throw std::runtime_error("x"); })),
               std::runtime_error);
  EXPECT_THROW(static_cast<void>(b.execute([] { throw 1; })), int);
  expect_idle(b);
  EXPECT_EQ(b.snapshot().breaker->failures, 2u);
}

TEST_P(BulkheadCall, WhatTheJudgesSayCounts) {
  BulkheadOptions o = options();
  o.judge = exception_is<std::out_of_range>(Outcome::ignored);
  Bulkhead b{o};
  const auto failures = [&] { return b.snapshot().breaker->failures; };
  const auto calls = [&] { return b.snapshot().breaker->calls; };

  EXPECT_EQ(*b.execute([] { return 500; }, {.judge = result_if([](int status) { return status >= 500; })}),
            500);
  EXPECT_EQ(failures(), 1u);
  EXPECT_FALSE(b.execute([] { return Result<int, std::string>(unexpect, "no"); })->has_value());
  EXPECT_EQ(failures(), 2u);
  // Rejected by another bulkhead of ours, or what the judge does not hold against the dependency.
  EXPECT_FALSE(b.execute([] { return Result<int>(unexpect); })->has_value());
  EXPECT_THROW(static_cast<void>(b.execute([]() -> int { throw std::out_of_range("x"); })),
               std::out_of_range);
  EXPECT_EQ(calls(), 2u);
  EXPECT_TRUE(b.execute([] {}, {.judge = [](std::monostate) { return Opinion(Outcome::failure); }}));
  EXPECT_EQ(failures(), 3u);
}

// A judge of a call sees what it returned and what it threw, in every form; the bulkhead's own comes after it.
TEST_P(BulkheadCall, TheJudgeOfACallSeesExceptionsToo) {
  struct NotFound : std::runtime_error {
    NotFound() : std::runtime_error("404") {}
  };
  BulkheadOptions o = options();
  o.judge = exception_is<NotFound>(Outcome::failure);
  Bulkhead b{o};
  const auto not_found = []() -> int { throw NotFound(); };
  const CallOptions<int> call{.judge = exception_is<NotFound>(Outcome::ignored) |
                                       result_if([](int status) { return status >= 500; })};
  for (int i = 0; i < 10; ++i) EXPECT_THROW(static_cast<void>(b.execute(not_found, call)), NotFound);
  std::atomic<int> ended = 0;
  for (int i = 0; i < 10; ++i) {
    b.async_execute(not_found, call, [&](Ended<int> e) {
      EXPECT_TRUE(e.threw());
      ++ended;
    });
    until([&] { return ended == i + 1; });  // there is no place for all of them at once
  }
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  EXPECT_EQ(*b.execute([] { return 500; }, call), 500);
  EXPECT_EQ(b.snapshot().breaker->failures, 1u) << "and results";
  const auto missing = [](const std::exception_ptr&) { return Opinion(Outcome::ignored); };
  EXPECT_THROW(static_cast<void>(b.execute([] { throw NotFound(); }, {.judge = missing})), NotFound);
  EXPECT_EQ(b.snapshot().breaker->calls, 1u)
      << "one that looks at exceptions only, of a call without a value";
  EXPECT_THROW(static_cast<void>(b.execute(not_found, {.judge = result_if([](int) { return true; })})),
               NotFound);
  EXPECT_EQ(b.snapshot().breaker->failures, 2u) << "no opinion of its own: the bulkhead's counts";
}

// What another bulkhead of ours rejects says nothing about the dependency of this one.
TEST_P(BulkheadCall, ARejectionOfAnInnerBulkheadIsIgnored) {
  Bulkhead outer{options()};
  Bulkhead inner{{.name = "inner", .max_concurrent = 1}};
  const auto held = inner.acquire();
  struct Error {  // as that of a resource pool
    std::optional<Rejection> rejection;
  };
  using Leased = Result<int, Error>;
  const auto call = [&] { return inner.execute([] { return 1; }); };
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(outer.execute(call)->error().reason, Reason::concurrency_limit);
    EXPECT_FALSE(protect(outer, protect(inner, [](int n) { return n; }))(1)->has_value());
    EXPECT_FALSE(outer.execute([] { return Leased(unexpect, Rejection{}); })->has_value());
  }
  std::atomic<int> ended = 0;
  for (int i = 0; i < 5; ++i) outer.async_execute(call, {}, [&](Ended<Result<int>>) { ++ended; });
  until([&] { return ended == 5; });
  EXPECT_EQ(outer.snapshot().breaker->calls, 0u);
  EXPECT_FALSE(outer.execute([] { return Leased(unexpect, std::nullopt); })->has_value());
  EXPECT_EQ(outer.snapshot().breaker->failures, 1u) << "an error without a rejection";
}

TEST_P(BulkheadCall, WhatAJudgeThrowsGoesToTheCallerAndCountsForNothing) {
  BulkheadOptions o = options();
  o.judge = [](const std::exception_ptr&) -> Opinion { throw std::logic_error("judge"); };
  Bulkhead b{o};
  bool fell_back = false;
  const CallOptions<int> call{.fallback = [&](const Cause&) { return fell_back = true, 0; },
                              .judge = [](int) -> Opinion { throw std::logic_error("judge"); }};
  EXPECT_THROW(static_cast<void>(b.execute([] { return 1; }, call)), std::logic_error);
  EXPECT_THROW(static_cast<void>(b.execute([]() -> int { throw 1; }, call)), std::logic_error);
  std::atomic<int> handled = 0;
  b.async_execute([] { return 1; }, call,
                  [&](Ended<int> ended) {
                    EXPECT_THROW(static_cast<void>(std::move(ended).get()), std::logic_error);
                    handled = 1;
                  });
  until([&] { return handled == 1; });
  EXPECT_FALSE(fell_back);
  expect_idle(b);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
}

TEST_P(BulkheadCall, IsRejectedByOneStageAfterTheOther) {
  std::vector<Reason> told;
  BulkheadOptions o = options();
  o.max_queue = 0;
  o.hooks.on_reject = [&](const Event& e, Reason reason) {
    EXPECT_EQ(e.name, "db");
    told.push_back(reason);
  };
  Bulkhead b{o};
  const auto reason = [&](CallOptions<int> call = {}) {
    bool ran = false;
    const auto result = b.execute([&] { return ran = true, 0; }, call);
    EXPECT_FALSE(ran);
    return result.error();
  };
  const auto tokens = [&] { return b.snapshot().rate_limit->available; };

  // Full: rate and breaker have let it through, and get back what it took.
  auto one = b.acquire(), two = b.acquire();
  ASSERT_TRUE(one && two);
  EXPECT_NEAR(tokens(), 98, 0.01);
  EXPECT_EQ(reason().reason, Reason::concurrency_limit);
  EXPECT_NEAR(tokens(), 98, 0.01);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  one->finish(Outcome::success);
  two->finish(Outcome::success);

  // Open: the gate is not asked, the tokens come back.
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW(static_cast<void>(b.execute([]() -> int { throw 1; })), int);
    expect_idle(b);
  }
  const double before = tokens();
  const std::uint64_t admitted = b.snapshot().gate.admitted;
  const Rejection open = reason();
  EXPECT_EQ(open.reason, Reason::breaker_open);
  EXPECT_EQ(open.retry_after, 1s);
  EXPECT_EQ(open.name, "db");
  EXPECT_NEAR(tokens(), before, 0.01);
  EXPECT_EQ(b.snapshot().gate.admitted, admitted);

  // No tokens: nobody behind is asked.
  const std::uint64_t rejected_by_breaker = b.snapshot().breaker->rejected;
  const Rejection rate = reason({.cost = 99});
  EXPECT_EQ(rate.reason, Reason::rate_limit);
  EXPECT_GT(rate.retry_after, 0s);
  EXPECT_EQ(b.snapshot().breaker->rejected, rejected_by_breaker);

  b.close();
  b.breaker()->reset();
  EXPECT_EQ(reason().reason, Reason::shutdown);
  EXPECT_EQ(told, (std::vector{Reason::concurrency_limit, Reason::breaker_open, Reason::rate_limit,
                               Reason::shutdown}));
  EXPECT_EQ(b.snapshot().gate.rejected(), 4u);
  EXPECT_NEAR(b.snapshot().rejection_rate(), 4.0 / (4 + static_cast<double>(admitted)), 0.001);
  expect_idle(b);
}

TEST_P(BulkheadCall, AProbeThatFindsNoPlaceIsGivenBack) {
  BulkheadOptions o = options();
  o.max_queue = 0;
  o.breaker = BreakerOptions{.window_calls = 1, .minimum_calls = 1, .open_for = 1s, .half_open_calls = 1};
  Bulkhead b{o};
  auto one = b.acquire(), two = b.acquire();
  one->finish(Outcome::failure);
  auto third = b.gate().acquire();
  ASSERT_TRUE(third);
  clock.advance(1s);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.execute([] {}).error().reason, Reason::concurrency_limit);
  EXPECT_EQ(b.snapshot().breaker->probes_in_flight, 0u);
  third->release();
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.snapshot().breaker->state, BreakerState::closed);
}

TEST_P(BulkheadCall, WaitingTooLongIsARejectionAndCountsForNothing) {
  Bulkhead b{options()};
  auto one = b.acquire(), two = b.acquire();
  Kind kind{};
  const auto result = b.execute([] { return 1; }, {.fallback =
                                                       [&](const Cause& why) {
                                                         kind = why.kind;
                                                         EXPECT_EQ(why.rejection.reason, Reason::timeout);
                                                         return 2;
                                                       },
                                                   .timeout = 0s});
  EXPECT_EQ(*result, 2);
  EXPECT_EQ(kind, Kind::rejected);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.timed_out, 0u);
  EXPECT_EQ(s.gate.rejected(Reason::timeout), 1u);
  EXPECT_EQ(s.breaker->calls, 0u);
  EXPECT_NEAR(s.rate_limit->available, 98, 0.01);
}

TEST_P(BulkheadCall, MaxWaitHoldsForCallsThatDoNotSay) {
  BulkheadOptions o = options();
  o.max_wait = 5s;
  Bulkhead b{o};
  auto one = b.acquire(), two = b.acquire();
  std::atomic<bool> done = false;
  std::jthread caller([&] {
    EXPECT_EQ(b.execute([] { return 1; }).error().reason, Reason::timeout);
    done = true;
  });
  tests::until_waiting(b.gate(), 1);
  clock.advance(4s);
  EXPECT_FALSE(done);
  clock.advance(1s);
  caller.join();
}

TEST_P(BulkheadCall, RunningTooLongIsATimeoutAndAFailure) {
  BulkheadOptions o = options();
  o.execution_timeout = 1s;
  Bulkhead b{o};
  std::atomic<bool> told = false;
  const auto slow = [&](std::stop_token stop) {
    clock.advance(1s);
    told = stop.stop_requested();
    return 1;
  };
  const auto late = b.execute(slow);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().reason, Reason::execution_timeout);
  EXPECT_EQ(late.error().name, "db");
  until([&] { return told.load(); });
  EXPECT_EQ(*b.execute(slow, {.execution_timeout = 2s}), 1);
  EXPECT_EQ(*b.execute(slow, {.execution_timeout = wait_forever}), 1);
  EXPECT_EQ(b.execute(slow, {.execution_timeout = wait_forever, .deadline = clock.now() + 1s}).error().reason,
            Reason::execution_timeout);
  expect_idle(b);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.timed_out, 2u);
  EXPECT_EQ(s.gate.rejected(), 0u);
  EXPECT_EQ(s.breaker->state, BreakerState::open);  // two failures of four
  EXPECT_EQ(s.service.count(), 4u);
}

TEST_P(BulkheadCall, ADeadlineThatHasPassedIsRejectedAtOnce) {
  Bulkhead b{options()};
  EXPECT_EQ(b.execute([] { return 1; }, {.deadline = clock.now() - 1s}).error().reason, Reason::deadline);
  EXPECT_NEAR(b.snapshot().rate_limit->available, 100, 0.01);
  expect_idle(b);
}

TEST_P(BulkheadCall, CancelledByItsCallerItSaysNothingAboutTheDependency) {
  Bulkhead b{options()};
  std::stop_source before;
  before.request_stop();
  bool fell_back = false;
  const auto fallback = [&](const Cause&) { return fell_back = true, 0; };
  EXPECT_EQ(b.execute([] { return 1; }, {.fallback = fallback, .stop = before.get_token()}).error().reason,
            Reason::cancelled);

  // A pool answers its caller at the moment it cancels; on its own thread the caller gets what the call made
  // of it.
  std::stop_source during;
  const auto gives_up = [&](std::stop_token stop) -> int {
    during.request_stop();
    EXPECT_TRUE(stop.stop_requested());
    throw std::runtime_error("cancelled");
  };
  const CallOptions<int> call{.fallback = fallback, .stop = during.get_token()};
  if (GetParam() == Isolation::semaphore)
    EXPECT_THROW(static_cast<void>(b.execute(gives_up, call)), std::runtime_error);
  else
    EXPECT_EQ(b.execute(gives_up, call).error().reason, Reason::cancelled);
  expect_idle(b);
  EXPECT_FALSE(fell_back);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
}

// (A pool answers a cancelled caller before the call does.)
TEST(Bulkhead, AnErrorReturnedBecauseItWasCancelledIsNoFailureEither) {
  Bulkhead b{{.name = "db", .breaker = BreakerOptions{}}};
  std::stop_source stop;
  using Answer = Result<int, std::string>;
  EXPECT_FALSE(b.execute([&]() -> Answer { return stop.request_stop(), Unexpected("cancelled"); },
                         {.stop = stop.get_token()})
                   ->has_value());
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
}

// A group that takes a unit back stops the call, not its caller, who still wants an answer.
TEST(Bulkhead, ACallThatAGroupRevokesFallsBackAndSaysNothingAboutTheDependency) {
  Group group{{.name = "g",
               .total = 2,
               .lend = Lend::revocable(),
               .members = {{.name = "a", .guaranteed = {.units = 1}},
                           {.name = "b", .guaranteed = {.units = 1}, .gate = {.max_queue = 1}}}}};
  Bulkhead a{{.breaker = BreakerOptions{}, .gate = &group.member("a")}};
  const auto own = a.acquire();
  std::jthread wants;
  const auto revoked = [&](std::stop_token stop) -> int {
    wants = std::jthread([&] { EXPECT_TRUE(group.member("b").acquire()); });
    until([&] { return stop.stop_requested(); });
    throw std::runtime_error("stopped");
  };
  EXPECT_EQ(
      *a.execute(revoked, {.fallback = [](const Cause& why) { return why.kind == Kind::failed ? 7 : 0; }}),
      7);
  EXPECT_EQ(a.snapshot().breaker->calls, 0u);
  wants.join();
  std::stop_source stop;
  EXPECT_THROW(
      static_cast<void>(a.execute([&]() -> int { throw(stop.request_stop(), std::runtime_error("x")); },
                                  {.fallback = [](const Cause&) { return 7; }, .stop = stop.get_token()})),
      std::runtime_error)
      << "stopped by its own caller, it has none";
}

TEST_P(BulkheadCall, FallsBackOnTheCausesThatAreConfigured) {
  for (unsigned set = 0; set < 8; ++set) {
    BulkheadOptions o = options();
    o.fallback_on = static_cast<FallbackOn>(set);
    o.breaker->mode = BreakerMode::forced_closed;
    o.execution_timeout = 1s;
    Bulkhead b{o};
    std::array<int, 3> seen{};
    const CallOptions<int> call{.fallback = [&](const Cause& why) {
      ++seen[static_cast<std::size_t>(why.kind)];
      EXPECT_EQ(why.exception != nullptr, why.kind == Kind::failed);
      EXPECT_FALSE(why.message().empty());
      return 7;
    }};
    const auto is = [&](Kind kind) { return covers(o.fallback_on, kind); };

    CallOptions<int> rejected = call;
    rejected.cost = 3;
    const auto rejection = b.execute([] { return 1; }, rejected);
    EXPECT_EQ(rejection.value_or(0), is(Kind::rejected) ? 7 : 0);

    const auto timeout = b.execute([&] { return clock.advance(1s), 1; }, call);
    EXPECT_EQ(timeout.value_or(0), is(Kind::timed_out) ? 7 : 0);
    until([&] { return b.gate().in_flight() == 0; });

    const auto throws = []() -> int { throw std::runtime_error("x"); };
    if (is(Kind::failed))
      EXPECT_EQ(*b.execute(throws, call), 7);
    else
      EXPECT_THROW(static_cast<void>(b.execute(throws, call)), std::runtime_error);

    const BulkheadSnapshot s = b.snapshot();
    for (const Kind kind : {Kind::rejected, Kind::timed_out, Kind::failed}) {
      EXPECT_EQ(seen[static_cast<std::size_t>(kind)], is(kind) ? 1 : 0);
      EXPECT_EQ(s.fallbacks[static_cast<std::size_t>(kind)], is(kind) ? 1u : 0u);
    }
    EXPECT_EQ(s.timed_out, 1u);
    EXPECT_EQ(s.gate.rejected(), 1u);
    expect_idle(b);
  }
}

TEST_P(BulkheadCall, AFallbackRunsAfterThePlaceIsBackAndMayThrow) {
  BulkheadOptions o = options();
  o.max_concurrent = 1;
  o.max_queue = 0;
  Bulkhead b{o};
  const auto fails = []() -> int { throw std::runtime_error("call"); };
  EXPECT_THROW(static_cast<void>(b.execute(fails,
                                           [&](const Cause&) -> int {
                                             until([&] { return b.gate().in_flight() == 0; });
                                             EXPECT_EQ(*b.execute([] { return 1; }), 1);
                                             throw std::logic_error("fallback");
                                           })),
               std::logic_error);
  EXPECT_EQ(b.snapshot().fallback_failures, 1u);
  EXPECT_EQ(b.snapshot().fallbacks[2], 1u);
  // The fallback's own throw is not judged again.
  EXPECT_EQ(b.snapshot().breaker->calls, 2u);
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);
  EXPECT_EQ(*b.execute(fails, [] { return 8; }, Priority::critical), 8);
  EXPECT_TRUE(b.execute([] { throw 1; }, [] {}));
  expect_idle(b);
}

TEST_P(BulkheadCall, TakesTokensAndPlacesByItsCost) {
  Bulkhead b{options()};
  const auto cost_inside = b.execute([&] { return b.gate().in_flight(); }, {.cost = 2});
  EXPECT_EQ(*cost_inside, 2u);
  EXPECT_NEAR(b.snapshot().rate_limit->available, 98, 0.01);
  expect_idle(b);
}

TEST_P(BulkheadCall, DrainingRejectsNewCallsLetsTheOthersGoOnAndCanBeTakenBack) {
  Bulkhead b{options()};
  auto running = b.try_acquire();
  ASSERT_TRUE(running);
  b.set_draining(true);
  EXPECT_TRUE(b.snapshot().draining);
  const auto rejected = b.execute([] { return 1; });
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::draining);
  EXPECT_EQ(b.snapshot().gate.rejected(Reason::draining), 1u);

  BulkheadOptions o = b.options();
  o.enabled = false;
  b.update(o);  // changes nothing about it
  EXPECT_FALSE(b.try_acquire());
  o.enabled = true;
  b.update(o);
  EXPECT_TRUE(running->finish(Outcome::success));
  EXPECT_TRUE(b.drain(clock.now()));

  b.set_draining(false);
  EXPECT_FALSE(b.snapshot().draining);
  EXPECT_EQ(b.execute([] { return 1; }), 1);
}

TEST_P(BulkheadCall, GoesStraightThroughWhenNotEnabled) {
  BulkheadOptions o = options();
  o.enabled = false;
  o.max_concurrent = 1;
  o.execution_timeout = 1s;
  o.breaker->mode = BreakerMode::forced_open;
  Bulkhead b{o};
  auto all = std::vector<Result<Call>>();
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(all.emplace_back(b.try_acquire()));
  EXPECT_EQ(*b.execute([&](std::stop_token stop) {
    clock.advance(2s);
    EXPECT_FALSE(stop.stop_requested());
    return 1;
  }),
            1);
  EXPECT_THROW(static_cast<void>(b.execute([] { throw 1; })), int);
  EXPECT_EQ(*b.execute([]() -> int { throw 1; }, [] { return 3; }), 3);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_FALSE(s.enabled);
  EXPECT_EQ(s.bypassed, 8u);
  EXPECT_EQ(s.gate.admitted, 0u);
  EXPECT_EQ(s.timed_out, 0u);
  EXPECT_EQ(s.rate_limit->available, 100);
  for (auto& call : all) EXPECT_TRUE(call->finish(Outcome::success));
}

TEST_P(BulkheadCall, InShadowModeCountsWhatWouldBeRejectedAndRejectsNothing) {
  BulkheadOptions o = options();
  o.shadow = true;
  o.max_concurrent = 1;
  o.max_queue = 1;
  o.execution_timeout = 1s;
  o.rate_limit->burst = 6;
  Bulkhead b{o};
  const auto would = [&](Reason reason) {
    return b.snapshot().would_reject[static_cast<std::size_t>(reason)];
  };
  std::vector<Result<Call>> all;
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(all.emplace_back(b.try_acquire()));
  EXPECT_EQ(b.snapshot().gate.in_flight, 1u);
  EXPECT_EQ(b.snapshot().over_limit, 3u);
  EXPECT_EQ(b.snapshot().would_wait, 1u);
  EXPECT_EQ(would(Reason::queue_limit), 2u);
  all.clear();
  EXPECT_EQ(b.snapshot().over_limit, 0u);

  EXPECT_EQ(*b.execute([&](std::stop_token stop) {
    clock.advance(1s);
    EXPECT_FALSE(stop.stop_requested());
    return 1;
  }),
            1);
  EXPECT_EQ(would(Reason::execution_timeout), 1u);
  EXPECT_EQ(b.snapshot().timed_out, 0u);

  b.breaker()->set_mode(BreakerMode::forced_open);
  EXPECT_EQ(*b.execute([] { return 2; }), 2);
  EXPECT_EQ(would(Reason::breaker_open), 1u);
  EXPECT_EQ(*b.execute([] { return 2; }, {.cost = 2}), 2);
  EXPECT_EQ(would(Reason::rate_limit), 1u);
  EXPECT_EQ(would(Reason::breaker_open), 1u);  // one that has no tokens does not come that far

  EXPECT_EQ(b.snapshot().gate.rejected(), 0u);
  EXPECT_TRUE(b.snapshot().shadow);
  expect_idle(b);
}

// ---- Call ----

TEST(BulkheadCallObject, EndsOnce) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .max_concurrent = 2, .breaker = BreakerOptions{}, .clock = &clock}};
  auto call = b.acquire();
  EXPECT_TRUE(*call);
  EXPECT_EQ(call->began(), clock.now());
  EXPECT_TRUE(call->finish(Outcome::failure));
  EXPECT_FALSE(*call);
  EXPECT_FALSE(call->finish(Outcome::failure));
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);
  EXPECT_EQ(b.snapshot().gate.released, 1u);
  EXPECT_EQ(b.snapshot().gate.double_releases, 0u);
}

TEST(BulkheadCallObject, MovesAndIsEmptyAfterwards) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .max_concurrent = 2, .breaker = BreakerOptions{}, .clock = &clock}};
  Call one = *b.acquire(), two = *b.acquire();
  Call moved(std::move(one));
  EXPECT_FALSE(one);  // NOLINT(bugprone-use-after-move)
  EXPECT_FALSE(one.finish(Outcome::failure));
  two = std::move(moved);  // what it was ends, as ignored
  EXPECT_EQ(b.gate().in_flight(), 1u);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  EXPECT_TRUE(two.finish(Outcome::failure));
  EXPECT_EQ(b.snapshot().breaker->failures, 1u);
  EXPECT_FALSE(Call().finish(Outcome::success));
}

TEST(BulkheadCallObject, DyingUnfinishedItIsIgnored) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .breaker = BreakerOptions{}, .clock = &clock}};
  {
    const auto call = b.acquire();
  }
  EXPECT_EQ(b.gate().in_flight(), 0u);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  EXPECT_EQ(b.snapshot().gate.failed, 0u);
}

}  // namespace
}  // namespace bulkhead
