// Defects found in the breakers and rate limiters of others, each excluded by the test that carries its
// name. tests/SOURCES.md lists the libraries.
#include "bulkhead/breaker.h"

#include <gtest/gtest.h>

#include <stdexcept>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/rate_limiter.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
constexpr auto failure = Outcome::failure, success = Outcome::success, ignored = Outcome::ignored;

struct BreakerPeerDefects : testing::Test {
  ManualClock clock;
  BreakerOptions options(std::uint32_t probes = 1) {
    return {.window_calls = 4, .open_for = 1s, .half_open_calls = probes, .probe_lease = 5s, .clock = &clock};
  }
  static void trip(Breaker& b) {
    while (b.snapshot().state == BreakerState::closed) b.complete(b.admit().value(), failure, 1ms);
  }
  void half_open(Breaker& b) {
    trip(b);
    clock.advance(1s);
  }
};

// resilience4j: outcomes are applied to whatever state is current, so a call from before the
// trip decides the trial.
TEST_F(BreakerPeerDefects, AResultFromBeforeTheTripDoesNotDecideTheTrial) {
  for (const auto verdict : {success, failure}) {
    Breaker b(options());
    const BreakerPass old = b.admit().value();
    half_open(b);
    const BreakerPass probe = b.admit().value();
    b.complete(old, verdict, 1ms);
    EXPECT_EQ(b.snapshot().state, BreakerState::half_open);
    b.complete(probe, success, 1ms);
    b.complete(old, verdict, 1ms);
    EXPECT_EQ(b.snapshot().calls, 0u);
    EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  }
}

// Polly: a cancelled probe counts as success and closes the circuit.
TEST_F(BreakerPeerDefects, ACancelledProbeDoesNotCloseIt) {
  Breaker b(options());
  half_open(b);
  for (int i = 0; i < 10; ++i) {
    b.complete(b.admit().value(), ignored, 0s);
    ASSERT_EQ(b.snapshot().state, BreakerState::half_open);
  }
  b.complete(b.admit().value(), failure, 1ms);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
}

// Polly, Hystrix, resilience4j with its default of waiting for ever: a probe that never comes
// back leaves it half open and rejecting for ever.
TEST_F(BreakerPeerDefects, AProbeThatNeverComesBackDoesNotWedgeIt) {
  Breaker b(options());
  half_open(b);
  for (int hung = 0; hung < 5; ++hung) {
    ASSERT_TRUE(b.admit()) << "lost for ever";
    ASSERT_FALSE(b.admit());
    clock.advance(5s);
    EXPECT_FALSE(b.admit());
    EXPECT_EQ(b.snapshot().reason, BreakerReason::probe_expired);
    clock.advance(1s);
  }
  b.complete(b.admit().value(), success, 1ms);
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
}

// Semian: any number of probes at once.
TEST_F(BreakerPeerDefects, AStampedeIsCutToTheCap) {
  Breaker b(options(3));
  half_open(b);
  int admitted = 0;
  for (int i = 0; i < 100; ++i) admitted += b.admit().has_value();
  EXPECT_EQ(admitted, 3);
  EXPECT_EQ(b.snapshot().rejected, 97u);
}

// Sentinel (#1638): the probe is rejected by a later rule, and nobody tells the breaker.
TEST_F(BreakerPeerDefects, AProbeRejectedByTheGateBehindGivesItsPlaceBack) {
  Breaker b(options());
  Gate gate{{.max_concurrent = 1}};
  half_open(b);
  {
    const auto all = gate.acquire();
    const auto rejected = b.run([&] { return gate.run([] { return 1; }); });
    ASSERT_TRUE(rejected);
    EXPECT_FALSE(*rejected);
    EXPECT_EQ(b.snapshot().state, BreakerState::half_open);
    EXPECT_EQ(b.snapshot().probes_in_flight, 0u);
  }
  EXPECT_TRUE(**b.run([&] { return gate.run([] { return 1; }); }));
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
}

// Semian by design, resilience4j unless configured (#1656): rejections by one's own bulkhead count as
// failures of the dependency.
TEST_F(BreakerPeerDefects, LocalRejectionsNeverOpenIt) {
  Breaker b(options());
  Gate gate{{.max_concurrent = 1}};
  const auto all = gate.acquire();
  for (int i = 0; i < 1000; ++i) (void)b.run([&] { return gate.run([] { return 1; }); });
  EXPECT_EQ(b.snapshot().state, BreakerState::closed);
  EXPECT_EQ(b.snapshot().calls, 0u);
}

// resilience4j, Netflix concurrency-limits, Semian: a second release inflates capacity. Here: a pass
// completed twice, or for another probe's sake.
TEST_F(BreakerPeerDefects, AProbeCompletedTwiceCountsOnce) {
  Breaker b({.window_calls = 4,
             .open_for = 1s,
             .half_open_calls = 2,
             .half_open_failure_rate = 0.5,
             .clock = &clock});
  half_open(b);
  const BreakerPass probe = b.admit().value();
  for (int i = 0; i < 5; ++i) b.complete(probe, success, 1ms);
  EXPECT_EQ(b.snapshot().state, BreakerState::half_open);
  EXPECT_EQ(b.snapshot().calls, 1u);
  EXPECT_TRUE(b.admit());
  EXPECT_FALSE(b.admit()) << "the second of two";
}

// Netflix concurrency-limits, failsafe-go: an exception on the way out leaks the permit.
TEST_F(BreakerPeerDefects, AProbeThatThrowsIsAResult) {
  Breaker b(options());
  half_open(b);
  EXPECT_THROW(static_cast<void>(b.run([]() -> int { throw std::runtime_error("down"); })),
               std::runtime_error);
  EXPECT_EQ(b.snapshot().state, BreakerState::open);
  clock.advance(1s);
  EXPECT_THROW(static_cast<void>(b.run([]() -> int { throw 1; }, exception_is<int>(ignored))), int);
  EXPECT_EQ(b.snapshot().probes_in_flight, 0u);
}

// failsafe-go: a listener called with the lock dropped in the middle of an update loses one.
// Here a hook runs after the change is whole, and what it does itself is kept.
TEST_F(BreakerPeerDefects, AHookThatChangesTheBreakerLosesNothing) {
  Breaker* self = nullptr;
  std::vector<std::uint64_t> generations;
  BreakerOptions o = options();
  o.on_transition = [&](const BreakerTransition& t) {
    generations.push_back(t.generation);
    if (t.to == BreakerState::open) self->update({.window_calls = 4, .open_for = 9s, .half_open_calls = 1});
  };
  Breaker b(o);
  self = &b;
  trip(b);
  EXPECT_EQ(b.snapshot().next_probe, clock.now() + 1s) << "this opening was decided by the settings before";
  clock.advance(1s);
  b.complete(b.admit().value(), failure, 1ms);
  EXPECT_EQ(b.snapshot().next_probe, clock.now() + 9s);
  EXPECT_EQ(generations, (std::vector<std::uint64_t>{2, 3, 4}));
}

// Polly: a reload doubles capacity, and a failed one ends all later ones.
TEST(RatePeerDefects, AnUpdateFillsNoBucketAndABadOneSpoilsNothing) {
  ManualClock clock;
  RateLimiter r({.rate = 10, .burst = 10, .clock = &clock});
  int taken = 0;
  for (int i = 0; i < 20; ++i) {
    while (r.try_take()) ++taken;
    r.update({.rate = 10, .burst = 10});
    EXPECT_THROW(r.update({.rate = 0}), std::invalid_argument);
  }
  EXPECT_EQ(taken, 10);
  r.update({.rate = 1000, .burst = 10});
  clock.advance(1ms);
  EXPECT_TRUE(r.try_take()) << "later updates still work";
}

// Netflix concurrency-limits, Sentinel: a caller that has to wait is put to sleep on its thread.
TEST(RatePeerDefects, AWaitIsAnAnswerAndParksNobody) {
  ManualClock clock;  // which nobody moves: whoever slept would sleep for ever
  RateLimiter r({.rate = 1, .per = 1h, .burst = 1, .clock = &clock});
  EXPECT_TRUE(r.try_take());
  EXPECT_EQ(r.reserve({.max_wait = 2h})->at, clock.now() + 1h);
  EXPECT_EQ(r.try_take().error().retry_after, 2h);
}

// The second release again, for tickets: one is given back twice.
TEST(RatePeerDefects, ATicketGivenBackTwiceCountsOnce) {
  ManualClock clock;
  RateLimiter r({.rate = 1, .burst = 3, .clock = &clock});
  auto ticket = r.try_take(3);
  EXPECT_TRUE(r.cancel(*ticket));
  EXPECT_FALSE(r.cancel(*ticket));
  int taken = 0;
  while (r.try_take()) ++taken;
  EXPECT_EQ(taken, 3);
}

}  // namespace
}  // namespace bulkhead
