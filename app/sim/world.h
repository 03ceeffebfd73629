// world.h - callers, instances and their dependency on virtual time: what limiters do in an hour is known in
// seconds, and is the same in every run with the same seed.
//
//   const Run run = simulate({.capacity = 50, .seconds = 900}, Contender{LimitAlgorithm::knee}, /*seed=*/1);
//   run.in_band(30, 900);      // the share of the time in which the limits were 0.8 to 1.5 capacities
//
// The gates and the limiters are the library's own. Nothing outside the dependency can see its queue.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/sim/scenario.h"
#include "bulkhead/limiter.h"

namespace bulkhead::sim {

// What holds the limit: an algorithm, or nothing.
struct Contender {
  LimitAlgorithm algorithm = LimitAlgorithm::knee;
  std::uint32_t fixed = 0;  // this limit throughout, divided among the instances, if not 0
  std::chrono::nanoseconds target_latency{};
  // Every decision of instance 0, if set.
  std::function<void(double seconds, const LimitDecision&)> on_decision{};
};

// Taken every tenth of a second. Limits are sums over the instances.
struct Tick {
  std::uint32_t limit = 0, settled = 0;
  std::uint32_t capacity = 0;
  std::uint64_t good = 0;    // successes so far
  double time_in_calls = 0;  // seconds, of the successes so far
};

struct Run {
  static constexpr double kTick = 0.1, kLongTick = 10;
  std::vector<Tick> ticks;
  std::vector<std::vector<std::uint64_t>> good_of;  // successes so far of each instance, every kLongTick
  std::vector<std::vector<bool>> running;           // which instances ran then, every kLongTick
  std::vector<double> share_of;                     // of the demand, of each instance
  std::string last_change;
  std::uint64_t calls = 0, rejected = 0, timed_out = 0;

  std::size_t index(double second) const;
  double length() const;
  double in_band(double from, double to, double low = 0.8, double high = 1.5) const;
  double goodput(double from, double to) const;        // per second
  double round_trip(double from, double to) const;     // mean, in ms
  double first_in_band(double from, double to) const;  // seconds after `from`; infinity: never
  std::uint32_t highest(double from, double to) const;
  std::uint32_t lowest(double from, double to) const;
  double mean_limit(double from, double to) const;      // in capacities
  double highest_minute(double from, double to) const;  // the highest mean_limit of a minute
  // The least goodput of an instance in any minute in which it runs, over an equal share of that minute's goodput.
  double least_share(double from, double to) const;
};

Run simulate(const Scenario& scenario, const Contender& contender, std::uint32_t seed);

}  // namespace bulkhead::sim
