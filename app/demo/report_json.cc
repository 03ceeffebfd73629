#include <cmath>

#include "app/cli/json.h"
#include "app/demo/report.h"

namespace bulkhead::demo {
namespace {

double ms(std::uint64_t ns) { return std::round(static_cast<double>(ns) / 1e4) / 100; }
double ms(nanoseconds d) { return ms(static_cast<std::uint64_t>(d.count())); }

void quantiles(cli::JsonWriter& json, std::string_view name, const HistogramCounts& times) {
  json.open(name);
  const bool any = times.count() > 0;
  any ? json.field("p50", ms(times.quantile(0.5))) : json.null("p50");
  any ? json.field("p99", ms(times.quantile(0.99))) : json.null("p99");
  json.close();
}

void phase(cli::JsonWriter& json, Phase which, const Count& count) {
  json.open(to_string(which));
  json.field("calls", count.calls).field("served", count.served);
  json.field("served_share", std::round(count.served_share() * 1e5) / 1e5);
  json.field("rejected", count.rejected()).field("failed", count.failed);
  json.open("rejected_by_reason");
  for (std::size_t i = 0; i < kReasons; ++i)
    json.field(to_string(static_cast<Reason>(i)), count.rejected_by_reason[i]);
  json.close();
  quantiles(json, "wait_ms", count.wait);
  quantiles(json, "response_ms", count.response);
  json.close();
}

void act(cli::JsonWriter& json, const Story& story, const ActResult& result, bool bulkheads) {
  json.open().field("bulkheads", bulkheads).field("peak_connections", result.peak_connections);
  result.first_failure.empty() ? json.null("first_failure")
                               : json.field("first_failure", result.first_failure);
  json.list("routes");
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const RouteSpec& spec = story.routes[i];
    json.open().field("name", spec.name);
    json.field("max_concurrent", bulkheads ? spec.share : story.connections);
    json.field("max_queue", bulkheads ? story.line_of(spec) : story.line);
    json.field("peak_in_flight", result.peak_in_flight[i]);
    json.open("phases");
    for (std::size_t p = 0; p < kPhases; ++p) phase(json, static_cast<Phase>(p), result.counts[i][p]);
    json.close().close();
  }
  json.close().close();
}

}  // namespace

std::string report_json(const Results& results, std::string_view version) {
  const Story& story = results.story;
  cli::JsonWriter json;
  json.open().field("schema", "bulkhead.demo/1").field("version", version).field("seed", story.seed);
  json.open("story").field("database", story.database).field("database_kind", story.database_kind);
  json.field("connections", story.connections).field("max_queue", story.line);
  json.field("max_wait_ms", ms(story.max_wait)).field("slow_route", story.slow_spec().name);
  json.field("service_ms", ms(story.slow_spec().service));
  json.field("slow_service_ms", ms(results.with.reports_took.quantile(0.5)));
  json.field("calm_ms", ms(story.calm))
      .field("slow_ms", ms(story.slow))
      .field("recovered_ms", ms(story.recovered));
  json.close();
  json.list("acts");
  act(json, story, results.without, false);
  act(json, story, results.with, true);
  json.close();
  json.field("isolated", isolated(results)).field("conclusion", conclusion({}, results));
  return json.close().text();
}

}  // namespace bulkhead::demo
