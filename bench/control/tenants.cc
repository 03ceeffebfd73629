// What the control plane costs a process with many tenants, while no one looks: memory and processor time. Fails above the
// ceilings.
//
//   bulkhead_tenants_bench [--quick] [--tenants 50000] [--sets 50]
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>

#include "bulkhead/registry.h"
#include "control/server.h"

namespace {

double resident_mb() {
  std::ifstream status("/proc/self/statm");
  long total = 0, resident = 0;
  status >> total >> resident;
  return static_cast<double>(resident * ::sysconf(_SC_PAGESIZE)) / (1024 * 1024);
}

double processor_seconds() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

}  // namespace

// A set of tenants of its own for each part of them: what is shown is bounded over all sets.
int main(int argc, char** argv) {
  constexpr double kMostMegabytes = 60, kMostOfACore = 0.03;
  int tenants = 50'000, sets = 50, seconds = 20;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--quick") == 0) tenants = 2000, seconds = 2;
    if (std::strcmp(argv[i], "--tenants") == 0 && i + 1 < argc) tenants = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--sets") == 0 && i + 1 < argc) sets = std::max(1, std::atoi(argv[++i]));
  }
  bulkhead::Registry registry;
  for (int i = 0; i < sets; ++i)
    registry.define_tenants({.name = "uploads-" + std::to_string(i),
                             .each = {.max_concurrent = 2, .max_queue = 4},
                             .max_tenants = static_cast<std::uint32_t>(tenants)});
  for (int i = 0; i < tenants; ++i) {
    const auto bulkhead =
        registry.tenant("uploads-" + std::to_string(i % sets), "customer-" + std::to_string(i));
    if (!bulkhead || !(*bulkhead)->try_acquire()) return std::fputs("a tenant was rejected\n", stderr), 1;
  }
  const double before = resident_mb();
  const bulkhead::control::Server server(registry, {.listen = "127.0.0.1:0"});
  std::this_thread::sleep_for(std::chrono::seconds(2));
  const double began = processor_seconds();
  const auto at = std::chrono::steady_clock::now();
  std::this_thread::sleep_for(std::chrono::seconds(seconds));
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - at).count();
  const double megabytes = resident_mb() - before, share = (processor_seconds() - began) / took;
  std::printf(
      "%d tenants in %d sets: the control plane takes %.1f MB and %.2f %% of one core without viewers\n",
      tenants, sets, megabytes, 100 * share);
  if (megabytes <= kMostMegabytes && share <= kMostOfACore) return 0;
  std::fprintf(stderr, "more than %.0f MB or %.0f %% of one core\n", kMostMegabytes, 100 * kMostOfACore);
  return 1;
}
