#include <atomic>

#include "bench/workload.h"
#include "bench/workloads.h"

namespace bench {

// One permit. The holder, on one core, takes it for 200 ns at a time; another core hammers the gate. The
// holder's cost includes the races for the permit that it loses.
void storm(const Settings& settings, Results& results) {
  constexpr std::int64_t section_ns = 200;
  const std::int64_t window_ns = settings.quick ? 300'000 : 2'000'000;
  const Plan plan{.windows = 15};

  std::vector<const Entry*> entries;
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Entry& e : all_rivals()) {
    if (!e.guarantees.waits || e.name == kGateBarging || e.name == kGateAdaptive) continue;
    entries.push_back(&e);
    contenders.push_back(e.make(1));
  }
  Table table{.workload = "storm",
              .title = "reject storm: holder's cost while another core hammers, over its cost in peace",
              .unit = "x",
              .threads = 2,
              .permits = 1,
              .section = "200 ns",
              .rows = {}};
  if (!settings.wants(table.title)) return;
  Team one(1), two(2);
  const auto series = take_turns(table.title, settings.apply(plan), contenders.size(), [&](std::size_t i) {
    Contender& c = *contenders[i];
    c.move_elsewhere();
    const auto hold = [&](std::uint64_t n) { c.insist(n, section_ns); };
    const Sample quiet = measure(one, window_ns, 32, hold);

    std::atomic<bool> over{false};
    std::atomic<std::uint64_t> tries{0};
    std::int64_t start = 0, end = 0, cpu = 0;
    std::uint64_t turns = 0;
    double storm_share = 1;
    two.run([&](unsigned thread) {
      const std::int64_t from = now_ns();
      const std::int64_t cpu_from = thread_cpu_ns();
      if (thread == 0) {
        start = from;
        do {
          hold(32);
          turns += 32;
          end = now_ns();
        } while (end - start < window_ns);
        cpu = thread_cpu_ns() - cpu_from;
        over = true;
      } else {
        while (!over.load(std::memory_order_relaxed)) {
          c.try_calls(16);
          tries.fetch_add(16, std::memory_order_relaxed);
        }
        storm_share = static_cast<double>(thread_cpu_ns() - cpu_from) / static_cast<double>(now_ns() - from);
      }
    });
    const double wall = static_cast<double>(end - start);
    const double stormy = wall / static_cast<double>(turns);
    return Sample{.value = stormy / quiet.value,
                  .share = std::min({quiet.share, storm_share, static_cast<double>(cpu) / wall}),
                  .extra = {quiet.value, static_cast<double>(tries) / wall * 1000}};
  });
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Row& row = table.add(entries[i]->name, series[i]);
    row.extra = {{"ns in peace", series[i].median_extra(0)}, {"M tries/s", series[i].median_extra(1)}};
  }
  results.push_back(std::move(table));
}

}  // namespace bench
