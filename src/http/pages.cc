#include "http/pages.h"

#include <string>

namespace bulkhead::http {
namespace {

Response render(Metrics& metrics, const RegistrySnapshot& all, MetricsFormat format,
                const MetricsExtras& extras) {
  Response r;
  metrics.render(r.body, all, format, extras);
  r.headers = {{"Content-Type", std::string(content_type(format))}, {"Cache-Control", "no-store"}};
  return r;
}

}  // namespace

Response metrics_page(Metrics& metrics, const RegistrySnapshot& all, std::string_view accept,
                      MetricsExtras extras) {
  if (!extras.process) extras.process = process_stats();
  return render(metrics, all, negotiate(accept), extras);
}

Response health_page(Metrics& metrics, const RegistrySnapshot& all, const MetricsExtras& extras) {
  return render(metrics, all, MetricsFormat::json, extras);
}

}  // namespace bulkhead::http
