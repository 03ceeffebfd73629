#include <algorithm>
#include <boost/json/array.hpp>

#include "handlers.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

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
  // An if_match that is misspelled would guard nothing.
  auto errors = unknown_fields(*o, {"method", "path", "body", "if_match"});
  if (const json::value* const guard = o->if_contains("if_match"); guard && !guard->is_string())
    errors.push_back(
        {.pointer = "/if_match", .message = "is not a text", .hint = "an ETag, with its quotes"});
  if (!errors.empty()) throw invalid_body(std::move(errors));
  if (!r.query.empty())
    throw Problem{.status = 422,
                  .type = "invalid_body",
                  .detail = "its path has parameters: dry_run is for the whole batch",
                  .errors = {{"/path", "has parameters: dry_run is for the whole batch", ""}}};
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

}  // namespace

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

Response put_change(Core& core, const Request& r) { return change(core, r, true); }
Response delete_change(Core& core, const Request& r) { return change(core, r, false); }

Response post_batch(Core& core, const Request& r) {
  need_json(r);
  const json::object body = parse_object(r.body);
  const json::value* const list = body.if_contains("operations");
  if (!list || !list->is_array() || list->get_array().empty() || list->get_array().size() > 100)
    throw Problem{.status = 422,
                  .type = "invalid_body",
                  .detail = "operations has to be a list of 1 to 100",
                  .errors = {{"/operations", "has to be a list of 1 to 100 operations", ""}}};
  if (auto errors = unknown_fields(body, {"operations"}); !errors.empty()) {
    for (FieldError& error : errors)
      if (error.pointer == "/dry_run") error.hint = "it is a parameter: POST /v1/batch?dry_run=true";
    throw invalid_body(std::move(errors));
  }
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
  if (found == core.options.switches.end()) {
    std::vector<std::string> known;
    for (const Switch& s : core.options.switches) known.push_back(s.name);
    throw not_known("switch", r.segments[2], known, "GET /v1/switches lists them");
  }
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

}  // namespace bulkhead::control
