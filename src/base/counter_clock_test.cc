#include "base/counter_clock.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace bulkhead::base {
namespace {

using std::chrono::steady_clock;

std::int64_t system_now() { return steady_clock::now().time_since_epoch().count(); }

// A counter of 3 GHz beside a clock of nanoseconds; both begin anywhere.
struct Machine {
  std::uint64_t counter = 1'000'000'000'000;
  std::int64_t ns = 5'000'000'000;
  void run(std::int64_t for_ns) {
    counter += static_cast<std::uint64_t>(for_ns) * 3;
    ns += for_ns;
  }
  void suspend(std::int64_t for_ns) {
    counter += static_cast<std::uint64_t>(for_ns) * 3;
  }  // the clock stands still
  Calibration::Mark mark() const { return {counter, ns}; }
};
constexpr std::int64_t ms = 1'000'000, hour = 3'600'000 * ms;
constexpr double right = 1.0 / 3;

TEST(Calibration, FindsTheRateWithinAMillisecondAndReachesFurtherAsItIsKnownBetter) {
  Machine machine;
  Calibration calibration;
  EXPECT_FALSE(calibration.add(machine.mark()));
  machine.run(ms / 2);
  EXPECT_FALSE(calibration.add(machine.mark()));
  machine.run(ms);
  EXPECT_TRUE(calibration.add(machine.mark()));
  EXPECT_DOUBLE_EQ(calibration.rate(), right);
  EXPECT_LE(calibration.reach(), 20 * ms);
  machine.run(100 * ms);
  EXPECT_TRUE(calibration.add(machine.mark()));
  EXPECT_EQ(calibration.reach(), 100 * ms);
}

// However long it ran before, and however short the sleep was.
TEST(Calibration, ASuspendedMachineIsNoticedAtOnceAndMeasuredAnew) {
  for (const std::int64_t asleep : {200 * ms, 10'000 * ms, 8 * hour}) {
    Machine machine;
    Calibration calibration;
    calibration.add(machine.mark());
    for (int i = 0; i < 100; ++i) {
      machine.run(100 * ms);
      ASSERT_TRUE(calibration.add(machine.mark()));
    }
    machine.suspend(asleep);
    machine.run(100 * ms);
    EXPECT_FALSE(calibration.add(machine.mark())) << asleep;
    machine.run(2 * ms);
    EXPECT_TRUE(calibration.add(machine.mark()));
    EXPECT_DOUBLE_EQ(calibration.rate(), right);
  }
}

// The sleep that is lost in a long idle time cannot be told from a slow counter, but it is forgotten within a second.
TEST(Calibration, ASleepInALongIdleTimeIsForgottenWithinASecond) {
  Machine machine;
  Calibration calibration;
  for (int i = 0; i < 20; ++i) calibration.add(machine.mark()), machine.run(100 * ms);
  machine.run(24 * hour);
  machine.suspend(10'000 * ms);
  calibration.add(machine.mark());
  for (int i = 0; i < 12; ++i) machine.run(100 * ms), calibration.add(machine.mark());
  EXPECT_NEAR(calibration.rate() / right, 1, 1e-9);
}

// The very first rate is measured across a sleep: the next mark finds out.
TEST(Calibration, AFirstRateThatIsWrongDoesNotStay) {
  Machine machine;
  Calibration calibration;
  calibration.add(machine.mark());
  machine.suspend(hour);
  machine.run(100 * ms);
  calibration.add(machine.mark());
  machine.run(100 * ms);
  calibration.add(machine.mark());
  machine.run(2 * ms);
  EXPECT_TRUE(calibration.add(machine.mark()));
  EXPECT_DOUBLE_EQ(calibration.rate(), right);
}

TEST(Calibration, ACounterThatIsSmallerThanBeforeIsAnotherMachines) {
  Machine machine, other{.counter = 17, .ns = 0};
  Calibration calibration;
  for (int i = 0; i < 5; ++i) calibration.add(machine.mark()), machine.run(100 * ms);
  other.ns = machine.ns;
  EXPECT_FALSE(calibration.add(other.mark()));
  other.run(10 * ms);
  EXPECT_TRUE(calibration.add(other.mark()));
  EXPECT_DOUBLE_EQ(calibration.rate(), right);
}

// A reading lies between two of the system's clock, but for the error of a tenth of a second.
TEST(CounterClock, AgreesWithTheSystemsClock) {
  constexpr std::int64_t tolerance = 100'000;
  const auto end = steady_clock::now() + std::chrono::milliseconds(350);
  std::uint64_t readings = 0;
  while (steady_clock::now() < end) {
    const std::int64_t before = system_now();
    const std::int64_t now = counter_now();
    const std::int64_t after = system_now();
    ASSERT_GE(now, before - tolerance);
    ASSERT_LE(now, after + tolerance);
    ++readings;
  }
  EXPECT_GT(readings, 0u);
}

TEST(CounterClock, ManyThreadsSeeOneTime) {
  std::atomic<std::int64_t> latest{0};
  std::atomic<std::uint64_t> wrong{0};
  const auto end = steady_clock::now() + std::chrono::milliseconds(250);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i)
    threads.emplace_back([&] {
      while (steady_clock::now() < end) {
        const std::int64_t seen = latest.load();
        const std::int64_t now = counter_now();
        if (now < seen - 100'000) ++wrong;
        latest.store(now);
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0u);
}

}  // namespace
}  // namespace bulkhead::base
