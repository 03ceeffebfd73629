// Additive increase, multiplicative decrease, as in Netflix's concurrency-limits.
#include <algorithm>
#include <cmath>

#include "limiter/known.h"

namespace bulkhead::limiter {
namespace {

class Aimd final : public Known {
 public:
  Aimd(const AimdOptions& options, Bounds bounds, std::uint32_t limit)
      : Known(bounds, limit), options_(options) {}

 private:
  double next(const Window& window) noexcept override {
    if (window.timed_out > 0 || window.round_trip > static_cast<double>(options_.timeout.count()))
      return std::floor(limit() * options_.backoff);
    return 2.0 * window.max_in_flight >= limit() ? limit() + 1 : limit();
  }

  const AimdOptions options_;
};

}  // namespace

std::unique_ptr<Algorithm> make_aimd(const AimdOptions& options, Bounds bounds, std::uint32_t limit) {
  return std::make_unique<Aimd>(options, bounds, limit);
}

}  // namespace bulkhead::limiter
