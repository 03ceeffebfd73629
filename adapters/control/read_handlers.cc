#include <algorithm>
#include <boost/json/array.hpp>

#include "handlers.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

Response render(Core& core, MetricsFormat format) {
  MetricsExtras extras{.overrides = core.changes.in_force(), .process = process_stats()};
  if (!core.options.config.path.empty()) {
    const ConfigStatus status = core.options.config.status();
    extras.config = ConfigState{.last_reload_successful = status.valid,
                                .last_success = status.last_success,
                                .revision = status.revision,
                                .source = core.options.config.path};
  }
  RegistrySnapshot all = core.plant.snapshot();
  for (auto& entry : all.bulkheads)  // an override is no configuration
    if (const auto limit = core.changes.replaced_limit(entry.name)) entry.configured.max_concurrent = *limit;
  core.metrics.render(core.page, all, format, extras);
  return respond(core.page, std::string(content_type(format)));
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
  if (step > seconds) bad_request("step is longer than seconds");
  return respond(core.observer.history(seconds, step, r.parameter("bulkhead")));
}

Response get_bulkheads(Core& core, const Request&) {
  json::object all = core.observer.snapshot(0);
  return respond({{"bulkheads", std::move(all["bulkheads"])}, {"revision", all["revision"]}});
}

Response get_bulkhead(Core& core, const Request& r) {
  return with_etag(respond(core.observer.bulkhead(r.segments[2])), core.changes.etag(r.segments[2]));
}

Response get_pools(Core& core, const Request&) {
  json::object all = core.observer.snapshot(0);
  return respond({{"pools", std::move(all["pools"])}});
}

Response get_tenants(Core& core, const Request&) {
  json::object all = core.observer.snapshot(0);
  return respond({{"tenants", std::move(all["tenants"])}});
}

Response get_events(Core& core, const Request& r) {
  json::array list;
  for (const Entry& entry : core.journal.list(
           {.after = number(r, "since", 0, SIZE_MAX, 0), .limit = number(r, "limit", 1, 1000, 100)}))
    list.push_back(entry.event());
  return respond({{"events", std::move(list)}, {"last", core.journal.last_id()}});
}

Response get_audit(Core& core, const Request& r) {
  json::array list;
  auto entries = core.journal.list({.after = number(r, "since", 0, SIZE_MAX, 0),
                                    .limit = number(r, "limit", 1, 1000, 100),
                                    .audit_only = true});
  std::ranges::reverse(entries);
  for (const Entry& entry : entries) list.push_back(entry.audited());
  return respond({{"entries", std::move(list)}, {"last", core.journal.last_id()}});
}

Response get_session(Core&, const Request& r) {
  return respond({{"role", to_string(r.caller.role)},
                  {"actor", r.caller.actor},
                  {"writable", r.caller.role >= Role::operator_},
                  {"transport", transport(r)}});
}

Response get_openapi(Core& core, const Request&) { return respond(openapi(core)); }

Response get_metrics(Core& core, const Request& r) { return render(core, negotiate(r.accept)); }
Response get_health(Core& core, const Request&) { return render(core, MetricsFormat::json); }

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
