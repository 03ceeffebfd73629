// workloads.h - what is measured. Each adds its tables to the results.
#pragma once

#include "bench/report.h"

namespace bench {

struct Settings {
  bool quick = false;  // seconds instead of minutes: shows that it works, measures nothing
};

void admit(const Settings& settings, Results& results);     // admit + release
void reject(const Settings& settings, Results& results);    // rejection when full
void storm(const Settings& settings, Results& results);     // rejections on one core, a holder on another
void hand_off(const Settings& settings, Results& results);  // from a release to the thread that waited for it
void saturation(const Settings& settings, Results& results);  // more threads than permits
void memory(const Settings& settings, Results& results);      // bytes and allocations

}  // namespace bench
