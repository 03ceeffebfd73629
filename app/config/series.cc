#include "app/config/series.h"

#include <string>
#include <utility>

#include "bulkhead/live_config.h"
#include "bulkhead/metrics.h"

namespace bulkhead::config {
namespace {

// What makes no difference to the page, and would start threads or take much memory here.
void trim(BulkheadOptions& o) {
  o.pool.min_threads = 0;
  o.track_holders = false;
  o.flow_queues = 0;
  o.scope = Scope::process;
}

}  // namespace

std::size_t series_of(Config config) {
  for (BulkheadConfig& b : config.bulkheads) trim(b.options);
  for (TenantsConfig& t : config.tenants) trim(t.each.options);
  Registry registry;
  LiveConfig live(registry, {});
  if (!live.reload(ConfigText{.config = std::move(config)}).ok()) return 0;
  std::string page;
  Metrics().render(page, registry.snapshot(), MetricsFormat::prometheus,
                   {.config = ConfigState{}, .process = ProcessStats{}});
  std::size_t series = 0;
  for (std::size_t at = 0; at < page.size(); at = page.find('\n', at) + 1) series += page[at] != '#';
  return series;
}

}  // namespace bulkhead::config
