// run.h - one simulation: the bulkheads of a configuration, as shipped, under a load.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "app/sim/engine.h"
#include "app/simulate/load.h"
#include "bulkhead/config.h"

namespace bulkhead::simulate {

struct
    PredictionRow {  // the calls of one bulkhead or set of tenants, or those of them that have a name of their own
  std::string name, bulkhead;
  sim::TargetOutcome outcome{};
  double utilisation = 0;  // mean of in flight over max_concurrent; negative: not known
  double goodput = 0;      // served calls per second
  sim::Tally all{};
};

struct DependencyRow {
  std::string name;
  std::uint32_t slots = 0;
  double use = 0;
};

struct Prediction {
  std::vector<PredictionRow> rows{};
  std::vector<DependencyRow> dependencies{};  // those with slots
  double seconds = 0, interval = 0;
  std::uint32_t replicas = 1;
  std::uint64_t calls = 0, events = 0, store_requests = 0;
  bool interrupted = false;
};

// `progress`: see sim::Engine::run(). std::invalid_argument if the bulkheads cannot be made.
Prediction predict(const Config& config, const Load& load, std::uint64_t seed,
                   const std::function<bool(double)>& progress = {});

}  // namespace bulkhead::simulate
