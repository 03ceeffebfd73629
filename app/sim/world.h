// world.h - a dependency, its callers and a limiter between them, on virtual time: what a limiter does in an
// hour is known in seconds, and again in every run.
//
//   const Run run = simulate({.capacity = 50, .seconds = 900}, Contender{LimitAlgorithm::knee}, /*seed=*/1);
//   run.in_band(30, 900);      // the share of the time in which the limit was 0.8 to 1.5 capacities
//
// The gate and the limiter are the library's own. The dependency has `capacity` slots with log-normal service
// times; what exceeds them queues inside it, as in a real one, and nobody outside can see that.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/limiter.h"

namespace bulkhead::sim {

enum class Arrival : std::uint8_t {
  closed,  // so many clients that somebody always waits; each calls again as soon as it can
  open,    // a Poisson stream; who finds the gate full goes away
};

enum class Health : std::uint8_t { works, fails_fast, hangs };

// From `from` on, until the next phase.
struct Phase {
  double from = 0;  // seconds
  std::uint32_t capacity = 0;
  double load = 1.3;  // open arrival, in capacities of the scenario
  Health health = Health::works;
};

struct Scenario {
  Arrival arrival = Arrival::closed;
  std::uint32_t capacity = 50;
  double service_ms = 40;  // mean
  double sigma = 0.5;      // of the logarithm of the service time
  double seconds = 60;
  double load = 1.3;
  std::uint32_t floor = 1, ceiling = 1000, initial = 20;
  std::vector<Phase> phases{};  // empty: one, of this capacity and load
};

// What holds the limit: an algorithm, or nobody.
struct Contender {
  LimitAlgorithm algorithm = LimitAlgorithm::knee;
  std::uint32_t fixed = 0;  // this limit throughout, if not 0
};

// Taken every tenth of a second.
struct Tick {
  std::uint32_t limit = 0, settled = 0;
  std::uint32_t capacity = 0;
  std::uint64_t good = 0;    // successes so far
  double time_in_calls = 0;  // seconds, of the successes so far
};

struct Run {
  static constexpr double tick = 0.1;
  std::vector<Tick> ticks;
  std::string last_change;

  std::size_t index(double second) const;
  double in_band(double from, double to) const;
  double goodput(double from, double to) const;        // per second
  double round_trip(double from, double to) const;     // mean, in ms
  double first_in_band(double from, double to) const;  // seconds after `from`; infinity: never
  std::uint32_t highest(double from, double to) const;
  std::uint32_t lowest(double from, double to) const;
};

Run simulate(const Scenario& scenario, Contender contender, std::uint32_t seed);

}  // namespace bulkhead::sim
