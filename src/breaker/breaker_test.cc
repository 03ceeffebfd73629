#include "bulkhead/breaker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr auto failure = Outcome::failure, success = Outcome::success, ignored = Outcome::ignored;

struct BreakerTest : testing::Test {
  ManualClock clock;
  std::vector<std::string> told;
  BreakerOptions options(BreakerOptions o = {}) {
    o.name = "db";
    o.clock = &clock;
    o.on_transition = [this](const BreakerTransition& t) {
      told.push_back(std::string(to_string(t.from)) + " -> " + std::string(to_string(t.to)) + ": " +
                     std::string(to_string(t.reason)) + (t.would_open ? ", would open" : ""));
    };
    return o;
  }
  static void call(Breaker& b, Outcome verdict, std::chrono::nanoseconds took = 1ms) {
    const auto pass = b.admit();
    ASSERT_TRUE(pass);
    b.complete(*pass, verdict, took);
  }
  static void calls(Breaker& b, int n, Outcome verdict, std::chrono::nanoseconds took = 1ms) {
    for (int i = 0; i < n; ++i) call(b, verdict, took);
  }
  // Ten failures of ten.
  static void trip(Breaker& b) {
    while (b.snapshot().state == BreakerState::closed) call(b, failure);
  }
};

TEST_F(BreakerTest, DefaultsAreThoseOfResilience4j) {
  const BreakerOptions o;
  EXPECT_EQ(o.window, BreakerWindow::calls);
  EXPECT_EQ(o.window_calls, 100u);
  EXPECT_EQ(o.minimum_calls, 100u);
  EXPECT_EQ(o.failure_rate, 0.5);
  EXPECT_EQ(o.slow_call_rate, 1);
  EXPECT_EQ(o.slow_call, 60s);
  EXPECT_EQ(o.open_for, 60s);
  EXPECT_EQ(o.half_open_calls, 10u);
}

TEST_F(BreakerTest, OpensRejectsProbesAndCloses) {
  Breaker b(options({.window_calls = 10, .open_for = 5s, .half_open_calls = 2}));
  calls(b, 5, success);
  calls(b, 5, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  clock.advance(1s);
  const auto rejected = b.admit();
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().retry_after, 4s);
  EXPECT_EQ(rejected.error().state, BreakerState::open);
  clock.advance(4s);
  calls(b, 2, success);
  EXPECT_THAT(told, ElementsAre("closed -> open: failure_rate", "open -> half_open: open_time_over",
                                "half_open -> closed: probes_succeeded"));
  const auto s = b.snapshot();
  EXPECT_EQ(s.state, BreakerState::closed);
  EXPECT_EQ(s.reason, BreakerReason::probes_succeeded);
  EXPECT_EQ(s.since, clock.now());
  EXPECT_EQ(s.calls, 0u) << "closed again, with an empty window";
  EXPECT_EQ(s.opens, 1u);
  EXPECT_THAT(s.entered, ElementsAre(1u, 1u, 1u));
  EXPECT_EQ(s.rejected, 1u);
  EXPECT_EQ(s.late, 0u);
}

TEST_F(BreakerTest, ASuccessCanBeTheCallThatReachesTheMinimum) {
  Breaker b(options({.window_calls = 10}));
  calls(b, 9, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  call(b, success);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

TEST_F(BreakerTest, CountsSlowCallsWhateverTheirResult) {
  Breaker b(options({.window_calls = 4, .failure_rate = 1, .slow_call_rate = 0.5, .slow_call = 1s}));
  call(b, success, 1s);
  call(b, success, 1s + 1ns);
  call(b, success);
  EXPECT_EQ(b.snapshot().slow, 1u) << "exactly slow_call is not slow";
  call(b, failure, 2s);
  EXPECT_EQ(b.snapshot().reason, BreakerReason::slow_call_rate);
}

TEST_F(BreakerTest, IgnoredCallsDoNotCount) {
  Breaker b(options({.window_calls = 1}));
  calls(b, 1000, ignored, 1h);
  EXPECT_EQ(b.snapshot().calls, 0u);
}

TEST_F(BreakerTest, ATimeWindowForgetsWhatIsOld) {
  Breaker b(options({.window = BreakerWindow::time, .window_time = 10s, .minimum_calls = 4}));
  calls(b, 3, failure);
  clock.advance(10s);
  calls(b, 3, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  EXPECT_EQ(b.snapshot().calls, 3u);
  clock.advance(5s);
  call(b, success);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

TEST_F(BreakerTest, ALateResultDecidesNothing) {
  Breaker b(options({.window_calls = 10, .half_open_calls = 1}));
  const auto before = b.admit();
  trip(b);
  clock.advance(60s);
  const auto probe = b.admit();
  ASSERT_TRUE(probe && probe->is_probe());
  b.complete(*before, success, 1ms);
  EXPECT_EQ(b.snapshot().state, BreakerState::half_open);
  b.complete(*probe, success, 1ms);
  b.complete(*before, failure, 1ms);
  b.complete(*probe, failure, 1ms);
  EXPECT_EQ(b.snapshot().calls, 0u);
  EXPECT_EQ(b.snapshot().late, 3u);
}

TEST_F(BreakerTest, HalfOpenRejectsBeyondItsProbesAndSaysWhen) {
  Breaker b(options({.window_calls = 10, .half_open_calls = 2, .probe_lease = 7s}));
  trip(b);
  clock.advance(60s);
  const auto a = b.admit(), c = b.admit();
  ASSERT_TRUE(a && c);
  const auto rejected = b.admit();
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().state, BreakerState::half_open);
  EXPECT_EQ(rejected.error().retry_after, 7s);
  EXPECT_EQ(b.snapshot().probes_in_flight, 2u);
  b.complete(*a, ignored, 0s);
  EXPECT_TRUE(b.admit()) << "the place of the cancelled one";
}

TEST_F(BreakerTest, ModesAdmitOrRejectAll) {
  Breaker b(options({.window_calls = 2}));
  b.set_mode(BreakerMode::forced_open);
  EXPECT_FALSE(b.admit());
  EXPECT_EQ(b.admit().error().retry_after, 0s);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  clock.advance(1000h);
  EXPECT_FALSE(b.admit());
  b.set_mode(BreakerMode::forced_closed);
  calls(b, 10, failure);
  EXPECT_EQ(b.snapshot().failures, 2u) << "it counts";
  EXPECT_TRUE(b.snapshot().above_threshold);
  b.set_mode(BreakerMode::disabled);
  calls(b, 10, failure);
  EXPECT_EQ(b.snapshot().calls, 0u);
  b.set_mode(BreakerMode::automatic);
  calls(b, 2, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

TEST_F(BreakerTest, MetricsOnlyTellsOnceForEachTimeItWouldHaveOpened) {
  for (const auto window : {BreakerWindow::calls, BreakerWindow::time}) {
    told.clear();
    Breaker b(options({.window = window, .window_calls = 4, .window_time = 1s, .minimum_calls = 4}));
    b.set_mode(BreakerMode::metrics_only);
    calls(b, 10, failure);
    EXPECT_THAT(told,
                ElementsAre("closed -> closed: mode_changed", "closed -> closed: failure_rate, would open"));
    clock.advance(2s);
    calls(b, 4, success);
    EXPECT_FALSE(b.snapshot().above_threshold);
    calls(b, 10, failure);
    EXPECT_EQ(told.size(), 3u);
    EXPECT_TRUE(b.admit());
  }
}

TEST_F(BreakerTest, ResetClosesAndForgets) {
  Breaker b(options({.window_calls = 10}));
  trip(b);
  b.reset();
  EXPECT_TRUE(b.admit());
  EXPECT_EQ(b.snapshot().calls, 0u);
  EXPECT_EQ(b.snapshot().opens_in_a_row, 0u);
  EXPECT_EQ(b.snapshot().opens, 1u) << "a counter";
  EXPECT_THAT(b.snapshot().entered, ElementsAre(1u, 1u, 0u));
  b.reset();
  EXPECT_THAT(b.snapshot().entered, ElementsAre(1u, 1u, 0u)) << "it was closed already";
}

TEST_F(BreakerTest, UpdateKeepsWhatIsCountedAndDecidesByTheNewSettings) {
  Breaker b(options({.window_calls = 10, .failure_rate = 0.9}));
  calls(b, 4, failure);
  calls(b, 6, success);
  BreakerOptions next = options({.window_calls = 10, .failure_rate = 0.4});
  next.name = "another";
  b.update(next);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  EXPECT_EQ(b.name(), "db");
}

TEST_F(BreakerTest, AWindowOfAnotherShapeStartsEmpty) {
  Breaker b(options({.window_calls = 10}));
  const auto before = b.admit();
  calls(b, 9, failure);
  b.update({.window_calls = 500, .minimum_calls = 5});
  EXPECT_EQ(b.snapshot().calls, 0u);
  EXPECT_EQ(b.snapshot().reason, BreakerReason::window_changed);
  b.complete(*before, failure, 1ms);
  EXPECT_EQ(b.snapshot().late, 1u);
  calls(b, 4, failure);
  b.update({.window = BreakerWindow::time, .minimum_calls = 3});
  calls(b, 3, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

TEST_F(BreakerTest, ABadUpdateChangesNothing) {
  Breaker b(options({.window_calls = 10}));
  calls(b, 9, failure);
  EXPECT_THROW(b.update({.window_calls = 0}), std::invalid_argument);
  call(b, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

TEST_F(BreakerTest, OptionsThatMakeNoSenseAreRejectedWithTheSettingAndTheFix) {
  const auto rejected = [&](BreakerOptions o, const char* text) {
    o.name = "db";
    EXPECT_THAT([&] { Breaker{o}; }, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  rejected({.window_calls = 0}, "bulkhead \"db\": breaker window_calls = 0 is out of range: give 1 to 32768");
  rejected({.window_calls = 32'769}, "window_calls");
  rejected({.window_time = 9ms}, "window_time");
  rejected({.minimum_calls = 0}, "minimum_calls");
  rejected({.failure_rate = 0}, "failure_rate");
  rejected({.failure_rate = 50}, "failure_rate = 50.000000 is out of range: give a share above 0, up to 1");
  rejected({.slow_call_rate = -1}, "slow_call_rate");
  rejected({.slow_call = 0s}, "slow_call");
  rejected({.open_for = 0s}, "open_for");
  rejected({.backoff = 0.5}, "backoff");
  rejected({.jitter = 1.1}, "jitter");
  rejected({.half_open_calls = 0}, "half_open_calls");
  rejected({.half_open_failure_rate = 2}, "half_open_failure_rate");
  rejected({.probe_lease = 0s}, "probe_lease");
}

TEST_F(BreakerTest, AHookThatThrowsIsCountedAndChangesNothing) {
  Breaker b({.window_calls = 2,
             .on_transition = [](const BreakerTransition&) { throw std::runtime_error("hook"); },
             .clock = &clock});
  calls(b, 2, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  EXPECT_EQ(b.snapshot().hook_errors, 1u);
}

TEST_F(BreakerTest, TheHookMayUseTheBreaker) {
  Breaker* self = nullptr;
  Breaker b({.window_calls = 2,
             .on_transition =
                 [&](const BreakerTransition& t) {
                   if (t.to == BreakerState::open) self->reset();
                 },
             .clock = &clock});
  self = &b;
  calls(b, 2, failure);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
}

TEST_F(BreakerTest, TheEventOfOpeningSaysForHowLong) {
  std::chrono::nanoseconds open_for{};
  Breaker b({.window_calls = 1,
             .open_for = 3s,
             .on_transition = [&](const BreakerTransition& t) { open_for = t.open_for; },
             .clock = &clock});
  call(b, failure);
  EXPECT_EQ(open_for, 3s);
  EXPECT_EQ(b.snapshot().next_probe, clock.now() + 3s);
}

TEST_F(BreakerTest, TheSeedGivesTheJitter) {
  const auto open_time = [&](std::uint64_t seed) {
    Breaker b({.window_calls = 1, .jitter = 0.5, .clock = &clock, .seed = seed});
    call(b, failure);
    return b.snapshot().next_probe - clock.now();
  };
  EXPECT_EQ(open_time(1), open_time(1));
  EXPECT_NE(open_time(1), open_time(2));
  EXPECT_NE(open_time(0), open_time(0)) << "each breaker its own";
}

TEST_F(BreakerTest, SnapshotChangesNothing) {
  Breaker b(options({.window_calls = 2}));
  calls(b, 2, failure);
  clock.advance(61s);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(b.snapshot().state, BreakerState::open);
  EXPECT_EQ(b.snapshot().next_probe, clock.now() - 1s);
}

TEST_F(BreakerTest, RunCallsJudgesAndCompletes) {
  Breaker b(options({.window_calls = 3}));
  EXPECT_EQ(b.run([] { return 42; }).value(), 42);
  EXPECT_TRUE(b.run([] {}).has_value());
  EXPECT_THROW(static_cast<void>(b.run([]() -> int { throw std::runtime_error("x"); })), std::runtime_error);
  EXPECT_EQ(b.snapshot().calls, 3u);
  EXPECT_EQ(b.snapshot().failures, 1u);
  const auto judge = result_if([](int status) { return status >= 500; });
  (void)b.run([] { return 500; }, judge);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  const Result<int> rejected = b.run([]() -> int { return 1; });
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::breaker_open);
  EXPECT_EQ(rejected.error().retry_after, 60s);
  EXPECT_EQ(rejected.error().name, "db");
}

TEST_F(BreakerTest, RunTimesTheCall) {
  Breaker b(options({.window_calls = 1, .slow_call = 1s}));
  (void)b.run([&] { clock.advance(2s); });
  EXPECT_EQ(b.snapshot().reason, BreakerReason::slow_call_rate);
}

TEST_F(BreakerTest, ForcedOpenForATimeItThenProbesAndCloses) {
  Breaker b(options({.open_for = 5s, .backoff = 2, .half_open_calls = 1}));
  b.force_open(10min);
  EXPECT_EQ(b.snapshot().mode, BreakerMode::automatic);
  clock.advance(10min - 1ns);
  const auto rejected = b.admit();
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().retry_after, 1ns);
  clock.advance(1ns);
  call(b, failure);  // a probe, and the first opening of its own
  EXPECT_EQ(b.snapshot().next_probe - clock.now(), 5s) << "the forced time is no step of the backoff";
  clock.advance(5s);
  call(b, success);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  EXPECT_THAT(told, ElementsAre("closed -> open: forced", "open -> half_open: open_time_over",
                                "half_open -> open: probes_failed", "open -> half_open: open_time_over",
                                "half_open -> closed: probes_succeeded"));
}

TEST_F(BreakerTest, ForcedOpenBeforeTheEpochIsOpenAsLong) {
  for (const TimePoint start : {TimePoint(-1h), TimePoint(-1s), TimePoint::min()}) {
    ManualClock early{start};
    BreakerOptions o = options({.half_open_calls = 1});
    o.clock = &early;
    Breaker b(o);
    b.force_open(1s);
    EXPECT_EQ(b.snapshot().next_probe, start + 1s);
    EXPECT_EQ(b.admit().error().retry_after, 1s);
    early.advance(1s - 1ns);
    EXPECT_EQ(b.admit().error().retry_after, 1ns);
    early.advance(1ns);
    const auto probe = b.admit();
    ASSERT_TRUE(probe);
    b.complete(*probe, success, 1ms);
    EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  }
}

TEST_F(BreakerTest, ForcedHalfOpenTheNextCallsAreProbes) {
  Breaker b(options({.half_open_calls = 2, .mode = BreakerMode::forced_open}));
  b.force_half_open();
  const auto first = b.admit(), second = b.admit();
  ASSERT_TRUE(first && second);
  EXPECT_TRUE(first->is_probe());
  EXPECT_FALSE(b.admit());
  b.complete(*first, failure, 1ms);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  b.force_open(0s);
  EXPECT_TRUE(b.admit()->is_probe()) << "no time at all";
  b.force_open(std::chrono::nanoseconds::max());
  EXPECT_EQ(b.snapshot().next_probe, no_deadline);
  EXPECT_EQ(b.snapshot().opens, 3u);
}

TEST_F(BreakerTest, AHookMayCallEveryMemberOfItsBreaker) {
  Breaker* self = nullptr;
  int calls = 0;
  BreakerOptions o = options({.open_for = 1s});
  o.on_transition = [&](const BreakerTransition& t) {
    if (++calls > 1) return;
    EXPECT_EQ(self->snapshot().generation, t.generation);
    self->update({.open_for = 2s});
    self->set_mode(BreakerMode::forced_closed);
    self->force_open(1s);
    self->force_half_open();
    self->complete(*self->admit(), failure, 1ms);
    self->reset();
  };
  Breaker b(o);
  self = &b;
  b.force_open(1min);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  EXPECT_GT(calls, 4);
}

// The tags of a time window have ten bits for the generation.
TEST(Breaker, ATimeWindowCountsAfterAnyNumberOfStateChanges) {
  for (const int changes : {1, 511, 512, 700, 1023, 1024, 1500, 5000}) {
    ManualClock clock;
    Breaker breaker({.window = BreakerWindow::time, .window_time = 1s, .minimum_calls = 3, .clock = &clock});
    for (int i = 0; i < 2; ++i) breaker.complete(*breaker.admit(), Outcome::failure, 1ms);
    for (int i = 0; i < changes; ++i) breaker.reset();
    EXPECT_EQ(breaker.snapshot().calls, 0u) << changes;
    for (int i = 0; i < 3; ++i) breaker.complete(*breaker.admit(), Outcome::failure, 1ms);
    EXPECT_EQ(breaker.snapshot().state, BreakerState::open) << "after " << changes << " changes";
  }
}

// Probes that fail for minutes are enough to come there.
TEST(Breaker, ATimeWindowCountsAfterALongOutage) {
  ManualClock clock;
  Breaker breaker({.window = BreakerWindow::time,
                   .window_time = 1s,
                   .minimum_calls = 1,
                   .open_for = 1s,
                   .half_open_calls = 1,
                   .clock = &clock});
  breaker.complete(*breaker.admit(), Outcome::failure, 1ms);
  for (int probe = 0; probe < 300; ++probe) {
    clock.advance(1s);
    breaker.complete(*breaker.admit(), Outcome::failure, 1ms);
  }
  clock.advance(1s);
  breaker.complete(*breaker.admit(), Outcome::success, 1ms);
  ASSERT_EQ(breaker.snapshot().state, BreakerState::closed);
  breaker.complete(*breaker.admit(), Outcome::failure, 1ms);
  EXPECT_EQ(breaker.snapshot().state, BreakerState::open);
}

// And 22 bits for the tick: one millisecond of this window.
TEST(Breaker, ATimeWindowCountsTheFirstFailureAfterAnyTimeAndNoneTwice) {
  for (const std::int64_t apart : {1 << 20, 1 << 21, 3 << 20, 1 << 22, 5 << 22}) {
    ManualClock clock;
    Breaker breaker(
        {.window = BreakerWindow::time, .window_time = 10ms, .minimum_calls = 2, .clock = &clock});
    breaker.complete(*breaker.admit(), Outcome::failure, 1us);
    const std::int64_t step = 1 << 19;
    for (std::int64_t gone = 0; gone < apart; gone += step) {
      clock.advance(step * 1ms);
      breaker.complete(*breaker.admit(), Outcome::success, 1us);
    }
    const BreakerSnapshot before = breaker.snapshot();
    EXPECT_EQ(before.calls, 1u) << apart;
    EXPECT_EQ(before.failures, 0u) << "a failure of " << apart << " ms ago";
    breaker.complete(*breaker.admit(), Outcome::failure, 1us);
    EXPECT_EQ(breaker.snapshot().state, BreakerState::open) << apart;
  }
}

}  // namespace
}  // namespace bulkhead
