#include <algorithm>
#include <atomic>
#include <string>

#include "bench/workload.h"
#include "bench/workloads.h"

namespace bench {
namespace {

struct Case {
  unsigned threads, permits;
  Section section;
  std::string_view name;
};

constexpr Section empty{};
constexpr Section us1{Section::spin, 1'000};
constexpr Section us20{Section::spin, 20'000};
constexpr Section us100{Section::sleep, 100'000};
constexpr Section ms1{Section::sleep, 1'000'000};

constexpr Case cases[] = {
    {8, 2, empty, "empty"},           {8, 2, us1, "1 us of work"},       {8, 2, us20, "20 us of work"},
    {8, 2, us100, "100 us of sleep"}, {16, 4, empty, "empty"},           {16, 4, us1, "1 us of work"},
    {16, 4, us20, "20 us of work"},   {16, 4, us100, "100 us of sleep"}, {16, 4, ms1, "1 ms of sleep"},
};

Sample run(Team& team, Contender& c, Section section, std::int64_t window_ns) {
  c.move_elsewhere();
  std::vector<Turns> turns(team.size());
  std::vector<std::int64_t> ends(team.size());
  const Quiet quiet;
  const unsigned rescued_before = team.rescued();
  std::atomic<std::int64_t> start{0};
  team.run([&](unsigned thread) {
    std::int64_t unset = 0;
    const std::int64_t now = now_ns();
    start.compare_exchange_strong(unset, now);
    turns[thread] = c.saturate(section, start.load() + window_ns);
    ends[thread] = now_ns();
  });
  const double share = quiet.share();
  const bool hung = team.rescued() > rescued_before;
  std::uint64_t sum = 0, most = 0, least = ~std::uint64_t{0};
  std::int64_t worst = 0;
  for (const Turns& t : turns) {
    sum += t.count;
    most = std::max(most, t.count);
    least = std::min(least, t.count);
    worst = std::max(worst, t.worst_gap_ns);
  }
  const double wall = static_cast<double>(*std::max_element(ends.begin(), ends.end()) - start);
  return {.value = wall * 1e-3 / static_cast<double>(std::max<std::uint64_t>(sum, 1)),
          .share = share,
          .extra = {static_cast<double>(most) / static_cast<double>(std::max<std::uint64_t>(least, 1)),
                    static_cast<double>(worst) * 1e-6},
          .hung = hung};
}

}  // namespace

// Time per turn over all threads; with it how unequal the threads fared, and the longest that one of
// them went without a turn. A throughput without these two misleads: the fastest gate is one that
// serves a single thread.
void saturation(const Settings& settings, Results& results) {
  const std::int64_t window_ns = settings.quick ? 5'000'000 : 200'000'000;

  for (const Case& one : cases) {
    // Without work the cores pass on one line of cache and nothing else, and its place decides most: more of them.
    const unsigned windows = one.section.kind == Section::empty ? 3 : 1;
    const Plan plan{.rounds = 5, .windows = windows, .clean_share = 0.93};
    if (settings.quick && one.threads > 8) continue;
    Table table{.workload = "saturation",
                .title = "saturation, " + std::to_string(one.threads) + " threads on " +
                         std::to_string(one.permits) + " permits, " + std::string(one.name),
                .unit = "us",
                .threads = one.threads,
                .permits = one.permits,
                .section = std::string(one.name),
                .rows = {}};
    if (!settings.wants(table.title)) continue;
    std::vector<const Entry*> entries;
    std::vector<std::unique_ptr<Contender>> contenders;
    for (const Entry& e : all_rivals()) {
      if (!e.guarantees.waits) continue;
      entries.push_back(&e);
      contenders.push_back(e.make(one.permits));
    }
    Team team(one.threads);
    const auto series = take_turns(table.title, settings.apply(plan), contenders.size(), [&](std::size_t i) {
      return run(team, *contenders[i], one.section, window_ns);
    });
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      Row& row = table.add(entries[i]->name, series[i]);
      row.extra = {{"max/min", series[i].median_extra(0)}, {"worst ms", series[i].max_extra(1)}};
    }
    results.push_back(std::move(table));
  }
}

}  // namespace bench
