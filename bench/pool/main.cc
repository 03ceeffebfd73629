// bulkhead_pool_bench - the pool against its rivals, in one run, as ratios. docs/benchmarks.md
// explains the method.
#include <sys/prctl.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bench/pool/workloads.h"
#include "bench/timing.h"

namespace {

constexpr const char* usage =
    "usage: bulkhead_pool_bench [--quick] [--match <text>] [--rounds <n>] [--place together|apart] [--json "
    "<path>]\n"
    "  --quick   a few seconds: shows that everything works, measures nothing\n"
    "  --match   only tables with this in their title, such as \"2 workers\"\n"
    "  --rounds  how many; default: 5\n"
    "  --place   submitter and workers on one core, or workers on another; default: as the kernel likes\n"
    "  --json    where the results go; default: pool-bench-results.json beside the program\n";

}  // namespace

int main(int argc, char** argv) {
  const unsigned cores = bench::cores();  // before any thread is pinned
  bench::PoolSettings settings;
  std::string json = (std::filesystem::path(argv[0]).parent_path() / "pool-bench-results.json").string();
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--quick") {
      settings.quick = true;
    } else if (arg == "--match" && more) {
      settings.match = argv[++i];
    } else if (arg == "--rounds" && more) {
      settings.rounds = static_cast<unsigned>(std::atoi(argv[++i]));
    } else if (arg == "--place" && more && std::string_view(argv[i + 1]) == "together" && cores > 1) {
      ++i;
      settings.placement = bench::Placement::together;
    } else if (arg == "--place" && more && std::string_view(argv[i + 1]) == "apart" && cores > 1) {
      ++i;
      settings.placement = bench::Placement::apart;
    } else if (arg == "--json" && more) {
      json = argv[++i];
    } else {
      std::cerr << usage;
      return arg == "--help" ? 0 : 2;
    }
  }

  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);
  const std::int64_t start = bench::now_ns();
  bench::Results results;
  bench::pool_memory(settings, results);
  bench::pool_throughput(settings, results);
  bench::pool_round_trip(settings, results);
  const auto targets = bench::check_pool_targets(results);
  bench::print_pools(std::cout, results);
  if (!settings.quick) bench::print(std::cout, targets);
  std::cout << "\n" << cores << " cores, " << (bench::now_ns() - start) / 1'000'000'000 << " s";
  if (settings.quick) std::cout << "; --quick: the figures mean nothing";
  std::cout << "\n";
  if (!bench::write_json(json, results, targets, settings.quick)) {
    std::cerr << "bulkhead_pool_bench: cannot write " << json << "\n";
    return 1;
  }
  std::cout << "results: " << json << "\n";
}
