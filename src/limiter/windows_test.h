// windows_test.h - a dependency in one formula, for tests of the algorithms without a simulator: below its
// capacity goodput is proportional to the limit, above it the round trip is.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>

#include "limiter/algorithm.h"

namespace bulkhead::limiter {

struct Formula {
  double capacity = 50;
  double service = 0.01;  // seconds
  double demand = 1e9;    // calls at once that would come if there were no limit
  double failing = 0;     // share of calls that fail
  double timing_out = 0;
  TimePoint now = TimePoint(std::chrono::hours(1));

  // A window as long as the plan asks for.
  Window window(std::uint32_t limit, const WindowPlan& plan) {
    const double in_flight = std::min<double>(limit, demand);
    const double rate = std::min(in_flight, capacity) / service;
    const double seconds = std::max(std::chrono::duration<double>(plan.min_time).count(),
                                    static_cast<double>(plan.samples) / rate);
    const auto calls = static_cast<std::uint64_t>(rate * seconds);
    Window w{.begin = now, .limit = limit};
    now += nanoseconds(static_cast<std::int64_t>(seconds * 1e9));
    w.end = now;
    w.failed = static_cast<std::uint64_t>(static_cast<double>(calls) * failing);
    w.timed_out = static_cast<std::uint64_t>(static_cast<double>(calls) * timing_out);
    w.succeeded = calls - w.failed - w.timed_out;
    w.round_trip = in_flight / rate * 1e9;
    w.cv2 = 0.25;
    w.in_flight = in_flight;
    w.max_in_flight = static_cast<std::uint32_t>(in_flight);
    return w;
  }

  // Lets the algorithm decide n times; returns the limit in force then.
  std::uint32_t run(Algorithm& algorithm, std::uint32_t limit, int windows) {
    for (int i = 0; i < windows; ++i) limit = algorithm.decide(window(limit, algorithm.plan(now))).to;
    return limit;
  }
};

}  // namespace bulkhead::limiter
