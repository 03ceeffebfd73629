// What the parts of a bulkhead do for each other.
#include "bulkhead/bulkhead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

// A dependency on virtual time: calls that were admitted end, in order, when their time has come.
class Dependency {
 public:
  Dependency(Bulkhead& bulkhead, ManualClock& clock) : bulkhead_(bulkhead), clock_(clock) {}

  bool call() {
    auto admitted = bulkhead_.try_acquire();
    if (!admitted) {
      ++rejected_[static_cast<std::size_t>(admitted.error().reason)];
      return false;
    }
    in_flight_.push_back(*std::move(admitted));
    peak_ = std::max(peak_, bulkhead_.gate().in_flight());
    return true;
  }
  // Ends those that began `takes` ago or earlier.
  void end(std::chrono::nanoseconds takes, Outcome verdict) {
    while (!in_flight_.empty() && in_flight_.front().began() + takes <= clock_.now()) {
      in_flight_.front().finish(verdict);
      in_flight_.pop_front();
    }
  }
  std::uint32_t peak() const { return peak_; }
  std::uint64_t rejected(Reason reason) const { return rejected_[static_cast<std::size_t>(reason)]; }

 private:
  Bulkhead& bulkhead_;
  ManualClock& clock_;
  std::deque<Call> in_flight_;
  std::array<std::uint64_t, kReasons> rejected_{};
  std::uint32_t peak_ = 0;
};

BulkheadOptions fifty(ManualClock& clock) {
  return {.name = "payments",
          .max_concurrent = 50,
          .breaker = BreakerOptions{.window_calls = 20,
                                    .minimum_calls = 10,
                                    .slow_call = 200ms,
                                    .open_for = 5s,
                                    .half_open_calls = 5},
          .clock = &clock};
}

TEST(BulkheadAcceptance, TheBreakerOpensBeforeTheBulkheadSaturates) {
  // 100 calls a second that took 20 ms begin to take 400 ms, and to fail or just to be slow: 40 would be in
  // flight.
  for (const Outcome verdict : {Outcome::failure, Outcome::success}) {
    ManualClock clock;
    Bulkhead payments{fifty(clock)};
    Dependency dependency(payments, clock);
    for (int i = 0; i < 100; ++i) {
      dependency.call();
      clock.advance(10ms);
      dependency.end(20ms, Outcome::success);
    }
    ASSERT_EQ(payments.snapshot().breaker->state, BreakerState::closed);
    ASSERT_LE(dependency.peak(), 3u);
    for (int i = 0; i < 200; ++i) {
      dependency.call();
      clock.advance(10ms);
      dependency.end(400ms, verdict);
    }
    const BulkheadSnapshot s = payments.snapshot();
    EXPECT_EQ(s.breaker->state, BreakerState::open);
    EXPECT_LT(dependency.peak(), 50u);
    EXPECT_EQ(dependency.rejected(Reason::concurrency_limit), 0u);
    EXPECT_GT(dependency.rejected(Reason::breaker_open), 100u);
    EXPECT_EQ(s.gate.rejected(Reason::breaker_open), dependency.rejected(Reason::breaker_open));
    EXPECT_EQ(s.gate.in_flight, 0u);  // what is rejected leaves the place to those who wait for their answer
  }
}

TEST(BulkheadAcceptance, HalfOpenKeepsTheCapAndTheBreakersOwn) {
  ManualClock clock;
  BulkheadOptions options = fifty(clock);
  options.max_concurrent = 3;
  Bulkhead payments{options};
  for (int i = 0; i < 10; ++i) EXPECT_THROW(static_cast<void>(payments.execute([] { throw 1; })), int);
  EXPECT_EQ(payments.execute([] {}).error().reason, Reason::breaker_open);
  clock.advance(5s);

  // Five probes are allowed, three places are there.
  std::vector<Call> probes;
  for (int i = 0; i < 10; ++i)
    if (auto call = payments.try_acquire()) probes.push_back(*std::move(call));
  EXPECT_EQ(probes.size(), 3u);
  EXPECT_EQ(payments.gate().in_flight(), 3u);
  BulkheadSnapshot s = payments.snapshot();
  EXPECT_EQ(s.breaker->state, BreakerState::half_open);
  EXPECT_EQ(s.breaker->probes_in_flight, 3u);
  EXPECT_EQ(s.gate.rejected(Reason::concurrency_limit), 7u);

  // Fifty places are there, five probes are allowed.
  payments.resize(50);
  for (int i = 0; i < 10; ++i)
    if (auto call = payments.try_acquire()) probes.push_back(*std::move(call));
  EXPECT_EQ(probes.size(), 5u);
  EXPECT_EQ(payments.snapshot().breaker->probes_in_flight, 5u);
  for (Call& probe : probes) probe.finish(Outcome::success);
  s = payments.snapshot();
  EXPECT_EQ(s.breaker->state, BreakerState::closed);
  EXPECT_EQ(s.gate.in_flight, 0u);
}

TEST(BulkheadAcceptance, AnAdaptiveLimitMovesTheCapToTheCapacity) {
  // The dependency serves ten at once, 8 to 12 ms each; more only wait there. The limit starts far above.
  ManualClock clock;
  Bulkhead search{{.name = "search",
                   .max_concurrent = 100,
                   .adaptive = LimiterOptions{.floor = 2, .ceiling = 200},
                   .clock = &clock}};
  std::multimap<TimePoint, Call> in_flight;
  std::vector<TimePoint> servers(10, clock.now());
  std::minstd_rand random(1);
  for (int tick = 0; tick < 600'000; ++tick) {
    while (auto call = search.try_acquire()) {
      auto& server = *std::min_element(servers.begin(), servers.end());
      server = std::max(server, clock.now()) + 8ms + std::chrono::microseconds(random() % 4000);
      in_flight.emplace(server, *std::move(call));
    }
    ASSERT_LE(in_flight.size(), 200u);
    clock.advance(100us);
    while (!in_flight.empty() && in_flight.begin()->first <= clock.now()) {
      in_flight.begin()->second.finish(Outcome::success);
      in_flight.erase(in_flight.begin());
    }
  }
  const BulkheadSnapshot s = search.snapshot();
  EXPECT_EQ(s.gate.max_concurrent, s.adaptive->limit);
  EXPECT_GE(s.adaptive->settled, 8u);
  EXPECT_LE(s.adaptive->settled, 20u) << s.adaptive->why.text();
  in_flight.clear();
  tests::expect_idle(search.gate());
}

}  // namespace
}  // namespace bulkhead
