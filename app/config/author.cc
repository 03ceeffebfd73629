// Commands for people who write a file: init, fmt, config show.
#include <fmt/format.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>

#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/json.h"
#include "app/cli/terminal.h"
#include "app/config/arguments.h"
#include "app/config/commands.h"
#include "app/config/environment.h"
#include "config/sizing.h"
#include "config/values.h"

namespace bulkhead::config {
namespace {

constexpr const char* kInit =
    "Print a commented configuration file for a service\n"
    "\n"
    "Examples:\n"
    "  bulkhead init > bulkhead.yaml\n"
    "  bulkhead init --name orders --rate 200 --latency 50ms > bulkhead.yaml\n"
    "  bulkhead init --rate 200 --latency 50ms --pool 100    for 100 connections";

constexpr const char* kFmt =
    "Format a configuration file\n"
    "\n"
    "Indents by two spaces, and removes tabs, spaces at the ends of lines, and repeated empty\n"
    "lines. Comments stay. A file that is not valid is left as it is.\n"
    "\n"
    "Examples:\n"
    "  bulkhead fmt bulkhead.yaml            print it\n"
    "  bulkhead fmt --write bulkhead.yaml    replace it\n"
    "  bulkhead fmt --check bulkhead.yaml    exit code 3 if it would change";

constexpr const char* kShow =
    "Show the settings of a file as they are in force\n"
    "\n"
    "Examples:\n"
    "  bulkhead config show bulkhead.yaml\n"
    "  bulkhead config show bulkhead.yaml --provenance    where each value comes from\n"
    "  bulkhead config show bulkhead.yaml --all           defaults, too";

struct InitOptions {
  std::string name = "my-dependency", rate = "100", latency = "50ms", wait = "100ms";
  std::uint64_t pool = 0;
  bool json = false;
};

std::string init_text(const InitOptions& o) {
  const auto latency = duration_of(o.latency), wait = duration_of(o.wait);
  const Size size = size_for({.rate = rate_of(o.rate), .latency = latency, .tolerated_wait = wait});
  std::uint64_t places = size.max_concurrent;
  if (o.pool > 0) places = std::min(places, o.pool - o.pool / 5);
  // No more than can be admitted in time.
  const auto in_time =
      places * static_cast<std::uint64_t>(wait.count()) / static_cast<std::uint64_t>(latency.count());
  const std::uint64_t queue = std::max<std::uint64_t>(1, std::min(size.max_queue, in_time));
  std::string text = fmt::format(
      "# bulkhead check FILE checks this file, bulkhead explain SETTING explains a setting.\n"
      "version: 1\n"
      "lint_allow: [one-for-all] # remove this line when there is a second bulkhead\n\n");
  if (o.pool > 0)
    text += fmt::format(
        "# What the bulkheads share. The linter adds up who may use how much of it.\n"
        "resources:\n  {}-pool:\n    capacity: {}          # connections\n\n",
        o.name, o.pool);
  text += fmt::format(
      "bulkheads:\n"
      "  {}:\n"
      "    max_concurrent: {}     # {} calls/s x {} x 1.5{}\n"
      "    max_queue: {}          # calls that arrive in {}, and can be admitted in time\n"
      "    max_wait: {}        # a call that waits longer is rejected\n"
      "    execution_timeout: {} # a guess, 4 x the latency: give a little more than the p99.9\n"
      "    typical_latency: {}  # the linter computes with it\n"
      "    criticality: normal    # critical, normal or best_effort: how serious a rejection is\n"
      "    fallback: none         # what callers get instead, in words\n",
      o.name, places, o.rate, show_duration(latency),
      places < size.max_concurrent
          ? fmt::format(" = {}, and a fifth of the pool stays free", size.max_concurrent)
          : "",
      queue, show_duration(wait), show_duration(wait), show_duration(4 * latency), show_duration(latency));
  if (o.pool > 0) text += fmt::format("    resource: {}-pool\n", o.name);
  return text +
         "    breaker:               # stops calling a dependency that mostly fails\n"
         "      failure_rate: 50%\n"
         "      open_for: 5s\n"
         "\n"
         "control:\n"
         "  listen: 127.0.0.1:9920   # dashboard, metrics, API: bulkhead status, bulkhead top\n";
}

std::string read_file(const std::string& path, bool& readable) {
  std::ifstream in(path, std::ios::binary);
  readable = static_cast<bool>(in);
  return {std::istreambuf_iterator<char>(in), {}};
}

// The same settings, whatever the text.
bool equal_files(const std::string& a, const std::string& b) {
  const gateway::Loaded before = gateway::parse(a, ""), after = gateway::parse(b, "");
  if (!before.file.ok() || !after.file.ok()) return false;
  const auto left = settings_of(before), right = settings_of(after);
  return std::ranges::equal(left, right, [](const Setting& x, const Setting& y) {
    return x.path == y.path && x.value == y.value && x.given == y.given;
  });
}

// Two spaces for each level of indentation, whatever the file uses.
std::string indented(const std::vector<std::string>& lines) {
  std::vector<std::size_t> levels{0};
  std::vector<std::string> comments;  // and empty lines, until the level of the next line is known
  std::string out;
  const auto put = [&](std::size_t level, std::string_view text) {
    out += std::string(text.empty() ? 0 : 2 * level, ' ').append(text) + '\n';
  };
  for (const std::string& line : lines) {
    const std::size_t at = line.find_first_not_of(' ');
    if (at == line.npos || line[at] == '#') {
      comments.push_back(line);
      continue;
    }
    std::vector<std::size_t> next = levels;
    while (next.size() > 1 && next.back() > at) next.pop_back();
    if (at > next.back()) next.push_back(at);
    for (const std::string& comment : comments) {
      const std::size_t from = std::min(comment.find_first_not_of(' '), comment.size());
      const auto level =
          static_cast<std::size_t>(std::ranges::upper_bound(levels, from) - levels.begin()) - 1;
      put(from > at ? level : next.size() - 1, std::string_view(comment).substr(from));
    }
    comments.clear();
    levels = std::move(next);
    put(levels.size() - 1, std::string_view(line).substr(at));
  }
  for (const std::string& comment : comments)
    put(0, std::string_view(comment).substr(std::min(comment.find_first_not_of(' '), comment.size())));
  return out;
}

// Writes a new file and moves it there: a full disk must not cost the old one. Mode and owner stay. False: errno says why.
bool replace_file(const std::string& path, std::string_view text) {
  std::error_code error;
  const std::string target = std::filesystem::canonical(path, error).string();  // not a link to it
  struct stat old{};
  if (error || ::stat(target.c_str(), &old) != 0 || ::access(target.c_str(), W_OK) != 0) return false;
  ::signal(SIGXFSZ, SIG_IGN);  // a limit of the file size is an error, as a full disk
  std::string next = target + ".XXXXXX";
  const int file = ::mkstemp(next.data());
  if (file < 0) return false;
  // An owner may be in another group than the file.
  const bool owned = ::fchown(file, old.st_uid, old.st_gid) == 0 || old.st_uid == ::geteuid();
  const bool good = owned && ::fchmod(file, old.st_mode & 07777) == 0 && cli::write_all(file, text) &&
                    ::fsync(file) == 0 && ::rename(next.c_str(), target.c_str()) == 0;
  const int why = errno;
  ::close(file);
  if (!good) ::unlink(next.c_str());
  errno = why;
  return good;
}

// A file with errors is left as it is: a changed indentation could change its meaning.
int run_fmt(const std::string& path, bool write, bool check, bool as_json) {
  bool readable = false;
  const std::string text = read_file(path, readable);
  const yaml::Loaded file = gateway::load(path).file;
  if (!file.ok()) {
    std::fputs(to_text(file.problems).c_str(), stderr);
    return file.readable ? cli::kInvalid : cli::kFailure;
  }
  const std::string next = normalised(text);
  if (as_json) {
    cli::JsonWriter json;
    cli::say(
        json.open().field("file", path).field("changed", next != text).field("text", next).close().text());
  }
  if (check) {
    if (next == text) return 0;
    fmt::print(stderr, "{}: not formatted; bulkhead fmt --write {}\n", path, path);
    return cli::kInvalid;
  }
  if (!write) return as_json ? 0 : (cli::say(next), 0);
  if (next == text) return 0;
  if (replace_file(path, next)) return 0;
  fmt::print(stderr, "bulkhead fmt: cannot write {}: {}\n", path, std::strerror(errno));
  return cli::kFailure;
}

// "bulkhead.yaml:12", "$BULKHEAD_...", "type partner", "default".
std::string provenance(const Config& config, const Setting& setting, const std::string& file,
                       const std::vector<Variable>& given) {
  const std::string variable = variable_of(setting.path);
  if (std::ranges::any_of(given, [&](const Variable& g) { return g.name == variable; }))
    return '$' + variable;
  if (setting.given) {
    const Position at = config.where(setting.path);
    return at ? fmt::format("{}:{}", file, at.line) : file;
  }
  // From the type, if the type has it.
  constexpr std::string_view kBulkheads = "bulkheads.";
  if (setting.path.starts_with(kBulkheads)) {
    for (const BulkheadConfig& b : config.bulkheads) {
      const std::string prefix = std::string(kBulkheads) + b.options.name + '.';
      if (b.type.empty() || !setting.path.starts_with(prefix)) continue;
      const std::string in_type = "types." + b.type + '.' + setting.path.substr(prefix.size());
      if (const auto at = config.positions.find(in_type); at != config.positions.end())
        return fmt::format("type {}, {}:{}", b.type, file, at->second.line);
      return "type " + b.type + ", or default";
    }
  }
  return "default";
}

// Settings at their default are left out unless `all` is asked for.
int run_show(const std::string& path, bool with_provenance, bool all, bool as_json) {
  const gateway::Loaded loaded = with_environment(gateway::load(path));
  const yaml::Loaded& file = loaded.file;
  if (!file.ok()) {
    std::fputs(to_text(file.problems).c_str(), stderr);
    return file.readable ? cli::kInvalid : cli::kFailure;
  }
  const std::vector<Variable> given = loaded.gateway ? std::vector<Variable>() : environment();
  cli::JsonWriter json;
  json.open().field("file", path).list("settings");
  std::string text;
  for (const Setting& setting : settings_of(loaded)) {
    const std::string from = provenance(file.config, setting, path, given);
    if (!all && from == "default") continue;
    if (as_json)
      json.open().field("path", setting.path).field("value", setting.value).field("from", from).close();
    else if (with_provenance)
      text += fmt::format("{:<48}  {:<24}  {}\n", setting.path, setting.value, from);
    else
      text += fmt::format("{}: {}\n", setting.path, setting.value);
  }
  cli::say(as_json ? json.close().close().text() : text);
  return 0;
}

}  // namespace

std::string normalised(const std::string& text) {
  std::vector<std::string> lines;
  std::string line;
  const auto end_line = [&] {
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r'))
      line.pop_back();
    if (!line.empty() || (!lines.empty() && !lines.back().empty())) lines.push_back(line);
    line.clear();
  };
  for (const char c : text)
    if (c == '\n')
      end_line();
    else
      line += c;
  end_line();
  while (!lines.empty() && lines.back().empty()) lines.pop_back();
  std::string plain;
  for (const std::string& l : lines) plain += l + '\n';
  // A text whose indentation has a meaning of its own (a block scalar) keeps it.
  const std::string better = indented(lines);
  if (equal_files(text, better)) return better;
  return equal_files(text, plain) ? plain : text;
}

std::function<int()> add_init(CLI::App& app) {
  auto o = std::make_shared<InitOptions>();
  CLI::App* command = app.add_subcommand("init", kInit);
  command->add_option("--name", o->name, "The dependency")
      ->check([](const std::string& text) {
        return read_name({.kind = Node::Kind::scalar, .quoted = true, .text = text})
                   ? ""
                   : "give letters, digits, - and _";
      })
      ->type_name("NAME")
      ->capture_default_str();
  command->add_option("--rate", o->rate, "Calls per second at the peak: 200, 12000/m")
      ->check(check_rate)
      ->type_name("R")
      ->capture_default_str();
  const auto positive = [](const std::string& text) { return check_duration(text, false); };
  command->add_option("--latency", o->latency, "Average duration of a call")
      ->check(positive)
      ->type_name("T")
      ->capture_default_str();
  command->add_option("--tolerated-wait", o->wait, "How long callers accept to wait")
      ->check(positive)
      ->type_name("T")
      ->capture_default_str();
  command->add_option("--pool", o->pool, "Connections of the pool that calls share, 5 to 100000")
      ->check([](const std::string& text) { return cli::check_whole_number(text, 5, 100'000); })
      ->type_name("N");
  command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  return [o] {
    const std::string text = init_text(*o);
    if (!o->json) return cli::say(text), 0;
    cli::JsonWriter json;
    return cli::say(json.open().field("yaml", text).close().text()), 0;
  };
}

std::function<int()> add_fmt(CLI::App& app) {
  struct Options {
    std::string file;
    bool write = false, check = false, json = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("fmt", kFmt);
  command->add_option("FILE", o->file, "The configuration file")->required()->type_name("");
  auto* const write = command->add_flag("--write", o->write, "Replace the file");
  command->add_flag("--check", o->check, "Only say whether it would change")->excludes(write);
  command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  return [o] { return run_fmt(o->file, o->write, o->check, o->json); };
}

std::function<int()> add_config(CLI::App& app) {
  struct Options {
    std::string action, file;
    bool provenance = false, all = false, json = false;
  };
  const auto o = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("config", kShow);
  command->add_option("ACTION", o->action, "show")
      ->required()
      ->check([](const std::string& text) {
        return text == "show" ? std::string() : fmt::format("\"{}\" is not show", text);
      })
      ->type_name("");
  command->add_option("FILE", o->file, "The configuration file")->required()->type_name("");
  command->add_flag("--provenance", o->provenance, "Also print where each value comes from");
  command->add_flag("--all", o->all, "Also print settings that have their default");
  command->add_flag("--json", o->json, "Print one JSON document and nothing else");
  return [o] { return run_show(o->file, o->provenance, o->all, o->json); };
}

}  // namespace bulkhead::config
