#include "app/simulate/run.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "app/simulate/scopes.h"
#include "bulkhead/registry.h"
#include "config/running.h"

namespace bulkhead::simulate {
namespace {

struct Target {
  std::string name, bulkhead;
  bool tenants = false;
  Scope scope = Scope::process;
};

// What a simulation needs of options: calls run on virtual time, so no thread may wait for them.
void prepare(BulkheadOptions& options) {
  options.isolation = Isolation::semaphore;
  options.pool = {};
  options.histograms = false;  // the engine has its own
  options.track_holders = false;
  if (options.holdback)  // the pressure of this host says nothing about the simulated ones
    options.holdback->max_cpu_pressure = options.holdback->max_memory_pressure =
        options.holdback->max_io_pressure = 0;
}

RegistryChange change_of(Config config) {
  for (BulkheadConfig& type : config.types) prepare(type.options);
  for (BulkheadConfig& b : config.bulkheads) prepare(b.options);
  for (TenantsConfig& t : config.tenants) prepare(t.each.options);
  return config::changes({}, config);
}

class ConfiguredReplica final : public sim::Replica {
 public:
  ConfiguredReplica(const RegistryChange& change, const std::vector<Target>& targets, ManualClock& clock,
                    std::shared_ptr<UnitSources> sources, std::uint32_t index, std::uint32_t hosts,
                    std::uint64_t seed)
      : targets_(targets),
        index_(index),
        hosts_(hosts),
        sources_(std::move(sources)),
        registry_(RegistryOptions{.clock = &clock, .seed = 1, .sources = sources_.get()}) {
    RegistryChange own = change;
    // Random numbers of breakers and limiters differ between replicas, and not between runs.
    std::uint64_t next = seed * 1000 + index * 64;
    for (Registration& r : own.add) {
      if (r.options.breaker) r.options.breaker->seed = ++next;
      if (r.options.adaptive) r.options.adaptive->vegas.seed = static_cast<std::uint32_t>(++next);
    }
    for (auto& [group, adaptive] : own.adapt_groups)
      if (adaptive) adaptive->vegas.seed = static_cast<std::uint32_t>(++next);
    registry_.apply(own);
    for (const Target& t : targets_) bulkheads_.push_back(t.tenants ? nullptr : registry_.get(t.bulkhead));
  }
  ~ConfiguredReplica() override {
    bulkheads_.clear();  // the registry closes and waits for those without a handle
  }

  Result<Bulkhead*> bulkhead(std::uint32_t target, std::uint32_t tenant) override {
    if (bulkheads_[target]) return bulkheads_[target].get();
    auto own = registry_.tenant(targets_[target].bulkhead, "t" + std::to_string(tenant + 1));
    if (!own) return Unexpected(own.error());
    return own->get();
  }
  std::uint32_t limit(std::uint32_t target) override {
    if (!bulkheads_[target]) return 0;
    // A limit that replicas share counts once.
    if (targets_[target].scope == Scope::fleet && index_ > 0) return 0;
    if (targets_[target].scope == Scope::host && index_ >= hosts_) return 0;
    return bulkheads_[target]->gate().snapshot().max_concurrent;
  }

 private:
  const std::vector<Target>& targets_;
  const std::uint32_t index_, hosts_;
  const std::shared_ptr<UnitSources> sources_;
  Registry registry_;
  std::vector<std::shared_ptr<Bulkhead>> bulkheads_;
};

}  // namespace

Prediction predict(const Config& config, const Load& load, std::uint64_t seed,
                   const std::function<bool(double)>& progress) {
  std::vector<Target> targets;
  sim::Plan plan{.targets = 0,
                 .replicas = load.replicas,
                 .deployments = load.deployments,
                 .duration = load.duration,
                 .measure_from = load.measure_from,
                 .measure_to = load.measure_to};
  for (const Load::Calls& calls : load.calls) {
    const std::string name = calls.name.empty() ? calls.bulkhead : calls.bulkhead + ": " + calls.name;
    auto known =
        std::find_if(targets.begin(), targets.end(), [&](const Target& t) { return t.name == name; });
    if (known == targets.end()) {
      const BulkheadConfig* const b = config.find(calls.bulkhead);
      targets.push_back({name, calls.bulkhead, b == nullptr, b ? b->options.scope : Scope::process});
      known = targets.end() - 1;
    }
    plan.streams.push_back(calls.stream);
    plan.streams.back().target = static_cast<std::uint32_t>(known - targets.begin());
  }
  plan.targets = static_cast<std::uint32_t>(targets.size());
  for (const Load::NamedDependency& d : load.dependencies) plan.dependencies.push_back(d.plan);

  const RegistryChange change = change_of(config);
  Prediction prediction{.seconds = static_cast<double>(load.duration) / 1e9, .replicas = load.replicas};
  sim::Outcomes outcomes;
  {
    std::optional<Scopes> scopes;
    sim::Engine engine(plan, seed);
    scopes.emplace(engine, load, config.fleet.value_or(FleetSettings{}));
    outcomes = engine.run(
        [&](std::uint32_t index) {
          return std::make_unique<ConfiguredReplica>(change, targets, engine.clock(), scopes->of(index),
                                                     index, std::min(load.hosts, load.replicas), seed);
        },
        [&](double done) {
          if (!progress || progress(done)) return true;
          prediction.interrupted = true;
          return false;
        });
    prediction.store_requests = scopes->store_requests();
  }
  for (std::size_t t = 0; t < targets.size(); ++t) {
    PredictionRow row{
        .name = targets[t].name, .bulkhead = targets[t].bulkhead, .outcome = std::move(outcomes.targets[t])};
    row.all = row.outcome.all();
    row.utilisation = row.outcome.limit > 0 ? row.outcome.in_flight / row.outcome.limit : -1;
    row.goodput = static_cast<double>(row.outcome.served_in_time) / outcomes.measured;
    prediction.rows.push_back(std::move(row));
  }
  for (std::size_t d = 0; d < load.dependencies.size(); ++d)
    if (load.dependencies[d].plan.shape.capacity != UINT32_MAX)
      prediction.dependencies.push_back(
          {load.dependencies[d].name, load.dependencies[d].plan.shape.capacity, outcomes.dependency_use[d]});
  prediction.interval = outcomes.interval;
  prediction.calls = outcomes.calls;
  prediction.events = outcomes.events;
  return prediction;
}

}  // namespace bulkhead::simulate
