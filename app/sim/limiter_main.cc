// The adaptive limiters side by side on virtual time: a table, and with --docs <directory> the pictures and the
// table of limiter.md in it. Exits with 1 if the default algorithm fails anywhere outside the heavy tail.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "app/sim/plot.h"
#include "app/sim/suite.h"

namespace {

using namespace bulkhead;
using namespace bulkhead::sim;

constexpr std::string_view kBeginMark = "<!-- make simulate: begin -->\n",
                           kEndMark = "<!-- make simulate: end -->\n";
constexpr std::string_view kBeyond = "Saturated, heavy-tailed service";
constexpr std::array<std::string_view, kAlgorithms.size()> kColours{"#1a7f37", "#cf222e", "#8250df",
                                                                    "#bf8700"};

void print(const SuiteRow& row) {
  static std::string group;
  if (row.group != group) {
    group = row.group;
    fmt::print("\n{}\n{:<30}", group, "");
    for (const LimitAlgorithm a : kAlgorithms) fmt::print("{:<30}", to_string(a));
    fmt::print("\n");
  }
  fmt::print("{:<30}", row.scenario);
  for (const Cell& cell : row.cells)
    if (!cell.text.empty()) fmt::print("{} {:<25}", cell.pass ? "PASS" : "FAIL", cell.text);
  fmt::print("\n");
  std::fflush(stdout);
}

std::string markdown(const std::vector<SuiteRow>& rows) {
  std::string text, group;
  for (const SuiteRow& row : rows) {
    if (row.group != group) {
      group = row.group;
      text += fmt::format("\n### {}\n\n| |", group);
      for (const LimitAlgorithm a : kAlgorithms) text += fmt::format(" {} |", to_string(a));
      text += "\n|---|---|---|---|---|\n";
    }
    text += fmt::format("| {} |", row.scenario);
    for (const Cell& cell : row.cells)
      text += cell.text.empty() ? std::string(" – |")
                                : fmt::format(" {} {} |", cell.pass ? "pass:" : "**FAIL**:", cell.text);
    text += "\n";
  }
  return text + "\n";
}

// Cells that were not run keep what the page says.
void fill_from(std::string_view page, std::vector<SuiteRow>& rows) {
  std::map<std::string, std::vector<std::string>, std::less<>> old;  // by group and row
  std::string group, line;
  for (std::istringstream lines{std::string(page)}; std::getline(lines, line);) {
    if (line.starts_with("### ")) group = line.substr(4);
    if (!line.starts_with("| ")) continue;
    std::vector<std::string> parts;
    for (std::size_t at = 2, end; (end = line.find(" |", at)) != std::string::npos; at = end + 3)
      parts.push_back(line.substr(at, end - at));
    if (parts.size() > kAlgorithms.size()) old[group + parts[0]] = std::move(parts);
  }
  for (SuiteRow& row : rows) {
    const auto found = old.find(row.group + row.scenario);
    if (found == old.end()) continue;
    for (std::size_t a = 0; a < kAlgorithms.size(); ++a) {
      const std::string& cell = found->second[a + 1];
      const auto colon = cell.find(": ");
      if (!row.cells[a].text.empty() || colon == std::string::npos) continue;
      row.cells[a] = {.pass = cell.starts_with("pass"), .text = cell.substr(colon + 2)};
    }
  }
}

void write(const std::filesystem::path& path, std::string_view text) {
  std::ofstream file(path, std::ios::binary);
  file << text;
  if (!file.flush()) {
    fmt::print(stderr, "simulate: cannot write {}\n", path.string());
    std::exit(1);
  }
}

void write_table(const std::filesystem::path& page, std::vector<SuiteRow> rows) {
  std::ifstream file(page, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(file), {});
  const auto begin = text.find(kBeginMark), end = text.find(kEndMark);
  if (begin == std::string::npos || end == std::string::npos) {
    fmt::print(stderr, "simulate: {} has no place for the table, marked by\n{}{}", page.string(), kBeginMark,
               kEndMark);
    std::exit(1);
  }
  fill_from(std::string_view(text).substr(begin, end - begin), rows);
  text.replace(begin + kBeginMark.size(), end - begin - kBeginMark.size(), markdown(rows));
  write(page, text);
}

void write_plot(const std::filesystem::path& path, std::string_view title, const Scenario& scenario) {
  std::vector<Run> runs;
  for (const LimitAlgorithm a : kAlgorithms) runs.push_back(simulate(scenario, {.algorithm = a}, 1));
  std::vector<Line> lines;
  for (std::size_t i = kAlgorithms.size(); i-- > 0;)  // ours last, on top
    lines.push_back({to_string(kAlgorithms[i]), kColours[i], &runs[i]});
  write(path, plot(title, lines, scenario.seconds));
}

}  // namespace

// Plays the table of docs/limiter.md.
int main(int argc, char** argv) {
  SuiteOptions options;
  std::filesystem::path docs;
  for (int i = 1; i < argc; ++i) {
    const std::string_view arg = argv[i];
    if (arg == "--quick") {
      options = {.seeds = 1, .longest = 60};
    } else if (arg == "--docs" && i + 1 < argc) {
      docs = argv[++i];
    } else if (arg == "--only" && i + 1 < argc) {
      options.only = argv[++i];
    } else if (arg == "--knee") {
      options.known = false;
    } else if (arg == "--seeds" && i + 1 < argc) {
      options.seeds = static_cast<std::uint32_t>(std::max(1, std::atoi(argv[++i])));
    } else if (arg == "--threads" && i + 1 < argc) {
      options.threads = static_cast<std::uint32_t>(std::max(1, std::atoi(argv[++i])));
    } else if (arg == "--company-seconds" && i + 1 < argc) {
      options.company = std::max(180, std::atoi(argv[++i]));
    } else {
      fmt::print(
          stderr,
          "usage: {} [--quick] [--docs directory] [--only text] [--knee] [--seeds n] "
          "[--threads n] [--company-seconds n]\n"
          "  --quick            one seed, short runs\n"
          "  --docs directory   write the tables and pictures of limiter.md there; needs all rows; with "
          "--knee only\n"
          "                     that column\n"
          "  --only text        only rows whose \"group: row\" contains the text\n"
          "  --knee             only the default algorithm\n"
          "  --seeds n          the worst of n seeds counts (3)\n"
          "  --threads n        run n rows at once (1)\n"
          "  --company-seconds  how long rows with several instances last (900)\n",
          argv[0]);
      return 2;
    }
  }
  if (!docs.empty() && !options.only.empty()) {
    fmt::print(stderr, "{}: --docs writes the whole table: leave out --only\n", argv[0]);
    return 2;
  }
  fmt::print(
      "Saturated: time with the limit in 0.8 to 1.5 capacities after 30 s, goodput over the best fixed "
      "limit's,\n"
      "round trip in service times. Drop: seconds until in that band, down and up; goodput. Half load: "
      "limits\n"
      "seen. Fails fast, hangs: the limit before, and the highest during it. Others: goodput, round trip, "
      "sum of\n"
      "limits in capacities, least share of an instance. The worst of {} seeds.\n",
      options.seeds);
  const std::vector<SuiteRow> rows = run_suite(options, print);

  std::array<std::size_t, kAlgorithms.size()> passed{};
  std::size_t judged = 0;
  for (const SuiteRow& row : rows) {
    if (row.group == kBeyond) continue;
    ++judged;
    for (std::size_t a = 0; a < kAlgorithms.size(); ++a) passed[a] += row.cells[a].pass;
  }
  fmt::print("\npassed, without the heavy tail: ");
  for (std::size_t a = 0; a < kAlgorithms.size(); ++a)
    fmt::print("{} {}/{}{}", to_string(kAlgorithms[a]), passed[a], judged,
               a + 1 < kAlgorithms.size() ? ", " : "\n");

  if (!docs.empty()) {
    write_table(docs / "limiter.md", rows);
    write_plot(docs / "images" / "limiter-saturated.svg", "An hour of overload: 50 slots, closed arrival",
               saturated(kSized[1], Arrival::closed, 3600));
    write_plot(docs / "images" / "limiter-drop.svg",
               "Capacity 150, a third of it from minute 2 to 4, closed arrival",
               with_drop(kSized[2], Arrival::closed));
  }
  return passed[0] == judged ? 0 : 1;
}
