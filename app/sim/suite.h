// suite.h - the scenarios every algorithm must pass, and what passing means. docs/limiter.md shows the result.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "app/sim/world.h"

namespace bulkhead::sim {

inline constexpr std::array kAlgorithms{LimitAlgorithm::knee, LimitAlgorithm::aimd, LimitAlgorithm::vegas,
                                        LimitAlgorithm::gradient2};

struct Cell {
  bool pass = false;
  std::string text;
};

struct SuiteRow {
  std::string group, scenario;
  std::array<Cell, kAlgorithms.size()> cells;
};

struct SuiteOptions {
  std::uint32_t seeds = 3;
  double longest = 3600;  // seconds of saturation, with the first seed; the others stop after 15 minutes
  double company = 900;   // seconds of the rows with several instances; likewise
  std::string only{};     // the rows whose "group: scenario" contains it; empty: all
  bool known = true;      // false: the default algorithm only
  std::uint32_t threads = 1;
};

// The dependencies of the suite: slots and the mean service time that keeps an hour of them affordable.
struct Sized {
  std::uint32_t capacity = 0;
  double service_ms = 0;
};
inline constexpr std::array kSized{Sized{10, 20}, Sized{50, 40}, Sized{150, 75}, Sized{1000, 250}};

Scenario saturated(Sized dependency, Arrival arrival, double seconds, double sigma = 0.5);
Scenario with_drop(Sized dependency, Arrival arrival);                   // to a third at 120 s, back at 240 s
Scenario with_half_load(Sized dependency);                               // from 120 s on
Scenario with_outage(Sized dependency, Arrival arrival, Health health);  // from 60 s to 90 s

// The goodput of the best fixed limit for this very scenario, per second.
double best_fixed_goodput(const Scenario& scenario, std::uint32_t seed);

// Each judges the runs of several seeds by the worst of them.
Cell judge_saturated(const std::vector<Run>& runs, const Scenario& scenario, double seconds, double best);
Cell judge_drop(const std::vector<Run>& runs, const Scenario& scenario, double best);
Cell judge_half_load(const std::vector<Run>& runs);
Cell judge_outage(const std::vector<Run>& runs);

std::vector<SuiteRow> run_suite(const SuiteOptions& options,
                                const std::function<void(const SuiteRow&)>& on_row);

}  // namespace bulkhead::sim
