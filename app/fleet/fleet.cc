#include "app/fleet/fleet.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "adapters/redis/fleet_report.h"
#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/cli/text.h"
#include "app/config/environment.h"

namespace bulkhead::fleet {
namespace {

using redis::FleetReport;

constexpr const char* kAbout =
    "Show which processes share the limits of scope: fleet\n"
    "\n"
    "Asks the store that FILE names, so no process has to run here. With host.region, a\n"
    "member is a host; bulkhead host shows its processes. Changes nothing.\n"
    "\n"
    "Examples:\n"
    "  bulkhead fleet bulkhead.yaml\n"
    "  bulkhead fleet bulkhead.yaml payments --members 1000";

constexpr std::uint32_t kMostMembers = 5000;  // the list of more is longer than a reply may be

struct Options {
  std::string file, name;
  std::uint32_t members = 100;
  bool json = false;
};

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }
std::string since(double seconds) { return fmt::format("{:.1f} s", seconds); }

std::string as_text(const FleetReport& report, std::chrono::nanoseconds lease) {
  std::string out = report.store + '\n';
  for (const std::string& warning : report.warnings) out += "warning: " + warning + '\n';
  for (const FleetReport::Limit& limit : report.limits) {
    const FleetList& list = limit.list;
    out += fmt::format("\n{}: ", cli::printable(limit.name));
    if (!limit.known) {
      out += "no process uses it\n";
      continue;
    }
    out += fmt::format(
        "limit {}; {} member{}; {} units held, {} needed{}{}\n", limit.limit, list.leased,
        list.leased == 1 ? "" : "s", list.held, list.needed,
        list.lapsed == 0 ? "" : fmt::format("; {} lapsed with {} units", list.lapsed, list.lapsed_held),
        limit.learning.count() == 0 ? ""
                                    : fmt::format("; learning for {} more", since(seconds(limit.learning))));
    std::size_t width = 0;
    for (const FleetMember& m : list.members) width = std::max(width, m.name.size());
    for (const FleetMember& m : list.members) {
      const double age = seconds(m.lease_age);
      out += fmt::format("  {:<{}}  holds {}, needs {}; {}\n", m.name.empty() ? "?" : cli::printable(m.name),
                         width, m.held, m.needed,
                         m.lapsed ? fmt::format("lapsed {} ago", since(age - seconds(lease)))
                                  : fmt::format("lease renewed {} ago", since(age)));
    }
    if (const std::size_t more = list.leased + list.lapsed - list.members.size(); more > 0)
      out += fmt::format("  and {} more, which hold or need less\n", more);
  }
  return out;
}

std::string as_json(const FleetReport& report) {
  cli::JsonWriter json;
  json.open().field("store", report.store).list("limits");
  for (const FleetReport::Limit& limit : report.limits) {
    const FleetList& list = limit.list;
    json.open().field("name", limit.name).field("known", limit.known);
    if (limit.known) {
      json.field("max_concurrent", limit.limit)
          .field("spare", limit.spare)
          .field("limit_version", limit.limit_version)
          .field("learning_seconds", seconds(limit.learning))
          .field("leased", list.leased)
          .field("lapsed", list.lapsed)
          .field("held", list.held)
          .field("needed", list.needed)
          .field("lapsed_held", list.lapsed_held)
          .field("age_seconds", seconds(limit.list_age))
          .list("members");
      for (const FleetMember& m : list.members)
        json.open()
            .field("name", m.name)
            .field("state", m.lapsed                     ? "lapsed"
                            : limit.learning.count() > 0 ? "learning"
                                                         : "leased")
            .field("held", m.held)
            .field("needed", m.needed)
            .field("lease_age_seconds", seconds(m.lease_age))
            .close();
      json.close();
    }
    json.close();
  }
  return json.close().close().text();
}

// The names by which processes know the limits of the file: see gate_of() in src/bulkhead/budgets.cc.
std::vector<std::string> limits_of(const Config& config, const std::string& bulkhead) {
  std::vector<std::string> names;
  for (const BulkheadConfig& b : config.bulkheads) {
    if (!bulkhead.empty() && b.options.name != bulkhead) continue;
    if (b.options.scope == Scope::fleet) names.push_back(b.options.name);
    for (const BudgetOptions& budget : b.options.budgets)
      if (budget.scope == Scope::fleet) names.push_back("/" + b.options.name + "/" + budget.name);
  }
  return names;
}

int run(const Options& options) {
  const yaml::Loaded loaded = config::with_environment(yaml::load(options.file));
  if (!loaded.ok()) {
    std::fputs(to_text(loaded.problems).c_str(), stderr);
    return loaded.readable ? cli::kInvalid : cli::kFailure;
  }
  const std::vector<std::string> names = limits_of(loaded.config, options.name);
  if (!loaded.config.fleet || names.empty()) {
    fmt::print(stderr, "bulkhead fleet: {} has no {} with scope: fleet\n", options.file,
               options.name.empty() ? "bulkhead" : fmt::format("bulkhead \"{}\"", options.name));
    return cli::kInvalid;
  }
  try {
    const FleetReport report = redis::report(*loaded.config.fleet, names, options.members);
    cli::say(options.json ? as_json(report) : as_text(report, loaded.config.fleet->lease));
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "bulkhead fleet: {}\n", error.what());
    return cli::kInvalid;
  } catch (const std::runtime_error& error) {
    fmt::print(stderr, "bulkhead fleet: {}\n", error.what());
    return cli::kFailure;
  }
}

}  // namespace

std::function<int()> add_fleet(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("fleet", kAbout);
  command->add_option("FILE", options->file, "The configuration")->required()->type_name("");
  command->add_option("NAME", options->name, "Only this bulkhead")->type_name("");
  command->add_option("--members", options->members, "The most members to list, the largest first")
      ->check([](const std::string& text) { return cli::check_whole_number(text, 1, kMostMembers); })
      ->type_name("N")
      ->capture_default_str();
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  return [options] { return run(*options); };
}

}  // namespace bulkhead::fleet
