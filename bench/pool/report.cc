#include <algorithm>
#include <cstdio>
#include <ostream>

#include "bench/pool/rival.h"
#include "bench/pool/workloads.h"

namespace bench {
namespace {

template <class... Args>
std::string text(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

std::string number(double v) { return text(v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : "%.2f", v); }

// Time of `design` over that of the fastest other one, round by round.
std::vector<double> over_fastest(const Table& table, std::string_view design) {
  std::vector<double> out;
  const Row* row = table.find(design);
  for (std::size_t i = 0; row && i < row->rounds.size(); ++i) {
    double best = 0;
    for (const Row& r : table.rows)
      if (r.design != design && (best == 0 || r.rounds[i] < best)) best = r.rounds[i];
    out.push_back(row->rounds[i] / best);
  }
  return out;
}

}  // namespace

std::vector<Target> check_pool_targets(const Results& results) {
  std::vector<Target> targets;
  for (const Table& t : results) {
    const Row* ours = t.find(kPool);
    if (!ours) continue;
    // With 1 us of work the work itself is the limit: two workers on two cores cannot be twice as fast.
    const double bound = t.permits == 1 || t.section != "empty tasks" ? 1 : 2;
    if (t.workload == "pool_throughput")
      targets.push_back({t.title + ": tasks per second against Asio's", bound, true,
                         t.ratios(kAsioPool, kPool), ours->noisy});
    if (t.workload == "pool_round_trip")
      targets.push_back(
          {t.title + ": time against the fastest's", 1.2, false, over_fastest(t, kPool), ours->noisy});
  }
  return targets;
}

void print_pools(std::ostream& out, const Results& results) {
  bool noisy = false;
  for (const Table& table : results) {
    out << "\n" << table.title << "\n";
    if (table.workload == "memory") {
      for (const Row& row : table.rows)
        out << text("  %-44s %s\n", row.design.c_str(), number(row.value()).c_str());
      continue;
    }
    out << text("  %-36s %9s %-19s %9s %9s", "", table.unit.c_str(), "[rounds]", "x Asio", "CPU x");
    for (const auto& [name, value] : table.rows.front().extra) out << text(" %11s", name.c_str());
    out << "  clean windows\n";
    const char* cpu = table.workload == "pool_round_trip" ? "CPU us" : "CPU ns";
    const Row* asio = table.find(kAsioPool);
    for (const Row& row : table.rows) {
      const auto [least, most] = std::minmax_element(row.rounds.begin(), row.rounds.end());
      const std::string range = "[" + number(*least) + " - " + number(*most) + "]";
      out << text("  %-36s %9s %-19s %9s %9s", row.design.c_str(), number(row.value()).c_str(), range.c_str(),
                  number(median(table.ratios(row.design, kAsioPool))).c_str(),
                  number(row.get(cpu) / asio->get(cpu)).c_str());
      for (const auto& [name, value] : row.extra) out << text(" %11s", number(value).c_str());
      out << text("  %u/%u%s\n", row.clean, row.taken, row.noisy ? " noisy" : "");
      noisy |= row.noisy;
    }
  }
  out << "\nx Asio, CPU x: time and processor time of the whole process over Asio's, less is better. "
         "sleeps/1000: voluntary\ncontext switches per 1000 tasks.\n";
  if (noisy)
    out << "noisy: others used the machine too; these are the quietest half of all windows. Processor time "
           "suffers least.\n";
}

}  // namespace bench
