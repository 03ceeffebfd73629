#include <boost/json/array.hpp>

#include "handlers.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

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

}  // namespace

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
  if (media_type(r) != "application/json" && media_type(r) != "application/yaml")
    throw Problem{.status = 415,
                  .type = "unsupported_media_type",
                  .detail = "send the file with Content-Type: application/yaml"};
  const auto errors = config.validate(r.body);
  return respond({{"valid", errors.empty()}, {"errors", diagnostics_json(errors)}});
}

Response get_diff(Core& core, const Request&) { return respond(plan_json(config_of(core).diff())); }

Response post_reload(Core& core, const Request& r) {
  const ConfigFile& config = config_of(core);
  const Body body = body_of(kReloadBody, r);
  const ConfigStatus now = config.status();
  const std::string etag = '"' + now.revision + '"';
  if (!matches(r.if_match, etag))
    return with_etag(respond({{"file", config.path}, {"revision", now.revision}, {"valid", now.valid}}, 412),
                     etag);
  const bool dry = dry_run(r);
  const ConfigPlan plan = dry ? config.diff() : config.reload();
  if (!dry) {
    Entry entry = audit_entry(r, "", "");
    tell_reload(entry, config.path, plan);
    entry.reason = body.reason;
    entry.before = now.revision;
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

}  // namespace bulkhead::control
