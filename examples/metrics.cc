// What Prometheus would read of this process, and what a person would.
#include <bulkhead/metrics.h>
#include <bulkhead/registry.h>

#include <cstdio>
#include <string>

int main() {
  bulkhead::Registry registry;
  const auto payments = registry.add(
      {.options = {.name = "payments", .max_concurrent = 1}, .criticality = bulkhead::Priority::critical});
  for (int i = 0; i < 3; ++i) static_cast<void>(payments->execute([] {}));
  const auto held = payments->try_acquire();
  static_cast<void>(payments->try_acquire());  // no place for it

  bulkhead::Metrics metrics;
  std::string page;  // keep it: its memory is used again
  const auto format = bulkhead::negotiate("application/openmetrics-text;version=1.0.0,text/plain;q=0.5");
  metrics.render(page, registry.snapshot(), format, {.process = bulkhead::process_stats()});
  std::printf("Content-Type: %s\n\n%s\n", std::string(bulkhead::content_type(format)).c_str(), page.c_str());

  metrics.render(page, registry.snapshot(), bulkhead::MetricsFormat::json);
  std::fputs(page.c_str(), stdout);
}  // bulkhead_rejected_total{bulkhead="payments",criticality="critical",reason="concurrency_limit"} 1
