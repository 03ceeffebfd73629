// load.h - what happens to the bulkheads of a simulation: `--load load.yaml`. docs/how-to/try-before-you-deploy.md
// describes the format.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "app/sim/engine.h"
#include "bulkhead/config.h"

namespace bulkhead::simulate {

using sim::Nanos;

// The network between replicas and the store of `scope: fleet`.
struct Network {
  Nanos delay = 500'000;  // one way, mean
  double loss = 0;        // the share of messages that are lost
};

struct StoreFault {
  enum class Kind : std::uint8_t { down, forgets, cut_off };
  Kind kind = Kind::down;
  std::uint32_t replica = 0;  // of cut_off
  Nanos from = 0, to = 0;
};

struct Load {
  struct Calls {
    std::string bulkhead;      // or a set of tenants
    std::string name{};        // of these calls among those of the bulkhead; empty: the only ones
    std::string dependency{};  // empty: one of its own
    Position at{}, dependency_at{};
    sim::Stream stream{};
  };
  struct NamedDependency {
    std::string name;
    Position at{};
    sim::DependencyPlan plan{};
  };

  std::string file;
  std::string text;
  std::vector<Calls> calls;
  std::vector<NamedDependency> dependencies;
  Nanos duration = 0;
  Nanos measure_from = 0, measure_to = INT64_MAX;
  std::uint32_t replicas = 1, hosts = 1;
  Network network{};
  std::vector<StoreFault> faults;
  std::vector<sim::Deployment> deployments;

  std::vector<ConfigProblem> problems;
  bool readable = true;
  bool ok() const noexcept { return problems.empty(); }
};

// Problems name the line, the reason and the fix. The bulkheads have to be those of `config`.
// `replicas`: instead of what the file says, if not 0. `traced`: calls are recorded, so that arrivals and service times may be
// left out.
Load read_load(const std::string& path, const Config& config, std::uint32_t replicas = 0,
               bool traced = false);
Load parse_load(std::string text, const std::string& file, const Config& config, std::uint32_t replicas = 0,
                bool traced = false);

inline constexpr std::uint32_t kMostReplicas = 100'000;
inline constexpr Nanos kLongestRun = 31LL * 86'400 * 1'000'000'000;

}  // namespace bulkhead::simulate
