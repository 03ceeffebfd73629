// workloads.h - what is measured. Each adds its tables to the results.
#pragma once

#include <string>
#include <string_view>

#include "bench/report.h"

namespace bench {

struct Settings {
  bool quick = false;   // seconds instead of minutes: shows that it works, measures nothing
  unsigned rounds = 0;  // 0: as many as each workload thinks right
  std::string match{};  // only tables with this in their title

  bool wants(std::string_view title) const { return title.find(match) != std::string_view::npos; }
  Plan apply(Plan plan) const {
    if (quick) plan = {.rounds = 1, .windows = 1, .clean_share = 0, .patience = 1};
    if (rounds > 0) plan.rounds = rounds;
    return plan;
  }
};

void admit(const Settings& settings, Results& results);     // admit + release
void group(const Settings& settings, Results& results);     // admit + release at a member of a group
void reject(const Settings& settings, Results& results);    // rejection when full
void storm(const Settings& settings, Results& results);     // rejections on one core, a holder on another
void hand_off(const Settings& settings, Results& results);  // from a release to the thread that waited for it
void saturation(const Settings& settings, Results& results);   // more threads than permits
void policies(const Settings& settings, Results& results);     // what breaker and rate limiter add
void composition(const Settings& settings, Results& results);  // what each part of a Bulkhead adds
void resource(const Settings& settings, Results& results);     // lending a resource beside admitting a call
void lookup(const Settings& settings, Results& results);       // a bulkhead by its name
void memory(const Settings& settings, Results& results);       // bytes and allocations

}  // namespace bench
