#include "breaker/machine.h"

#include <gtest/gtest.h>

namespace bulkhead::breaker {
namespace {

using namespace std::chrono_literals;

constexpr TimePoint t0{1h};
constexpr double no_dice = 0.5;

Rules rules(BreakerOptions o = {}) { return Rules::of(o); }

Machine opened(const Rules& r, double dice = no_dice) {
  Machine m(r, BreakerMode::automatic, t0);
  EXPECT_TRUE(m.judge({100, 100, 0}, t0, dice));
  return m;
}

TEST(BreakerMachine, OpensAtTheThresholdAndNotBelow) {
  Machine m(rules(), BreakerMode::automatic, t0);
  EXPECT_FALSE(m.judge({99, 99, 99}, t0, no_dice)) << "fewer than minimum_calls";
  EXPECT_FALSE(m.judge({100, 49, 99}, t0, no_dice));
  EXPECT_TRUE(m.judge({100, 50, 0}, t0, no_dice));
  EXPECT_EQ(m.state(), BreakerState::open);
  EXPECT_EQ(m.reason(), BreakerReason::failure_rate);
}

TEST(BreakerMachine, OpensWhenAllAreSlow) {
  Machine m(rules(), BreakerMode::automatic, t0);
  EXPECT_TRUE(m.judge({100, 0, 100}, t0, no_dice));
  EXPECT_EQ(m.reason(), BreakerReason::slow_call_rate);
}

TEST(BreakerMachine, AShareThatBinaryCannotHoldIsReachedByTheNumberItMeans) {
  for (std::uint64_t n = 1; n <= 1000; ++n)
    for (const std::uint64_t k : {std::uint64_t{1}, n / 3 + 1, n}) {
      const double share = static_cast<double>(k) / static_cast<double>(n);
      ASSERT_TRUE(reaches(k, n, share)) << k << "/" << n;
      ASSERT_FALSE(reaches(k - 1, n, share)) << k << "/" << n;
    }
}

TEST(BreakerMachine, RejectsUntilItsTimeIsOverThenProbes) {
  Machine m = opened(rules());
  EXPECT_EQ(m.admit(t0 + 1s, no_dice).retry_after, 59s);
  EXPECT_EQ(m.state(), BreakerState::open);
  EXPECT_NE(m.admit(t0 + 60s, no_dice).probe, 0u);
  EXPECT_EQ(m.state(), BreakerState::half_open);
}

TEST(BreakerMachine, BackoffGrowsToItsLimitAndAStartOverAfterClosing) {
  Machine m(rules({.open_for = 1s, .backoff = 2, .max_open = 5s, .half_open_calls = 1}),
            BreakerMode::automatic, t0);
  TimePoint now = t0;
  m.judge({100, 100, 0}, now, no_dice);
  for (const auto expected : {1s, 2s, 4s, 5s, 5s}) {
    EXPECT_EQ(m.next_probe() - now, expected);
    now = m.next_probe();
    m.complete_probe(m.admit(now, no_dice).probe, Outcome::failure, false, now, no_dice);
  }
  EXPECT_EQ(m.opens_in_a_row(), 6u);
  now = m.next_probe();
  m.complete_probe(m.admit(now, no_dice).probe, Outcome::success, false, now, no_dice);
  EXPECT_EQ(m.state(), BreakerState::closed);
  m.judge({100, 100, 0}, now, no_dice);
  EXPECT_EQ(m.next_probe() - now, 1s);
}

TEST(BreakerMachine, JitterGoesUpAndDownByItsShare) {
  const Rules r = rules({.open_for = 10s, .jitter = 0.2});
  EXPECT_EQ(opened(r, 0).next_probe(), t0 + 8s);
  EXPECT_EQ(opened(r, 0.5).next_probe(), t0 + 10s);
  EXPECT_NEAR(std::chrono::duration<double>(opened(r, 0.999999).next_probe() - t0).count(), 12, 1e-4);
}

TEST(BreakerMachine, AnOpenTimeBeyondTheClockNeverEndsAndNeverOverflows) {
  Machine m = opened(rules({.open_for = std::chrono::nanoseconds::max(), .jitter = 1}), 0.9999);
  EXPECT_EQ(m.admit(t0 + std::chrono::years(200), no_dice).probe, 0u);
}

TEST(BreakerMachine, NoMoreProbesThanItsCap) {
  Machine m = opened(rules({.half_open_calls = 3}));
  const TimePoint now = t0 + 60s;
  for (int i = 0; i < 3; ++i) EXPECT_NE(m.admit(now, no_dice).probe, 0u);
  EXPECT_EQ(m.admit(now, no_dice).probe, 0u);
  EXPECT_EQ(m.probes_in_flight(), 3u);
  EXPECT_EQ(m.next_probe(), now + 60s) << "when the first lease ends";
}

TEST(BreakerMachine, AProbeWithAResultTakesItsPlaceToTheEnd) {
  Machine m = opened(rules({.half_open_calls = 2, .half_open_failure_rate = 1}));
  const TimePoint now = t0 + 60s;
  const auto a = m.admit(now, no_dice).probe;
  EXPECT_TRUE(m.complete_probe(a, Outcome::failure, false, now, no_dice));
  EXPECT_NE(m.admit(now, no_dice).probe, 0u);
  EXPECT_EQ(m.admit(now, no_dice).probe, 0u) << "one result and one lease are two";
}

TEST(BreakerMachine, AnIgnoredProbeGivesItsPlaceBackAndDecidesNothing) {
  Machine m = opened(rules({.half_open_calls = 1}));
  const TimePoint now = t0 + 60s;
  for (int i = 0; i < 100; ++i) {
    const auto probe = m.admit(now, no_dice).probe;
    ASSERT_NE(probe, 0u);
    EXPECT_TRUE(m.complete_probe(probe, Outcome::ignored, true, now, no_dice));
    ASSERT_EQ(m.state(), BreakerState::half_open);
  }
}

TEST(BreakerMachine, AProbeCompletesOnce) {
  Machine m = opened(rules({.half_open_calls = 3, .half_open_failure_rate = 1}));
  const auto probe = m.admit(t0 + 60s, no_dice).probe;
  EXPECT_TRUE(m.complete_probe(probe, Outcome::failure, false, t0 + 60s, no_dice));
  EXPECT_FALSE(m.complete_probe(probe, Outcome::failure, false, t0 + 60s, no_dice));
  EXPECT_EQ(m.probe_results().calls, 1u);
}

TEST(BreakerMachine, AHungProbeCountsAsFailedWhenItsLeaseEnds) {
  Machine m = opened(rules({.open_for = 1s, .half_open_calls = 1, .probe_lease = 5s}));
  const auto probe = m.admit(t0 + 1s, no_dice).probe;
  EXPECT_EQ(m.admit(t0 + 6s - 1ns, no_dice).retry_after, 1ns);
  EXPECT_EQ(m.admit(t0 + 6s, no_dice).probe, 0u);
  EXPECT_EQ(m.state(), BreakerState::open);
  EXPECT_EQ(m.reason(), BreakerReason::probe_expired);
  EXPECT_NE(m.admit(t0 + 7s, no_dice).probe, probe);
  EXPECT_EQ(m.state(), BreakerState::half_open);
  EXPECT_FALSE(m.complete_probe(probe, Outcome::success, false, t0 + 7s, no_dice)) << "too late";
  EXPECT_EQ(m.state(), BreakerState::half_open);
}

TEST(BreakerMachine, WhenTheLastProbeExpiresAndItClosesAllTheSameTheCallerGoesThrough) {
  Machine m = opened(rules(
      {.failure_rate = 0.6, .slow_call_rate = 0.5, .open_for = 1s, .half_open_calls = 2, .probe_lease = 5s}));
  m.admit(t0 + 1s, no_dice);
  m.complete_probe(m.admit(t0 + 1s, no_dice).probe, Outcome::success, false, t0 + 1s, no_dice);
  EXPECT_EQ(m.state(), BreakerState::half_open);
  const auto admission = m.admit(t0 + 6s, no_dice);
  EXPECT_EQ(m.state(), BreakerState::closed) << "one of two is below 0.6";
  EXPECT_TRUE(admission.ordinary);
  EXPECT_EQ(m.probes_in_flight(), 0u);
}

TEST(BreakerMachine, AResultAfterItsLeaseIsTooLateEvenIfNobodyElseLooked) {
  Machine m = opened(rules({.open_for = 1s, .half_open_calls = 1, .probe_lease = 5s}));
  const auto probe = m.admit(t0 + 1s, no_dice).probe;
  EXPECT_FALSE(m.complete_probe(probe, Outcome::success, false, t0 + 6s, no_dice));
  EXPECT_EQ(m.state(), BreakerState::open);
}

TEST(BreakerMachine, SlowProbesOpenItAgain) {
  Machine m = opened(rules({.slow_call_rate = 0.5, .half_open_calls = 2}));
  const TimePoint now = t0 + 60s;
  m.complete_probe(m.admit(now, no_dice).probe, Outcome::success, true, now, no_dice);
  EXPECT_EQ(m.state(), BreakerState::open);
  EXPECT_EQ(m.reason(), BreakerReason::probes_slow);
}

TEST(BreakerMachine, DecidesAsSoonAsTheRestCannotChangeIt) {
  for (const bool fails : {false, true}) {
    Machine m = opened(rules({.half_open_calls = 10}));
    const TimePoint now = t0 + 60s;
    int results = 0;
    for (; m.generation() == 3 || results == 0; ++results)
      m.complete_probe(m.admit(now, no_dice).probe, fails ? Outcome::failure : Outcome::success, false, now,
                       no_dice);
    EXPECT_EQ(results, fails ? 5 : 6);
    EXPECT_EQ(m.state(), fails ? BreakerState::open : BreakerState::closed);
  }
}

TEST(BreakerMachine, FewerProbesThanResultsAfterAnUpdateDecideAtOnce) {
  Machine m = opened(rules({.half_open_calls = 10}));
  const TimePoint now = t0 + 60s;
  for (int i = 0; i < 3; ++i)
    m.complete_probe(m.admit(now, no_dice).probe, Outcome::success, false, now, no_dice);
  m.update(rules({.half_open_calls = 2}), now, no_dice);
  EXPECT_EQ(m.state(), BreakerState::closed);
}

TEST(BreakerMachine, OtherModesNeverOpen) {
  for (const auto mode : {BreakerMode::forced_closed, BreakerMode::metrics_only, BreakerMode::disabled}) {
    Machine m(rules(), mode, t0);
    EXPECT_FALSE(m.judge({100, 100, 100}, t0, no_dice));
    EXPECT_EQ(m.state(), BreakerState::closed);
  }
}

}  // namespace
}  // namespace bulkhead::breaker
