#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/config/commands.h"
#include "app/config/environment.h"
#include "app/config/series.h"

namespace bulkhead::config {
namespace {

constexpr const char* kAbout =
    "Say everything that is wrong or unwise in a file\n"
    "\n"
    "Nothing is started or changed. BULKHEAD_* variables stand above the file, as in\n"
    "bulkhead run. Series are those of one scrape; 10 000 are worth a thought.\n"
    "Exit code: 0 good, 1 cannot be read, 3 errors (with --strict also warnings).\n"
    "\n"
    "Examples:\n"
    "  bulkhead check bulkhead.yaml\n"
    "  bulkhead check --strict bulkhead.yaml        for CI: warnings count\n"
    "  helm template . | bulkhead check -           standard input\n"
    "  bulkhead explain queue-too-deep              why a warning is one";

struct Options {
  std::string file;
  bool strict = false, json = false;
};

std::string plural(std::size_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string read_standard_input() {
  constexpr std::size_t more_than_allowed = 2 * 1024 * 1024;
  std::string text;
  std::array<char, 65536> part{};
  while (text.size() < more_than_allowed) {
    const std::size_t n = std::fread(part.data(), 1, part.size(), stdin);
    if (n == 0) break;
    text.append(part.data(), n);
  }
  return text;
}

void add_problem(cli::JsonWriter& json, const Problem& p) {
  json.open().field("severity", to_string(p.severity));
  if (p.at)
    json.field("line", p.at.line).field("column", p.at.column);
  else
    json.null("line").null("column");
  json.field("path", p.path).field("message", p.message).field("hint", p.hint);
  if (p.rule.empty())
    json.null("rule");
  else
    json.field("rule", p.rule);
  json.field("source", p.source).close();
}

std::string as_json(const Options& options, const yaml::Loaded& file, std::size_t series, bool good) {
  cli::JsonWriter json;
  json.open().field("file", options.file).field("ok", good).field("strict", options.strict);
  json.field("errors", file.problems.size()).field("warnings", file.warnings.size());
  if (file.ok())
    json.field("series", series);
  else
    json.null("series");
  json.list("problems");
  for (const Problem& p : file.problems) add_problem(json, p);
  for (const Problem& p : file.warnings) add_problem(json, p);
  return json.close().close().text();
}

std::string contents(const Config& c) {
  std::string text = plural(c.bulkheads.size(), "bulkhead");
  if (!c.groups.empty()) text += ", " + plural(c.groups.size(), "group");
  if (!c.tenants.empty()) text += ", " + plural(c.tenants.size(), "set") + " of tenants";
  return text + (c.control ? ", control plane" : "");
}

int run(const Options& options) {
  const bool standard_input = options.file == "-";
  const yaml::Loaded file = with_environment(standard_input ? yaml::parse(read_standard_input(), "stdin")
                                                            : yaml::load(options.file));
  const std::size_t series = file.ok() ? series_of(file.config) : 0;
  const bool good = file.ok() && (!options.strict || file.warnings.empty());
  const int code = good ? 0 : file.readable ? cli::kInvalid : cli::kFailure;
  if (options.json) {
    cli::say(as_json(options, file, series, good));
    return code;
  }
  std::fputs(to_text(file.warnings).c_str(), stderr);
  std::fputs(to_text(file.problems).c_str(), stderr);
  if (series > kManySeries)
    fmt::print(
        stderr,
        "{}: a scrape is {} series, more than {}: Prometheus keeps each of them; histograms: false and "
        "fewer bulkheads make it smaller\n",
        options.file, series, kManySeries);
  const char* name = standard_input ? "stdin" : options.file.c_str();
  if (!file.readable) return code;
  if (!file.ok()) {
    fmt::print(stderr, "{}: {}\n", name, plural(file.problems.size(), "error"));
  } else if (!good) {
    fmt::print(stderr, "{}: {}, and --strict makes them errors\n", name,
               plural(file.warnings.size(), "warning"));
  } else if (!file.warnings.empty()) {
    fmt::print("{}: valid, {}: {}, {} series\n", name, plural(file.warnings.size(), "warning"),
               contents(file.config), series);
  } else {
    fmt::print("{}: good: {}, {} series\n", name, contents(file.config), series);
  }
  return code;
}

}  // namespace

std::function<int()> add_check(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("check", kAbout);
  command->add_option("FILE", options->file, "The file to check; - reads standard input")
      ->required()
      ->type_name("");
  command->add_flag("--strict", options->strict, "Warnings count as errors");
  command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  return [options] { return run(*options); };
}

}  // namespace bulkhead::config
