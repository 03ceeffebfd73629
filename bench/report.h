// report.h - the results as one table, as JSON, and against what we promised.
#pragma once

#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bench/harness.h"

namespace bench {

struct Row {
  std::string design;
  std::vector<double> rounds;  // one figure per round
  std::vector<std::pair<std::string, double>> extra;
  unsigned clean = 0, taken = 0, hung = 0;
  bool noisy = false;

  double value() const { return median(rounds); }
  double get(std::string_view key) const;
};

struct Table {
  std::string workload;  // "admit", "reject", "storm", "hand_off", "saturation", "memory"
  std::string title;
  std::string unit;  // less is better, always
  unsigned threads = 1, permits = 1;
  std::string section;
  std::vector<Row> rows;
  // What the ratios are taken to, unless the bare pair and std::counting_semaphore.
  std::string_view floor{}, peer{}, peer_head = "x std";

  Row& add(std::string_view design, const Series& series);
  const Row* find(std::string_view design) const;
  std::vector<double> over_floor(std::string_view design) const;
  std::vector<double> over_peer(std::string_view design) const;
  // a against b, round by round.
  std::vector<double> ratios(std::string_view a, std::string_view b) const;
  // Throughput of a against the fastest rival that is not ours, round by round.
  std::vector<double> of_fastest(std::string_view a) const;
};

using Results = std::vector<Table>;
const Table* find(const Results& results, std::string_view title);

struct Target {
  std::string what;
  double bound = 0;
  bool at_least = false;
  std::vector<double> measured;  // one per round
  bool noisy = false;

  std::string_view verdict() const;  // PASS, FAIL, or marginal: some rounds reach it, the median does not
};
std::vector<Target> check_targets(const Results& results);

void print(std::ostream& out, const Results& results);
void print(std::ostream& out, const std::vector<Target>& targets);
void print_who_wins(std::ostream& out, const Results& results);
bool write_json(const std::string& path, const Results& results, const std::vector<Target>& targets,
                bool quick);

}  // namespace bench
