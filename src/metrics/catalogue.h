// catalogue.h - every metric family: its name, its meaning, and the source of its numbers.
//
// One table, from which pages, metric_families() and docs/formats/metrics.md are made.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "bulkhead/metrics.h"
#include "metrics/rows.h"
#include "metrics/top_tenants.h"
#include "metrics/writer.h"

namespace bulkhead::metrics {

struct MemberRow {
  std::string labels;  // {group="db",bulkhead="checkout"
  const GroupSnapshot::Member* member;
};
struct GroupRow {
  std::string labels;  // {group="db"
  const RegistrySnapshot::Group* group;
  std::vector<MemberRow> members;
};
struct TenantsRow {
  std::string labels;  // {bulkhead="orders"
  const RegistrySnapshot::Tenants* tenants;
  std::vector<std::pair<std::string, TopTenants::Line>> lines;  // {bulkhead="orders",tenant="acme"
};

struct ResourceRow {
  std::string labels;  // {pool="checkout", and of those that are not PostgreSQL's also kind
  const RegistrySnapshot::Resource* resource;
  std::optional<Times> wait, use;  // none: they are not measured
};

enum class Overflow : std::uint8_t { bulkhead, group, pool };  // by the first label of a family
inline constexpr std::array<std::string_view, 3> kOverflowLabels{"bulkhead", "group", "pool"};

// What a page is made from.
struct Page {
  const RegistrySnapshot& all;
  const MetricsExtras& extras;
  const MetricsOptions& options;
  std::span<const BulkheadRow> rows;
  std::span<const GroupRow> groups;
  std::span<const TenantsRow> tenants;
  std::span<const ResourceRow> resources;
  const std::array<std::uint64_t, kOverflowLabels.size()>& overflow;
};

struct Descriptor {
  MetricFamily family;
  void (*write)(Writer& out, const Page& page);
};
std::span<const Descriptor> catalogue() noexcept;
const std::array<std::string, kReasons>& reason_texts();  // ,reason="timeout"}

}  // namespace bulkhead::metrics
