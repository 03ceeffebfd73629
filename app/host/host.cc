#include "app/host/host.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "adapters/shm/region.h"
#include "adapters/shm/report.h"
#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/config/environment.h"

namespace bulkhead::host {
namespace {

using shm::RegionReport;

constexpr const char* kAbout =
    "Show which processes hold units of scope: host or fleet\n"
    "\n"
    "FILE is a configuration with host.region, or that region itself. Changes nothing, except\n"
    "with --sweep, which frees the units of dead processes. A call that finds the limit full\n"
    "does this, too.\n"
    "\n"
    "Examples:\n"
    "  bulkhead host bulkhead.yaml\n"
    "  bulkhead host /run/shop/bulkhead --json";

struct Options {
  std::string file;
  bool sweep = false, json = false;
};

double seconds(std::chrono::nanoseconds t) { return std::chrono::duration<double>(t).count(); }

std::string age(std::chrono::nanoseconds t) {
  const double s = seconds(t);
  if (s < 10) return fmt::format("{:.3f} s", s);
  if (s < 600) return fmt::format("{:.0f} s", s);
  return fmt::format("{:.0f} min", s / 60);
}

std::string name(const RegionReport::Process& p) {
  return fmt::format("pid {}{} {}{}", p.pid, p.other_namespace ? " (of another namespace)" : "",
                     cli::printable(p.command), p.alive ? "" : ", dead");
}

std::string as_text(const std::string& path, const RegionReport& report) {
  std::string out = fmt::format("{}: {} process{}\n", path, report.processes.size(),
                                report.processes.size() == 1 ? "" : "es");
  for (const auto& limit : report.limits) {
    out += fmt::format(
        "\n{}: {} of {} units in use{}\n", cli::printable(limit.name), limit.in_flight, limit.max_concurrent,
        limit.fleet_limit == 0 ? "" : fmt::format(", leased of the {} of the fleet", limit.fleet_limit));
    for (const auto& h : limit.holders)
      out += fmt::format("  {}: {} unit{}, the oldest for {}\n", name(h.process), h.units,
                         h.units == 1 ? "" : "s", age(h.longest));
    for (const auto& w : limit.waiting)
      out += fmt::format("  {} waits: {}, cost {}, for {}\n", name(w.process), to_string(w.priority), w.cost,
                         age(w.since));
  }
  return out;
}

void add(cli::JsonWriter& json, const RegionReport::Process& p) {
  json.field("pid", static_cast<std::uint32_t>(p.pid))
      .field("command", p.command)
      .field("other_namespace", p.other_namespace)
      .field("alive", p.alive)
      .field("registered_seconds", seconds(p.since));
}

std::string as_json(const std::string& path, const RegionReport& report, std::optional<std::uint32_t> swept) {
  cli::JsonWriter json;
  json.open().field("region", path);
  if (swept) json.field("swept", *swept);
  json.list("processes");
  for (const auto& p : report.processes) {
    add(json.open(), p);
    json.close();
  }
  json.close().list("limits");
  for (const auto& limit : report.limits) {
    json.open()
        .field("name", limit.name)
        .field("max_concurrent", limit.max_concurrent)
        .field("in_flight", limit.in_flight);
    if (limit.fleet_limit != 0) json.field("fleet_limit", limit.fleet_limit);
    json.list("holders");
    for (const auto& h : limit.holders) {
      add(json.open(), h.process);
      json.field("units", h.units).field("oldest_seconds", seconds(h.longest)).close();
    }
    json.close().list("waiting");
    for (const auto& w : limit.waiting) {
      add(json.open(), w.process);
      json.field("priority", to_string(w.priority))
          .field("cost", w.cost)
          .field("waiting_seconds", seconds(w.since))
          .close();
    }
    json.close().close();
  }
  return json.close().close().text();
}

// The region that the file is, or that it names.
std::string region_of(const std::string& file, int& code) {
  try {
    (void)shm::Region::look(file);
    return file;
  } catch (const std::invalid_argument& not_a_region) {
    const yaml::Loaded loaded = config::with_environment(yaml::load(file));
    if (!loaded.readable) {
      fmt::print(stderr, "bulkhead host: {}\n", not_a_region.what());
      code = cli::kFailure;
    } else if (!loaded.ok()) {
      std::fputs(to_text(loaded.problems).c_str(), stderr);
      fmt::print(stderr, "bulkhead host: {}\n", not_a_region.what());
      code = cli::kInvalid;
    } else if (!loaded.config.host) {
      fmt::print(stderr, "bulkhead host: {} names no region: add host: {{region: /run/shop/bulkhead}}\n",
                 file);
      code = cli::kInvalid;
    } else {
      return loaded.config.host->region;
    }
    return "";
  }
}

int run(const Options& options) {
  int code = 0;
  const std::string path = region_of(options.file, code);
  if (code != 0) return code;
  try {
    const auto region = shm::Region::look(path);
    std::optional<std::uint32_t> swept;
    if (options.sweep) swept = shm::sweep_all(*region);
    const RegionReport report = shm::report(*region);
    if (options.json) {
      cli::say(as_json(path, report, swept));
      return 0;
    }
    if (swept) cli::say(fmt::format("freed {} units of dead processes\n", *swept));
    cli::say(as_text(path, report));
    return 0;
  } catch (const std::invalid_argument& error) {
    fmt::print(stderr, "bulkhead host: {}\n", error.what());
    return cli::kFailure;
  }
}

}  // namespace

std::function<int()> add_host(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("host", kAbout);
  command->add_option("FILE", options->file, "The configuration, or the region")->required()->type_name("");
  command->add_flag("--sweep", options->sweep, "First free the units of dead processes");
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  return [options] { return run(*options); };
}

}  // namespace bulkhead::host
