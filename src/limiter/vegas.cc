// After TCP Vegas, as in Netflix's concurrency-limits: estimates the queue from the round trip without load, which is the
// smallest one seen and is reset from time to time.
#include <algorithm>
#include <cmath>
#include <random>

#include "limiter/known.h"

namespace bulkhead::limiter {
namespace {

class Vegas final : public Known {
 public:
  Vegas(const VegasOptions& options, Bounds bounds, std::uint32_t limit)
      : Known(bounds, limit), options_(options), random_(options.seed), jitter_(draw()) {}

 private:
  // As published: the queue at the dependency is estimated from the round trip without load, which a probe measures
  // anew.
  double next(const Window& window) noexcept override {
    const double rtt = window.round_trip;
    const double limit = this->limit();
    if (jitter_ * options_.probe_multiplier * limit <= ++since_probe_) {
      since_probe_ = 0;
      jitter_ = draw();
      no_load_ = rtt;
      return limit;
    }
    if (no_load_ == 0 || rtt < no_load_) {
      no_load_ = rtt;
      return limit;
    }
    const double lg = std::max(1.0, std::floor(std::log10(limit)));
    const double queue = std::ceil(limit * (1 - no_load_ / rtt));
    const bool timed_out = window.timed_out > 0;
    const bool idle = !timed_out && 2.0 * window.max_in_flight < limit;
    double step = 0;
    if (timed_out || (!idle && queue > 6 * lg))
      step = -lg;
    else if (!idle && queue <= lg)
      step = 6 * lg;
    else if (!idle && queue < 3 * lg)
      step = lg;
    return limit + options_.smoothing * step;
  }

  double draw() noexcept { return std::uniform_real_distribution<>(0.5, 1.0)(random_); }

  const VegasOptions options_;
  std::minstd_rand random_;
  double jitter_;
  double since_probe_ = 0;
  double no_load_ = 0;
};

}  // namespace

std::unique_ptr<Algorithm> make_vegas(const VegasOptions& options, Bounds bounds, std::uint32_t limit) {
  return std::make_unique<Vegas>(options, bounds, limit);
}

}  // namespace bulkhead::limiter
