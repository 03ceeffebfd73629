#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/parse.hpp>
#include <limits>

#include "base/text.h"
#include "config/settings.h"
#include "routes.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

// The version of the interface: the second number grows when fields are renamed or removed before 1.0.
constexpr std::string_view kApiVersion = "0.2";

// What an override can change: every setting of a bulkhead that can change while it runs, its breaker, or a drain.
json::array override_fields() {
  json::array fields;
  for (const config::PathRow& setting : config::all_rows()) {
    constexpr std::string_view kPrefix = "bulkheads.NAME.";
    if (setting.path.starts_with(kPrefix) && setting.row->live && setting.row->kind != config::Kind::section)
      fields.push_back(json::string(setting.path.substr(kPrefix.size())));
  }
  fields.push_back("breaker");
  fields.push_back("drain");
  fields.push_back("fault");
  return fields;
}

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
  return base::lower(id);
}

json::object parameter_schema(std::string_view name) {
  const auto whole = [](std::int64_t least, std::int64_t most) {
    return json::object{{"type", "integer"}, {"minimum", least}, {"maximum", most}};
  };
  if (name == "dry_run") return {{"type", "boolean"}};
  if (name == "seconds") return whole(1, 3600);
  if (name == "step") return whole(1, 60);
  if (name == "newest") return whole(1, 1000);
  if (name == "since")
    return {{"type", "integer"}, {"minimum", 0}, {"maximum", std::numeric_limits<std::uint64_t>::max()}};
  return {{"type", "string"}};
}

// An element of a batch is a PUT or a DELETE of one resource, with the body of that route.
json::object batch_items() {
  json::array any;
  for (const Route& route : routes()) {
    if (!route.path.ends_with("/{name}") || !route.body || route.path.starts_with("/v1/switches")) continue;
    const std::string path(route.path.substr(0, route.path.rfind('/') + 1));
    json::array required{"method", "path"};
    if (!route.body_optional) required.push_back("body");
    any.push_back(
        json::object{{"type", "object"},
                     {"additionalProperties", false},
                     {"required", std::move(required)},
                     {"properties",
                      {{"method", {{"const", route.method}}},
                       {"path", {{"type", "string"}, {"pattern", '^' + path + "[A-Za-z0-9_.%-]+$"}}},
                       {"body", reference(route.body->name)},
                       {"if_match", {{"type", "string"}}}}}});
  }
  return {{"oneOf", std::move(any)}};
}

json::object operation_of(const Route& route) {
  json::object o{
      {"operationId", operation_id(route)}, {"summary", route.about}, {"x-role", to_string(route.role)}};
  json::array parameters;
  if (route.path.find('{') != std::string_view::npos)
    parameters.push_back(
        json::object{{"name", "name"}, {"in", "path"}, {"required", true}, {"schema", {{"type", "string"}}}});
  for (const std::string_view name : route.query)
    parameters.push_back(json::object{
        {"name", name}, {"in", "query"}, {"required", false}, {"schema", parameter_schema(name)}});
  if (std::ranges::any_of(route.answers, [](const Answer& a) { return a.status == 412; }) &&
      route.path != "/v1/batch")  // there, each operation has its own
    parameters.push_back(json::object{
        {"name", "If-Match"}, {"in", "header"}, {"required", false}, {"schema", {{"type", "string"}}}});
  if (!parameters.empty()) o["parameters"] = std::move(parameters);
  if (route.body) {
    json::object content{{"application/json", {{"schema", reference(route.body->name)}}}};
    if (route.body == &kConfigBody) content["application/yaml"] = {{"schema", {{"type", "string"}}}};
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

// Made of the table of routes and the specifications of bodies; only responses have schemas written by hand.
json::object openapi(const Core& core) {
  json::object paths;
  for (const Route& route : routes()) {
    if (!paths.contains(route.path)) paths[route.path] = json::object{};
    paths[route.path].as_object()[base::lower(route.method)] = operation_of(route);
  }
  json::object schemas = json::parse({kResponseSchemas.data(), kResponseSchemas.size()}).as_object();
  schemas["Override"].at("properties").as_object()["field"] = json::object{{"enum", override_fields()}};
  for (const BodySpec* body :
       {&kSizeBody, &kBreakerBody, &kDrainBody, &kRevertBody, &kReloadBody, &kSwitchBody, &kFaultBody})
    schemas[body->name] = schema_of(*body);
  schemas["Batch"].at("properties").at("operations").as_object()["items"] = batch_items();
  return {
      {"openapi", "3.1.0"},
      {"info",
       {{"title", "Bulkhead control plane"},
        {"version", kApiVersion},
        {"x-program-version", core.options.version},
        {"description",
         "See docs/formats/rest.md. Every response can also be 400, 403, 404, 405, 413, 415 or 431 with a "
         "Problem."}}},
      {"paths", std::move(paths)},
      {"components",
       {{"schemas", std::move(schemas)},
        {"securitySchemes", {{"bearer", {{"type", "http"}, {"scheme", "bearer"}}}}}}}};
}

}  // namespace bulkhead::control
