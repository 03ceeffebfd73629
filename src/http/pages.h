// pages.h - the responses to /metrics and /health/bulkheads, the same from every server: Guard (adapters/beast and
// adapters/httplib) and the control plane.
#pragma once

#include <string_view>

#include "bulkhead/http.h"
#include "bulkhead/metrics.h"

namespace bulkhead::http {

// Prometheus text, or OpenMetrics if `accept` prefers it. Adds the statistics of the process if `extras` has none.
Response metrics_page(Metrics& metrics, const RegistrySnapshot& all, std::string_view accept,
                      MetricsExtras extras);
// The health document, as JSON.
Response health_page(Metrics& metrics, const RegistrySnapshot& all, const MetricsExtras& extras);

}  // namespace bulkhead::http
