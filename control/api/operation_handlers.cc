#include <algorithm>
#include <boost/json/array.hpp>

#include "handlers.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

struct KindRow {
  std::string_view segment;  // of the path
  OperationKind kind;
  const BodySpec& body;
  const char *set, *ended;  // kinds of journal entries
};
const KindRow kKinds[] = {{"overrides", OperationKind::size, kSizeBody, "override", "revert"},
                          {"breakers", OperationKind::breaker, kBreakerBody, "override", "revert"},
                          {"drains", OperationKind::drain, kDrainBody, "drain", "resume"},
                          {"faults", OperationKind::fault, kFaultBody, "fault", "revert"}};

const KindRow& row_of(const Request& r) {
  return *std::ranges::find(kKinds, std::string_view(r.segments[1]), &KindRow::segment);
}

Operation operation_of(const Request& r, bool set, const Body& body) {
  return {.kind = row_of(r).kind,
          .set = set,
          .name = r.segments[2],
          .max_concurrent = body.max_concurrent,
          .max_queue = body.max_queue,
          .mode = body.breaker == "open" ? BreakerMode::forced_open : BreakerMode::forced_closed,
          .ttl = body.ttl,
          .reason = body.reason,
          .actor = r.caller.actor,
          .budgets = body.budgets,
          .latency = body.latency,
          .error = body.error};
}

json::object change_json(Core& core, const Operation& operation, const Change& change, bool dry) {
  json::array effects;
  for (const std::string& effect : change.effects) effects.push_back(json::string(effect));
  return {{"name", operation.name},
          {"before", change.before},
          {"after", change.after},
          {"overrides", core.operations.of(operation.name)},
          {"effects", std::move(effects)},
          {"text", change.text},
          {"dry_run", dry}};
}

void audit_change(Core& core, const Request& r, const Operation& operation, const Change& change) {
  if (change.nothing) return;
  const KindRow& row = *std::ranges::find(kKinds, operation.kind, &KindRow::kind);
  JournalEntry entry = audit_entry(r, operation.set ? row.set : row.ended, operation.name);
  entry.text = change.text;
  entry.reason = operation.reason;
  if (operation.set) entry.ttl_s = std::chrono::duration<double>(operation.ttl).count();
  entry.before = change.before;
  entry.after = change.after;
  core.journal.add(std::move(entry));
}

Response change(Core& core, const Request& r, bool set) {
  const Operation operation = operation_of(r, set, body_of(set ? row_of(r).body : kRevertBody, r));
  const std::string etag = core.operations.etag(operation.name);
  if (!matches(r.if_match, etag))
    return with_etag(respond(core.operations.resource(operation.name, operation.kind), 412), etag);
  const bool dry = dry_run(r);
  const Core::Reporting reporting(core);
  const Change made = dry ? core.operations.plan(operation) : core.operations.apply(operation);
  if (!dry) {
    core.changed = true;
    audit_change(core, r, operation, made);
  }
  return with_etag(respond(change_json(core, operation, made, dry)), core.operations.etag(operation.name));
}

Problem inside(Problem problem, const std::string& prefix) {
  if (problem.errors.empty())
    problem.errors.push_back({.pointer = "", .message = problem.detail, .hint = ""});
  for (FieldError& error : problem.errors) error.pointer = prefix + error.pointer;
  problem.detail = "nothing was changed: " + prefix + ": " + problem.detail;
  return problem;
}

// One element of a batch, read as the request that it describes.
Operation read_operation(Core& core, const Request& batch, const json::value& value) {
  const json::object* const o = value.if_object();
  const auto text = [&](std::string_view name) {
    const json::value* const v = o ? o->if_contains(name) : nullptr;
    return v && v->is_string() ? std::string(v->get_string()) : std::string();
  };
  Request r;
  r.caller = batch.caller;
  r.method = text("method");
  if (!o || (r.method != "PUT" && r.method != "DELETE") || !parse_target(text("path"), r))
    throw Problem{kInvalidBody,
                  "an operation is {\"method\": \"PUT\" or \"DELETE\", \"path\": \"/v1/overrides/NAME\", "
                  "\"body\": {...}}"};
  // A misspelled if_match would protect nothing.
  auto errors = unknown_fields(*o, {"method", "path", "body", "if_match"});
  if (const json::value* const guard = o->if_contains("if_match"); guard && !guard->is_string())
    errors.push_back(
        {.pointer = "/if_match", .message = "is not a string", .hint = "give an ETag, with its quotes"});
  if (!errors.empty()) throw invalid_body(std::move(errors));
  if (!r.query.empty())
    throw invalid_body({{.pointer = "/path", .message = "has parameters: give dry_run for the whole batch"}});
  const Route& route = find_route(r);
  if (route.handle != put_operation && route.handle != delete_operation)
    throw Problem{kInvalidBody, r.path + " cannot be part of a batch"};
  const bool set = r.method == "PUT";
  const json::value* const body = o->if_contains("body");
  if (body && !body->is_object()) throw invalid_body({{.pointer = "/body", .message = "is not an object"}});
  Operation operation = operation_of(
      r, set,
      read_body(set ? row_of(r).body : kRevertBody, body ? body->get_object() : json::object{}, "/body"));
  if (const std::string if_match = text("if_match"); !matches(if_match, core.operations.etag(operation.name)))
    throw Problem{kPreconditionFailed, '"' + operation.name + "\" has changed: if_match does not match"};
  return operation;
}

}  // namespace

Response get_operation(Core& core, const Request& r) {
  return with_etag(respond(core.operations.resource(r.segments[2], row_of(r).kind)),
                   core.operations.etag(r.segments[2]));
}

Response get_overrides(Core& core, const Request&) {
  json::array list;
  for (const std::string& name : core.operations.names())
    list.push_back(json::object{{"name", name}, {"overrides", core.operations.of(name)}});
  return respond({{"overrides", std::move(list)}});
}

Response put_operation(Core& core, const Request& r) { return change(core, r, true); }
Response delete_operation(Core& core, const Request& r) { return change(core, r, false); }

// An error says which operation it concerns. Two operations on one resource are an error: their order would matter.
Response post_batch(Core& core, const Request& r) {
  need_json(r);
  const json::object body = parse_object(r.body);
  const json::value* const list = body.if_contains("operations");
  if (!list || !list->is_array() || list->get_array().empty() || list->get_array().size() > 100)
    throw invalid_body({{.pointer = "/operations", .message = "must be a list of 1 to 100 operations"}});
  if (auto errors = unknown_fields(body, {"operations"}); !errors.empty()) {
    for (FieldError& error : errors)
      if (error.pointer == "/dry_run") error.hint = "it is a parameter: POST /v1/batch?dry_run=true";
    throw invalid_body(std::move(errors));
  }
  std::vector<Operation> operations;
  const auto prefix = [](std::size_t i) { return "/operations/" + std::to_string(i); };
  for (std::size_t i = 0; i < list->get_array().size(); ++i) {
    try {
      Operation operation = read_operation(core, r, list->get_array()[i]);
      for (const Operation& other : operations)
        if (other.name == operation.name && other.kind == operation.kind)
          throw Problem{kInvalidBody, "an earlier operation changes the same resource"};
      operations.push_back(std::move(operation));
    } catch (const Problem& problem) {
      throw inside(problem, prefix(i));
    }
  }
  std::size_t at = 0;
  std::vector<Change> made;
  const bool dry = dry_run(r);
  try {
    if (dry)
      for (at = 0; at < operations.size(); ++at) made.push_back(core.operations.plan(operations[at]));
    else {
      const Core::Reporting reporting(core);
      made = core.operations.apply(operations, at);
    }
  } catch (const Problem& problem) {
    throw inside(problem, prefix(at));
  }
  json::array results;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    if (!dry) audit_change(core, r, operations[i], made[i]);
    results.push_back(change_json(core, operations[i], made[i], dry));
  }
  core.changed = true;
  return respond({{"results", std::move(results)}, {"dry_run", dry}});
}

// A switch that already has the wanted state is not audited.
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
    JournalEntry entry = audit_entry(r, "switch", found->name);
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
