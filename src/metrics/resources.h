// resources.h - the metrics of resource pools: the families bulkhead_pg_* for PostgreSQL, bulkhead_resource_* for all others.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

#include "metrics/catalogue.h"

namespace bulkhead::metrics {

inline constexpr std::string_view kPostgres = "postgres";

template <bool postgres, class Write>
void each_resource(const Page& page, Write write) {
  for (const ResourceRow& row : page.resources)
    if ((row.resource->kind == kPostgres) == postgres) write(row, row.resource->now);
}

template <bool postgres, auto get>
void of_resource(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot& now) {
    out.sample(row.labels, kEnd, std::uint64_t{std::invoke(get, now)});
  });
}

template <bool postgres>
void write_states(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot& now) {
    out.sample(row.labels, R"(,state="used"} )", std::uint64_t{now.used} + now.cleaning);
    out.sample(row.labels, R"(,state="idle"} )", std::uint64_t{now.idle});
    out.sample(row.labels, postgres ? R"(,state="connecting"} )" : R"(,state="opening"} )",
               std::uint64_t{now.opening});
    out.sample(row.labels, R"(,state="closing"} )", std::uint64_t{now.closing});
  });
}

template <bool postgres>
void write_closed(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot& now) {
    out.sample(row.labels, R"(,cause="broken"} )", now.broken);
    out.sample(row.labels, R"(,cause="expired"} )", now.expired);
    out.sample(row.labels, R"(,cause="idle"} )", now.idled_out);
    out.sample(row.labels, R"(,cause="invalid"} )", now.invalid);
    out.sample(row.labels, R"(,cause="surplus"} )", now.surplus);
  });
}

template <bool postgres>
void write_lease_rejected(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot& now) {
    for (std::size_t i = 0; i < kRejectReasons; ++i)
      out.sample(row.labels, reason_texts()[i], now.gate.rejected_by_reason[i]);
  });
}

template <bool postgres>
void write_oldest(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot& now) {
    const auto ns = now.oldest_lease.count();
    out.seconds(row.labels, kEnd, ns > 0 ? static_cast<std::uint64_t>(ns) : 0);
  });
}

template <bool postgres, auto times>
void write_lease_times(Writer& out, const Page& page) {
  each_resource<postgres>(page, [&](const ResourceRow& row, const ResourceSnapshot&) {
    if (row.*times) out.histogram(row.labels, *(row.*times));
  });
}

// Calls whose time was over in the queue, or while a resource was opened, which counts as a rejection of the gate, too.
inline std::uint64_t timeouts(const ResourceSnapshot& now) noexcept {
  return now.gate.rejected(Reason::timeout) + now.gate.rejected(Reason::deadline);
}

}  // namespace bulkhead::metrics
