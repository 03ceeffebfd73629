// measure.h - the sum of several windows at one limit.
#pragma once

#include <algorithm>
#include <cmath>

#include "limiter/algorithm.h"

namespace bulkhead::limiter {

struct Measure {
  Window w{};
  double seconds = 0;
  double time = 0;     // sum of the times of calls, ns
  double squares = 0;  // of the times, ns^2
  // How much neighbouring windows differ, relative to independent calls: calls that a dependency serves in batches, or that
  // arrive in pulses, carry less information than their number suggests.
  double parts = 0, clumps_of_time = 0, clumps_of_rate = 0;

  Measure() = default;
  explicit Measure(const Window& window) { add(window); }

  // Means of windows are weighed by their calls; the squares give the variance of the sum.
  void add(const Window& o) {
    compare_with_last(o);
    if (w.samples() == 0) w.begin = o.begin;
    w.end = o.end;
    w.limit = o.limit;
    w.succeeded += o.succeeded;
    w.failed += o.failed;
    w.timed_out += o.timed_out;
    w.rejected += o.rejected;
    w.held_back += o.held_back;
    w.filled += o.filled;
    w.max_in_flight = std::max(w.max_in_flight, o.max_in_flight);
    const auto timed = static_cast<double>(o.succeeded + o.timed_out);
    time += timed * o.round_trip;
    squares += timed * (o.cv2 + 1) * o.round_trip * o.round_trip;
    seconds += o.seconds();
    const auto all = static_cast<double>(w.succeeded + w.timed_out);
    if (all == 0) return;
    w.round_trip = time / all;
    w.cv2 = w.round_trip > 0 ? std::max(0.0, squares / all / (w.round_trip * w.round_trip) - 1) : 0;
  }

  bool empty() const { return w.samples() == 0; }
  double limit() const { return static_cast<double>(w.limit); }
  double goodput() const { return seconds > 0 ? static_cast<double>(w.succeeded) / seconds : 0; }
  double in_flight() const { return seconds > 0 ? time / 1e9 / seconds : 0; }  // mean over time
  double rejected_share() const {
    const auto calls = static_cast<double>(w.samples() + w.rejected);
    return calls > 0 ? static_cast<double>(w.rejected) / calls : 0;
  }
  double filled_share() const {
    return empty() ? 0 : static_cast<double>(w.filled) / static_cast<double>(w.samples());
  }

 private:
  static constexpr std::uint64_t kLeastInAPart = 4;
  double last_time_ = 0, last_rate_ = 0;

  // Differences of neighbours instead of distances from a mean, because a slow drift is not noise.
  void compare_with_last(const Window& o) {
    if (o.succeeded < kLeastInAPart || o.round_trip <= 0 || o.goodput() <= 0) return;
    const auto n = static_cast<double>(o.succeeded);
    const double t = std::log(o.round_trip), r = std::log(o.goodput());
    if (parts > 0) {
      clumps_of_time += (t - last_time_) * (t - last_time_) / 2 * n / std::max(o.cv2, 0.05);
      clumps_of_rate += (r - last_rate_) * (r - last_rate_) / 2 * n / std::max(o.cv2, 1.0);
    }
    last_time_ = t;
    last_rate_ = r;
    ++parts;
  }
};

}  // namespace bulkhead::limiter
