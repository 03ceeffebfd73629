#include <atomic>

#include "bench/workload.h"
#include "bench/workloads.h"

namespace bench {

// One permit, two cores. A holds it while B goes to sleep waiting for it; then A lets go. Measured from just
// before A's release to B running inside; and what the release cost A.
void hand_off(const Settings& settings, Results& results) {
  const std::size_t turns = settings.quick ? 10 : 300;
  constexpr std::int64_t until_parked_ns = 150'000;
  const Plan plan{.windows = 3, .clean_share = 0.93};

  std::vector<const Entry*> entries;
  std::vector<std::unique_ptr<Contender>> contenders;
  for (const Entry& e : all_rivals()) {
    if (!e.guarantees.waits) continue;
    entries.push_back(&e);
    contenders.push_back(e.make(1));
  }
  Table table{.workload = "hand_off",
              .title = "hand-off to a parked thread",
              .unit = "us",
              .threads = 2,
              .permits = 1,
              .section = "",
              .rows = {}};
  if (!settings.wants(table.title)) return;
  Team team(2);
  // Within one window all designs take turns, hand-off by hand-off: they differ by less than the speed of the machine does
  // from one window to the next.
  std::vector<Sample> window;
  const auto series = take_turns(table.title, settings.apply(plan), contenders.size(), [&](std::size_t i) {
    if (i > 0) return window[i];
    for (const auto& c : contenders) c->move_elsewhere();
    std::vector<std::vector<double>> latency(contenders.size()), release(contenders.size());
    std::atomic<std::size_t> invited{0}, done{0};
    std::atomic<std::int64_t> let_go{0};
    const Quiet quiet;
    team.run([&](unsigned thread) {
      for (std::size_t turn = 1; turn <= turns * contenders.size(); ++turn) {
        const std::size_t design = turn % contenders.size();
        Contender& c = *contenders[design];
        if (thread == 0) {
          c.call([&] {
            invited = turn;
            const std::int64_t start = now_ns();
            while (now_ns() - start < until_parked_ns) {
            }
            let_go = now_ns();
          });
          release[design].push_back(static_cast<double>(now_ns() - let_go) * 1e-3);
          while (done != turn) {
          }
        } else {
          while (invited != turn) {
          }
          c.call([&] { latency[design].push_back(static_cast<double>(now_ns() - let_go) * 1e-3); });
          done = turn;
        }
      }
    });
    const double share = quiet.share();
    window.clear();
    for (std::size_t d = 0; d < contenders.size(); ++d)
      window.push_back({.value = median(latency[d]),
                        .share = share,
                        .extra = {quantile(latency[d], 0.99), median(release[d])}});
    return window[0];
  });
  for (std::size_t i = 0; i < contenders.size(); ++i) {
    Row& row = table.add(entries[i]->name, series[i]);
    row.extra = {{"p99 us", series[i].median_extra(0)}, {"release us", series[i].median_extra(1)}};
  }
  results.push_back(std::move(table));
}

}  // namespace bench
