// Defects found in the adaptive limiters of others, each excluded by the test that carries its name. See
// tests/SOURCES.md for the libraries. Drift, collapse and a round trip learnt under load are also the subject
// of app/sim: hours of overload on virtual time.
#include "bulkhead/limiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

// A dependency of `capacity` slots of 10 ms that is always pressed, call by call.
struct Overload {
  ManualClock clock;
  Gate gate{{.name = "dependency", .max_concurrent = 20, .max_queue = 100, .clock = &clock}};
  AdaptiveLimiter limiter;
  explicit Overload(const LimiterOptions& options) : limiter(gate, options) {}

  void run(std::chrono::nanoseconds time, double capacity) {
    for (const TimePoint end = clock.now() + time; clock.now() < end;) {
      const double limit = limiter.limit();
      const auto trip = static_cast<std::int64_t>(10e6 * std::max(1.0, limit / capacity));
      const LimiterCall call =
          limiter.admitted(clock.now() - std::chrono::nanoseconds(trip), limiter.limit());
      clock.advance(std::chrono::nanoseconds(static_cast<std::int64_t>(static_cast<double>(trip) / limit)));
      limiter.completed(call, clock.now(), Outcome::success);
    }
  }
};

// Netflix concurrency-limits: waiters time out although the limit has grown.
TEST(LimiterPeerDefects, ALimitThatGrowsAdmitsExactlyTheWaitersThatNowFit) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 10, .clock = &clock}};
  AdaptiveLimiter limiter(gate, {.initial = 1});
  std::vector<Permit> held;
  for (int i = 0; i < 6; ++i)
    gate.async_acquire({}, [&](Result<Permit> p) {
      if (p) held.push_back(std::move(*p));
    });
  ASSERT_EQ(held.size(), 1u);
  limiter.update({.floor = 4});
  EXPECT_EQ(held.size(), 4u);
  limiter.update({.floor = 1, .ceiling = 2});
  EXPECT_EQ(gate.snapshot().max_concurrent, 2u);  // cuts nobody
  EXPECT_EQ(held.size(), 4u);
  gate.close();
}

// Netflix concurrency-limits: a round trip of 0 makes the algorithm throw, and the permit is lost.
TEST(LimiterPeerDefects, ARoundTripOfZeroOrLessHurtsNobody) {
  for (const auto algorithm :
       {LimitAlgorithm::knee, LimitAlgorithm::aimd, LimitAlgorithm::vegas, LimitAlgorithm::gradient2}) {
    ManualClock clock;
    Gate gate{{.max_concurrent = 20, .clock = &clock}};
    AdaptiveLimiter limiter(gate, {.algorithm = algorithm});
    for (int i = 0; i < 5000; ++i) {
      clock.advance(1ms);
      auto permit = gate.try_acquire();
      ASSERT_TRUE(permit);
      const LimiterCall call = limiter.admitted(clock.now() + (i % 2 ? 0ms : 5ms), 20);
      limiter.completed(call, clock.now(), Outcome::success);
    }
    EXPECT_EQ(gate.snapshot().in_flight, 0u);
    EXPECT_GE(limiter.limit(), 1u);
    EXPECT_LE(limiter.limit(), 1000u);
  }
}

// Netflix concurrency-limits (#137, #134), Gradient2: sustained overload is absorbed into the baseline, and
// the limit walks to the ceiling.
TEST(LimiterPeerDefects, OverloadDoesNotBecomeTheNewNormal) {
  Overload knee({}), gradient({.algorithm = LimitAlgorithm::gradient2});
  knee.run(10min, 10);
  gradient.run(10min, 10);
  EXPECT_LE(knee.limiter.snapshot().settled, 15u);
  EXPECT_GE(knee.limiter.snapshot().settled, 8u);
  EXPECT_GT(gradient.limiter.limit(), 100u);  // the defect, in the same world
}

// Netflix concurrency-limits, Vegas: a start above the capacity teaches it a round trip with a queue in it.
TEST(LimiterPeerDefects, AStartAboveTheCapacityIsNotTakenForNoLoad) {
  Overload knee({.initial = 200});
  knee.run(2min, 10);
  EXPECT_LE(knee.limiter.snapshot().settled, 15u);
}

// Envoy and Netflix concurrency-limits, Gradient: the round trip without load is measured by pinning
// concurrency to a few.
TEST(LimiterPeerDefects, NoProbePinsConcurrencyLow) {
  Overload knee({});
  knee.run(1min, 100);
  std::uint32_t least = 1000;
  for (int i = 0; i < 60'000; ++i) {
    knee.run(10ms, 100);
    least = std::min(least, knee.limiter.limit());
  }
  EXPECT_GE(least, 45u);  // half, for a moment and rarely
}

// failsafe-go: the limit's listener is called with the lock dropped, and an older limit overwrites a
// newer one.
TEST(LimiterPeerDefects, AnOlderLimitNeverOverwritesANewerOne) {
  std::atomic<int> inside{0};
  std::atomic<bool> overlapped{false};
  Gate gate{{.max_concurrent = 20, .hooks = {.on_resize = [&](const Event&) {
                                     if (inside.fetch_add(1) != 0) overlapped = true;
                                     std::this_thread::yield();
                                     inside.fetch_sub(1);
                                   }}}};
  AdaptiveLimiter limiter(gate, {});
  std::vector<std::thread> threads;
  for (std::uint32_t t = 0; t < 3; ++t)
    threads.emplace_back([&, t] {
      for (std::uint32_t i = 1; i < 300; ++i)
        limiter.update({.floor = 10 * (t + 1) + i % 7, .ceiling = 10 * (t + 1) + i % 7});
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(gate.snapshot().max_concurrent, limiter.limit());
  EXPECT_FALSE(overlapped);
}

// Polly: a reload stops after one bad configuration.
TEST(LimiterPeerDefects, AfterABadUpdateTheOldSettingsHoldAndALaterUpdateWorks) {
  Gate gate{{.max_concurrent = 20}};
  AdaptiveLimiter limiter(gate, {});
  EXPECT_THROW(limiter.update({.floor = 0}), std::invalid_argument);
  EXPECT_EQ(limiter.options().floor, 1u);
  limiter.update({.floor = 30});
  EXPECT_EQ(gate.snapshot().max_concurrent, 30u);
}

// Semian, resilience4j: local rejections count as failures of the dependency.
TEST(LimiterPeerDefects, CallsThatSayNothingAboutTheDependencyAreNotCounted) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 20, .clock = &clock}};
  AdaptiveLimiter limiter(gate, {.algorithm = LimitAlgorithm::aimd});
  for (int i = 0; i < 5000; ++i) {
    clock.advance(1ms);
    limiter.completed(limiter.admitted(clock.now(), 20), clock.now(), Outcome::ignored);
  }
  EXPECT_EQ(limiter.limit(), 20u);
  EXPECT_EQ(limiter.snapshot().windows, 0u);
}

}  // namespace
}  // namespace bulkhead
