// Gradient2, as in Netflix's concurrency-limits: the ratio of a long and a short average of the round trip scales the
// limit, and a constant makes it grow. Drops are ignored, as in the original.
#include <algorithm>
#include <cmath>

#include "limiter/known.h"

namespace bulkhead::limiter {
namespace {

class Gradient2 final : public Known {
 public:
  Gradient2(const Gradient2Options& options, Bounds bounds, std::uint32_t limit)
      : Known(bounds, limit), options_(options) {}

 private:
  static constexpr double kWarmUp = 10;

  double next(const Window& window) noexcept override {
    const double rtt = window.round_trip;
    if (seen_ < kWarmUp)
      long_ = (long_ * seen_ + rtt) / (seen_ + 1);
    else
      long_ += (rtt - long_) * 2 / (options_.long_window + 1);
    ++seen_;
    if (long_ > 2 * rtt) long_ *= 0.95;
    const double limit = this->limit();
    if (window.max_in_flight < limit / 2) return limit;
    const double gradient = std::clamp(options_.rtt_tolerance * long_ / rtt, 0.5, 1.0);
    const double next = limit * gradient + options_.queue_size;
    return (1 - options_.smoothing) * limit + options_.smoothing * next;
  }

  const Gradient2Options options_;
  double long_ = 0;
  double seen_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> make_gradient2(const Gradient2Options& options, Bounds bounds,
                                          std::uint32_t limit) {
  return std::make_unique<Gradient2>(options, bounds, limit);
}

}  // namespace bulkhead::limiter
