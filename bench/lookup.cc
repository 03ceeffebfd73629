// What finding a bulkhead by name costs: the registry beside maps behind a lock. All but the floor give something that
// stays safe to use while others remove names.
#include <functional>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "bench/parts.h"
#include "bench/workload.h"
#include "bulkhead/registry.h"

namespace bench {
namespace {

using bulkhead::Bulkhead;
using bulkhead::Registry;
using Handle = std::shared_ptr<Bulkhead>;

struct Hash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>()(name); }
};
template <class T>
using Map = std::unordered_map<std::string, T, Hash, std::equal_to<>>;

constexpr unsigned kNames = 128;

// 128 bulkheads, and 128 tenants of one set.
struct World {
  World() {
    registry.define_tenants({.name = "orders", .each = {}, .max_tenants = kNames});
    registry.define_tenants({.name = "full", .each = {}, .max_tenants = 1});
    (void)registry.tenant("full", "first");
    (void)registry.tenant("full", "second");
    for (unsigned i = 0; i < kNames; ++i) {
      names.push_back("service-" + std::to_string(i) + "/database");
      ids.push_back("customer-" + std::to_string(i));
      map.emplace(names.back(), registry.add({.options = {.name = names.back(), .max_concurrent = 10}}));
      sets["orders"].emplace(ids.back(), *registry.tenant("orders", ids.back()));
    }
  }
  std::vector<std::string> names, ids;
  Registry registry;
  Map<Handle> map;
  Map<Map<Handle>> sets;
  std::mutex mutex;
  std::shared_mutex shared_mutex;
};

void seen(const Bulkhead* bulkhead) { asm volatile("" : : "r"(bulkhead)); }

// Either all look up the same name, which is the worst case for reference counts, or each thread another one.
template <class F>
Part part(std::string_view name, std::shared_ptr<World> world, bool tenants, bool same, F find) {
  return {std::string(name), [=](std::uint64_t n) {
            const auto& keys = tenants ? world->ids : world->names;
            thread_local unsigned next = 0;
            unsigned i = same ? 7 : next;
            for (; n > 0; --n) {
              find(*world, std::string_view(keys[i % kNames]));
              if (!same) ++i;
            }
            next = i;
          }};
}

std::vector<Part> by_name(bool same) {
  const auto world = std::make_shared<World>();
  const auto add = [&](std::string_view name, auto find) { return part(name, world, false, same, find); };
  return {add(kBareMap, [](World& w, std::string_view name) { seen(w.map.find(name)->second.get()); }),
          add(kRegistryUse, [](World& w, std::string_view name) { seen(w.registry.use(name).get()); }),
          add(kRegistryFind, [](World& w, std::string_view name) { seen(w.registry.find(name).get()); }),
          add(kMutexMap,
              [](World& w, std::string_view name) {
                std::unique_lock lock(w.mutex);
                const Handle found = w.map.find(name)->second;
                lock.unlock();
                seen(found.get());
              }),
          add("map + shared_mutex, shared_ptr", [](World& w, std::string_view name) {
            std::shared_lock lock(w.shared_mutex);
            const Handle found = w.map.find(name)->second;
            lock.unlock();
            seen(found.get());
          })};
}

std::vector<Part> by_tenant(bool same) {
  const auto world = std::make_shared<World>();
  const auto add = [&](std::string_view name, auto find) { return part(name, world, true, same, find); };
  return {
      add(kBareMap,
          [](World& w, std::string_view id) {
            seen(w.sets.find(std::string_view("orders"))->second.find(id)->second.get());
          }),
      add(kRegistryUse,
          [](World& w, std::string_view id) { seen(w.registry.use_tenant("orders", id)->get()); }),
      add(kRegistryFind, [](World& w, std::string_view id) { seen(w.registry.tenant("orders", id)->get()); }),
      add("  the same beyond the bound",
          [](World& w, std::string_view id) { seen(w.registry.tenant("full", id)->get()); }),
      add(kMutexMap, [](World& w, std::string_view id) {
        std::unique_lock lock(w.mutex);
        const Handle found = w.sets.find(std::string_view("orders"))->second.find(id)->second;
        lock.unlock();
        seen(found.get());
      })};
}

}  // namespace

void lookup(const Settings& settings, Results& results) {
  for (const bool tenants : {false, true})
    for (const unsigned threads : {1U, 2U})
      for (const bool same : {false, true}) {
        const std::string what = tenants ? "look-up of a tenant, " : "look-up by name, ";
        Table table{.workload = "lookup",
                    .title = what + std::to_string(threads) + (threads == 1 ? " thread, " : " threads, ") +
                             (same ? "one name" : "128 names"),
                    .unit = "ns",
                    .threads = threads,
                    .permits = 1,
                    .section = same ? "one name" : "128 names",
                    .rows = {},
                    .floor = kBareMap,
                    .peer = kMutexMap,
                    .peer_head = "x mutex"};
        add_parts(settings, results, std::move(table), tenants ? by_tenant(same) : by_name(same));
      }
}

}  // namespace bench
