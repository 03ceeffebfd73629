// view.h - a snapshot of the control plane, as rows for people.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/text.h"

namespace bulkhead::client {

struct Row {
  std::string name, state, criticality, breaker, override, top_reason;
  std::uint64_t in_flight = 0, limit = 0, configured_limit = 0, waiting = 0, max_queue = 0, rejected = 0;
  double rate = 0, rejected_rate = 0, wait_p99 = -1, service_p50 = -1,
         service_p99 = -1;  // seconds; -1: nothing measured
  bool has_breaker = false;

  double utilization() const noexcept {
    return limit == 0 ? 0 : static_cast<double>(in_flight) / static_cast<double>(limit);
  }
  double rejected_share() const noexcept { return rate > 0 ? rejected_rate / rate : 0; }
};

// A pool of connections, or of other things.
struct PoolRow {
  std::string name, kind, failing;  // failing: why; empty: it is not
  std::uint64_t used = 0, idle = 0, opening = 0, max = 0, waiting = 0, timeouts = 0, open_failures = 0;
  double wait_p99 = -1, oldest_use = -1;  // seconds; -1: nothing measured
};

struct View {
  std::string instance, version, config, file, error;
  double uptime = 0;
  std::vector<Row> rows;
  std::vector<PoolRow> pools;
};

// Throws std::runtime_error if it is no snapshot of a control plane.
View read_view(const boost::json::value& snapshot);

enum class SortBy : std::uint8_t { name, utilization, rejected, rate, wait };
inline constexpr std::size_t kSorts = 5;
std::string_view to_string(SortBy sort) noexcept;
void sort_rows(std::vector<Row>& rows, SortBy sort);

// Heading and one line for each row, at most `columns` wide. `selected` is marked; npos: none.
std::vector<std::string> table(const cli::Style& style, const std::vector<Row>& rows, std::size_t columns,
                               std::size_t selected = std::string::npos);

// Nothing if there is no pool. Why one fails is told in full, however wide that is.
std::vector<std::string> pool_table(const cli::Style& style, const std::vector<PoolRow>& pools,
                                    std::size_t columns);

}  // namespace bulkhead::client
