// search.h - many predictions of one question: a sweep over a setting, and the smallest limits that keep a promise.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "app/simulate/load.h"
#include "app/simulate/report.h"
#include "app/simulate/run.h"
#include "bulkhead/config.h"

namespace bulkhead::simulate {

// Predicts for a changed configuration or load; throws std::invalid_argument if that is not valid.
using Predict = std::function<Prediction(const Config&, const Load&)>;

// "checkout.max_concurrent=5..50", "max_wait=10ms..500ms:10ms", "load=0.5..3".
struct Sweep {
  std::string bulkhead, setting;  // bulkhead: empty for load
  std::vector<double> values;     // durations in ns
  bool duration = false;
  std::string show(double value) const;
  std::string name() const { return bulkhead.empty() ? setting : bulkhead + "." + setting; }
};
// std::invalid_argument says what is wrong and what would be right.
Sweep parse_sweep(const std::string& text, const Config& config, const Load& load);

struct SweepResult {
  Sweep sweep;
  std::vector<Case> cases{};  // one for each value
  // The value beyond which more gains less than 1 %, with the reason in words; none: the curve has no knee.
  std::optional<std::size_t> knee{};
  std::string why{};
};
SweepResult run_sweep(const Sweep& sweep, const Config& config, const Load& load, const Predict& predict);
std::string sweep_text(const cli::Style& style, const Subject& subject, const SweepResult& result);
std::string sweep_json(const Subject& subject, const SweepResult& result, std::string_view version);

// "p99<200ms,rejected<1%", "checkout.p99<200ms,rejected<1%".
struct Condition {
  std::string text, bulkhead;  // bulkhead: empty: each
  std::string metric;
  bool below = true;
  double bound = 0;  // ms, a share, or per second
  bool holds(const PredictionRow& row) const;
  double value(const PredictionRow& row) const;
};
std::vector<Condition> parse_conditions(const std::string& text, const Load& load);

struct Found {
  bool holds = false;
  std::vector<std::pair<std::string, std::uint32_t>> limits;  // max_concurrent of each bulkhead
  std::vector<std::string> left_alone;  // bulkheads whose limit is not one number, and why
  std::vector<std::string> missed;      // conditions that no limit keeps, with the best value
  Case found{};
  std::uint32_t runs = 0;
};
Found find_limits(const std::vector<Condition>& conditions, const Config& config, const Load& load,
                  const Predict& predict);
std::string found_text(const cli::Style& style, const Subject& subject,
                       const std::vector<Condition>& conditions, const Found& found, std::size_t columns);
std::string found_json(const Subject& subject, const std::vector<Condition>& conditions, const Found& found,
                       std::string_view version);

}  // namespace bulkhead::simulate
