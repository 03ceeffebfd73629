#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>

#include "routes.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

// What the answers look like. Fields may be added, so objects are open; what is listed as required is always there.
constexpr std::string_view kSchemas = R"json({
  "Count": {"type": "integer", "minimum": 0},
  "Quantiles": {"type": ["array", "null"], "description": "p50, p90, p99 in seconds", "items": {"type": "number"}, "minItems": 3, "maxItems": 3},
  "Problem": {"type": "object", "description": "RFC 9457", "required": ["type", "title", "status", "detail", "instance"],
    "properties": {"type": {"type": "string"}, "title": {"type": "string"}, "status": {"type": "integer"}, "detail": {"type": "string"},
      "instance": {"type": "string"}, "errors": {"type": "array", "items": {"type": "object", "required": ["pointer", "message"],
        "properties": {"pointer": {"type": "string", "description": "into the body (RFC 6901); of a file: the path of the setting, bulkheads.db.max_queue"}, "message": {"type": "string"}, "hint": {"type": "string"}, "line": {"type": "integer"}, "column": {"type": "integer"}}}}}},
  "Override": {"type": "object", "required": ["field", "from", "to", "by", "reason", "since", "expires"],
    "properties": {"field": {"enum": ["limit", "queue", "breaker", "drain"]}, "by": {"type": "string"}, "reason": {"type": "string"},
      "since": {"type": "number"}, "expires": {"type": ["number", "null"]}}},
  "Breaker": {"type": ["object", "null"], "required": ["state", "mode", "reason", "since", "next_probe", "calls", "failures", "slow", "opens"],
    "properties": {"state": {"enum": ["closed", "open", "half_open"]}, "mode": {"enum": ["automatic", "forced_open", "forced_closed", "metrics_only", "disabled"]},
      "reason": {"type": "string"}, "since": {"type": "number"}, "next_probe": {"type": ["number", "null"]}, "calls": {"$ref": "#/components/schemas/Count"},
      "failures": {"$ref": "#/components/schemas/Count"}, "slow": {"$ref": "#/components/schemas/Count"}, "opens": {"$ref": "#/components/schemas/Count"}}},
  "Bulkhead": {"type": "object",
    "required": ["name", "type", "group", "isolation", "criticality", "enabled", "shadow", "draining", "closed", "in_flight", "peak", "borrowed", "lent", "limit",
      "configured_limit", "queue", "queue_limit", "rate", "failed_rate", "rejected_rate", "rejected", "wait", "service", "total", "breaker", "overrides"],
    "properties": {"name": {"type": "string"}, "type": {"type": "string"}, "group": {"type": "string"}, "isolation": {"enum": ["semaphore", "threads"]},
      "criticality": {"enum": ["critical", "normal", "best_effort"]}, "enabled": {"type": "boolean"}, "shadow": {"type": "boolean"}, "draining": {"type": "boolean"},
      "closed": {"type": "boolean"}, "in_flight": {"$ref": "#/components/schemas/Count"}, "peak": {"$ref": "#/components/schemas/Count"},
      "borrowed": {"$ref": "#/components/schemas/Count"}, "lent": {"$ref": "#/components/schemas/Count"}, "limit": {"$ref": "#/components/schemas/Count"},
      "configured_limit": {"$ref": "#/components/schemas/Count"}, "floor": {"$ref": "#/components/schemas/Count"}, "ceiling": {"$ref": "#/components/schemas/Count"},
      "why": {"type": "string"}, "queue": {"$ref": "#/components/schemas/Count"}, "queue_limit": {"$ref": "#/components/schemas/Count"},
      "rate": {"type": "number"}, "failed_rate": {"type": "number"}, "rejected_rate": {"type": "number"},
      "rejected": {"type": "object", "additionalProperties": {"type": "number"}},
      "wait": {"$ref": "#/components/schemas/Quantiles"}, "service": {"$ref": "#/components/schemas/Quantiles"},
      "total": {"type": "object", "required": ["admitted", "succeeded", "failed", "rejected", "timed_out"]},
      "breaker": {"$ref": "#/components/schemas/Breaker"}, "overrides": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}}}},
  "BulkheadDetail": {"allOf": [{"$ref": "#/components/schemas/Bulkhead"}, {"type": "object", "required": ["settings", "holders"],
    "properties": {"settings": {"type": "array", "items": {"type": "object", "required": ["name", "value"]}}, "holders": {"type": "array"}}}]},
  "Bulkheads": {"type": "object", "required": ["bulkheads", "revision"], "properties": {"bulkheads": {"type": "array", "items": {"$ref": "#/components/schemas/Bulkhead"}}}},
  "Event": {"type": "object", "required": ["id", "time", "kind", "bulkhead", "actor", "text"], "properties": {"id": {"type": "integer"}, "time": {"type": "number"},
    "kind": {"type": "string"}, "bulkhead": {"type": "string"}, "actor": {"type": "string"}, "text": {"type": "string"}}},
  "Events": {"type": "object", "required": ["events", "last"], "properties": {"events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}}, "last": {"type": "integer"}}},
  "Audit": {"type": "object", "required": ["entries", "last"], "properties": {"last": {"type": "integer"}, "entries": {"type": "array", "items": {"type": "object",
    "required": ["id", "time", "at", "actor", "role", "transport", "kind", "action", "target", "before", "after", "reason", "ttl", "result", "text", "request"]}}}},
  "PoolList": {"type": "array", "items": {"type": "object", "required": ["name", "kind", "used", "idle", "connecting", "waiting", "max", "wait_p99", "oldest_use", "timeouts", "open_failures", "failing"]}},
  "TenantList": {"type": "array", "items": {"type": "object", "required": ["name", "live", "max", "created", "retired", "overflowed", "refused"]}},
  "Pools": {"type": "object", "required": ["pools"], "properties": {"pools": {"$ref": "#/components/schemas/PoolList"}}},
  "Tenants": {"type": "object", "required": ["tenants"], "properties": {"tenants": {"$ref": "#/components/schemas/TenantList"}}},
  "Snapshot": {"type": "object", "required": ["seq", "time", "instance", "version", "uptime", "window", "revision", "config", "bulkheads", "groups", "pools", "tenants", "switches", "events"],
    "properties": {"seq": {"type": "integer"}, "time": {"type": "number"}, "uptime": {"type": "number"}, "window": {"type": "number"}, "revision": {"type": "string"},
      "config": {"type": "object", "required": ["state", "file", "overrides", "error"], "properties": {"state": {"enum": ["none", "in_sync", "drift", "invalid"]},
        "file": {"type": ["string", "null"]}, "overrides": {"type": "integer"}, "error": {"type": ["string", "null"]}}},
      "bulkheads": {"type": "array", "items": {"$ref": "#/components/schemas/Bulkhead"}},
      "groups": {"type": "array", "items": {"type": "object", "required": ["name", "total", "in_flight", "free", "members", "loans"]}},
      "pools": {"$ref": "#/components/schemas/PoolList"}, "tenants": {"$ref": "#/components/schemas/TenantList"},
      "switches": {"type": "array"}, "events": {"type": "array", "items": {"$ref": "#/components/schemas/Event"}}}},
  "History": {"type": "object", "required": ["end", "step", "count", "bulkheads", "changes"], "properties": {"end": {"type": "number"}, "step": {"type": "integer"},
    "count": {"type": "integer"}, "bulkheads": {"type": "array", "items": {"type": "object", "required": ["name", "used", "limit", "queue", "rejected", "open"]}},
    "changes": {"type": "array", "items": {"type": "object", "required": ["time", "bulkhead", "text"]}}}},
  "Session": {"type": "object", "required": ["role", "actor", "writable", "transport"], "properties": {"role": {"enum": ["none", "viewer", "operator", "admin"]},
    "actor": {"type": "string"}, "writable": {"type": "boolean"}, "transport": {"enum": ["unix", "tcp"]}}},
  "Overrides": {"type": "object", "required": ["overrides"], "properties": {"overrides": {"type": "array", "items": {"type": "object", "required": ["name", "overrides"],
    "properties": {"name": {"type": "string"}, "overrides": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}}}}}}},
  "SizeResource": {"type": "object", "required": ["name", "limit", "queue", "overrides"], "properties": {"overrides": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}}}},
  "CircuitResource": {"type": "object", "required": ["name", "mode", "state", "overrides"]},
  "DrainResource": {"type": "object", "required": ["name", "draining", "in_flight", "waiting", "overrides"]},
  "Changed": {"type": "object", "required": ["name", "before", "after", "overrides", "effects", "text", "dry_run"], "properties": {"name": {"type": "string"},
    "before": {"type": "object"}, "after": {"type": "object"}, "overrides": {"type": "array", "items": {"$ref": "#/components/schemas/Override"}},
    "effects": {"type": "array", "items": {"type": "string"}}, "text": {"type": "string"}, "dry_run": {"type": "boolean"}}},
  "Batch": {"type": "object", "additionalProperties": false, "required": ["operations"], "properties": {"operations": {"type": "array", "minItems": 1, "maxItems": 100, "items": {"type": "object",
    "additionalProperties": false, "required": ["method", "path"], "properties": {"method": {"enum": ["PUT", "DELETE"]}, "path": {"type": "string"}, "body": {"type": "object"}, "if_match": {"type": "string"}}}}}},
  "BatchResult": {"type": "object", "required": ["results", "dry_run"], "properties": {"results": {"type": "array", "items": {"$ref": "#/components/schemas/Changed"}}}},
  "Switches": {"type": "object", "required": ["switches"], "properties": {"switches": {"type": "array", "items": {"type": "object", "required": ["name", "title", "on"]}}}},
  "SwitchChanged": {"type": "object", "required": ["name", "title", "before", "on", "dry_run"]},
  "Config": {"type": "object", "required": ["file", "revision", "valid", "error", "text"]},
  "ConfigRevision": {"type": "object", "required": ["file", "revision", "valid"]},
  "ConfigText": {"type": "object", "description": "the file"},
  "Diagnostics": {"type": "array", "items": {"type": "object", "required": ["pointer", "line", "column", "message", "hint"],
    "properties": {"pointer": {"type": "string", "description": "the path of the setting: bulkheads.db.max_queue"}}}},
  "Validation": {"type": "object", "required": ["valid", "errors"], "properties": {"errors": {"$ref": "#/components/schemas/Diagnostics"}}},
  "Plan": {"type": "object", "required": ["valid", "errors", "changes", "needs_restart", "revision"], "properties": {"errors": {"$ref": "#/components/schemas/Diagnostics"}}},
  "Reloaded": {"allOf": [{"$ref": "#/components/schemas/Plan"}, {"type": "object", "required": ["dry_run"]}]},
  "Health": {"type": "object"},
  "OpenApi": {"type": "object", "required": ["openapi", "info", "paths", "components"]}
})json";

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c | 0x20) : c; }

json::object reference(std::string_view schema) {
  return {{"$ref", "#/components/schemas/" + std::string(schema)}};
}

std::string_view media_type(const Answer& answer) {
  if (answer.schema.find('/') != std::string_view::npos) return answer.schema;
  return answer.schema == "Problem" ? "application/problem+json" : "application/json";
}

json::object response_of(const Answer& answer, bool etag) {
  json::object o{{"description", answer.about}};
  const auto header = [&](std::string_view name) {
    o["headers"] = json::object{{name, {{"required", true}, {"schema", {{"type", "string"}}}}}};
  };
  if (etag && (answer.status == 200 || answer.status == 412)) header("ETag");
  if (answer.status == 401) header("WWW-Authenticate");
  if (answer.schema.empty()) return o;
  const bool other = answer.schema.find('/') != std::string_view::npos;
  o["content"] =
      json::object{{media_type(answer),
                    {{"schema", other ? json::object{{"type", "string"}} : reference(answer.schema)}}}};
  return o;
}

// "put_overrides_name", of PUT /v1/overrides/{name}.
std::string operation_id(const Route& route) {
  std::string id(route.method);
  std::string_view path = route.path;
  if (path.starts_with("/v1")) path.remove_prefix(3);
  for (const char c : path)
    if (c != '{' && c != '}') id += c == '/' || c == '.' ? '_' : c;
  std::ranges::transform(id, id.begin(), lower);
  return id;
}

json::object operation_of(const Route& route) {
  json::object o{
      {"operationId", operation_id(route)}, {"summary", route.about}, {"x-role", to_string(route.role)}};
  json::array parameters;
  if (route.path.find('{') != std::string_view::npos)
    parameters.push_back(
        json::object{{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  for (const std::string_view name : route.query)
    parameters.push_back(
        json::object{{"name", name}, {"in", "query"}, {"required", false}, {"schema", {{"type", "string"}}}});
  if (std::ranges::any_of(route.answers, [](const Answer& a) { return a.status == 412; }) &&
      route.path != "/v1/batch")  // where each operation has its own
    parameters.push_back(json::object{
        {"name", "If-Match"}, {"in", "header"}, {"required", false}, {"schema", {{"type", "string"}}}});
  if (!parameters.empty()) o["parameters"] = std::move(parameters);
  const std::string_view body = route.body ? route.body->name : route.body_schema;
  if (!body.empty()) {
    json::object content{{"application/json", {{"schema", reference(body)}}}};
    if (body == "ConfigText") content["application/yaml"] = {{"schema", {{"type", "string"}}}};
    o["requestBody"] = json::object{{"required", !route.body_optional}, {"content", std::move(content)}};
  }
  o["security"] = json::array{json::object{}};
  if (route.role > Role::none) o["security"].as_array().push_back(json::object{{"bearer", json::array{}}});
  json::object answers;
  for (const Answer& answer : route.answers)
    answers[std::to_string(answer.status)] = response_of(answer, route.etag);
  o["responses"] = std::move(answers);
  return o;
}

}  // namespace

json::object openapi(const Core& core) {
  json::object paths;
  for (const Route& route : routes()) {
    std::string method(route.method);
    std::ranges::transform(method, method.begin(), lower);
    if (!paths.contains(route.path)) paths[route.path] = json::object{};
    paths[route.path].as_object()[method] = operation_of(route);
  }
  json::object schemas = json::parse({kSchemas.data(), kSchemas.size()}).as_object();
  for (const BodySpec* body :
       {&kSizeBody, &kCircuitBody, &kDrainBody, &kRevertBody, &kReloadBody, &kSwitchBody})
    schemas[body->name] = schema_of(*body);
  return {{"openapi", "3.1.0"},
          {"info",
           {{"title", "Bulkhead control plane"},
            {"version", core.options.version},
            {"description",
             "See docs/formats/rest.md. Every request can also be answered with 400, 403, 404, 405, 413, "
             "415 or 431 and a Problem."}}},
          {"paths", std::move(paths)},
          {"components",
           {{"schemas", std::move(schemas)},
            {"securitySchemes", {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace bulkhead::control
