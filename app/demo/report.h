// report.h - what came of it: the two acts side by side, for people and for machines.
#pragma once

#include <array>
#include <string>

#include "app/cli/text.h"
#include "app/demo/shop.h"
#include "app/demo/story.h"

namespace bulkhead::demo {

struct ActResult {
  std::array<std::array<Count, kPhases>, kRoutes> counts;
  std::array<std::uint32_t, kRoutes> peak_in_flight{};
  std::uint32_t peak_connections = 0;
  HistogramCounts reports_took;
  std::string first_failure{};  // of a query or connection; empty: none failed

  const Count& of(std::size_t route, Phase phase) const {
    return counts[route][static_cast<std::size_t>(phase)];
  }
};
ActResult result_of(const Shop& shop);

struct Results {
  Story story;
  ActResult without, with;
};

// While one route was slow, every other kept at least 99 % of its calls served, and its p99 within three
// times that of the calm phase (and the jitter of a busy machine).
bool isolated(const Results& results);
std::string conclusion(const cli::Style& style, const Results& results);

std::string report_table(const cli::Style& style, const Results& results, std::size_t columns);
std::string report_json(const Results& results, std::string_view version);

}  // namespace bulkhead::demo
