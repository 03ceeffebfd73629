#include <string>

#include "bench/rival_group.h"
#include "bench/workload.h"
#include "bench/workloads.h"

namespace bench {
namespace {

// One loop of every contender, in windows that take turns. `enclose` runs a window in its surroundings.
void add_table(Results& results, Table table, const Plan& plan, std::int64_t window_ns,
               const std::vector<std::pair<std::string, std::unique_ptr<Contender>>>& contenders, bool full) {
  std::vector<std::uint64_t> batches;
  Team team(table.threads);
  const auto in_place = [&](Contender& c, const std::function<void()>& body) {
    if (full)
      c.call(body);  // takes the only permit
    else
      body();
  };
  const auto is_full = [&](const std::string& name) { return full && !name.ends_with("admit + release"); };
  for (const auto& [name, c] : contenders) {
    const auto calibrate = [&] { batches.push_back(batch_size([&](std::uint64_t n) { c->try_calls(n); })); };
    is_full(name) ? in_place(*c, calibrate) : calibrate();
  }
  const auto series = take_turns(table.title, plan, contenders.size(), [&](std::size_t i) {
    const auto& [name, c] = contenders[i];
    c->move_elsewhere();
    Sample s;
    const auto window = [&] {
      s = measure(team, window_ns, batches[i], [&](std::uint64_t n) { c->try_calls(n); });
    };
    is_full(name) ? in_place(*c, window) : window();
    return s;
  });
  for (std::size_t i = 0; i < contenders.size(); ++i) table.add(contenders[i].first, series[i]);
  results.push_back(std::move(table));
}

Plan plan_for(const Settings& settings, unsigned threads) {
  Plan plan;
  if (threads > 2) {
    plan.windows = 5;
    plan.clean_share = 0.92;
  }
  return settings.apply(plan);
}

std::int64_t window_for(const Settings& settings, unsigned threads) {
  if (threads > 2) return settings.quick ? 2'000'000 : 60'000'000;
  return settings.quick ? 300'000 : 1'500'000;
}

bool same_path(std::string_view name) { return name == kGateBarging || name == kGateAdaptive; }

std::string count(unsigned n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

}  // namespace

// The three fairnesses of the gate share this path, so one of them stands for all.
void admit(const Settings& settings, Results& results) {
  struct Case {
    unsigned threads, limit;
  };
  for (const auto [threads, limit] : {Case{1, 1000}, Case{1, 1}, Case{2, 1000}, Case{8, 1000}}) {
    Table table{.workload = "admit",
                .title = "admit + release, " + count(threads, "thread") + ", limit " + std::to_string(limit),
                .unit = "ns",
                .threads = threads,
                .permits = limit,
                .section = "empty",
                .rows = {}};
    if (!settings.wants(table.title)) continue;
    std::vector<std::pair<std::string, std::unique_ptr<Contender>>> contenders;
    for (const Entry& e : all_rivals())
      if (!same_path(e.name)) contenders.emplace_back(e.name, e.make(limit));
    add_table(results, std::move(table), plan_for(settings, threads), window_for(settings, threads),
              contenders, false);
  }
}

// The same loop on a member of a group that has all of its guarantee.
void group(const Settings& settings, Results& results) {
  for (const unsigned threads : {1u, 2u}) {
    Table table{.workload = "group",
                .title = "admit + release within the guarantee, " + count(threads, "thread"),
                .unit = "ns",
                .threads = threads,
                .permits = 1000,
                .section = "empty",
                .rows = {}};
    if (!settings.wants(table.title)) continue;
    std::vector<std::pair<std::string, std::unique_ptr<Contender>>> contenders;
    for (const Entry& e : all_rivals())
      if (e.name == kGate) contenders.emplace_back(e.name, e.make(1000));
    contenders.emplace_back(kMember, entry<MemberRival>().make(1000));
    add_table(results, std::move(table), plan_for(settings, threads), window_for(settings, threads),
              contenders, false);
  }
}

void reject(const Settings& settings, Results& results) {
  for (const unsigned threads : {1u, 2u}) {
    Table table{.workload = "reject",
                .title = "rejection when full, " + count(threads, "thread"),
                .unit = "ns",
                .threads = threads,
                .permits = 1,
                .section = "",
                .rows = {}};
    if (!settings.wants(table.title)) continue;
    std::vector<std::pair<std::string, std::unique_ptr<Contender>>> contenders;
    for (const Entry& e : all_rivals())
      if (e.guarantees.waits && !same_path(e.name)) contenders.emplace_back(e.name, e.make(1));
    for (const Entry& e : all_rivals())
      if (e.name == kGate) contenders.emplace_back(std::string(kGate) + ": admit + release", e.make(1000));
    add_table(results, std::move(table), plan_for(settings, threads), window_for(settings, threads),
              contenders, true);
  }
}

}  // namespace bench
