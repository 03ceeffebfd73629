// The adaptive limit of a bulkhead, with a dependency on a manual clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

// A dependency with `slots` of `time` each; what exceeds them queues inside. There is always another caller.
struct World {
  struct Options {
    std::uint32_t slots = 50;
    nanoseconds time = 40ms;
    nanoseconds patience =
        wait_forever;  // after which a caller gives up; the dependency does its work all the same
    Outcome given_up = Outcome::timeout;
    Priority priority = Priority::normal;
  };
  struct Running {
    std::optional<Call> call;
    TimePoint begun{};
  };

  ManualClock clock;
  Options o;
  Bulkhead db;
  std::vector<Running> running;
  std::vector<std::size_t> free;
  std::deque<std::pair<TimePoint, std::size_t>> served;   // ends, in order: all calls take the same time
  std::deque<std::pair<TimePoint, std::size_t>> waiting;  // admitted, not begun by the dependency
  std::uint64_t good = 0;

  World(Options options, BulkheadOptions bulkhead)
      : o(options), db((bulkhead.name = "db", bulkhead.clock = &clock, bulkhead)) {}

  void end(std::size_t i, Outcome outcome) {
    if (!running[i].call) return;
    good += outcome == Outcome::success;
    running[i].call->finish(outcome);
    running[i].call.reset();
  }

  void run(nanoseconds time) {
    for (const TimePoint until = clock.now() + time; clock.now() < until; clock.advance(1ms)) {
      while (!served.empty() && served.front().first <= clock.now()) {
        end(served.front().second, Outcome::success);
        free.push_back(served.front().second);
        served.pop_front();
      }
      if (o.patience != wait_forever)
        for (std::size_t i = 0; i < running.size(); ++i)
          if (running[i].call && clock.now() - running[i].begun >= o.patience) end(i, o.given_up);
      for (;;) {
        auto call = db.try_acquire({.priority = o.priority});
        if (!call) break;
        if (free.empty()) {
          free.push_back(running.size());
          running.emplace_back();
        }
        const std::size_t i = free.back();
        free.pop_back();
        running[i].call.emplace(*std::move(call));
        running[i].begun = clock.now();
        waiting.emplace_back(clock.now(), i);
      }
      while (!waiting.empty() && served.size() < o.slots) {
        served.emplace_back(clock.now() + o.time, waiting.front().second);
        waiting.pop_front();
      }
    }
  }
  std::uint32_t settled() { return db.snapshot().adaptive->settled; }
  double goodput(nanoseconds time) {
    const std::uint64_t before = good;
    run(time);
    return static_cast<double>(good - before) / std::chrono::duration<double>(time).count();
  }
};

BulkheadOptions adaptive(std::uint32_t initial = 20) {
  return {.max_concurrent = initial, .adaptive = LimiterOptions{}};
}

TEST(BulkheadAdaptive, ClimbsFromTheFirstCallsOn) {
  World world({.slots = 200}, adaptive());
  world.run(5s);
  EXPECT_GE(world.settled(), 160u) << world.db.snapshot().adaptive->why.text();
  world.run(15s);
  EXPECT_GE(world.settled(), 160u) << world.db.snapshot().adaptive->why.text();
  EXPECT_LE(world.settled(), 250u) << world.db.snapshot().adaptive->why.text();
}

TEST(BulkheadAdaptive, ARepeatedUpdateChangesNothing) {
  World world({.slots = 200}, adaptive());
  for (int i = 0; i < 25; ++i) {
    world.run(200ms);
    const auto before = *world.db.snapshot().adaptive;
    world.db.update(world.db.options());
    const auto after = *world.db.snapshot().adaptive;
    EXPECT_EQ(after.limit, before.limit);
    EXPECT_EQ(after.epoch, before.epoch);
    EXPECT_EQ(after.why.verdict, before.why.verdict);
  }
  EXPECT_GE(world.settled(), 160u) << world.db.snapshot().adaptive->why.text();
}

TEST(BulkheadAdaptive, RisesForCallsThatHoldbackKeepsFromTheLastPlaces) {
  for (const Priority priority : {Priority::normal, Priority::best_effort}) {
    BulkheadOptions o = adaptive();
    o.holdback.emplace();
    World world({.slots = 200, .priority = priority}, o);
    world.run(20s);
    EXPECT_GE(world.goodput(10s), 0.8 * 200 / 0.040)
        << to_string(priority) << ": " << world.db.snapshot().adaptive->why.text();
  }
}

TEST(BulkheadAdaptive, DoesNotRiseForCallsThatAGaugeHoldsBack) {
  BulkheadOptions o = adaptive();
  double gauge = 0;
  o.holdback = HoldbackOptions{.gauge = [&] { return gauge; }};
  World world({.slots = 200, .priority = Priority::best_effort}, o);
  world.run(1s);
  gauge = 1;
  world.run(1s);
  const std::uint32_t limit = world.settled();
  world.run(10s);
  EXPECT_LE(world.settled(), limit);
}

// A limit far above what the patience of the callers allows: the dependency works for callers that have gone. What the
// bulkhead learns about them depends on who ended the call.
class BulkheadAdaptiveImpatience : public testing::TestWithParam<Outcome> {};

TEST_P(BulkheadAdaptiveImpatience, AFallOfTheCapacityDoesNotEndAllSuccesses) {
  World world({.slots = 50, .patience = 200ms, .given_up = GetParam()}, adaptive());
  EXPECT_GT(world.goodput(30s), 1000);
  world.o.slots = 5;  // calls would wait 400 ms
  world.run(15s);
  EXPECT_GE(world.goodput(15s), 0.85 * 5 / 0.040) << world.db.snapshot().adaptive->why.text();
  world.o.slots = 50;
  world.run(30s);
  EXPECT_GE(world.goodput(5s), 0.85 * 50 / 0.040) << world.db.snapshot().adaptive->why.text();
}

TEST_P(BulkheadAdaptiveImpatience, ALimitThatIsFarTooHighComesDown) {
  World world({.slots = 20, .patience = 200ms, .given_up = GetParam()}, adaptive(400));
  world.run(30s);
  EXPECT_GE(world.goodput(15s), 0.85 * 20 / 0.040) << world.db.snapshot().adaptive->why.text();
}

INSTANTIATE_TEST_SUITE_P(As, BulkheadAdaptiveImpatience,
                         testing::Values(Outcome::timeout, Outcome::failure, Outcome::ignored),
                         [](const auto& test) { return std::string(to_string(test.param)); });

}  // namespace
}  // namespace bulkhead
