// metrics.h - renders a snapshot of a registry for Prometheus, or as JSON.
//
//   bulkhead::Metrics metrics;
//   std::string page;                                                     // reused by every scrape
//   const auto format = bulkhead::negotiate(request["Accept"]);
//   metrics.render(page, registry.snapshot(), format, {.process = bulkhead::process_stats()});
//   reply(200, bulkhead::content_type(format), page);
//
// metric_families() lists the names, labels and meanings; docs/formats/metrics.md is made from it. docs/operate/alerts.md
// describes the alert rules.
//
// Threads: every member may be called from any thread; pages are rendered one after the other.
// Promises: all series of a bulkhead exist from its first page on, with the value 0. The number of series is bounded, also
//   with arbitrary names and tenants: see MetricsOptions. Bulkheads above the bound are added up in `other`, so sums stay
//   correct, and are counted in bulkhead_label_overflow_total. A label value is valid UTF-8, escaped, and at most
//   `max_label_bytes` long; a value that had to be changed ends in ~ and a hash of the original.
// Not promised: exact sums of tenants when the statistics of one of them are reset.
// Cost: a page is rendered from a snapshot and accesses no bulkhead, so it delays no call. The caller owns the memory of the
//   page, which is reused. docs/formats/metrics.md and bulkhead_metrics_bench have figures.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/process_stats.h"
#include "bulkhead/registry_snapshot.h"

namespace bulkhead {

enum class MetricsFormat : std::uint8_t {
  prometheus,   // text 0.0.4
  openmetrics,  // text 1.0.0
  json,         // the health document: all bulkheads, rejection rates in percent, average times
};

// The format that an Accept header prefers, by its quality values; prometheus if it accepts none of them.
MetricsFormat negotiate(std::string_view accept) noexcept;
std::string_view content_type(MetricsFormat format) noexcept;

enum class MetricType : std::uint8_t { counter, gauge, histogram, info };
constexpr std::string_view to_string(MetricType type) noexcept {
  constexpr std::string_view kNames[] = {"counter", "gauge", "histogram", "info"};
  const auto i = static_cast<std::size_t>(type);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

struct MetricFamily {
  std::string_view name;  // as in a query; a histogram adds _bucket, _sum and _count
  MetricType type{};
  std::string_view labels;  // "bulkhead, reason"
  std::string_view help;
};
std::span<const MetricFamily> metric_families() noexcept;  // in the order of a page

// The state of the configuration file, if there is one.
struct ConfigState {
  bool last_reload_successful = true;
  std::chrono::system_clock::time_point last_success{};
  std::string revision{}, source{};  // of the configuration in force: a hash, and its origin
};

// An override: a temporary change of one setting.
struct OverrideState {
  std::string bulkhead{}, field{};  // "payments", "max_concurrent"
  std::chrono::system_clock::time_point expires{};
};

// The last minute of a bulkhead, for health(): the counters of the process cannot show what happens now.
struct MetricsWindow {
  std::string bulkhead{};
  double seconds = 0;  // at most 60
  std::uint64_t requests = 0, rejected = 0, failed = 0;
  // Since when it rejects calls or has no free unit; epoch: it does neither.
  std::chrono::system_clock::time_point since{};
};

struct MetricsExtras {
  std::optional<ConfigState> config{};
  std::vector<OverrideState> overrides{};
  std::optional<ProcessStats> process{};
  std::optional<std::uint64_t>
      audit_lost{};                      // audit lines of a control plane that are missing in its audit file
  std::vector<MetricsWindow> windows{};  // by name; only on the health page
};

struct MetricsOptions {
  // The number of tenants of each set with series of their own, at most 50: those with the most recent rejections and
  // calls. The others, by default all, are added up in `other`.
  std::uint32_t top_tenants = 0;
  std::chrono::nanoseconds tenant_stays =
      std::chrono::minutes(10);  // how long a tenant keeps its series at least
  // Of one family; at least 1000. Critical bulkheads have precedence, then by name.
  std::size_t max_series = 50'000;
  std::size_t max_label_bytes = 128;  // at least 32
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options = {});  // std::invalid_argument naming the setting
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Replaces the contents of `page`, and reuses its memory.
  void render(std::string& page, const RegistrySnapshot& all, MetricsFormat format,
              const MetricsExtras& extras = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
