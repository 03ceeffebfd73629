#include "app/simulate/simulate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <utility>

#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/cli/terminal.h"
#include "app/config/arguments.h"
#include "app/config/environment.h"
#include "app/simulate/html.h"
#include "app/simulate/load.h"
#include "app/simulate/report.h"
#include "app/simulate/run.h"
#include "app/simulate/search.h"
#include "app/simulate/trace.h"
#include "config/values.h"

namespace bulkhead::simulate {
namespace {

constexpr const char* kAbout =
    "Predict what a configuration does under a load\n"
    "\n"
    "Runs the bulkheads of FILE with the shipped policies on virtual time: an hour takes\n"
    "seconds, and nothing is called. The same seed gives the same numbers.\n"
    "\n"
    "Examples:\n"
    "  bulkhead simulate bulkhead.yaml --write-load > load.yaml   a load to start with\n"
    "  bulkhead simulate bulkhead.yaml --load load.yaml\n"
    "  bulkhead simulate old.yaml --load load.yaml --compare new.yaml\n"
    "  bulkhead simulate bulkhead.yaml --load load.yaml --sweep db.max_concurrent=5..50\n"
    "  bulkhead simulate bulkhead.yaml --load load.yaml --find \"p99<200ms,rejected<1%\"\n"
    "  bulkhead simulate --trace-from access.log > calls.csv\n"
    "\n"
    "docs/how-to/try-before-you-deploy.md describes the load file and the results.";

struct Options {
  std::string file, load, trace, compare, sweep, find, duration, html;
  std::string log, format = kCombinedWithTime;
  std::vector<std::string> routes;
  std::uint64_t seed = 1;
  std::uint32_t replicas = 0, hosts = 0;
  bool json = false, write_load = false;
  std::string version;
};

// On a terminal, on standard error, so that output can be piped.
class Progress {
 public:
  explicit Progress(bool quiet)
      : shown_(!quiet && cli::can_redraw(STDERR_FILENO)), style_(cli::style_of(STDERR_FILENO)) {}
  ~Progress() { clear(); }
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `runs`: how many there will be; 0: not known.
  void begin(std::string what, std::size_t runs) {
    what_ = std::move(what);
    runs_ = runs;
    run_ = 0;
  }
  void next_run() { ++run_; }
  bool operator()(double done) {
    if (cli::CatchSignals::caught() != 0) return false;
    if (runs_ > 0) done = (static_cast<double>(run_ - 1) + done) / static_cast<double>(runs_);
    if (shown_ && static_cast<int>(done * 100) != last_) {
      last_ = static_cast<int>(done * 100);
      const std::string what = runs_ == 0 ? fmt::format("{}, run {}", what_, run_) : what_;
      fmt::print(stderr, "\r {} {} {:3d} %", what, cli::bar(style_, done, 30), last_);
      std::fflush(stderr);
      drawn_ = true;
    }
    return true;
  }
  void clear() {
    if (drawn_) fmt::print(stderr, "\r\x1b[K");
    std::fflush(stderr);
    drawn_ = false;
  }

 private:
  const bool shown_;
  const cli::Style style_;
  std::string what_;
  std::size_t runs_ = 0, run_ = 0;
  int last_ = -1;
  bool drawn_ = false;
  const cli::CatchSignals signals_;
};

int complain(const std::string& text) {
  fmt::print(stderr, "bulkhead simulate: {}\n", text);
  return cli::kUsage;
}

std::optional<Config> read_config(const std::string& path, int& code) {
  yaml::Loaded file = config::with_environment(yaml::load(path));
  if (file.ok()) return std::move(file.config);
  fmt::print(stderr, "{}", to_text(file.problems));
  code = file.readable ? cli::kInvalid : cli::kFailure;
  return std::nullopt;
}

// Of two files, without directories if that is enough: columns and legends are narrow.
std::pair<std::string, std::string> names_of(const std::string& one, const std::string& other) {
  const std::filesystem::path a(one), b(other);
  if (other.empty() || a.filename() == b.filename()) return {one, other};
  return {a.filename(), b.filename()};
}

// A load that uses 70 % of each bulkhead, to be changed by hand.
std::string starting_load(const Config& config) {
  std::string text =
      "# A load for `bulkhead simulate`; docs/how-to/try-before-you-deploy.md describes every setting.\n"
      "version: 1\nduration: 10m\nbulkheads:\n";
  const auto add = [&](const BulkheadConfig& b, bool tenants, double places) {
    const auto latency = b.typical_latency.count() > 0 ? b.typical_latency : std::chrono::milliseconds(50);
    text +=
        fmt::format("  {}:\n    rate: {:.0f}/s{}\n    service: {}\n", b.options.name,
                    std::ceil(0.7 * places / (static_cast<double>(latency.count()) / 1e9)),
                    "  # of all replicas; replace it by what you measure", config::show_duration(latency));
    if (tenants) text += "    tenants: 20\n";
  };
  for (const BulkheadConfig& b : config.bulkheads) {
    double places = b.options.max_concurrent;
    if (const GroupConfig* g = config.find_group(b.group)) {
      const Share& share = b.guaranteed;
      places =
          share.percent > 0 ? g->options.total * share.percent / 100.0 : static_cast<double>(share.units);
      places = std::max(1.0, places);
    }
    add(b, false, places);
  }
  for (const TenantsConfig& t : config.tenants) add(t.each, true, 20.0 * t.each.options.max_concurrent);
  return text + "events:\n  # - " +
         (config.bulkheads.empty() ? "name" : config.bulkheads.front().options.name) +
         " 60x slower from 2m to 5m\n";
}

int convert(const Options& o) {
  errno = 0;
  std::ifstream file(o.log, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  if (!file.is_open() || (text.str().empty() && errno != 0)) {
    fmt::print(stderr, "bulkhead simulate: {}: cannot read it: {}\n", o.log, std::strerror(errno));
    return cli::kFailure;
  }
  const Converted done = convert_log(text.str(), o.log, o.format, o.routes);
  if (!done.problem.empty()) {
    fmt::print(stderr, "bulkhead simulate: {}: {}\n", o.log, done.problem);
    return cli::kInvalid;
  }
  cli::say(done.csv);
  if (done.skipped > 0)
    fmt::print(stderr, "{} calls; {} lines do not fit the format, the first is\n{}\n", done.calls,
               done.skipped, done.first_skipped);
  return 0;
}

bool write_file(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
  file.close();
  if (!file) fmt::print(stderr, "bulkhead simulate: {}: cannot write it: {}\n", path, std::strerror(errno));
  return static_cast<bool>(file);
}

// The load as the options ask for it; problems are in it.
Load load_of(const Options& o, const Config& config) {
  Load load;
  if (!o.load.empty()) {
    load = read_load(o.load, config, o.replicas, !o.trace.empty());
  } else {
    load.file = o.trace;
    if (o.replicas > 0) load.replicas = o.replicas;
  }
  if (!o.duration.empty()) load.duration = config::duration_of(o.duration).count();
  if (o.hosts > 0) load.hosts = o.hosts;
  if (load.ok() && !o.trace.empty()) {
    const Trace trace = read_trace(o.trace, config);
    load.readable = trace.readable;
    load.problems = trace.problems;
    if (trace.ok()) apply(trace, load);
  }
  if (load.ok() && load.duration == 0)
    load.problems.push_back({.file = o.load,
                             .message = "duration is missing",
                             .hint = "write duration: 10m, or give --duration"});
  if (load.ok() && load.measure_from >= load.duration)
    load.problems.push_back({.file = o.load,
                             .path = "measure",
                             .message = "begins after the end of the run",
                             .hint = "give from less than duration"});
  return load;
}

// First what needs no simulation (convert, --write-load), then one of: compare, sweep, search, a single run.
int run(const Options& o) {
  if (!o.log.empty()) return convert(o);
  if (o.file.empty()) return complain("FILE is required: the configuration file");
  int code = 0;
  const std::optional<Config> config = read_config(o.file, code);
  if (!config) return code;
  if (o.write_load) {
    cli::say(starting_load(*config));
    return 0;
  }
  if (o.load.empty() && o.trace.empty())
    return complain(
        fmt::format("what load? Give --load load.yaml or --trace calls.csv; `bulkhead simulate {} "
                    "--write-load` prints a load",
                    o.file));
  const Load load = load_of(o, *config);
  if (!load.ok()) {
    fmt::print(stderr, "{}", to_text(load.problems));
    return load.readable ? cli::kInvalid : cli::kFailure;
  }

  Progress progress(o.json);
  const Predict predict_one = [&](const Config& c, const Load& l) {
    progress.next_run();
    return predict(c, l, o.seed, std::ref(progress));
  };
  const Subject subject{o.file, o.trace.empty() ? o.load : o.trace, o.seed};
  const std::size_t columns = cli::is_terminal(STDOUT_FILENO) ? cli::terminal_size(STDOUT_FILENO).columns : 0;
  const cli::Style style = cli::style_of(STDOUT_FILENO);
  const auto interrupted = [&] { return cli::CatchSignals::caught() != 0; };
  constexpr int kInterrupted = 130;
  try {
    if (!o.sweep.empty()) {
      const Sweep sweep = parse_sweep(o.sweep, *config, load);
      progress.begin("sweep", sweep.values.size());
      const SweepResult result = run_sweep(sweep, *config, load, predict_one);
      progress.clear();
      if (interrupted()) return kInterrupted;
      if (!o.html.empty() &&
          !write_file(o.html, html_report(subject, {}, sweep_text({}, subject, result), &result)))
        return cli::kFailure;
      cli::say(o.json ? sweep_json(subject, result, o.version) : sweep_text(style, subject, result));
      return 0;
    }
    if (!o.find.empty()) {
      const std::vector<Condition> conditions = parse_conditions(o.find, load);
      progress.begin("find", 0);
      const Found found = find_limits(conditions, *config, load, predict_one);
      progress.clear();
      if (interrupted()) return kInterrupted;
      if (!o.html.empty() && !write_file(o.html, html_report(subject, {found.found},
                                                             found_text({}, subject, conditions, found, 0))))
        return cli::kFailure;
      cli::say(o.json ? found_json(subject, conditions, found, o.version)
                      : found_text(style, subject, conditions, found, columns));
      return found.holds ? 0 : cli::kFailure;
    }
    std::vector<Case> cases;
    progress.begin("simulating", o.compare.empty() ? 1 : 2);
    const auto names = names_of(o.file, o.compare);
    cases.push_back({names.first, predict_one(*config, load)});
    if (!o.compare.empty() && !interrupted()) {
      const std::optional<Config> other = read_config(o.compare, code);
      if (!other) return code;
      const Load again = load_of(o, *other);
      if (!again.ok()) {
        fmt::print(stderr, "bulkhead simulate: the load does not fit {}:\n{}", o.compare,
                   to_text(again.problems));
        return cli::kInvalid;
      }
      cases.push_back({names.second, predict_one(*other, again)});
    }
    progress.clear();
    if (interrupted()) return kInterrupted;
    if (!o.html.empty() &&
        !write_file(o.html, html_report(subject, cases, table_text({}, subject, cases, 0))))
      return cli::kFailure;
    cli::say(o.json ? json_text(subject, cases, o.version) : table_text(style, subject, cases, columns));
  } catch (const std::invalid_argument& error) {
    progress.clear();
    return complain(error.what());
  }
  return 0;
}

}  // namespace

std::function<int()> add_simulate(CLI::App& app, const char* version) {
  auto o = std::make_shared<Options>();
  o->version = version;
  CLI::App* command = app.add_subcommand("simulate", kAbout);
  command->add_option("FILE", o->file, "The configuration file");
  command->add_option("--load", o->load, "The load file")->type_name("FILE");
  command->add_option("--trace", o->trace, "Recorded calls: CSV with time, bulkhead, duration ...")
      ->type_name("FILE");
  auto* write = command->add_flag("--write-load", o->write_load, "Print a load file for FILE to start with");
  auto* compare =
      command->add_option("--compare", o->compare, "A second configuration, side by side")->type_name("FILE");
  auto* sweep =
      command->add_option("--sweep", o->sweep, "For many values: db.max_concurrent=5..50, load=0.5..3")
          ->type_name("SETTING=A..B")
          ->excludes(compare);
  command->add_option("--find", o->find, "Search the smallest max_concurrent: \"p99<200ms,rejected<1%\"")
      ->type_name("CONDITIONS")
      ->excludes(compare)
      ->excludes(sweep);
  command
      ->add_option("--replicas", o->replicas, "Processes with these bulkheads, instead of the load's number")
      ->check([](const std::string& text) { return cli::check_whole_number(text, 1, kMostReplicas); })
      ->type_name("N");
  command->add_option("--hosts", o->hosts, "Hosts that the replicas are spread over, for scope: host")
      ->check([](const std::string& text) { return cli::check_whole_number(text, 1, kMostReplicas); })
      ->type_name("N");
  command->add_option("--duration", o->duration, "Virtual time, instead of the load's duration")
      ->check([](const std::string& text) { return config::check_duration(text, false); })
      ->type_name("T");
  command->add_option("--seed", o->seed, "Seed of arrivals and service times")
      ->check([](const std::string& text) { return cli::check_whole_number(text); })
      ->type_name("N")
      ->capture_default_str();
  command->add_option("--html", o->html, "Also write a report with charts, one file that loads nothing")
      ->type_name("FILE");
  auto* log = command->add_option("--trace-from", o->log, "Instead: print an access log of nginx as a trace")
                  ->type_name("LOG")
                  ->excludes(write);
  command->add_option("--format", o->format, "Its log_format; default: combined and $request_time")
      ->needs(log)
      ->type_name("FORMAT");
  command->add_option("--route", o->routes, "The bulkhead of a path in it: /pay=checkout; repeatable")
      ->needs(log)
      ->type_name("PATH=NAME");
  command->add_flag("--json", o->json, "Print one JSON document and nothing else")->excludes(write);
  return [o] { return run(*o); };
}

}  // namespace bulkhead::simulate
