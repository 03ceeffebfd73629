#include "metrics/rows.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "base/text.h"
#include "metrics/labels.h"
#include "registry/tenants.h"

namespace bulkhead::metrics {
namespace {

constexpr std::string_view kOther = "other";

// The last bucket that ends at a bound or before it.
constexpr auto kLastBucket = [] {
  std::array<std::size_t, kBounds.size()> last{};
  for (std::size_t i = 0; i < last.size(); ++i) last[i] = Histogram::bucket_of(kBounds[i].ns) - 1;
  return last;
}();

class Builder {
 public:
  Builder(const RegistrySnapshot& all, const MetricsOptions& options) : all_(all), options_(options) {}

  Rows build() {
    std::vector<const RegistrySnapshot::Entry*> own;
    own.reserve(all_.bulkheads.size());
    for (const auto& t : all_.tenants) sum_of(t.name);  // also if there is no tenant yet
    for (const auto& entry : all_.bulkheads) {
      // A set of tenants and a bulkhead of the same name would be one series twice.
      if (!entry.tenants.empty())
        add(sum_of(entry.tenants), entry);
      else if (const auto same = sums_.find(entry.name); same != sums_.end())
        add(same->second, entry);
      else
        own.push_back(&entry);
    }
    for (const auto& t : all_.tenants) {
      if (t.other) registry::fold(own_sum(sum_of(t.name)), *t.other);
      if (t.sum) add(sum_of(t.name), *t.sum);
    }

    const std::size_t series = options_.max_series / kHistogramSeries;
    const std::size_t room = series > sums_.size() + 1 ? series - sums_.size() - 1 : 1;
    const std::size_t kept = std::min(room, own.size());
    // One that is called as the sum of the rest has to be in it.
    std::ranges::sort(own, {}, [&](const auto* e) {
      return std::tuple(kept < own.size() && e->name == kOther, e->criticality, std::string_view(e->name));
    });
    out_.rows.reserve(kept + sums_.size() + 1);
    for (std::size_t i = 0; i < kept; ++i) out_.rows.push_back(of(*own[i]));
    for (std::size_t i = kept; i < own.size(); ++i) add(sum_of(kOther), *own[i]);
    out_.left_out = own.size() - kept;
    for (auto& [name, sum] : sums_) out_.rows.push_back(std::move(sum));
    for (BulkheadRow& row : out_.rows) finish(row);
    return std::move(out_);
  }

 private:
  BulkheadRow of(const RegistrySnapshot::Entry& entry) const {
    BulkheadRow row;
    row.entry = &entry;
    row.now = &entry.now;
    row.name = clean(entry.name, options_.max_label_bytes);
    row.criticality = entry.criticality;
    if (!entry.configured.gate) row.configured = entry.configured.max_concurrent;
    if (entry.now.breaker) ++row.breakers[static_cast<std::size_t>(entry.now.breaker->state)];
    if (entry.configured.histograms) {
      row.wait = fold(entry.now.wait);
      row.service = fold(entry.now.service);
    }
    return row;
  }

  BulkheadRow empty_sum(std::string_view name) {
    BulkheadRow row;
    row.now = &out_.sums.emplace_back();
    row.name = clean(name, options_.max_label_bytes);
    row.criticality = Priority::best_effort;
    row.members = 0;
    row.configured = 0;
    return row;
  }
  BulkheadRow& sum_of(std::string_view name) {
    const auto found = sums_.find(name);
    return found != sums_.end() ? found->second : sums_.emplace(name, empty_sum(name)).first->second;
  }
  BulkheadSnapshot& own_sum(const BulkheadRow& row) {
    return *std::ranges::find(out_.sums, row.now, [](const auto& s) { return &s; });
  }
  void add(BulkheadRow& row, const RegistrySnapshot::Entry& entry) {
    BulkheadSnapshot& sum = own_sum(row);
    registry::fold(sum, entry.now);
    registry::fold_state(sum, entry.now);
    row.criticality = std::min(row.criticality, entry.criticality);
    row.configured = *row.configured + entry.configured.max_concurrent;
    ++row.members;
    if (entry.now.breaker) ++row.breakers[static_cast<std::size_t>(entry.now.breaker->state)];
  }

  void add(BulkheadRow& row, const RegistrySnapshot::Sum& more) {
    BulkheadSnapshot& sum = own_sum(row);
    registry::fold(sum, more.now);
    registry::fold_state(sum, more.now);
    row.criticality = std::min(row.criticality, more.criticality);
    row.configured = *row.configured + more.configured;
    row.members += more.members;
    for (std::size_t i = 0; i < row.breakers.size(); ++i) row.breakers[i] += more.breakers[i];
  }

  void finish(BulkheadRow& row) const {
    if (!row.entry) {
      if (row.members == 0) row.criticality = Priority::normal;
      row.wait = fold(row.now->wait);
      row.service = fold(row.now->service);
    }
    row.labels = "{";
    append_label(row.labels, "bulkhead", row.name, options_.max_label_bytes);
    row.critical_labels = base::join({row.labels, ",criticality=\"", to_string(row.criticality), "\""});
  }

  const RegistrySnapshot& all_;
  const MetricsOptions& options_;
  Rows out_;
  std::map<std::string, BulkheadRow, std::less<>> sums_;  // of sets of tenants, and of the rest
};

}  // namespace

Times fold(const HistogramCounts& counts) noexcept {
  Times times;
  std::uint64_t seen = 0;
  std::size_t bucket = 0;
  for (std::size_t i = 0; i < kBounds.size(); ++i) {
    for (; bucket <= kLastBucket[i]; ++bucket) seen += counts.buckets[bucket];
    times.at_most[i] = seen;
  }
  for (; bucket < counts.buckets.size(); ++bucket) seen += counts.buckets[bucket];
  times.count = seen;
  times.sum_ns = counts.sum;
  return times;
}

std::uint64_t requests(const BulkheadSnapshot& now) noexcept {
  std::uint64_t n = now.gate.admitted + now.gate.rejected() + now.bypassed + now.would_wait;
  for (const auto would : now.would_reject) n += would;
  return n;
}

Rows make_rows(const RegistrySnapshot& all, const MetricsOptions& options) {
  return Builder(all, options).build();
}

}  // namespace bulkhead::metrics
