#include "bulkhead/metrics.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bulkhead/detail/std_mutex.h"
#include "metrics/catalogue.h"
#include "metrics/health.h"
#include "metrics/labels.h"
#include "metrics/resources.h"
#include "metrics/rows.h"
#include "metrics/top_tenants.h"
#include "metrics/writer.h"

namespace bulkhead {
namespace {

using metrics::catalogue;
using metrics::GroupRow;
using metrics::kOverflowLabels;
using metrics::ResourceRow;
using metrics::TenantsRow;
using metrics::TopTenants;

void check(const MetricsOptions& o) {
  const auto wrong = [](std::string_view setting, std::string_view value, std::string_view fix) {
    base::throw_invalid(base::join({"metrics: ", setting, " is ", value, ": ", fix}));
  };
  if (o.top_tenants > 50) wrong("top_tenants", std::to_string(o.top_tenants), "choose 0 to 50");
  if (o.tenant_stays <= std::chrono::nanoseconds::zero())
    wrong("tenant_stays", std::to_string(o.tenant_stays.count()) + " ns", "choose more than 0");
  if (o.max_series < 1000) wrong("max_series", std::to_string(o.max_series), "choose 1000 or more");
  if (o.max_label_bytes < 32)
    wrong("max_label_bytes", std::to_string(o.max_label_bytes), "choose 32 or more");
}

std::vector<GroupRow> group_rows(const RegistrySnapshot& all, std::size_t max_label) {
  std::vector<GroupRow> rows;
  for (const auto& group : all.groups) {
    GroupRow row{.labels = "{", .group = &group, .members = {}};
    metrics::append_label(row.labels, "group", group.name, max_label);
    for (const auto& member : group.members) {
      std::string labels = row.labels + ",";
      metrics::append_label(labels, "bulkhead", member.name, max_label);
      row.members.push_back({std::move(labels), &member});
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// PostgreSQL pools have metrics of their own name (bulkhead_pg_*), so they need no label `kind`.
std::vector<ResourceRow> resource_rows(const RegistrySnapshot& all, std::size_t max_label) {
  std::vector<ResourceRow> rows;
  for (const auto& resource : all.resources) {
    ResourceRow row{.labels = "{", .resource = &resource, .wait = {}, .use = {}};
    metrics::append_label(row.labels, "pool", resource.name, max_label);
    if (resource.kind != metrics::kPostgres) {
      row.labels += ",";
      metrics::append_label(row.labels, "kind", resource.kind, max_label);
    }
    if (resource.now.histograms) {
      row.wait = metrics::fold(resource.now.wait);
      row.use = metrics::fold(resource.now.use);
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

// Invariants: all of it is under the mutex. `overflow` only grows. `top` has one element for each set of tenants ever
// seen, which are as many as the configuration has.
struct Metrics::State {
  explicit State(const MetricsOptions& o) : options(o) {}

  std::vector<TenantsRow> tenants_rows(const RegistrySnapshot& all) BULKHEAD_REQUIRES(mutex) {
    std::vector<TenantsRow> rows;
    for (const auto& tenants : all.tenants) {
      TenantsRow row{.labels = "{", .tenants = &tenants, .lines = {}};
      metrics::append_label(row.labels, "bulkhead", tenants.name, options.max_label_bytes);
      if (options.top_tenants > 0) add_lines(row, all);
      rows.push_back(std::move(row));
    }
    return rows;
  }

  void add_lines(TenantsRow& row, const RegistrySnapshot& all) BULKHEAD_REQUIRES(mutex) {
    TopTenants::View view;
    for (const auto& entry : all.bulkheads)
      if (entry.tenants == row.tenants->name) view.live.push_back(&entry);
    if (row.tenants->other) view.retired = &*row.tenants->other;
    if (row.tenants->sum) view.unlisted = &row.tenants->sum->now;
    auto& ranking =
        top.try_emplace(row.tenants->name, options.top_tenants, options.tenant_stays).first->second;
    for (auto& line : ranking.update(view, all.taken)) {
      std::string labels = row.labels + ",";
      metrics::append_label(labels, "tenant", line.tenant, options.max_label_bytes);
      row.lines.emplace_back(std::move(labels), std::move(line));
    }
  }

  const MetricsOptions options;
  detail::StdMutex mutex;
  std::map<std::string, TopTenants> top BULKHEAD_GUARDED_BY(mutex);
  std::array<std::uint64_t, kOverflowLabels.size()> overflow BULKHEAD_GUARDED_BY(mutex){};
};

Metrics::Metrics(const MetricsOptions& options) {
  check(options);
  state_ = std::make_unique<State>(options);
}
Metrics::~Metrics() = default;

void Metrics::render(std::string& page, const RegistrySnapshot& all, MetricsFormat format,
                     const MetricsExtras& extras) {
  State& state = *state_;
  const detail::MutexLock lock(state.mutex);
  const metrics::Rows rows = metrics::make_rows(all, state.options);
  const auto groups = group_rows(all, state.options.max_label_bytes);
  const auto tenants = state.tenants_rows(all);
  const auto resources = resource_rows(all, state.options.max_label_bytes);
  const metrics::Page content{.all = all,
                              .extras = extras,
                              .options = state.options,
                              .rows = rows.rows,
                              .groups = groups,
                              .tenants = tenants,
                              .resources = resources,
                              .overflow = state.overflow};
  if (format == MetricsFormat::json) return write_health(page, content);

  state.overflow[static_cast<std::size_t>(metrics::Overflow::bulkhead)] += rows.left_out;
  metrics::Writer out(page, format == MetricsFormat::openmetrics, state.options.max_series);
  for (const auto& [family, write] : catalogue()) {
    out.begin(family);
    write(out, content);
    const std::uint64_t left_out = out.end();
    for (std::size_t i = 0; i < kOverflowLabels.size(); ++i)
      if (family.labels.starts_with(kOverflowLabels[i])) state.overflow[i] += left_out;
  }
  out.finish();
}

std::span<const MetricFamily> metric_families() noexcept {
  static const auto families = [] {
    std::vector<MetricFamily> all;
    for (const auto& descriptor : catalogue()) all.push_back(descriptor.family);
    return all;
  }();
  return families;
}

}  // namespace bulkhead
