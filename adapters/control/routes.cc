#include "routes.h"

#include <algorithm>
#include <exception>

#include "handlers.h"

namespace bulkhead::control {
namespace {

const Answer kDenied401{401, "Problem", "the token is unknown or expired, or one is needed"};
const Answer kDenied403{403, "Problem", "the role does not suffice, or the request comes from elsewhere"};
const Answer kNotFound{404, "Problem", "there is no such bulkhead"};
const Answer kBadQuery{400, "Problem", "a parameter is wrong"};
const Answer kBadBody{400, "Problem", "the body is not JSON, or a parameter is wrong"};
const Answer kTooLarge{413, "Problem", "the body is too large"};
const Answer kType{415, "Problem", "the body is not declared as JSON"};
const Answer kInvalid{422, "Problem", "the body is JSON, but not right: see errors"};
const Answer kNoFile{404, "Problem", "there is no file"};
const Answer kConflict{409, "Problem", "it cannot be done as things are"};

std::vector<Answer> changing(std::string_view stale, bool can_conflict) {
  std::vector<Answer> answers{{200, "Changed", "done, or with dry_run what would be done"},
                              kBadBody,
                              kDenied401,
                              kDenied403,
                              kNotFound,
                              {412, stale, "If-Match does not match: what it is now"},
                              kType,
                              kInvalid};
  if (can_conflict) answers.insert(answers.begin() + 5, kConflict);
  return answers;
}

std::vector<Route> make_routes() {
  using enum Role;
  using enum Where;
  const auto reading = [](std::string_view schema, std::string_view what) {
    return std::vector<Answer>{{200, schema, what}, kDenied401, kDenied403};
  };
  const auto with = [](std::vector<Answer> answers, std::initializer_list<Answer> more) {
    answers.insert(answers.end(), more);
    return answers;
  };
  // clang-format off
  std::vector<Route> table{
      {"GET", "/v1/snapshot", viewer, loop, get_snapshot, "Everything at this moment", nullptr, "", {},
       reading("Snapshot", "the snapshot")},
      {"GET", "/v1/stream", viewer, loop, get_stream, "The snapshot once a second, as server-sent events", nullptr, "", {},
       with(reading("text/event-stream", "events named snapshot"), {{503, "Problem", "too many streams"}})},
      {"GET", "/v1/history", viewer, loop, get_history, "The last hour, for heatmap and charts", nullptr, "",
       {"seconds", "step", "bulkhead"},
       with(reading("History", "oldest first"), {kBadQuery, {404, "Problem", "nothing is remembered of it"}})},
      {"GET", "/v1/bulkheads", viewer, loop, get_bulkheads, "All bulkheads, as in the snapshot", nullptr, "", {},
       reading("Bulkheads", "the list")},
      {"GET", "/v1/bulkheads/{name}", viewer, loop, get_bulkhead, "One bulkhead, with its settings and who holds its places",
       nullptr, "", {}, with(reading("BulkheadDetail", "the bulkhead"), {kNotFound}), false, true},
      {"GET", "/v1/pools", viewer, loop, get_pools, "The pools of connections, as in the snapshot", nullptr, "", {},
       reading("Pools", "the list")},
      {"GET", "/v1/tenants", viewer, loop, get_tenants, "The templates of tenants and their busiest, as in the snapshot", nullptr, "", {},
       reading("Tenants", "the list")},
      {"GET", "/v1/overrides", viewer, worker, get_overrides, "All overrides in force", nullptr, "", {},
       reading("Overrides", "by bulkhead")},
      {"GET", "/v1/switches", viewer, loop, get_switches, "What else of the program can be switched", nullptr, "", {},
       reading("Switches", "the list")},
      {"PUT", "/v1/switches/{name}", operator_, worker, put_switch, "Switch it on or off", &kSwitchBody, "", {"dry_run"},
       {{200, "SwitchChanged", "done"}, kBadBody, kDenied401, kDenied403, {404, "Problem", "there is no such switch"}, kType, kInvalid}},
      {"POST", "/v1/batch", operator_, worker, post_batch, "Several changes, all or none", nullptr, "Batch", {"dry_run"},
       {{200, "BatchResult", "all are done"}, kBadBody, kDenied401, kDenied403, kNotFound, kConflict,
        {412, "Problem", "an if_match does not match"}, kType, kInvalid}},
      {"GET", "/v1/config", viewer, worker, get_config, "The configuration in force", nullptr, "", {},
       with(reading("Config", "the text and its revision"), {kNoFile}), false, true},
      {"POST", "/v1/config/validate", viewer, worker, post_validate, "Would this file load?", nullptr, "ConfigText", {},
       {{200, "Validation", "what is wrong with it, if anything"}, kDenied401, kDenied403, kNoFile, kType}},
      {"GET", "/v1/config/diff", viewer, worker, get_diff, "What a reload would do", nullptr, "", {},
       with(reading("Plan", "the plan"), {kNoFile})},
      {"POST", "/v1/config/reload", admin, worker, post_reload, "Load the file anew", &kReloadBody, "", {"dry_run"},
       {{200, "Reloaded", "done"}, kBadBody, kDenied401, kDenied403, kNoFile, {412, "ConfigRevision", "If-Match does not match"}, kType,
        {422, "Problem", "the file or the body is not valid; nothing has changed"}}, true, true},
      {"GET", "/v1/events", viewer, loop, get_events, "What happened, oldest first", nullptr, "", {"since", "limit"},
       with(reading("Events", "those above `since`"), {kBadQuery})},
      {"GET", "/v1/audit", viewer, loop, get_audit, "Who changed what, and who was denied, newest first", nullptr, "",
       {"since", "limit"}, with(reading("Audit", "those above `since`"), {kBadQuery})},
      {"GET", "/v1/session", viewer, loop, get_session, "Who is asking", nullptr, "", {}, reading("Session", "who you are")},
      {"GET", "/v1/openapi.json", viewer, loop, get_openapi, "This document", nullptr, "", {}, reading("OpenApi", "OpenAPI 3.1")},
      {"GET", "/metrics", viewer, loop, get_metrics, "For Prometheus: text, or OpenMetrics by Accept", nullptr, "", {},
       reading("text/plain", "all series")},
      {"GET", "/health/bulkheads", viewer, loop, get_health, "Health of all bulkheads: active, queued, rejected, times", nullptr, "", {},
       reading("Health", "by bulkhead")},
      {"GET", "/livez", none, loop, get_livez, "Does it live?", nullptr, "", {}, {{200, "text/plain", "it does"}}},
      {"GET", "/readyz", none, loop, get_readyz, "Is it ready, and not stopping?", nullptr, "", {"verbose"},
       {{200, "text/plain", "it is"}, {503, "text/plain", "it is not"}}},
  };
  // clang-format on
  struct Changeable {
    std::string_view path, schema, about;
    const BodySpec* body;
    bool can_conflict;
  };
  // clang-format off
  for (const auto& [path, schema, about, body, can_conflict] :
       {Changeable{"/v1/overrides/{name}", "SizeResource", "another limit or queue for a while", &kSizeBody, true},
        Changeable{"/v1/circuits/{name}/override", "CircuitResource", "the breaker forced open or closed for a while", &kCircuitBody, true},
        Changeable{"/v1/drains/{name}", "DrainResource", "new calls refused for a while", &kDrainBody, false}}) {
    table.push_back({"GET", path, viewer, worker, get_change, about, nullptr, "", {}, with(reading(schema, "as it is"), {kNotFound}), false, true});
    table.push_back({"PUT", path, operator_, worker, put_change, about, body, "", {"dry_run"}, changing(schema, can_conflict), false, true});
    table.push_back({"DELETE", path, operator_, worker, delete_change, about, &kRevertBody, "", {"dry_run"}, changing(schema, false), true, true});
  }
  // clang-format on
  for (Route& route : table)
    if (route.body || !route.body_schema.empty()) route.answers.push_back(kTooLarge);
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

Core::Core(Plant what, ServerOptions how)
    : plant(std::move(what)),
      options(std::move(how)),
      tokens(options.tokens_file.empty() ? Tokens{} : Tokens::load(options.tokens_file)),
      journal(options.audit_file, options.on_event),
      changes(plant, options.clock ? *options.clock : Clock::steady()),
      observer(plant, changes, journal, options) {}

void Core::expire() {
  for (Changes::Ended& ended : changes.expire()) tell("expired", "expire", std::move(ended));
}

void Core::reconcile() {
  for (Changes::Ended& ended : changes.reconcile()) tell("revert", "reload", std::move(ended));
  changed = true;
}

void Core::tell(std::string kind, std::string action, Changes::Ended ended) {
  journal.add({.kind = std::move(kind),
               .bulkhead = std::move(ended.name),
               .text = std::move(ended.text),
               .audit = true,
               .action = std::move(action),
               .before = std::move(ended.before),
               .after = std::move(ended.after)});
  changed = true;
}

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
    throw Problem{
        .status = 404,
        .type = "not_found",
        .detail = "there is no " + r.path.substr(0, 200) + "; /v1/openapi.json lists what there is"};
  throw Problem{.status = 405,
                .type = "method_not_allowed",
                .detail = r.path.substr(0, 200) + " knows " + allowed,
                .headers = {{"Allow", allowed}}};
}

void check_access(Core& core, const Route* route, const Request& r) {
  const auto deny = [&](Problem problem) {
    Entry entry = audit_entry(r, "denied", r.segments.size() > 2 ? r.segments[2] : "");
    entry.text = problem.detail;
    core.journal.deny(std::move(entry));
    throw problem;
  };
  if (const std::string why = wrong_site(r, core.hosts); !why.empty())
    deny({.status = 403, .type = "forbidden", .detail = why});
  const Problem ask{.status = 401,
                    .type = "unauthorized",
                    .detail = "",
                    .headers = {{"WWW-Authenticate", "Bearer realm=\"bulkhead\""}}};
  if (!r.caller.denied.empty()) {
    Problem problem = ask;
    problem.detail = r.caller.denied;
    deny(problem);
  }
  const Role needed = route ? route->role : Role::viewer;
  if (r.caller.role >= needed) return;
  const std::string who = std::string(to_string(needed)) + " is needed, ";
  if (r.caller.actor == "anonymous") {
    Problem problem = ask;
    problem.detail =
        "the role " + who + "and a token that has it: Authorization: Bearer TOKEN, or the unix socket";
    deny(problem);
  }
  deny({.status = 403,
        .type = "forbidden",
        .detail =
            "the role " + who + '"' + r.caller.actor + "\" is " + std::string(to_string(r.caller.role))});
}

Response handle(Core& core, const Route& route, const Request& request) noexcept {
  try {
    try {
      return route.handle(core, request);
    } catch (const Problem& problem) {
      return respond(problem, request.id);
    } catch (const std::exception& error) {
      return respond(Problem{.status = 500, .type = "internal", .detail = error.what()}, request.id);
    }
  } catch (...) {  // no memory for an answer
    Response response;
    response.status = 500;
    return response;
  }
}

}  // namespace bulkhead::control
