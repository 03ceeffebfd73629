#include "app/sim/dependency.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

namespace bulkhead::sim {

ServiceTimes::ServiceTimes(double sigma, std::uint32_t seed) : random_(seed) {
  std::lognormal_distribution<> draw(-sigma * sigma / 2, sigma > 0 ? sigma : 1);
  double sum = 0;
  for (double& t : table_) sum += t = sigma > 0 ? draw(random_) : 1;
  for (double& t : table_) t *= static_cast<double>(table_.size()) / sum;
}

Dependency::Dependency(const Scenario& scenario, std::uint32_t seed, Ends ends)
    : scenario_(scenario), service_(scenario.sigma, seed), ends_(std::move(ends)) {
  switch (scenario.model) {
    case Model::slots:
      for (const std::uint32_t slots : scenario.stations) stations_.push_back({.slots = slots});
      if (stations_.empty()) stations_.push_back({.slots = scenario.capacity});
      break;
    case Model::batching:
      stations_.push_back({.slots = scenario.batch_size});
      break;
    case Model::shared:
      stations_.push_back({.slots = std::numeric_limits<std::uint32_t>::max()});
      break;
  }
  mean_ = scenario.service_ms * 1e6 / static_cast<double>(stations_.size());
}

double Dependency::factor() const {
  double factor = slowdown_;
  const double n = inside_;
  if (scenario_.model == Model::shared)
    factor *= 1 + scenario_.contention * (n - 1) + scenario_.coherence * n * (n - 1);
  if (scenario_.thrashes_above > 0 && inside_ > scenario_.thrashes_above) {
    const double excess = n / scenario_.thrashes_above;
    factor *= excess * excess;
  }
  return factor;
}

Nanos Dependency::end_of(Nanos now, std::uint32_t call) {
  if (ends_) return ends_(now, call, factor());
  return with_pauses(now, service_.next() * mean_ * factor());
}

Nanos Dependency::with_pauses(Nanos now, double ns) const {
  const Nanos work = 1 + static_cast<Nanos>(ns);
  const auto every = static_cast<Nanos>(scenario_.pause_every * 1e9);
  if (every <= 0) return now + work;
  const auto pause = static_cast<Nanos>(scenario_.pause_ms * 1e6);
  // A pause begins every `every`; work stands still in it.
  Nanos at = now, left = work;
  for (;;) {
    const Nanos phase = at % every;
    if (phase < pause && at >= every) at += pause - phase;
    const Nanos free = every - at % every;
    if (left <= free) return at + left;
    left -= free;
    at += free;
  }
}

}  // namespace bulkhead::sim
