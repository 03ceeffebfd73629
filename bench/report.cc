#include "bench/report.h"

#include <algorithm>
#include <cstdio>
#include <ostream>

#include "bench/workload.h"

namespace bench {
namespace {

template <class... Args>
std::string text(const char* format, Args... args) {
  char buffer[256];
  std::snprintf(buffer, sizeof buffer, format, args...);
  return buffer;
}

// Three significant digits or so, whatever the size.
std::string number(double v) {
  return text(v >= 100 ? "%.0f" : v >= 10 ? "%.1f" : v >= 0.1 ? "%.2f" : "%.3f", v);
}

std::string ratio(const std::vector<double>& ratios) {
  return ratios.empty() ? "" : text("%.2f", median(ratios));
}

}  // namespace

double Row::get(std::string_view key) const {
  for (const auto& [name, value] : extra)
    if (name == key) return value;
  return 0;
}

Row& Table::add(std::string_view design, const Series& s) {
  rows.push_back({std::string(design), s.medians(), {}, s.clean, s.taken, s.hung, s.noisy});
  return rows.back();
}

const Row* Table::find(std::string_view design) const {
  const auto it = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.design == design; });
  return it == rows.end() ? nullptr : &*it;
}

std::vector<double> Table::ratios(std::string_view a, std::string_view b) const {
  const Row *x = find(a), *y = find(b);
  std::vector<double> out;
  if (x && y)
    for (std::size_t i = 0; i < std::min(x->rounds.size(), y->rounds.size()); ++i)
      out.push_back(x->rounds[i] / y->rounds[i]);
  return out;
}

std::vector<double> Table::over_floor(std::string_view design) const {
  return ratios(design, floor.empty() ? kFloor : floor);
}

std::vector<double> Table::over_peer(std::string_view design) const {
  return ratios(design, peer.empty() ? kSemaphore : peer);
}

std::vector<double> Table::of_fastest(std::string_view a) const {
  std::vector<double> out;
  const Row* x = find(a);
  for (std::size_t i = 0; x && i < x->rounds.size(); ++i) {
    double best = 0;
    for (const Row& r : rows)
      if (!is_ours(r.design) && !is_floor(r.design) && (best == 0 || r.rounds[i] < best)) best = r.rounds[i];
    out.push_back(best / x->rounds[i]);
  }
  return out;
}

const Table* find(const Results& results, std::string_view title) {
  const auto it =
      std::find_if(results.begin(), results.end(), [&](const Table& t) { return t.title == title; });
  return it == results.end() ? nullptr : &*it;
}

void print(std::ostream& out, const Results& results) {
  bool noisy = false, hung = false;
  for (const Table& table : results) {
    out << "\n" << table.title << "\n";
    const bool saturated = table.workload == "saturation";
    const bool plain = table.workload == "memory";
    const char* first = saturated ? "x fastest" : "x floor";
    if (!plain) {
      out << text("  %-38s %9s %-19s %9s %9s", "", table.unit.c_str(), "[rounds]", first,
                  std::string(table.peer_head).c_str());
      for (const auto& [name, value] : table.rows.front().extra) out << text(" %11s", name.c_str());
      out << "  clean windows\n";
    }
    for (const Row& row : table.rows) {
      if (plain) {
        out << text("  %-42s %s\n", row.design.c_str(), number(row.value()).c_str());
        continue;
      }
      const auto [least, most] = std::minmax_element(row.rounds.begin(), row.rounds.end());
      const std::string range = "[" + number(*least) + " - " + number(*most) + "]";
      // For a saturated gate more is better: throughput against the fastest rival and against std.
      const auto a = saturated ? table.of_fastest(row.design) : table.over_floor(row.design);
      const auto b = saturated ? table.ratios(kSemaphore, row.design) : table.over_peer(row.design);
      const bool no_ratio = table.unit == "x";
      out << text("  %-38s %9s %-19s %9s %9s", row.design.c_str(), number(row.value()).c_str(), range.c_str(),
                  no_ratio ? "" : ratio(a).c_str(), no_ratio ? "" : ratio(b).c_str());
      for (const auto& [name, value] : row.extra) out << text(" %11s", number(value).c_str());
      out << text("  %u/%u%s", row.clean, row.taken, row.noisy ? " noisy" : "");
      out << (row.hung ? text(", %u hung\n", row.hung) : "\n");
      hung |= row.hung > 0;
      noisy |= row.noisy;
    }
  }
  if (hung)
    out << "\nhung: windows in which a thread slept for ever though there was room, and had to be woken "
           "from outside; "
           "they are\nnot counted.\n";
  if (noisy)
    out << "\nnoisy: the machine was too busy for enough clean windows; these are the quietest half of all "
           "windows, "
           "and tell\nlittle. Run it again on a quiet machine.\n";
}

void print(std::ostream& out, const std::vector<Target>& targets) {
  out << "\nWhat we promised (median of the rounds [range]; marginal: some rounds reach it, the median does "
         "not)\n";
  for (const Target& t : targets) {
    const auto [least, most] = std::minmax_element(t.measured.begin(), t.measured.end());
    const std::string bound = std::string(t.at_least ? "at least " : "at most ") + text("%g", t.bound);
    out << text("  %-8s  %-78s %-13s  %s [%s - %s]%s\n", std::string(t.verdict()).c_str(), t.what.c_str(),
                bound.c_str(), number(median(t.measured)).c_str(), number(*least).c_str(),
                number(*most).c_str(), t.noisy ? "  (noisy)" : "");
  }
}

// Every place where something that is not ours was faster, and what it leaves out.
void print_who_wins(std::ostream& out, const Results& results) {
  out << "\nWhere something weaker wins\n";
  for (const Table& table : results) {
    if (table.workload == "memory") continue;
    const bool blocking = table.workload == "saturation" || table.workload == "hand_off";
    const Row* ours = table.find(kGate);
    for (const std::string_view mode : {kGateAdaptive, kGateBarging})
      if (const Row* r = table.find(mode); blocking && r && (!ours || r->value() < ours->value())) ours = r;
    const Row* best = nullptr;
    for (const Row& r : table.rows)
      if (!is_ours(r.design) && !is_floor(r.design) && (!best || r.value() < best->value())) best = &r;
    if (!ours || !best) continue;
    const double ahead = median(table.ratios(ours->design, best->design));
    if (ahead <= 1.03) continue;
    Guarantees g;
    for (const Entry& e : all_rivals())
      if (e.name == best->design) g = e.guarantees;
    out << "  " << table.title << ": " << best->design << text(", by %.2fx", ahead) << ". It has "
        << (g.counters ? "" : "no counters, ") << (g.resize ? "" : "no resize, ")
        << (g.fifo ? "" : "no order, ") << "no deadline prediction, no reasons";
    if (const double worst = best->get("worst ms"); worst > 0)
      out << text("; worst wait %.1f ms, ours (%s) %.1f", worst, ours->design.c_str(), ours->get("worst ms"));
    out << ".\n";
  }
}

}  // namespace bench
