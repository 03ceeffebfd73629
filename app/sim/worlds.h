// worlds.h - the conditions of production a limiter is judged in, beside the plain ones of suite.h: several
// instances on one dependency, client timeouts and retries, pulses, dependencies that are no row of slots, and
// changes of all kinds. Each row says what passing means.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "app/sim/world.h"

namespace bulkhead::sim {

struct WorldRow {
  std::string group, name;
  Scenario scenario{};
  double from = 0, to = 0;                 // judged from here to there, in seconds; 0: to the end
  double least_goodput = 0.9;              // over the best fixed limit's in the same time
  double most_round_trip = 0;              // in service times; 0: not judged
  double least_limit = 0, most_limit = 0;  // mean, in capacities, most_limit of each minute; 0: not judged
  double target_ms = 0;                    // LimiterOptions::target_latency
  double least_share = 0;                  // of an equal share, in any minute; 0: not judged
  double early_from = 0, early_to = 0, early_goodput = 0;  // a second stretch with a bound of its own
};

inline constexpr std::string_view kCompany = "In company";

// `seconds`: of the rows in company; the others have the length they need.
std::vector<WorldRow> world_rows(double seconds);

struct Verdict {
  bool pass = false;
  double goodput = 0, early = 1, round_trip = 0, limit = 0, minute = 0,
         share = 0;  // minute: the highest limit of one
  std::string text() const;
};

// The goodput of the best fixed limit (divided among the instances) for this row: of those that meet its bound of the
// round trip, because with few slots and random arrivals the most goodput and that bound exclude each other.
struct Best {
  double goodput = 0, early = 0;
};
Best best_fixed(const WorldRow& row, std::uint32_t seed);
Verdict judge(const WorldRow& row, const Run& run, const Best& best);

}  // namespace bulkhead::sim
