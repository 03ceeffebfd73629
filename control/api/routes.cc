#include "routes.h"

#include <algorithm>
#include <exception>

#include "handlers.h"

namespace bulkhead::control {
namespace {

constexpr std::string_view kNoFile = "there is no configuration file";
constexpr std::string_view kImpossible = "impossible in the current state";

// Adds the answers that every route of its kind can give.
void complete(Route& route) {
  const auto can = [&](unsigned status, std::string_view about, std::string_view schema = "Problem") {
    if (std::ranges::find(route.answers, status, &Answer::status) == route.answers.end())
      route.answers.push_back({status, schema, about});
  };
  const bool many = route.path.ends_with("/{name}"), checked = !route.query.empty();
  if (route.role == Role::none) return;
  can(401, "the token is missing, unknown or expired");
  can(403, "the role does not suffice, or Host or Origin is not accepted");
  if (many) can(404, "unknown bulkhead");
  if (checked)
    can(400, route.body ? "the body is not JSON, or a parameter is invalid" : "a parameter is invalid");
  if (!route.body) return;
  can(413, "the body is too large");
  can(415, "the body is not declared as JSON");
  if (checked) can(422, "the body is invalid: see errors");
}

std::vector<Route> make_routes() {
  using enum Role;
  using enum Where;
  // clang-format off
  std::vector<Route> table{
      {"GET", "/v1/status", viewer, loop, get_status, "The verdict in one sentence, its findings, and the last minute of each bulkhead",
       {{200, "Status", "the verdict"}}},
      {"GET", "/v1/snapshot", viewer, loop, get_snapshot, "The current state of everything", {{200, "Snapshot", "the snapshot"}}},
      {"GET", "/v1/stream", viewer, loop, get_stream, "The snapshot every second, as server-sent events",
       {{200, "text/event-stream", "events named snapshot"}, {503, "Problem", "too many streams"}}},
      {"GET", "/v1/history", viewer, loop, get_history, "The last hour, for heatmap and charts",
       {{200, "History", "oldest first"}, {404, "Problem", "it has no history"}}, {"seconds", "step", "bulkhead"}},
      {"GET", "/v1/bulkheads", viewer, loop, get_bulkheads, "All bulkheads, as in the snapshot", {{200, "Bulkheads", "the list"}}},
      {"GET", "/v1/bulkheads/{name}", viewer, loop, get_bulkhead, "One bulkhead, with its settings and the calls in flight",
       {{200, "BulkheadDetail", "the bulkhead"}}, {}, nullptr, false, true},
      {"GET", "/v1/pools", viewer, loop, get_pools, "The pools of connections, as in the snapshot", {{200, "Pools", "the list"}}},
      {"GET", "/v1/tenants", viewer, loop, get_tenants, "The sets of tenants, as in the snapshot", {{200, "Tenants", "the list"}}},
      {"GET", "/v1/overrides", viewer, worker, get_overrides, "All overrides in force", {{200, "Overrides", "by bulkhead"}}},
      {"GET", "/v1/switches", viewer, loop, get_switches, "The switches of the program", {{200, "Switches", "the list"}}},
      {"PUT", "/v1/switches/{name}", operator_, worker, put_switch, "Turn a switch on or off",
       {{200, "SwitchChanged", "done"}, {404, "Problem", "unknown switch"}}, {"dry_run"}, &kSwitchBody},
      {"POST", "/v1/batch", operator_, worker, post_batch, "Several operations, all or none",
       {{200, "BatchResult", "all were done"}, {404, "Problem", "unknown bulkhead"}, {409, "Problem", kImpossible},
        {412, "Problem", "an if_match does not match"}}, {"dry_run"}, &kBatchBody},
      {"GET", "/v1/config", viewer, worker, get_config, "The configuration in force",
       {{200, "Config", "the text and its revision"}, {404, "Problem", kNoFile}}, {}, nullptr, false, true},
      {"POST", "/v1/config/validate", viewer, worker, post_validate, "Check a configuration file",
       {{200, "Validation", "its errors, if any"}, {404, "Problem", kNoFile}}, {}, &kConfigBody},
      {"GET", "/v1/config/diff", viewer, worker, get_diff, "What a reload would change", {{200, "Plan", "the plan"}, {404, "Problem", kNoFile}}},
      {"POST", "/v1/config/reload", admin, worker, post_reload, "Reload the file",
       {{200, "Reloaded", "done"}, {404, "Problem", kNoFile}, {412, "ConfigRevision", "If-Match does not match"},
        {422, "Problem", "the file or the body is invalid; nothing has changed"}}, {"dry_run"}, &kReloadBody, true, true},
      {"GET", "/v1/events", viewer, loop, get_events, "Events, oldest first", {{200, "Events", "those above `since`"}}, {"since", "newest"}},
      {"GET", "/v1/audit", viewer, loop, get_audit, "Changes and denials, newest first", {{200, "Audit", "those above `since`"}}, {"since", "newest"}},
      {"GET", "/v1/session", viewer, loop, get_session, "Identity and rights of the caller", {{200, "Session", "the caller"}}},
      {"GET", "/v1/openapi.json", viewer, loop, get_openapi, "This document", {{200, "OpenApi", "OpenAPI 3.1"}}},
      {"GET", "/metrics", viewer, loop, get_metrics, "Metrics as Prometheus text, or OpenMetrics by Accept", {{200, "text/plain", "all series"}}},
      {"GET", "/health/bulkheads", viewer, loop, get_health, "Health of all bulkheads as JSON", {{200, "Health", "by bulkhead"}}},
      {"GET", "/livez", none, loop, get_livez, "Liveness probe", {{200, "text/plain", "alive"}}},
      {"GET", "/readyz", none, loop, get_readyz, "Readiness probe", {{200, "text/plain", "ready"}, {503, "text/plain", "not ready, or stopping"}}, {"verbose"}},
  };
  struct Operable {
    std::string_view path, schema, about;
    const BodySpec* body;
    bool can_conflict;
  };
  for (const auto& [path, schema, about, body, can_conflict] :
       {Operable{"/v1/overrides/{name}", "SizeResource", "Override max_concurrent or max_queue for a while", &kSizeBody, true},
        Operable{"/v1/breakers/{name}", "BreakerResource", "Force the breaker open or closed for a while", &kBreakerBody, true},
        Operable{"/v1/drains/{name}", "DrainResource", "Reject new calls for a while", &kDrainBody, false},
        Operable{"/v1/faults/{name}", "FaultResource", "Inject latency and errors for a while, to rehearse an incident", &kFaultBody, true}}) {
    const std::vector<Answer> changed{{200, "Changed", "done; with dry_run, what would be done"},
                                {412, schema, "If-Match does not match; the body is the current state"}};
    table.push_back({"GET", path, viewer, worker, get_operation, about, {{200, schema, "the current state"}}, {}, nullptr, false, true});
    table.push_back({"PUT", path, operator_, worker, put_operation, about, changed, {"dry_run"}, body, false, true});
    if (can_conflict) table.back().answers.push_back({409, "Problem", kImpossible});
    table.push_back({"DELETE", path, operator_, worker, delete_operation, about, changed, {"dry_run"}, &kRevertBody, true, true});
  }
  // clang-format on
  std::ranges::for_each(table, complete);
  return table;
}

bool fits(std::string_view pattern, const Request& r) {
  std::size_t i = 0;
  for (pattern.remove_prefix(1); i < r.segments.size(); ++i) {
    const std::string_view part = pattern.substr(0, pattern.find('/'));
    if (part.empty() || (part.front() == '{' ? r.segments[i].empty() : part != r.segments[i])) return false;
    pattern.remove_prefix(std::min(pattern.size(), part.size() + 1));
  }
  return pattern.empty();
}

}  // namespace

const std::vector<Route>& routes() {
  static const std::vector<Route> table = make_routes();
  return table;
}

const Route& find_route(const Request& r) {
  std::string allowed;
  for (const Route& route : routes()) {
    if (!fits(route.path, r)) continue;
    if (route.method == r.method || (route.method == "GET" && r.method == "HEAD")) return route;
    allowed +=
        (allowed.empty() ? "" : ", ") + std::string(route.method == "GET" ? "GET, HEAD" : route.method);
  }
  if (allowed.empty())
    throw Problem{kNotFound, "unknown path " + r.path.substr(0, 200) + "; /v1/openapi.json lists all"};
  throw Problem{.type = kMethodNotAllowed,
                .detail = r.path.substr(0, 200) + " allows " + allowed,
                .headers = {{"Allow", allowed}}};
}

Response handle(Core& core, const Route& route, const Request& request) noexcept {
  try {
    try {
      return route.handle(core, request);
    } catch (const Problem& problem) {
      return respond(problem, request.id);
    } catch (const std::exception& error) {
      return respond(Problem{kInternal, error.what()}, request.id);
    }
  } catch (...) {  // out of memory
    Response response;
    response.status = 500;
    return response;
  }
}

}  // namespace bulkhead::control
