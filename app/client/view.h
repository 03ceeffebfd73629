// view.h - a snapshot of the control plane as the rows of a table.
#pragma once

#include <boost/json/value.hpp>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "app/cli/text.h"

namespace bulkhead::client {

struct BulkheadRow {
  std::string name, state, criticality, breaker, override, top_reason;
  std::uint64_t in_flight = 0, max_concurrent = 0, configured_max_concurrent = 0, waiting = 0, max_queue = 0,
                rejected = 0;
  double rate = 0, rejected_rate = 0, wait_p99 = -1, service_p50 = -1,
         service_p99 = -1;                       // seconds; -1: nothing measured
  double minute_calls = 0, minute_rejected = 0;  // of the last minute
  double since = 0;                              // Unix time of the begin of its trouble; 0: none
  bool has_breaker = false, nested = false;
  std::vector<double>
      history;  // in flight of max_concurrent over the last minute, the newest last; -1: unknown

  double utilization() const noexcept {
    return max_concurrent == 0 ? 0 : static_cast<double>(in_flight) / static_cast<double>(max_concurrent);
  }
  double rejected_share() const noexcept { return rate > 0 ? rejected_rate / rate : 0; }
  double minute_share() const noexcept { return minute_calls > 0 ? minute_rejected / minute_calls : 0; }
};

// A resource pool.
struct PoolRow {
  std::string name, kind, failing;  // failing: the error; empty: none
  std::uint64_t used = 0, idle = 0, opening = 0, max = 0, waiting = 0, timeouts = 0, open_failures = 0;
  double wait_p99 = -1, oldest_use = -1;  // seconds; -1: nothing measured
  std::string bulkhead{};                 // around it
  std::uint64_t bulkhead_waiting = 0;
};

struct BudgetRow {
  std::string name;  // bulkhead/budget
  std::uint64_t in_use = 0, max = 0, calls = 0, waiting = 0, rejected = 0;
};

struct View {
  std::string instance, version, config, file, error;
  std::string verdict, severity;  // one sentence; ok, note, warning or critical
  double uptime = 0;
  std::vector<BulkheadRow> rows;
  std::vector<PoolRow> pools;
  std::vector<BudgetRow> budgets;
};

// Throws std::runtime_error if the value is not a snapshot of a control plane.
View read_view(const boost::json::value& snapshot);
// Adds the last minute of /v1/history to the rows.
void add_history(View& view, const boost::json::value& history);
// The verdict in lines of at most `columns`, in the colour of its severity; empty: the server has none.
std::string verdict_lines(const cli::Style& style, const View& view, std::size_t columns);

enum class SortBy : std::uint8_t { name, utilization, rejected, rate, wait };
inline constexpr std::size_t kSorts = 5;
std::string_view to_string(SortBy sort) noexcept;
void sort_rows(std::vector<BulkheadRow>& rows, SortBy sort);

// Heading and one line for each row, at most `columns` wide. `selected` is marked; npos: none.
std::vector<std::string> table(const cli::Style& style, const std::vector<BulkheadRow>& rows,
                               std::size_t columns, std::size_t selected = std::string::npos);

// Empty without pools. The error of a failing pool is printed in full, however wide.
std::vector<std::string> budget_table(const cli::Style& style, const std::vector<BudgetRow>& budgets,
                                      std::size_t columns);
std::vector<std::string> pool_table(const cli::Style& style, const std::vector<PoolRow>& pools,
                                    std::size_t columns);

}  // namespace bulkhead::client
