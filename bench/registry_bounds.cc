// registry_bounds.cc - a registry at its documented bounds: how long each operation holds the lock that a call for a new
// tenant needs, how long the operation takes, and what it costs in memory.
//
//   bulkhead_registry_bounds            1 000 000 tenants (15 GB), 10 000 bulkheads
//   bulkhead_registry_bounds 100000     the number of tenants
//   bulkhead_registry_bounds --quick    a hundredth of the bounds
//
// Prints one line for each operation. The longest hold is processor time, so that it does not count what other programs
// take; the whole operation is wall time.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <string>

#include "bulkhead/manual_clock.h"
#include "bulkhead/metrics.h"
#include "bulkhead/process_stats.h"
#include "bulkhead/registry.h"
#include "registry/lock.h"

namespace {

using namespace bulkhead;
using namespace std::chrono_literals;
using registry::Lock;

double megabytes() { return static_cast<double>(process_stats()->resident_bytes) / 1e6; }

template <class F>
void measured(const char* operation, std::size_t size, F&& fn) {
  Lock::longest = 0;
  const double before = megabytes();
  const auto began = std::chrono::steady_clock::now();
  fn();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - began;
  std::printf("%-34s %9zu %12.3f ms %14.1f ms %10.0f MB\n", operation, size,
              static_cast<double>(Lock::longest.load()) * 1000 / CLOCKS_PER_SEC, took.count(),
              megabytes() - before);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  const bool quick = argc > 1 && std::strcmp(argv[1], "--quick") == 0;
  const std::uint32_t bulkheads = quick ? 100 : 10'000;
  std::uint32_t tenants = quick ? 10'000 : 1'000'000;
  if (!quick && argc > 1) tenants = static_cast<std::uint32_t>(std::strtoul(argv[1], nullptr, 10));
  Lock::measured = true;
  std::printf("%-34s %9s %15s %17s %13s\n", "operation", "size", "longest hold", "whole operation", "memory");
  ManualClock clock;
  Registry registry({.clock = &clock});
  const BulkheadOptions each{.max_concurrent = 4, .max_queue = 8, .histograms = false};
  measured("add bulkheads", bulkheads, [&] {
    for (std::uint32_t i = 0; i < bulkheads; ++i) {
      BulkheadOptions o = each;
      o.name = "bulkhead" + std::to_string(i);
      registry.add({.options = o});
    }
  });
  registry.define_tenants({.name = "orders", .each = each, .max_tenants = tenants, .idle_after = 60s});
  measured("create tenants", tenants, [&] {
    for (std::uint32_t i = 0; i < tenants; ++i) (void)registry.tenant("orders", std::to_string(i));
  });
  measured("reject one more", 1, [&] { (void)registry.tenant("orders", "one too many"); });
  measured("names", tenants + bulkheads, [&] { (void)registry.names(); });
  measured("snapshot, tenants added up", tenants + bulkheads,
           [&] { (void)registry.snapshot({.list_tenants = 0}); });
  Metrics metrics;
  std::string page;
  measured("scrape", bulkheads,
           [&] { metrics.render(page, registry.snapshot({.list_tenants = 0}), MetricsFormat::prometheus); });
  measured("update the template", tenants, [&] {
    BulkheadOptions other = each;
    other.max_concurrent = 5;
    registry.update_tenants({.name = "orders", .each = other, .max_tenants = tenants, .idle_after = 60s});
  });
  clock.advance(61s);
  measured("one request, all idle", 1, [&] { (void)registry.tenant("orders", "new"); });
  measured("retire", tenants, [&] {
    (void)registry.retire_idle();
    clock.advance(61s);
    (void)registry.retire_idle();
  });
  for (std::uint32_t i = 0; i < tenants / 10; ++i) (void)registry.tenant("orders", std::to_string(i));
  measured("remove the set", tenants / 10, [&] { registry.remove_tenants("orders"); });
}
