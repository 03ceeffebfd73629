#include "bulkhead/holdback.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <queue>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

constexpr Priority kTiers[] = {Priority::critical, Priority::normal, Priority::best_effort};
TimePoint at(std::chrono::nanoseconds t) { return TimePoint(1h + t); }

double held_share(Holdback& holdback, Priority tier, std::uint64_t used, std::uint64_t room,
                  int calls = 1000) {
  int held = 0;
  for (int i = 0; i < calls; ++i) held += !holdback.admits(tier, {.used = used, .room = room}, at(0s));
  return static_cast<double>(held) / calls;
}

TEST(Holdback, LowerTiersLoseAdmissionGraduallyAndInOrder) {
  for (std::uint64_t used = 0; used <= 1000; used += 5) {
    Holdback holdback({.hysteresis = 0});
    const double s = static_cast<double>(used) / 1000;
    EXPECT_EQ(held_share(holdback, Priority::critical, used, 1000, 1), 0) << used;
    Holdback fresh({.hysteresis = 0});
    EXPECT_NEAR(held_share(fresh, Priority::best_effort, used, 1000), std::clamp((s - 0.80) / 0.15, 0.0, 1.0),
                0.0021)
        << used;
    EXPECT_NEAR(held_share(fresh, Priority::normal, used, 1000), std::clamp((s - 0.95) / 0.05, 0.0, 1.0),
                0.0021)
        << used;
  }
}

TEST(Holdback, ThresholdsMayBeEqualAndAtTheTop) {
  Holdback holdback({.best_effort_from = 0.9, .normal_from = 0.9, .hysteresis = 0});
  EXPECT_EQ(held_share(holdback, Priority::best_effort, 89, 100), 0);
  EXPECT_EQ(held_share(holdback, Priority::best_effort, 90, 100), 1);
  Holdback top({.best_effort_from = 1, .normal_from = 1, .hysteresis = 0});
  EXPECT_EQ(held_share(top, Priority::normal, 99, 100), 0);
  EXPECT_EQ(held_share(top, Priority::normal, 100, 100), 1);
}

TEST(Holdback, ASmallGateIsUsedWhole) {
  for (std::uint64_t room = 1; room <= 4; ++room) {
    Holdback holdback(HoldbackOptions{});
    EXPECT_EQ(held_share(holdback, Priority::best_effort, room - 1, room), 0) << room;
  }
}

TEST(Holdback, RegainsAdmissionOnlyWhenSaturationHasFallenByTheHysteresis) {
  Holdback holdback({.hysteresis = 0.1});
  const auto level = [&](std::uint64_t used) {
    holdback.admits(Priority::normal, {.used = used, .room = 100}, at(0s));
    return holdback.snapshot().saturation;
  };
  EXPECT_NEAR(level(90), 0.90, 1e-6);
  EXPECT_NEAR(level(82), 0.90, 1e-6);  // within the hysteresis
  EXPECT_NEAR(level(90), 0.90, 1e-6);
  EXPECT_NEAR(level(70), 0.80, 1e-6);
  EXPECT_NEAR(level(75), 0.80, 1e-6);
  EXPECT_NEAR(level(95), 0.95, 1e-6);  // a rise counts at once
  EXPECT_NEAR(level(0), 0.10, 1e-6);
}

TEST(Holdback, InShadowItOnlyCounts) {
  Holdback holdback({.shadow = true});
  EXPECT_EQ(held_share(holdback, Priority::best_effort, 100, 100), 0);
  EXPECT_EQ(holdback.snapshot().held[2], 1000u);
  EXPECT_TRUE(holdback.snapshot().shadow);
  holdback.update({});
  EXPECT_EQ(held_share(holdback, Priority::best_effort, 100, 100), 1);
}

TEST(Holdback, AGaugeOfTheCallerDrivesIt) {
  double value = 0;
  Holdback holdback({.hysteresis = 0, .gauge = [&] { return value; }});
  EXPECT_TRUE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(0ms)));
  value = 0.99;
  EXPECT_TRUE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(50ms)));  // read again later
  EXPECT_FALSE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(100ms)));
  EXPECT_NEAR(holdback.snapshot().gauges, 0.99, 1e-6);
  for (const double bad : {-1.0, std::numeric_limits<double>::quiet_NaN()}) {
    value = bad;
    holdback.update({.hysteresis = 0, .gauge = [&] { return value; }});
    EXPECT_TRUE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(1s))) << bad;
  }
  value = std::numeric_limits<double>::infinity();
  holdback.update({.hysteresis = 0, .gauge = [&] { return value; }});
  EXPECT_FALSE(holdback.admits(Priority::normal, {.used = 0, .room = 10}, at(2s)));
  holdback.update({.hysteresis = 0, .gauge = []() -> double { throw std::runtime_error("gone"); }});
  EXPECT_TRUE(holdback.admits(Priority::normal, {.used = 0, .room = 10}, at(3s)));
  holdback.update({.hysteresis = 0});
  EXPECT_FALSE(holdback.reads_gauges());
}

TEST(Holdback, TheAgeOfTheLineDrivesItWhileCallsWait) {
  Holdback holdback({.hysteresis = 0, .max_queue_age = 100ms});
  const HoldbackLoad line{.used = 11, .room = 1000, .in_line = true}, no_line{.used = 9, .room = 1000};
  const auto admits = [&](const HoldbackLoad& load, std::chrono::nanoseconds t) {
    return holdback.admits(Priority::best_effort, load, at(t));
  };
  EXPECT_TRUE(admits(no_line, 0ms));
  EXPECT_TRUE(admits(line, 10ms));  // the first one waits
  EXPECT_TRUE(admits(line, 100ms));
  EXPECT_FALSE(admits(line, 200ms));  // nobody has left the line since: the dependency hangs
  EXPECT_NEAR(holdback.snapshot().gauges, 1.9, 1e-6);
  holdback.left_line(at(250ms));  // a call that had joined then; the next one is younger
  EXPECT_TRUE(admits(line, 300ms));
  EXPECT_FALSE(admits(line, 400ms));
  EXPECT_TRUE(admits(no_line, 500ms));
  EXPECT_TRUE(admits(line, 600ms));  // another line
}

TEST(Holdback, ThePressureOfTheHostDrivesIt) {
  const auto directory = std::filesystem::path(testing::TempDir()) / "holdback_pressure";
  std::filesystem::create_directories(directory);
  const auto write = [&](const char* file, const char* some) {
    std::ofstream(directory / file) << "some avg10=" << some << " avg60=0.00 avg300=0.00 total=1\n"
                                    << "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n";
  };
  write("cpu", "10.00");
  write("io.pressure", "0.00");  // as in a cgroup
  Holdback holdback({.hysteresis = 0,
                     .max_cpu_pressure = 0.4,
                     .max_io_pressure = 0.2,
                     .pressure_directory = directory.string()});
  EXPECT_TRUE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(0s)));
  EXPECT_NEAR(holdback.snapshot().gauges, 0.25, 1e-6);
  write("io.pressure", "19.90");
  EXPECT_FALSE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(1s)));
  EXPECT_NEAR(holdback.snapshot().gauges, 0.995, 1e-6);
  std::filesystem::remove_all(directory);
  EXPECT_TRUE(holdback.admits(Priority::best_effort, {.used = 0, .room = 10}, at(2s)));  // nothing to read: 0
}

TEST(Holdback, WrongSettingsAreNamed) {
  const auto rejects = [](HoldbackOptions o, std::string_view setting) {
    try {
      Holdback{o};
      ADD_FAILURE() << setting << " was accepted";
    } catch (const std::invalid_argument& e) {
      EXPECT_NE(std::string(e.what()).find(setting), std::string::npos) << e.what();
    }
  };
  rejects({.best_effort_from = 0}, "holdback.best_effort_from");
  rejects({.best_effort_from = std::numeric_limits<double>::quiet_NaN()}, "holdback.best_effort_from");
  rejects({.normal_from = 1.1}, "holdback.normal_from");
  rejects({.best_effort_from = 0.96}, "is above normal_from");
  rejects({.hysteresis = -0.1}, "holdback.hysteresis");
  rejects({.max_queue_age = -1ns}, "holdback.max_queue_age");
  rejects({.max_cpu_pressure = 40}, "holdback.max_cpu_pressure");
  rejects({.max_memory_pressure = 0.1, .pressure_directory = "/nowhere"}, "/nowhere/memory");

  Holdback holdback({.hysteresis = 0});
  EXPECT_THROW(holdback.update({.normal_from = 0}), std::invalid_argument);
  EXPECT_EQ(held_share(holdback, Priority::normal, 100, 100), 1);  // nothing has changed
}

TEST(Holdback, ManyThreadsHoldBackTheSameShare) {
  Holdback holdback({.hysteresis = 0});
  std::vector<std::thread> threads;
  std::atomic<int> held{0};
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 5000; ++i)
        held += !holdback.admits(Priority::best_effort, {.used = 875, .room = 1000}, at(0s));
    });
  for (auto& thread : threads) thread.join();
  EXPECT_NEAR(held, 10'000, 5);
  EXPECT_EQ(holdback.snapshot().held[2], static_cast<std::uint64_t>(held.load()));
}

// Poisson arrivals at a dependency with `room` places and no line; exponential service times of mean 1.
struct Losses {
  double critical = 0, normal = 0, best_effort = 0, used = 0;
};
Losses losses(std::uint64_t room, std::array<double, 3> load, bool holds_back, unsigned seed) {
  Holdback holdback(HoldbackOptions{});
  std::mt19937 random(seed);
  std::exponential_distribution<> gap(static_cast<double>(room) * (load[0] + load[1] + load[2])), service(1);
  std::discrete_distribution<int> tier(load.begin(), load.end());
  std::priority_queue<double, std::vector<double>, std::greater<>> ends;
  std::array<double, 3> came{}, lost{};
  double now = 0, area = 0;
  constexpr double kWarm = 100, kEnd = 600;
  while (now < kEnd) {
    now += gap(random);
    while (!ends.empty() && ends.top() < now) ends.pop();
    const int t = tier(random);
    const bool room_left = ends.size() < room;
    const bool admitted =
        !holds_back || holdback.admits(kTiers[t], {.used = ends.size(), .room = room}, at(0s));
    if (now > kWarm) {
      came[static_cast<std::size_t>(t)] += 1;
      lost[static_cast<std::size_t>(t)] += !(admitted && room_left);
      area += static_cast<double>(ends.size());
    }
    if (admitted && room_left) ends.push(now + service(random));
  }
  const auto share = [&](std::size_t t) { return came[t] > 0 ? lost[t] / came[t] : 0; };
  return {share(0), share(1), share(2), area / (came[0] + came[1] + came[2]) / static_cast<double>(room)};
}

TEST(Holdback, CriticalCallsLoseHardlyMoreThanIfTheyWereAlone) {
  for (const std::uint64_t room : {20u, 100u, 400u})
    for (const double critical : {0.1, 0.3, 0.5, 0.7}) {
      const std::array<double, 3> load{critical, 0.8, 0.6};
      const Losses without = losses(room, load, false, 1), with = losses(room, load, true, 1);
      const Losses alone = losses(room, {critical, 0, 0}, false, 1);
      EXPECT_GT(without.critical, 0.1);
      EXPECT_LE(with.critical, alone.critical + 0.006) << room << " places, critical " << critical;
      EXPECT_LT(with.normal, 1) << room << " places, critical " << critical;
      EXPECT_GT(with.best_effort, with.normal) << room << " places, critical " << critical;
    }
}

TEST(Holdback, LowerTiersAreHeldBackOnlyNearSaturation) {
  const Losses half = losses(100, {0.2, 0.2, 0.2}, true, 1);
  EXPECT_EQ(half.critical, 0);
  EXPECT_EQ(half.normal, 0);
  EXPECT_LT(half.best_effort, 0.005);
  // Without critical calls, the others use the capacity up to normal_from.
  EXPECT_GT(losses(100, {0, 1.5, 0}, true, 1).used, 0.93);
}

}  // namespace
}  // namespace bulkhead
