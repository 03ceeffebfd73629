// known.h - the common part of aimd, vegas and gradient2: a window of one second, at least ten samples, their mean round
// trip and largest number in flight. Failures are not samples; timeouts are drops.
#pragma once

#include <algorithm>
#include <cstdint>

#include "limiter/algorithm.h"

namespace bulkhead::limiter {

class Known : public Algorithm {
 public:
  Known(Bounds bounds, double limit) : bounds_(bounds), limit_(within(limit)) {}

  LimitDecision decide(const Window& window) noexcept final {
    const std::uint32_t before = settled();
    if (window.succeeded + window.timed_out < kLeastSamples ||
        window.round_trip <= 0)  // the clock stood still
      return report(window, window.succeeded ? LimitVerdict::measured : LimitVerdict::no_goodput, before);
    limit_ = within(next(window));
    const std::uint32_t after = settled();
    const LimitVerdict verdict = after > before   ? LimitVerdict::raised
                                 : after < before ? LimitVerdict::lowered
                                                  : LimitVerdict::kept;
    return report(window, verdict, after);
  }
  WindowPlan plan(TimePoint) const noexcept final { return {.samples = kLeastSamples}; }
  void set_bounds(Bounds bounds) noexcept final {
    bounds_ = bounds;
    limit_ = within(limit_);
  }
  std::uint32_t settled() const noexcept final { return static_cast<std::uint32_t>(limit_); }

 protected:
  virtual double next(const Window& window) noexcept = 0;  // the caller clamps it to the bounds
  double limit() const { return limit_; }

 private:
  static constexpr std::uint64_t kLeastSamples = 10;
  double within(double limit) const { return std::clamp<double>(limit, bounds_.floor, bounds_.ceiling); }

  Bounds bounds_;
  double limit_;
};

}  // namespace bulkhead::limiter
