#include "app/config/environment.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string_view>

#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/config/commands.h"

namespace bulkhead::config {
namespace {

constexpr const char* kAbout =
    "List the environment variables for the settings of a file\n"
    "\n"
    "A variable replaces the value of the file; options and bulkhead set replace both.\n"
    "The output is in the form of env-files (systemd EnvironmentFile=, docker --env-file).\n"
    "\n"
    "Examples:\n"
    "  bulkhead env bulkhead.yaml\n"
    "  BULKHEAD_CONTROL__LISTEN=127.0.0.1:9999 bulkhead run bulkhead.yaml";

int run(const std::string& path, bool as_json) {
  const yaml::Loaded file = path.empty() ? yaml::Loaded{} : with_environment(yaml::load(path));
  if (!file.ok()) {
    std::fputs(to_text(file.problems).c_str(), stderr);
    return file.readable ? cli::kInvalid : cli::kFailure;
  }
  const std::vector<Variable> given = environment();
  cli::JsonWriter json;
  json.open().list("variables");
  for (const Variable& v : variables_of(file.config)) {
    const bool set = std::ranges::any_of(given, [&](const Variable& g) { return g.name == v.name; });
    if (as_json)
      json.open().field("name", v.name).field("value", v.value).field("set", set).close();
    else
      fmt::print("{}{}={}\n", set ? "# from the environment:\n" : "", v.name, v.value);
  }
  if (as_json) cli::say(json.close().close().text());
  return 0;
}

}  // namespace

std::vector<Variable> environment() {
  std::vector<Variable> all;
  for (char** at = environ; *at; ++at) {
    const std::string_view line = *at;
    const std::size_t equals = line.find('=');
    if (!line.starts_with("BULKHEAD_") || equals == line.npos) continue;
    all.push_back({std::string(line.substr(0, equals)), std::string(line.substr(equals + 1))});
  }
  std::ranges::sort(all, {}, &Variable::name);
  return all;
}

yaml::Loaded with_environment(yaml::Loaded file) {
  if (file.ok()) file.problems = apply_environment(file.config, environment());
  if (!file.ok()) file.warnings.clear();
  return file;
}

gateway::Loaded with_environment(gateway::Loaded file) {
  if (!file.gateway) file.file = with_environment(std::move(file.file));
  return file;
}

std::function<int()> add_env(CLI::App& app) {
  struct Options {
    std::string file;
    bool json = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("env", kAbout);
  command->add_option("FILE", o->file, "The configuration file; without it: only control")->type_name("");
  command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  return [o] { return run(o->file, o->json); };
}

}  // namespace bulkhead::config
