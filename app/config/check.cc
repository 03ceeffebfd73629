#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <memory>

#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/client/admin.h"
#include "app/config/commands.h"
#include "app/config/environment.h"
#include "app/config/series.h"
#include "app/gateway/gateway.h"
#include "bulkhead/live_config.h"

namespace bulkhead::config {
namespace {

constexpr const char* kAbout =
    "Report errors and warnings of a configuration file\n"
    "\n"
    "Starts and changes nothing. BULKHEAD_* variables override the file, as in\n"
    "bulkhead run. The series of one scrape are counted; avoid more than 10 000.\n"
    "Exit code: 0 no errors, 1 cannot be read, 3 errors (with --strict also warnings).\n"
    "\n"
    "Examples:\n"
    "  bulkhead check bulkhead.yaml\n"
    "  bulkhead check --strict bulkhead.yaml        for CI: warnings fail\n"
    "  bulkhead check /etc/nginx/nginx.conf         an nginx with the module, and its file\n"
    "  helm template . | bulkhead check -           standard input\n"
    "  bulkhead check bulkhead.yaml --against ./admin.sock   what it would change there\n"
    "  bulkhead explain queue-too-deep              the reason for a warning";

struct Options {
  std::string file, against, token, certificate;
  bool strict = false, json = false;
};

std::string plural(std::size_t n, std::string_view word) {
  return fmt::format("{} {}{}", n, word, n == 1 ? "" : "s");
}

std::string read_standard_input() {
  constexpr std::size_t kMostBytes = 2 * 1024 * 1024;
  std::string text;
  std::array<char, 65536> part{};
  while (text.size() < kMostBytes) {
    const std::size_t n = std::fread(part.data(), 1, part.size(), stdin);
    if (n == 0) break;
    text.append(part.data(), n);
  }
  return text;
}

void add_problem(cli::JsonWriter& json, const ConfigProblem& p) {
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
  for (const ConfigProblem& p : file.problems) add_problem(json, p);
  for (const ConfigProblem& p : file.warnings) add_problem(json, p);
  return json.close().close().text();
}

std::string contents(const Config& c) {
  std::string text = plural(c.bulkheads.size(), "bulkhead");
  if (!c.groups.empty()) text += ", " + plural(c.groups.size(), "group");
  if (!c.tenants.empty()) text += ", " + plural(c.tenants.size(), "set") + " of tenants";
  return text + (c.control ? ", control plane" : "");
}

// What the file would change in the running process; its answer is read, and nothing is sent but the request.
int show_difference(const Options& options, const Config& wanted) {
  const client::Admin admin = client::Admin::at(options.against, options.token, options.certificate);
  const client::Reply reply = admin.ask({.path = "/v1/config"});
  if (!reply.ok()) {
    fmt::print(stderr, "bulkhead check: {}: {}", admin.where(),
               reply.status == 404 ? "that process has no configuration file\n" : reply.explain());
    return reply.exit_code();
  }
  // As it was sent: json() makes texts printable, which would change lines of the file.
  boost::system::error_code error;
  const boost::json::value answer = boost::json::parse(reply.body, error);
  const auto* const text = answer.is_object() ? answer.get_object().if_contains("text") : nullptr;
  if (!text || !text->is_string()) {
    fmt::print(stderr, "bulkhead check: {}: unexpected answer\n", admin.where());
    return cli::kFailure;
  }
  const yaml::Loaded running = yaml::parse(std::string(text->get_string()), "running");
  if (!running.ok()) {
    fmt::print(stderr, "bulkhead check: the file that runs at {} is not valid here:\n{}", admin.where(),
               to_text(running.problems));
    return cli::kFailure;
  }
  fmt::print("against {}:\n{}\n", admin.where(), to_text(plan(running.config, wanted)));
  return 0;
}

// A file of ours, with its gateway, or the configuration of an nginx with the module.
yaml::Loaded read(const std::string& path, bool standard_input) {
  gateway::Loaded loaded =
      standard_input ? gateway::parse(read_standard_input(), "stdin") : gateway::load(path);
  if (!standard_input && loaded.file.readable && gateway::is_nginx_conf(loaded.file.text))
    return gateway::check_nginx_conf(path);
  return with_environment(std::move(loaded)).file;
}

// Warnings and errors go to standard error, the summary to standard output.
int run(const Options& options) {
  const bool standard_input = options.file == "-";
  const yaml::Loaded file = read(options.file, standard_input);
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
  if (good && !options.against.empty()) return show_difference(options, file.config);
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
  auto* const json = command->add_flag("--json", options->json, "Print one JSON document and nothing else");
  auto* const against = command->add_option("--against", options->against,
                                            "Also show what it would change in this running process");
  against->type_name("URL")->excludes(json);
  command->add_option("--token", options->token, "For --against over TCP; prefer BULKHEAD_TOKEN")
      ->type_name("TOKEN")
      ->envname("BULKHEAD_TOKEN");
  command
      ->add_option("--certificate", options->certificate,
                   "For --against with mutual TLS: certificate and key")
      ->type_name("FILE")
      ->envname("BULKHEAD_CERTIFICATE");
  return [options] { return run(*options); };
}

}  // namespace bulkhead::config
