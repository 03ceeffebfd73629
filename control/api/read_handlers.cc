#include <algorithm>
#include <boost/json/array.hpp>

#include "bulkhead/config_metrics.h"
#include "handlers.h"
#include "http/pages.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

// The bulkheads as the file configures them, without overrides.
RegistrySnapshot look(const Core& core) {
  const std::size_t listed = core.options.top_tenants == 0 ? 0 : core.options.listed_tenants;
  RegistrySnapshot all = core.registry.snapshot(
      {.list_tenants = static_cast<std::uint32_t>(std::min<std::size_t>(listed, 0xffff'ffff))});
  for (auto& entry : all.bulkheads)
    if (const auto replaced = core.operations.replaced(entry.name, kMaxConcurrent))
      entry.configured.max_concurrent = *replaced;
  return all;
}

MetricsExtras extras_of(const Core& core) {
  MetricsExtras extras{.overrides = core.operations.in_force(), .audit_lost = core.journal.lost()};
  if (has_file(core.live)) extras.config = config_metrics(core.live).config;
  return extras;
}

Response as_response(http::Response page) {
  return respond(std::move(page.body), std::string(page.header("Content-Type")));
}

Response part_of_snapshot(Core& core, std::string_view part) {
  return respond({{part, std::move(core.observer.snapshot(0)[part])}});
}

}  // namespace

Response get_snapshot(Core& core, const Request&) {
  const auto now = std::chrono::steady_clock::now();
  if (!core.snapshot || core.changed.exchange(false) ||
      now - core.snapshot_at >= std::chrono::milliseconds(50)) {
    core.snapshot = std::make_shared<const std::string>(text_of(core.observer.snapshot(50)) + '\n');
    core.snapshot_at = now;
  }
  Response response;
  response.body = core.snapshot;
  return response;
}

Response get_stream(Core&, const Request& r) {
  Response response;
  response.type = "text/event-stream";
  response.stream = r.method != "HEAD";
  return response;
}

Response get_history(Core& core, const Request& r) {
  const std::size_t seconds = number(r, "seconds", 1, 3600, 300), step = number(r, "step", 1, 60, 1);
  if (step > seconds) bad_request("step must not exceed seconds");
  return respond(core.observer.history(seconds, step, r.parameter("bulkhead")));
}

Response get_bulkheads(Core& core, const Request&) {
  json::object all = core.observer.snapshot(0);
  return respond({{"bulkheads", std::move(all["bulkheads"])}, {"revision", all["revision"]}});
}

Response get_bulkhead(Core& core, const Request& r) {
  return with_etag(respond(core.observer.bulkhead(r.segments[2])), core.operations.etag(r.segments[2]));
}

Response get_pools(Core& core, const Request&) { return part_of_snapshot(core, "pools"); }
Response get_tenants(Core& core, const Request&) { return part_of_snapshot(core, "tenants"); }
Response get_switches(Core& core, const Request&) { return part_of_snapshot(core, "switches"); }

Response get_events(Core& core, const Request& r) {
  const auto entries = core.journal.list(
      {.after = number(r, "since", 0, SIZE_MAX, 0), .newest = number(r, "newest", 1, 1000, 100)});
  return respond({{"events", events_json(entries)}, {"last", core.journal.last_id()}});
}

Response get_audit(Core& core, const Request& r) {
  json::array list;
  auto entries = core.journal.list({.after = number(r, "since", 0, SIZE_MAX, 0),
                                    .newest = number(r, "newest", 1, 1000, 100),
                                    .audit_only = true});
  std::ranges::reverse(entries);
  for (const JournalEntry& entry : entries) list.push_back(entry.audited());
  return respond({{"entries", std::move(list)}, {"last", core.journal.last_id()}});
}

Response get_session(Core&, const Request& r) {
  return respond({{"role", to_string(r.caller.role)},
                  {"actor", r.caller.actor},
                  {"writable", r.caller.role >= Role::operator_},
                  {"transport", transport(r)}});
}

Response get_openapi(Core& core, const Request&) { return respond(openapi(core)); }

Response get_metrics(Core& core, const Request& r) {
  return as_response(http::metrics_page(core.metrics, look(core), r.accept, extras_of(core)));
}
Response get_health(Core& core, const Request&) {
  MetricsExtras extras = extras_of(core);
  extras.windows = core.observer.windows();
  return as_response(http::health_page(core.metrics, look(core), extras));
}

Response get_status(Core& core, const Request&) { return respond(core.observer.status()); }

Response get_livez(Core&, const Request&) { return respond("ok\n", "text/plain; charset=utf-8"); }

Response get_readyz(Core& core, const Request& r) {
  const std::string not_ready = core.options.not_ready ? core.options.not_ready() : "";
  const bool stopping = core.stopping.load(), ready = not_ready.empty() && !stopping;
  std::string text;
  if (r.parameter("verbose")) {
    text += std::string("[") + (stopping ? "-" : "+") + "]not stopping\n";
    text += not_ready.empty() ? "[+]program\n" : "[-]program: " + not_ready + '\n';
  }
  text += ready ? "ok\n" : stopping ? "stopping\n" : "not ready: " + not_ready + '\n';
  return respond(std::move(text), "text/plain; charset=utf-8", ready ? 200 : 503);
}

}  // namespace bulkhead::control
