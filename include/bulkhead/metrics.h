// metrics.h - everything a registry can tell, as Prometheus reads it, or as JSON.
//
//   bulkhead::Metrics metrics;
//   std::string page;                                                     // kept from scrape to scrape
//   const auto format = bulkhead::negotiate(request["Accept"]);
//   metrics.render(page, registry.snapshot(), format, {.process = bulkhead::process_stats()});
//   reply(200, bulkhead::content_type(format), page);
//
// The names, their labels and what they mean: metric_families(), and docs/formats/metrics.md, which is made
// from them. docs/operate/alerts.md has the alert rules that come with them.
//
// Threads: every member may be called from any thread; pages are made one after the other.
// Promises: all series of a bulkhead are there from its first page on, at 0. The number of series is bounded,
//   whatever names and tenants there are: see MetricsOptions. What is left out is added up in `other`, so sums
//   stay right, and is counted in bulkhead_label_overflow_total. A label value is valid UTF-8, escaped, and at
//   most `max_label_bytes` long; one that had to be changed ends in ~ and a hash of what it was.
// Not promised: that the sums of tenants stay right to the call when one of them has its statistics reset.
// Cost: making a page reads a snapshot and no bulkhead, so it holds up no call. 1000 bulkheads with all policies
//   are 109 000 series in 8 MB, made in under 10 ms (bulkhead_metrics_bench); the page's memory is the caller's
//   and used again.
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
  json,         // the health document: all bulkheads, rejection rates in per cent, average times
};

// What an Accept header asks for, by its quality values; prometheus if it asks for nothing we have.
MetricsFormat negotiate(std::string_view accept) noexcept;
std::string_view content_type(MetricsFormat format) noexcept;

enum class MetricType : std::uint8_t { counter, gauge, histogram, info };
constexpr std::string_view to_string(MetricType type) noexcept {
  constexpr std::string_view names[] = {"counter", "gauge", "histogram", "info"};
  const auto i = static_cast<std::size_t>(type);
  return i < std::size(names) ? names[i] : "unknown";
}

struct MetricFamily {
  std::string_view name;  // as it is queried, but for a histogram's _bucket, _sum and _count
  MetricType type{};
  std::string_view labels;  // "bulkhead, reason"
  std::string_view help;
};
std::span<const MetricFamily> metric_families() noexcept;  // in the order of a page

// How things stand with the configuration file, for those that have one.
struct ConfigState {
  bool last_reload_successful = true;
  std::chrono::system_clock::time_point last_success{};
  std::string revision{}, source{};  // what is in force: a hash, and where it came from
};

// A setting that somebody changed at run time, until it goes back by itself.
struct OverrideState {
  std::string bulkhead{}, field{};  // "payments", "limit"
  std::chrono::system_clock::time_point expires{};
};

struct MetricsExtras {
  std::optional<ConfigState> config{};
  std::vector<OverrideState> overrides{};
  std::optional<ProcessStats> process{};
};

struct MetricsOptions {
  // Tenants with series of their own, for each set of them: those with most rejections and calls of late, to 50.
  // The others, and by default all, are counted in `other`.
  std::uint32_t top_tenants = 0;
  std::chrono::nanoseconds tenant_stays = std::chrono::minutes(10);  // at least, once it has series
  // Of one family; at least 1000. Critical bulkheads come first, then by name.
  std::size_t max_series = 50'000;
  std::size_t max_label_bytes = 128;  // at least 32
};

class Metrics {
 public:
  explicit Metrics(const MetricsOptions& options = {});  // std::invalid_argument naming the setting
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // Replaces what is in `page`, and uses its memory.
  void render(std::string& page, const RegistrySnapshot& all, MetricsFormat format,
              const MetricsExtras& extras = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
