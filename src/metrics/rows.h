// rows.h - the data of one bulkhead, or of several added up, ready to be written to a page.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bulkhead/metrics.h"

namespace bulkhead::metrics {

// The upper bounds of a page's buckets, and how they are written: the same in every format, or a series would
// change its name with the format.
struct Bound {
  std::uint64_t ns;
  std::string_view text;
};
inline constexpr std::array<Bound, 14> kBounds{{{500'000, "0.0005"},
                                                {1'000'000, "0.001"},
                                                {2'500'000, "0.0025"},
                                                {5'000'000, "0.005"},
                                                {10'000'000, "0.01"},
                                                {25'000'000, "0.025"},
                                                {50'000'000, "0.05"},
                                                {100'000'000, "0.1"},
                                                {250'000'000, "0.25"},
                                                {500'000'000, "0.5"},
                                                {1'000'000'000, "1.0"},
                                                {2'500'000'000, "2.5"},
                                                {5'000'000'000, "5.0"},
                                                {10'000'000'000, "10.0"}}};
inline constexpr std::size_t kHistogramSeries = kBounds.size() + 3;  // +Inf, _sum, _count

// A histogram in the buckets of a page. A value counts as at most a bound only if its own bucket ends there
// or before, so a page never makes a call look faster than it was, and by 9 % slower at most.
struct Times {
  std::array<std::uint64_t, kBounds.size()> at_most{};
  std::uint64_t count = 0, sum_ns = 0;
};
Times fold(const HistogramCounts& counts) noexcept;

struct BulkheadRow {
  const RegistrySnapshot::Entry* entry = nullptr;  // null: a sum
  const BulkheadSnapshot* now = nullptr;
  std::string name;  // clean, not escaped
  Priority criticality = Priority::normal;
  std::string labels, critical_labels;      // {bulkhead="db" and {bulkhead="db",criticality="normal"
  std::optional<std::uint64_t> configured;  // max_concurrent; none: a member of a group
  std::uint32_t members = 1;                // that were added up
  std::array<std::uint32_t, 3> breakers{};
  std::optional<Times> wait, service;  // none: they are not measured
};

// Calls that were decided, bypassed while not enabled, or counted in shadow mode.
std::uint64_t requests(const BulkheadSnapshot& now) noexcept;

struct Rows {
  std::vector<BulkheadRow> rows;      // critical ones first, then by name; sums of tenants, and of the rest
  std::deque<BulkheadSnapshot> sums;  // what those refer to
  std::uint64_t left_out = 0;         // bulkheads that are only in `other`
};
Rows make_rows(const RegistrySnapshot& all, const MetricsOptions& options);

}  // namespace bulkhead::metrics
