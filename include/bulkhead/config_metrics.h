// config_metrics.h - the state of a LiveConfig for a metrics page: the bulkhead_config_* series and the overrides.
//
//   bulkhead::http::Guard guard(registry, {.metrics_extras = [&live] { return bulkhead::config_metrics(live); }});
//
// Threads: any. The LiveConfig must outlive the guard.
// Cost: copies the status and the overrides for each page.
#pragma once

#include <charconv>
#include <chrono>
#include <cstdint>
#include <string>
#include <utility>

#include "bulkhead/live_config.h"
#include "bulkhead/metrics.h"

namespace bulkhead {

// Converts times to wall-clock times at this call.
inline MetricsExtras config_metrics(const LiveConfig& live) {
  const auto wall = std::chrono::system_clock::now();
  const TimePoint now = live.clock().now();
  const auto wall_of = [&](TimePoint at) {
    return wall + std::chrono::duration_cast<std::chrono::system_clock::duration>(at - now);
  };
  ConfigStatus status = live.status();
  // Eight digits of the hash, as the control plane shows it.
  char digits[8];
  const auto hash = static_cast<std::uint32_t>(status.text_hash ^ status.text_hash >> 32);
  std::string revision(digits, std::to_chars(digits, digits + sizeof digits, hash, 16).ptr);
  revision.insert(0, sizeof digits - revision.size(), '0');
  MetricsExtras extras;
  extras.config = ConfigState{.last_reload_successful = status.last_reload_successful,
                              .revision = std::move(revision),
                              .source = std::move(status.file)};
  if (status.loaded) extras.config->last_success = wall_of(status.last_success);
  for (const ActiveOverride& one : live.overrides())
    extras.overrides.push_back({.bulkhead = one.bulkhead.empty() ? one.path : one.bulkhead,
                                .field = one.setting,
                                .expires = wall_of(one.expires)});
  return extras;
}

}  // namespace bulkhead
