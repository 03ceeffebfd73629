// What a look-up by name costs: the registry beside a std::unordered_map behind a lock, each giving a shared_ptr.
// Compare rows of the same run, `same` and number of threads: the ratio to registry_find is what counts.
#include <benchmark/benchmark.h>

#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bulkhead/registry.h"

namespace bulkhead {
namespace {

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>()(name); }
};
using Map = std::unordered_map<std::string, std::shared_ptr<Bulkhead>, Hash, std::equal_to<>>;

constexpr int kNames = 100;
std::string name_of(int i) { return "service-" + std::to_string(i) + "/database"; }

struct Rivals {
  Rivals() {
    for (int i = 0; i < kNames; ++i) {
      names.push_back(name_of(i));
      map.emplace(names.back(), registry.add({.options = {.name = names.back(), .max_concurrent = 10}}));
    }
  }
  std::vector<std::string> names;
  Registry registry;
  Map map;
  std::mutex mutex;
  std::shared_mutex shared_mutex;
};
Rivals& rivals() {
  static Rivals all;
  return all;
}

// Either all threads want the same name, which is the worst for its count of references, or each another one.
template <class F>
void look_up(benchmark::State& state, F find) {
  Rivals& r = rivals();
  const bool same = state.range(0) == 1;
  std::size_t i = same ? 7 : static_cast<std::size_t>(state.thread_index()) * 31;
  for (auto _ : state) {
    benchmark::DoNotOptimize(find(r, r.names[i]));
    if (!same) i = (i + 1) % kNames;
  }
  state.SetItemsProcessed(state.iterations());
}

void registry_find(benchmark::State& state) {
  look_up(state, [](Rivals& r, std::string_view name) { return r.registry.find(name); });
}
void map_and_mutex(benchmark::State& state) {
  look_up(state, [](Rivals& r, std::string_view name) {
    const std::lock_guard lock(r.mutex);
    return r.map.find(name)->second;
  });
}
void map_and_shared_mutex(benchmark::State& state) {
  look_up(state, [](Rivals& r, std::string_view name) {
    const std::shared_lock lock(r.shared_mutex);
    return r.map.find(name)->second;
  });
}
void tenant(benchmark::State& state) {
  static const bool once = [] {
    rivals().registry.define_tenants({.name = "orders", .each = {}, .max_tenants = kNames});
    for (const std::string& id : rivals().names)
      (void)rivals().registry.tenant("orders", id.substr(0, id.find('/')));
    return true;
  }();
  (void)once;
  look_up(state, [](Rivals& r, std::string_view name) {
    return r.registry.tenant("orders", name.substr(0, name.find('/')));
  });
}
void tenant_beyond_the_bound(benchmark::State& state) {
  static const bool once = [] {
    rivals().registry.define_tenants({.name = "full", .each = {}, .max_tenants = 1});
    (void)rivals().registry.tenant("full", "first");
    (void)rivals().registry.tenant("full", "second");
    return true;
  }();
  (void)once;
  look_up(state, [](Rivals& r, std::string_view name) {
    return r.registry.tenant("full", name.substr(0, name.find('/')));
  });
}

void settings(benchmark::internal::Benchmark* b) {
  b->ArgName("same")->Arg(0)->Arg(1)->Threads(1)->Threads(2)->UseRealTime();
}
BENCHMARK(registry_find)->Apply(settings);
BENCHMARK(map_and_mutex)->Apply(settings);
BENCHMARK(map_and_shared_mutex)->Apply(settings);
BENCHMARK(tenant)->Apply(settings);
BENCHMARK(tenant_beyond_the_bound)->Apply(settings);

}  // namespace
}  // namespace bulkhead
