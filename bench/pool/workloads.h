// workloads.h - what is measured of pools. A binary of its own: the gate's counts every allocation with one
// shared atomic, which would slow down the pools that allocate.
#pragma once

#include <iosfwd>

#include "bench/workloads.h"

namespace bench {

// Where the threads run. Left to the kernel, some designs find themselves on one core and some on two, which
// matters more than the design.
enum class Placement { free, together, apart };  // submitter and workers on one core, or workers on another
struct PoolSettings : Settings {
  Placement placement = Placement::free;
};

void pool_throughput(
    const PoolSettings& settings,
    Results& results);  // submit to complete: without waiting for it, and with results that are taken
void pool_round_trip(const PoolSettings& settings, Results& results);  // submit and wait for the result
void pool_memory(const Settings& settings, Results& results);          // bytes per task

std::vector<Target> check_pool_targets(const Results& results);
void print_pools(std::ostream& out, const Results& results);

}  // namespace bench
