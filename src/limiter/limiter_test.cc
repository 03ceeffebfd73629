#include "bulkhead/limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>
#include <string>
#include <vector>

#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

// Calls as a saturated dependency would end them, one after the other, on a clock of its own.
struct Caller {
  ManualClock clock;
  Gate gate{{.name = "search", .max_concurrent = 20, .max_queue = 10'000, .clock = &clock}};
  AdaptiveLimiter limiter;

  explicit Caller(const LimiterOptions& options = {}) : limiter(gate, options) {}

  // `capacity` slots of 10 ms each; the gate is always full.
  void calls(int n, double capacity = 50, Outcome end = Outcome::success) {
    for (int i = 0; i < n; ++i) {
      const double limit = limiter.limit();
      const std::chrono::duration<double, std::milli> rtt(10 * std::max(1.0, limit / capacity));
      const auto trip = std::chrono::duration_cast<std::chrono::nanoseconds>(rtt);
      const LimiterCall call = limiter.admitted(clock.now() - trip, limiter.limit());
      clock.advance(std::chrono::nanoseconds(trip.count() / limiter.limit()));
      limiter.completed(call, clock.now(), end);
    }
  }
};

TEST(AdaptiveLimiter, MovesTheGateToTheCapacity) {
  Caller c;
  c.calls(100'000);
  EXPECT_GE(c.limiter.snapshot().settled, 40u);
  EXPECT_LE(c.limiter.snapshot().settled, 75u);
  EXPECT_EQ(c.gate.snapshot().max_concurrent, c.limiter.limit());
}

TEST(AdaptiveLimiter, StartsWithTheGatesLimitOrTheInitialOne) {
  Gate gate{{.max_concurrent = 70}};
  EXPECT_EQ(AdaptiveLimiter(gate, {}).limit(), 70u);
  EXPECT_EQ(AdaptiveLimiter(gate, {.initial = 33}).limit(), 33u);
  EXPECT_EQ(gate.snapshot().max_concurrent, 33u);
  EXPECT_EQ(AdaptiveLimiter(gate, {.floor = 40}).limit(), 40u);
  EXPECT_EQ(gate.snapshot().max_concurrent, 40u);
}

TEST(AdaptiveLimiter, CallsAdmittedUnderAnotherLimitDecideNothing) {
  Caller c({.initial = 20});
  const LimiterCall old = c.limiter.admitted(c.clock.now(), 20);
  while (c.limiter.snapshot().epoch == old.epoch) c.calls(1, 1000);
  const std::uint32_t settled = c.limiter.snapshot().settled;
  const std::uint64_t windows = c.limiter.snapshot().windows;
  const std::uint64_t stale = c.limiter.snapshot().stale;
  for (int i = 0; i < 10'000; ++i) {
    c.clock.advance(1ms);
    c.limiter.completed(old, c.clock.now(), Outcome::success);
  }
  EXPECT_EQ(c.limiter.snapshot().stale, stale + 10'000);
  EXPECT_EQ(c.limiter.snapshot().windows, windows);
  EXPECT_EQ(c.limiter.snapshot().settled, settled);
}

TEST(AdaptiveLimiter, TheKnownAlgorithmsTakeAllCallsAsTheirAuthorsDo) {
  Caller c({.algorithm = LimitAlgorithm::aimd});
  const LimiterCall old = c.limiter.admitted(c.clock.now(), 20);
  for (int i = 0; i < 5000; ++i) {
    c.clock.advance(1ms);
    c.limiter.completed(old, c.clock.now(), Outcome::success);
  }
  EXPECT_EQ(c.limiter.snapshot().stale, 0u);
  EXPECT_GT(c.limiter.limit(), 20u);
}

TEST(AdaptiveLimiter, IgnoredCallsAreNoSamplesBeforeOneSucceeds) {
  Caller c;
  c.calls(10'000, 50, Outcome::ignored);
  EXPECT_LE(c.limiter.snapshot().windows, 1u);  // the one that only waits
  EXPECT_EQ(c.limiter.limit(), 20u);
}

TEST(AdaptiveLimiter, CallsThatEndEarlyWithoutSuccessLowerNothing) {
  for (const Outcome end : {Outcome::ignored, Outcome::failure}) {
    Caller c;
    c.calls(50'000);
    c.limiter.hold(true);  // ends a probe
    c.limiter.hold(false);
    const std::uint32_t limit = c.limiter.limit();
    for (int i = 0; i < 5000; ++i) {
      const LimiterCall call = c.limiter.admitted(c.clock.now() - 2ms, limit);
      c.clock.advance(1ms);
      c.limiter.completed(call, c.clock.now(), end);
    }
    EXPECT_EQ(c.limiter.limit(), limit) << to_string(end);
  }
}

TEST(AdaptiveLimiter, AnIdleHourChangesNothing) {
  Caller c;
  c.calls(50'000);
  c.limiter.hold(true);  // ends a probe
  c.limiter.hold(false);
  const std::uint32_t limit = c.limiter.limit();
  c.clock.advance(1h);
  EXPECT_EQ(c.limiter.limit(), limit);
  const LimiterCall lone = c.limiter.admitted(c.clock.now(), 1);
  c.clock.advance(10ms);
  c.limiter.completed(lone, c.clock.now(), Outcome::success);
  EXPECT_EQ(c.limiter.limit(), limit);
}

TEST(AdaptiveLimiter, HoldKeepsTheSettledLimitUntilReleased) {
  Caller c;
  c.calls(3000, 1000);
  c.limiter.hold(true);
  const std::uint32_t limit = c.limiter.limit();
  EXPECT_EQ(limit, c.limiter.snapshot().settled);
  c.calls(100'000, 1000);
  EXPECT_EQ(c.limiter.limit(), limit);
  EXPECT_TRUE(c.limiter.snapshot().held);
  EXPECT_EQ(c.limiter.snapshot().why.verdict, LimitVerdict::held);
  c.limiter.hold(false);
  c.calls(500'000, 1000);
  EXPECT_GT(c.limiter.limit(), limit);
}

TEST(AdaptiveLimiter, NewBoundsActAtOnce) {
  Caller c;
  c.limiter.update({.ceiling = 7});
  EXPECT_EQ(c.gate.snapshot().max_concurrent, 7u);
  c.calls(50'000, 1000);
  EXPECT_LE(c.limiter.limit(), 7u);
  c.limiter.update({.floor = 90, .ceiling = 100});
  EXPECT_EQ(c.gate.snapshot().max_concurrent, 90u);
  c.calls(50'000, 10);
  EXPECT_GE(c.limiter.limit(), 90u);
}

TEST(AdaptiveLimiter, ABadUpdateChangesNothing) {
  Caller c;
  EXPECT_THROW(c.limiter.update({.floor = 10, .ceiling = 5}), std::invalid_argument);
  EXPECT_EQ(c.limiter.options().ceiling, 1000u);
  EXPECT_EQ(c.limiter.limit(), 20u);
}

TEST(AdaptiveLimiter, TheAlgorithmCanBeChangedWhileItRuns) {
  Caller c;
  c.calls(100'000);
  c.limiter.hold(true);
  c.limiter.hold(false);
  const std::uint32_t limit = c.limiter.limit();
  c.limiter.update({.algorithm = LimitAlgorithm::aimd});
  EXPECT_EQ(c.limiter.limit(), limit);
  c.calls(100'000);
  EXPECT_EQ(c.limiter.snapshot().algorithm, LimitAlgorithm::aimd);
  EXPECT_GT(c.limiter.limit(), limit);
}

TEST(AdaptiveLimiter, ResetStartsFromTheInitialLimit) {
  Caller c;
  c.calls(100'000, 500);
  ASSERT_GT(c.limiter.limit(), 100u);
  c.limiter.reset();
  EXPECT_EQ(c.limiter.limit(), 20u);
  EXPECT_EQ(c.gate.snapshot().max_concurrent, 20u);
  EXPECT_EQ(c.limiter.snapshot().windows, 0u);
}

TEST(AdaptiveLimiter, SaysWhyInOneLine) {
  Caller c;
  EXPECT_EQ(c.limiter.snapshot().why.verdict, LimitVerdict::started);
  c.calls(20'000, 500);
  const LimitDecision why = c.limiter.snapshot().change;
  EXPECT_EQ(why.text().find('\n'), std::string::npos);
  EXPECT_THAT(why.text(), HasSubstr("limit "));
  EXPECT_THAT(why.text(), HasSubstr("gain "));
  EXPECT_THAT(why.text(), HasSubstr("ms each"));
}

TEST(AdaptiveLimiter, AHandlerInsideAResizeMayCallTheLimiter) {
  ManualClock clock;
  AdaptiveLimiter* reach = nullptr;
  int resizes = 0;
  Gate gate{{.max_concurrent = 20,
             .hooks = {.on_resize =
                           [&](const Event&) {
                             if (reach == nullptr || ++resizes != 1) return;
                             reach->update({.ceiling = 5});
                             EXPECT_EQ(reach->limit(), 5u);
                             reach->completed(reach->admitted(clock.now(), 1), clock.now(), Outcome::success);
                           }},
             .clock = &clock}};
  AdaptiveLimiter limiter(gate, {});
  reach = &limiter;
  limiter.update({.floor = 30});
  EXPECT_EQ(gate.snapshot().max_concurrent, 5u);  // the later wish wins
  reach = nullptr;
}

TEST(AdaptiveLimiter, BadOptionsNameTheBulkheadTheSettingTheValueAndTheFix) {
  Gate gate{{.name = "db"}};
  const auto message = [&](const LimiterOptions& options) -> std::string {
    try {
      AdaptiveLimiter limiter(gate, options);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.floor = 0}), "bulkhead \"db\": limiter.floor = 0 is out of range: give 1 to 268435455");
  EXPECT_THAT(message({.floor = 9, .ceiling = 8}), HasSubstr("limiter.ceiling = 8"));
  EXPECT_THAT(message({.floor = 5, .initial = 4}), HasSubstr("limiter.initial = 4"));
  EXPECT_THAT(message({.ceiling = 300'000'000}), HasSubstr("limiter.ceiling"));
  EXPECT_THAT(message({.knee = {.margin = 1}}), HasSubstr("limiter.knee.margin"));
  EXPECT_THAT(message({.knee = {.dip = 0.99}}), HasSubstr("limiter.knee.dip"));
  EXPECT_THAT(message({.knee = {.min_window = 0s}}), HasSubstr("limiter.knee.min_window"));
  EXPECT_THAT(message({.knee = {.min_window = 20s}}), HasSubstr("limiter.knee.max_window"));
  EXPECT_THAT(message({.aimd = {.backoff = 1}}), HasSubstr("limiter.aimd.backoff"));
  EXPECT_THAT(message({.vegas = {.smoothing = 0}}), HasSubstr("limiter.vegas.smoothing"));
  EXPECT_THAT(message({.gradient2 = {.rtt_tolerance = 0.5}}), HasSubstr("limiter.gradient2.rtt_tolerance"));
  EXPECT_THAT(message({.target_latency = -1s}), HasSubstr("limiter.target_latency"));
  EXPECT_EQ(message({}), "accepted");
}

TEST(LimitVerdict, EveryVerdictHasItsWord) {
  for (std::size_t i = 0; i < kLimitVerdicts; ++i)
    EXPECT_NE(to_string(static_cast<LimitVerdict>(i)), "unknown");
  EXPECT_EQ(to_string(static_cast<LimitVerdict>(kLimitVerdicts)), "unknown");
  EXPECT_EQ(to_string(LimitAlgorithm::gradient2), "gradient2");
}

}  // namespace
}  // namespace bulkhead
