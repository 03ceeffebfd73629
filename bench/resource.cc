// What lending a resource costs beside a gate's admission: acquire and return, without using it.
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "bench/parts.h"
#include "bench/workload.h"
#include "bulkhead/gate.h"
#include "bulkhead/resource_pool.h"

namespace bench {
namespace {

Part gate() {
  auto g = std::make_shared<bulkhead::Gate>(bulkhead::GateOptions{.name = "bench", .max_concurrent = 1000});
  return {std::string(kGate), [g](std::uint64_t n) {
            for (; n > 0; --n) (void)g->acquire();
          }};
}

Part pool(std::string_view name, bool histograms, std::chrono::nanoseconds max_lifetime) {
  auto p = std::make_shared<bulkhead::ResourcePool<int>>(
      bulkhead::ResourceOptions<int>{.name = "bench",
                                     .max = 1000,
                                     .open = [](const bulkhead::Opening&) { return 1; },
                                     .max_lifetime = max_lifetime,
                                     .histograms = histograms});
  return {std::string(name), [p](std::uint64_t n) {
            for (; n > 0; --n) (void)p->acquire();
          }};
}

}  // namespace

void resource(const Settings& settings, Results& results) {
  for (const unsigned threads : {1u, 2u}) {
    Table table{
        .workload = "resource",
        .title = "lease + return, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
        .unit = "ns",
        .threads = threads,
        .permits = 1000,
        .section = "empty",
        .rows = {}};
    std::vector<Part> parts;
    parts.push_back(bare_pair());
    parts.push_back(gate());
    parts.push_back(pool(kResourcePool, false, std::chrono::minutes(30)));
    parts.push_back(pool("the same without max_lifetime", false, bulkhead::wait_forever));
    parts.push_back(pool("the same with histograms", true, std::chrono::minutes(30)));
    add_parts(settings, results, std::move(table), parts);
  }
}

}  // namespace bench
