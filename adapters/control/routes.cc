#include "routes.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <charconv>
#include <exception>

namespace bulkhead::control {
namespace json = boost::json;
namespace {

std::string transport(const Request& r) { return r.caller.local ? "unix" : "tcp"; }

[[noreturn]] void bad_request(std::string detail) {
  throw Problem{.status = 400, .type = "bad_request", .detail = std::move(detail)};
}

std::size_t number(const Request& r, std::string_view name, std::size_t least, std::size_t most,
                   std::size_t standard) {
  const std::string* const text = r.parameter(name);
  if (!text) return standard;
  std::size_t n = 0;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), n);
  if (error != std::errc{} || end != text->data() + text->size() || n < least || n > most)
    bad_request(std::string(name) + " has to be a whole number from " + std::to_string(least) + " to " +
                std::to_string(most));
  return n;
}

bool dry_run(const Request& r) {
  const std::string* const text = r.parameter("dry_run");
  if (!text || *text == "false") return false;
  if (!text->empty() && *text != "true" && *text != "1") bad_request("dry_run has to be true or false");
  return true;
}

void need_json(const Request& r) {
  if (r.body.empty() || r.content_type.starts_with("application/json")) return;
  throw Problem{
      .status = 415, .type = "unsupported_media_type", .detail = "send Content-Type: application/json"};
}

Body body_of(const BodySpec& spec, const Request& r) {
  need_json(r);
  return read_body(spec, r.body.empty() ? json::object{} : parse_object(r.body));
}

Entry audit_entry(const Request& r, std::string kind, std::string bulkhead) {
  return {.kind = std::move(kind),
          .bulkhead = std::move(bulkhead),
          .actor = r.caller.actor,
          .audit = true,
          .role = std::string(to_string(r.caller.role)),
          .transport = transport(r),
          .action = r.method + ' ' + r.path,
          .request = r.id};
}

Response with_etag(Response response, std::string etag) {
  response.headers.emplace_back("ETag", std::move(etag));
  return response;
}

bool matches(std::string_view if_match, std::string_view etag) {
  if (if_match.empty() || if_match == "*") return true;
  while (!if_match.empty()) {
    std::string_view one = if_match.substr(0, if_match.find(','));
    if_match.remove_prefix(std::min(if_match.size(), one.size() + 1));
    while (one.starts_with(' ')) one.remove_prefix(1);
    while (one.ends_with(' ')) one.remove_suffix(1);
    if (one == etag) return true;
  }
  return false;
}

// ---- Reading

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

Response get_stream(Core&, const Request&) {
  Response response;
  response.stream = true;
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

Response render(Core& core, MetricsFormat format) {
  MetricsExtras extras{.process = process_stats()};
  if (!core.options.config.path.empty()) {
    const ConfigStatus status = core.options.config.status();
    extras.config = ConfigState{.last_reload_successful = status.valid,
                                .last_success = status.last_success,
                                .revision = status.revision,
                                .source = core.options.config.path,
                                .overrides_active = static_cast<std::uint32_t>(core.changes.count())};
  }
  core.metrics.render(core.page, core.plant.snapshot(), format, extras);
  return respond(core.page, std::string(content_type(format)));
}

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

// ---- Changing

ChangeKind kind_of(const Request& r) {
  return r.segments[1] == "overrides"  ? ChangeKind::size
         : r.segments[1] == "circuits" ? ChangeKind::breaker
                                       : ChangeKind::drain;
}

std::string event_kind(const Wish& wish) {
  if (wish.kind == ChangeKind::drain) return wish.set ? "drain" : "resume";
  return wish.set ? "override" : "revert";
}

Wish read_wish(const Request& r, bool set, const Body& body) {
  return {.kind = kind_of(r),
          .set = set,
          .name = r.segments[2],
          .limit = body.limit,
          .queue = body.queue,
          .mode = body.circuit == "open" ? BreakerMode::forced_open : BreakerMode::forced_closed,
          .ttl = body.ttl,
          .reason = body.reason,
          .actor = r.caller.actor};
}

const BodySpec& spec_of(ChangeKind kind) {
  return kind == ChangeKind::size ? kSizeBody : kind == ChangeKind::breaker ? kCircuitBody : kDrainBody;
}

json::object change_json(Core& core, const Wish& wish, const Change& change, bool dry) {
  json::array effects;
  for (const std::string& effect : change.effects) effects.push_back(json::string(effect));
  return {{"name", wish.name},
          {"before", change.before},
          {"after", change.after},
          {"overrides", core.changes.of(wish.name)},
          {"effects", std::move(effects)},
          {"text", change.text},
          {"dry_run", dry}};
}

void audit_change(Core& core, const Request& r, const Wish& wish, const Change& change) {
  if (change.nothing) return;
  Entry entry = audit_entry(r, event_kind(wish), wish.name);
  entry.text = change.text;
  entry.reason = wish.reason;
  if (wish.set) entry.ttl_s = std::chrono::duration<double>(wish.ttl).count();
  entry.before = change.before;
  entry.after = change.after;
  core.journal.add(std::move(entry));
}

Response get_change(Core& core, const Request& r) {
  return with_etag(respond(core.changes.resource(r.segments[2], kind_of(r))),
                   core.changes.etag(r.segments[2]));
}

Response get_overrides(Core& core, const Request&) {
  json::array list;
  for (const std::string& name : core.changes.names())
    list.push_back(json::object{{"name", name}, {"overrides", core.changes.of(name)}});
  return respond({{"overrides", std::move(list)}});
}

Response change(Core& core, const Request& r, bool set) {
  const Wish wish = read_wish(r, set, body_of(set ? spec_of(kind_of(r)) : kRevertBody, r));
  const std::string etag = core.changes.etag(wish.name);
  if (!matches(r.if_match, etag))
    return with_etag(respond(core.changes.resource(wish.name, wish.kind), 412), etag);
  const bool dry = dry_run(r);
  const Change made = dry ? core.changes.plan(wish) : core.changes.apply(wish);
  if (!dry) {
    core.changed = true;
    audit_change(core, r, wish, made);
  }
  return with_etag(respond(change_json(core, wish, made, dry)), core.changes.etag(wish.name));
}

Response put_change(Core& core, const Request& r) { return change(core, r, true); }
Response delete_change(Core& core, const Request& r) { return change(core, r, false); }

Problem inside(Problem problem, const std::string& prefix) {
  if (problem.errors.empty())
    problem.errors.push_back({.pointer = "", .message = problem.detail, .hint = ""});
  for (FieldError& error : problem.errors) error.pointer = prefix + error.pointer;
  problem.detail = "nothing was changed: " + prefix + ": " + problem.detail;
  return problem;
}

// One element of a batch, as the request that it stands for.
Wish read_operation(Core& core, const Request& batch, const json::value& value) {
  const json::object* const o = value.if_object();
  const auto text = [&](std::string_view name) {
    const json::value* const v = o ? o->if_contains(name) : nullptr;
    return v && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  Request r;
  r.caller = batch.caller;
  r.method = text("method");
  if (!o || (r.method != "PUT" && r.method != "DELETE") || !parse_target(text("path"), r))
    throw Problem{.status = 422,
                  .type = "invalid_body",
                  .detail =
                      "an operation is {\"method\": \"PUT\" or \"DELETE\", \"path\": \"/v1/overrides/NAME\", "
                      "\"body\": {...}}"};
  const Route& route = find_route(r);
  if (route.handle != put_change && route.handle != delete_change)
    throw Problem{.status = 422, .type = "invalid_body", .detail = r.path + " cannot be part of a batch"};
  const bool set = r.method == "PUT";
  const json::value* const body = o->if_contains("body");
  if (body && !body->is_object())
    throw Problem{.status = 422,
                  .type = "invalid_body",
                  .detail = "body is not an object",
                  .errors = {{"/body", "is not an object", ""}}};
  Wish wish = read_wish(r, set,
                        read_body(set ? spec_of(kind_of(r)) : kRevertBody,
                                  body ? body->get_object() : json::object{}, "/body"));
  if (const std::string if_match = text("if_match"); !matches(if_match, core.changes.etag(wish.name)))
    throw Problem{
        .status = 412, .type = "precondition_failed", .detail = '"' + wish.name + "\" has changed since"};
  return wish;
}

Response post_batch(Core& core, const Request& r) {
  need_json(r);
  const json::object body = parse_object(r.body);
  const json::value* const list = body.if_contains("operations");
  if (!list || !list->is_array() || list->get_array().empty() || list->get_array().size() > 100)
    throw Problem{.status = 422,
                  .type = "invalid_body",
                  .detail = "operations has to be a list of 1 to 100",
                  .errors = {{"/operations", "has to be a list of 1 to 100 operations", ""}}};
  std::vector<Wish> wishes;
  const auto prefix = [](std::size_t i) { return "/operations/" + std::to_string(i); };
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    try {
      Wish wish = read_operation(core, r, list->get_array()[i]);
      for (const Wish& other : wishes)
        if (other.name == wish.name && other.kind == wish.kind)
          throw Problem{.status = 422, .type = "invalid_body", .detail = "the same thing is changed twice"};
      wishes.push_back(std::move(wish));
    } catch (const Problem& problem) {
      throw inside(problem, prefix(i));
    }
  }
  std::size_t at = 0;
  std::vector<Change> made;
  const bool dry = dry_run(r);
  try {
    if (dry)
      for (at = 0; at < wishes.size(); ++at) made.push_back(core.changes.plan(wishes[at]));
    else
      made = core.changes.apply(wishes, at);
  } catch (const Problem& problem) {
    throw inside(problem, prefix(at));
  }
  json::array results;
  for (std::size_t i = 0; i < wishes.size(); ++i) {
    if (!dry) audit_change(core, r, wishes[i], made[i]);
    results.push_back(change_json(core, wishes[i], made[i], dry));
  }
  core.changed = true;
  return respond({{"results", std::move(results)}, {"dry_run", dry}});
}

Response get_switches(Core& core, const Request&) {
  json::array list;
  for (const Switch& s : core.options.switches)
    list.push_back(json::object{{"name", s.name}, {"title", s.title}, {"on", s.is_on()}});
  return respond({{"switches", std::move(list)}});
}

Response put_switch(Core& core, const Request& r) {
  const auto found = std::ranges::find(core.options.switches, r.segments[2], &Switch::name);
  if (found == core.options.switches.end())
    throw Problem{
        .status = 404, .type = "not_found", .detail = "there is no switch \"" + r.segments[2] + '"'};
  const Body body = body_of(kSwitchBody, r);
  const bool before = found->is_on(), dry = dry_run(r);
  if (!dry && before != *body.on) {
    found->set(*body.on);
    Entry entry = audit_entry(r, "switch", "");
    entry.text = found->title + (*body.on ? ": on" : ": off");
    entry.reason = body.reason;
    entry.before = before;
    entry.after = *body.on;
    core.journal.add(std::move(entry));
    core.changed = true;
  }
  return respond({{"name", found->name},
                  {"title", found->title},
                  {"before", before},
                  {"on", *body.on},
                  {"dry_run", dry}});
}

// ---- The file

const ConfigFile& config_of(const Core& core) {
  if (core.options.config.path.empty())
    throw Problem{
        .status = 404, .type = "not_found", .detail = "this program runs without a configuration file"};
  return core.options.config;
}

json::array diagnostics_json(const std::vector<Diagnostic>& diagnostics) {
  json::array list;
  for (const Diagnostic& d : diagnostics)
    list.push_back(json::object{{"pointer", d.pointer},
                                {"line", d.line},
                                {"column", d.column},
                                {"message", d.message},
                                {"hint", d.hint}});
  return list;
}

json::array strings(const std::vector<std::string>& texts) {
  json::array list;
  for (const std::string& text : texts) list.push_back(json::string(text));
  return list;
}

json::object plan_json(const ConfigPlan& plan) {
  return {{"valid", plan.errors.empty()},
          {"errors", diagnostics_json(plan.errors)},
          {"changes", strings(plan.changes)},
          {"needs_restart", strings(plan.needs_restart)},
          {"revision", plan.revision}};
}

Response get_config(Core& core, const Request&) {
  const ConfigFile& config = config_of(core);
  const ConfigStatus status = config.status();
  json::object o{{"file", config.path},
                 {"revision", status.revision},
                 {"valid", status.valid},
                 {"error", nullptr},
                 {"text", config.running ? config.running() : ""}};
  if (!status.valid) o["error"] = status.error;
  return with_etag(respond(o), '"' + status.revision + '"');
}

Response post_validate(Core& core, const Request& r) {
  const ConfigFile& config = config_of(core);
  if (!r.content_type.starts_with("application/json") && !r.content_type.starts_with("application/yaml"))
    throw Problem{.status = 415,
                  .type = "unsupported_media_type",
                  .detail = "send the file with Content-Type: application/yaml"};
  const auto errors = config.validate(r.body);
  return respond({{"valid", errors.empty()}, {"errors", diagnostics_json(errors)}});
}

Response get_diff(Core& core, const Request&) { return respond(plan_json(config_of(core).diff())); }

Response post_reload(Core& core, const Request& r) {
  const ConfigFile& config = config_of(core);
  const std::string etag = '"' + config.status().revision + '"';
  if (!matches(r.if_match, etag)) {
    const ConfigStatus now = config.status();
    return with_etag(respond({{"file", config.path}, {"revision", now.revision}, {"valid", now.valid}}, 412),
                     etag);
  }
  const bool dry = dry_run(r);
  const ConfigPlan plan = dry ? config.diff() : config.reload();
  if (!dry) {
    Entry entry = audit_entry(r, plan.errors.empty() ? "reload" : "reload_failed", "");
    entry.result = plan.errors.empty() ? "ok" : "failed";
    entry.text = plan.errors.empty()
                     ? "loaded " + config.path + ", " + std::to_string(plan.changes.size()) + " changes"
                     : config.path + " was refused: " + plan.errors.front().message;
    entry.before = etag;
    entry.after = '"' + plan.revision + '"';
    core.journal.add(std::move(entry));
    core.changed = true;
    if (plan.errors.empty()) core.reconcile();
  }
  json::object o = plan_json(plan);
  o["dry_run"] = dry;
  if (plan.errors.empty()) return with_etag(respond(o), '"' + plan.revision + '"');
  Problem problem{.status = 422,
                  .type = "invalid_body",
                  .detail = config.path + " is not valid; what ran before still runs"};
  for (const Diagnostic& d : plan.errors)
    problem.errors.push_back(
        {.pointer = d.pointer, .message = d.message, .hint = d.hint, .line = d.line, .column = d.column});
  throw problem;
}

const Answer kDenied401{401, "Problem", "the token is unknown or expired, or one is needed"};
const Answer kDenied403{403, "Problem", "the role does not suffice, or the request comes from elsewhere"};
const Answer kNotFound{404, "Problem", "there is no such bulkhead"};
const Answer kBadQuery{400, "Problem", "a parameter is wrong"};
const Answer kBadBody{400, "Problem", "the body is not JSON"};
const Answer kType{415, "Problem", "the body is not declared as JSON"};
const Answer kInvalid{422, "Problem", "the body is JSON, but not right: see errors"};
const Answer kNoFile{404, "Problem", "there is no file"};
const Answer kConflict{409, "Problem", "it cannot be done as things are"};

std::vector<Answer> changing(std::string_view schema, std::string_view stale) {
  return {{200, schema, "done, or with dry_run what would be done"},
          kBadBody,
          kDenied401,
          kDenied403,
          kNotFound,
          kConflict,
          {412, stale, "If-Match does not match: what it is now"},
          kType,
          kInvalid};
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
       nullptr, "", {}, with(reading("BulkheadDetail", "the bulkhead"), {kNotFound})},
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
       with(reading("Config", "the text and its revision"), {kNoFile})},
      {"POST", "/v1/config/validate", viewer, worker, post_validate, "Would this file load?", nullptr, "ConfigText", {},
       {{200, "Validation", "what is wrong with it, if anything"}, kDenied401, kDenied403, kNoFile, kType}},
      {"GET", "/v1/config/diff", viewer, worker, get_diff, "What a reload would do", nullptr, "", {},
       with(reading("Plan", "the plan"), {kNoFile})},
      {"POST", "/v1/config/reload", admin, worker, post_reload, "Load the file anew", nullptr, "", {"dry_run"},
       {{200, "Reloaded", "done"}, kDenied401, kDenied403, kNoFile, {412, "ConfigRevision", "If-Match does not match"},
        {422, "Problem", "the file is not valid; nothing has changed"}}},
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
  };
  for (const auto& [path, schema, about, body] :
       {Changeable{"/v1/overrides/{name}", "SizeResource", "another limit or queue for a while", &kSizeBody},
        Changeable{"/v1/circuits/{name}/override", "CircuitResource",
                   "the breaker forced open or closed for a while", &kCircuitBody},
        Changeable{"/v1/drains/{name}", "DrainResource", "new calls refused for a while", &kDrainBody}}) {
    table.push_back({"GET",
                     path,
                     viewer,
                     worker,
                     get_change,
                     about,
                     nullptr,
                     "",
                     {},
                     with(reading(schema, "as it is"), {kNotFound})});
    table.push_back({"PUT",
                     path,
                     operator_,
                     worker,
                     put_change,
                     about,
                     body,
                     "",
                     {"dry_run"},
                     changing("Changed", schema)});
    table.push_back({"DELETE",
                     path,
                     operator_,
                     worker,
                     delete_change,
                     about,
                     &kRevertBody,
                     "",
                     {"dry_run"},
                     changing("Changed", schema),
                     true});
  }
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
      journal(options.audit_file),
      changes(plant, options.clock ? *options.clock : Clock::steady()),
      observer(plant, changes, journal, options) {}

void Core::expire() {
  for (const Changes::Ended& ended : changes.expire()) {
    journal.add(
        {.kind = "expired", .bulkhead = ended.name, .text = ended.text, .audit = true, .action = "expire"});
    changed = true;
  }
}

void Core::reconcile() {
  for (const Changes::Ended& ended : changes.reconcile())
    journal.add(
        {.kind = "revert", .bulkhead = ended.name, .text = ended.text, .audit = true, .action = "reload"});
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
    allowed += (allowed.empty() ? "" : ", ") + std::string(route.method);
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
