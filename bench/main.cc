// bulkhead_bench - the gate against its rivals, in one run, as ratios. docs/benchmarks.md
// explains the method.
#include <sys/prctl.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "bench/timing.h"
#include "bench/workloads.h"

namespace {

constexpr const char* usage =
    "usage: bulkhead_bench [--quick] [--only <workload>]... [--match <text>] [--rounds <n>] [--json <path>]\n"
    "  --quick   a few seconds: shows that everything works, measures nothing\n"
    "  --only    admit, group, reject, storm, hand_off, saturation, policies, composition,\n"
    "            resource, lookup or memory\n"
    "  --match   only tables with this in their title, such as \"20 us\"\n"
    "  --rounds  how many; default: 3, and 5 for saturation\n"
    "  --json    where the results go; default: bench-results.json beside the program\n";

struct Workload {
  std::string_view name;
  void (*run)(const bench::Settings&, bench::Results&);
};
constexpr Workload workloads[] = {
    {"memory", bench::memory},     {"admit", bench::admit},       {"reject", bench::reject},
    {"storm", bench::storm},       {"hand_off", bench::hand_off}, {"saturation", bench::saturation},
    {"policies", bench::policies}, {"group", bench::group},       {"composition", bench::composition},
    {"resource", bench::resource}, {"lookup", bench::lookup},
};

}  // namespace

int main(int argc, char** argv) {
  bench::Settings settings;
  std::vector<std::string_view> only;
  std::string json = (std::filesystem::path(argv[0]).parent_path() / "bench-results.json").string();
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    const bool more = i + 1 < argc;
    if (arg == "--quick") {
      settings.quick = true;
    } else if (arg == "--only" && more) {
      only.push_back(argv[++i]);
    } else if (arg == "--match" && more) {
      settings.match = argv[++i];
    } else if (arg == "--rounds" && more) {
      settings.rounds = static_cast<unsigned>(std::atoi(argv[++i]));
    } else if (arg == "--json" && more) {
      json = argv[++i];
    } else {
      std::cerr << usage;
      return arg == "--help" ? 0 : 2;
    }
  }
  for (const std::string_view name : only) {
    bool known = false;
    for (const Workload& w : workloads) known |= w.name == name;
    if (!known) {
      std::cerr << "bulkhead_bench: no workload \"" << name << "\"\n" << usage;
      return 2;
    }
  }

  prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // sleeping sections: as short as they say, for all designs
  const std::int64_t start = bench::now_ns();
  bench::Results results;
  for (const Workload& w : workloads) {
    bool chosen = only.empty();
    for (const std::string_view name : only) chosen |= name == w.name;
    if (chosen) w.run(settings, results);
  }
  const auto targets = bench::check_targets(results);
  bench::print(std::cout, results);
  if (!settings.quick) {
    bench::print(std::cout, targets);
    bench::print_who_wins(std::cout, results);
  }
  std::cout << "\n" << bench::cores() << " cores, " << (bench::now_ns() - start) / 1'000'000'000 << " s";
  if (settings.quick) std::cout << "; --quick: the figures mean nothing";
  std::cout << "\n";
  if (!bench::write_json(json, results, targets, settings.quick)) {
    std::cerr << "bulkhead_bench: cannot write " << json << "\n";
    return 1;
  }
  std::cout << "results: " << json << "\n";
}
