// known.h - what the algorithms of others share: a window of one second, at least ten samples, their mean
// round trip and largest number in flight. Failures are no samples there; timeouts are drops.
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
    if (window.succeeded + window.timed_out < least_samples ||
        window.round_trip <= 0)  // a clock that stood still
      return report(window, window.succeeded ? LimitVerdict::measured : LimitVerdict::no_goodput, before);
    limit_ = within(next(window));
    const std::uint32_t after = settled();
    const LimitVerdict verdict = after > before   ? LimitVerdict::raised
                                 : after < before ? LimitVerdict::lowered
                                                  : LimitVerdict::kept;
    return report(window, verdict, after);
  }
  Plan plan() const noexcept final { return {.samples = least_samples}; }
  void set_bounds(Bounds bounds) noexcept final {
    bounds_ = bounds;
    limit_ = within(limit_);
  }
  std::uint32_t settled() const noexcept final { return static_cast<std::uint32_t>(limit_); }

 protected:
  virtual double next(const Window& window) noexcept = 0;  // brought within the bounds afterwards
  double limit() const { return limit_; }

 private:
  static constexpr std::uint64_t least_samples = 10;
  double within(double limit) const { return std::clamp<double>(limit, bounds_.floor, bounds_.ceiling); }

  Bounds bounds_;
  double limit_;
};

}  // namespace bulkhead::limiter
