#include <boost/json/array.hpp>

#include "handlers.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

LiveConfig& config_of(Core& core) {
  if (!has_file(core.live)) throw Problem{kNotFound, "this program runs without a configuration file"};
  return core.live;
}

json::array diagnostics_json(const std::vector<bulkhead::ConfigProblem>& problems) {
  json::array list;
  for (const bulkhead::ConfigProblem& p : problems)
    list.push_back(json::object{{"pointer", p.path},
                                {"line", p.at.line},
                                {"column", p.at.column},
                                {"message", p.message},
                                {"hint", p.hint}});
  return list;
}

json::object plan_json(const LiveConfig& live, const ReloadResult& result) {
  json::array changes, needs_restart;
  const ConfigStatus status = live.status();
  if (result.ok())
    for (const PlanLine& line : result.plan.lines)
      (line.effect == PlanLine::Effect::needs_restart ? needs_restart : changes)
          .push_back(json::string(to_text(line)));
  // An unchanged file has an empty plan, and may still need a restart.
  if (result.ok() && result.plan.empty())
    for (const PlanLine& line : status.needs_restart) needs_restart.push_back(json::string(to_text(line)));
  return {{"valid", result.ok()},
          {"errors", diagnostics_json(result.problems)},
          {"changes", std::move(changes)},
          {"needs_restart", std::move(needs_restart)},
          {"revision", revision_of(status)}};
}

void describe_reload(JournalEntry& entry, const LiveConfig& live, const ReloadResult& result) {
  const ConfigStatus status = live.status();
  entry.after = revision_of(status);
  if (result.ok()) {
    const std::size_t n = result.plan.lines.size();
    entry.kind = "reload";
    entry.text = "loaded " + status.file + ", " + std::to_string(n) + (n == 1 ? " change" : " changes");
    return;
  }
  entry.kind = "reload_failed";
  entry.result = "failed";
  entry.text = to_text(result.problems.front());
  entry.text.erase(std::min(entry.text.find('\n'), entry.text.size()));
}

}  // namespace

Response get_config(Core& core, const Request&) {
  const LiveConfig& live = config_of(core);
  const ConfigStatus status = live.status();
  const std::string revision = revision_of(status);
  json::object o{{"file", status.file},
                 {"revision", revision},
                 {"valid", status.last_reload_successful},
                 {"error", nullptr},
                 {"text", live.text()}};
  if (!status.problems.empty()) o["error"] = to_text(status.problems.front());
  return with_etag(respond(o), '"' + revision + '"');
}

Response post_validate(Core& core, const Request& r) {
  const LiveConfig& live = config_of(core);
  if (media_type(r) != "application/json" && media_type(r) != "application/yaml")
    throw Problem{kUnsupportedMediaType, "send the file with Content-Type: application/yaml"};
  if (!live.options().parse)
    throw Problem{kNotFound, "this program cannot check a text: LiveConfigOptions::parse is not set"};
  const auto errors = live.options().parse(r.body).problems;
  return respond({{"valid", errors.empty()}, {"errors", diagnostics_json(errors)}});
}

Response get_diff(Core& core, const Request&) {
  const LiveConfig& live = config_of(core);
  return respond(plan_json(live, live.try_reload()));
}

// The journal entry of a reload is written here, with who and why; Reporting keeps the event of LiveConfig out.
Response post_reload(Core& core, const Request& r) {
  LiveConfig& live = config_of(core);
  const Body body = body_of(kReloadBody, r);
  const ConfigStatus now = live.status();
  const std::string revision = revision_of(now), etag = '"' + revision + '"';
  if (!matches(r.if_match, etag))
    return with_etag(
        respond({{"file", now.file}, {"revision", revision}, {"valid", now.last_reload_successful}}, 412),
        etag);
  const bool dry = dry_run(r);
  ReloadResult result;
  if (dry) {
    result = live.try_reload();
  } else {
    const Core::Reporting reporting(core);
    result = live.reload(r.caller.actor);
    JournalEntry entry = audit_entry(r, "", "");
    describe_reload(entry, live, result);
    entry.reason = body.reason;
    entry.before = revision;
    core.journal.add(std::move(entry));
    core.changed = true;
  }
  if (!dry) core.expire();
  json::object o = plan_json(live, result);
  o["dry_run"] = dry;
  if (result.ok()) return with_etag(respond(o), '"' + revision_of(live.status()) + '"');
  Problem problem{kInvalidBody, now.file + " is not valid; the previous configuration stays in force"};
  for (const bulkhead::ConfigProblem& p : result.problems)
    problem.errors.push_back({p.path, p.message, p.hint, p.at.line, p.at.column});
  throw problem;
}

}  // namespace bulkhead::control
