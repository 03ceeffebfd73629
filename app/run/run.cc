#include "app/run/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <boost/json/parse.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <ranges>

#include "adapters/control/server.h"
#include "adapters/watch/file_watch.h"
#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/client/admin.h"
#include "app/config/environment.h"
#include "app/run/report.h"
#include "app/run/sd_notify.h"
#include "bulkhead/live_config.h"

namespace bulkhead::run {
namespace {

using control::ConfigPlan;
using control::Diagnostic;

std::vector<Diagnostic> diagnostics(const std::vector<Problem>& problems) {
  std::vector<Diagnostic> list;
  for (const Problem& p : problems)
    list.push_back(
        {.pointer = p.path, .message = p.message, .hint = p.hint, .line = p.at.line, .column = p.at.column});
  return list;
}

std::string revision_of(const ConfigStatus& status) {
  return fmt::format("{:08x}", static_cast<std::uint32_t>(status.text_hash ^ status.text_hash >> 32));
}

void add_lines(ConfigPlan& to, const Plan& plan) {
  for (const PlanLine& line : plan.lines)
    (line.effect == PlanLine::Effect::needs_restart ? to.needs_restart : to.changes).push_back(to_text(line));
}

ConfigPlan plan_of(const ReloadResult& result, const LiveConfig& live) {
  ConfigPlan plan{.errors = diagnostics(result.problems),
                  .changes = {},
                  .needs_restart = {},
                  .revision = revision_of(live.status())};
  if (result.ok()) add_lines(plan, result.plan);
  // A file that has not changed plans nothing, and yet may wait for a restart.
  if (result.outcome == ReloadResult::Outcome::unchanged)
    for (const PlanLine& line : live.status().needs_restart) plan.needs_restart.push_back(to_text(line));
  return plan;
}

// Everything a file makes: the bulkheads, what keeps them like the file, and the control plane.
class Process {
 public:
  Process(const RunOptions& options, Report& report)
      : options_(options),
        report_(report),
        live_(registry_, {.file = options.file, .read = [file = options.file] {
                            return config_text(config::with_environment(yaml::load(file)));
                          }}) {}

  LiveConfig& live() noexcept { return live_; }

  void serve(std::string_view version) {
    const ControlConfig c =
        live_.running().control.value_or(ControlConfig{.listen = std::string(client::kUsualUrl.substr(7))});
    control::ServerOptions o{
        .unix_socket = options_.unix_socket.empty() ? c.unix_socket : options_.unix_socket,
        .listen = options_.listen.empty() ? c.listen : options_.listen,
        .tokens_file = c.tokens_file,
        .anonymous =
            c.anonymous == ControlConfig::Anonymous::none ? control::Role::none : control::Role::viewer,
        .hosts = c.hosts,
        .instance = c.instance,
        .version = std::string(version),
        .audit_file = c.audit_file,
        .max_connections = c.max_connections,
        .max_local_connections = c.max_local_connections,
        .max_streams = c.max_streams,
        .max_body = c.max_body,
        .max_header = c.max_header,
        .request_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(c.request_timeout),
        .write_timeout = std::chrono::duration_cast<std::chrono::milliseconds>(c.write_timeout),
        .history_bulkheads = c.history_bulkheads,
        .config = config_file(),
        .on_event = [this](std::string_view line) { report_.event(line); }};
    if (c.tls) o.certificate = c.tls->certificate, o.private_key = c.tls->private_key;
    // Read before this run writes to it, told when it is known that the last one does not run any more.
    const std::string last_run = explain_last_run(o.audit_file);
    server_.emplace(plant(), o);
    if (!last_run.empty()) report_.warn(last_run);
    for (const auto part : std::views::split(last_run, '\n')) {
      const std::string_view line(part);
      server_->note("last_run", line.substr(line.find_first_not_of(' ')));
    }
    report_.ready({.file = options_.file,
                   .version = std::string(version),
                   .url = server_->url(),
                   .unix_socket = o.unix_socket,
                   .bulkheads = live_.running().bulkheads.size()});
  }
  control::Server& server() noexcept { return *server_; }

  void reload(std::string_view actor) {
    sd_notify_reloading();
    const ReloadResult result = live_.reload(actor);
    if (result.outcome != ReloadResult::Outcome::unchanged) {
      server_->reloaded(plan_of(result, live_), actor);
      report_.loaded(options_.file, actor, result);
    }
    sd_notify(result.ok() ? "READY=1\nSTATUS=running"
                          : "READY=1\nSTATUS=the file is not valid; the last good one is running");
  }

 private:
  // Sizes go through the configuration, so that it knows what runs; what it does not know of (tenants) goes straight.
  control::Plant plant() {
    control::Plant plant = control::plant_of(registry_);
    const auto change = [this](std::string_view name, std::string_view setting, std::uint32_t n,
                               std::uint32_t in_file) {
      const std::string path = fmt::format("bulkheads.{}.{}", name, setting);
      if (n == in_file) {
        if (live_.revert(path, "control")) return;
      }
      // Its end is the control plane's business, which comes before this one.
      const auto problems = live_.set({.path = path,
                                       .value = std::to_string(n),
                                       .ttl = std::chrono::hours(24),
                                       .reason = "override",
                                       .actor = "control"});
      if (!problems.empty()) throw std::invalid_argument(problems.front().message);
    };
    plant.resize = [this, change](std::string_view name, std::uint32_t n) {
      const Config file = live_.file();
      const BulkheadConfig* const known = file.find(name);
      known ? change(name, "max_concurrent", n, known->options.max_concurrent) : registry_.resize(name, n);
    };
    plant.resize_queue = [this, change](std::string_view name, std::uint32_t n) {
      const Config file = live_.file();
      const BulkheadConfig* const known = file.find(name);
      known ? change(name, "max_queue", n, known->options.max_queue) : registry_.resize_queue(name, n);
    };
    return plant;
  }

  control::ConfigFile config_file() {
    return {
        .path = options_.file,
        .status =
            [this] {
              const ConfigStatus s = live_.status();
              return control::ConfigStatus{
                  .valid = s.last_reload_successful,
                  .revision = revision_of(s),
                  .error = s.problems.empty() ? "" : to_text(s.problems.front()),
                  .last_success = std::chrono::system_clock::now() +
                                  std::chrono::duration_cast<std::chrono::system_clock::duration>(
                                      s.last_success - std::chrono::steady_clock::now())};
            },
        .running = [this] { return live_.text(); },
        .validate = [](const std::string& text) { return diagnostics(yaml::parse(text, "body").problems); },
        .diff =
            [this] {
              const yaml::Loaded loaded = config::with_environment(yaml::load(options_.file));
              ConfigPlan plan{.errors = diagnostics(loaded.problems),
                              .changes = {},
                              .needs_restart = {},
                              .revision = revision_of(live_.status())};
              if (loaded.ok()) add_lines(plan, live_.preview(loaded.config));
              return plan;
            },
        .reload = [this] { return plan_of(live_.reload("control"), live_); },
        .source = [this](std::string_view name, std::string_view setting) { return source(name, setting); }};
  }

  std::string source(std::string_view name, std::string_view setting) const {
    const std::string path = fmt::format("bulkheads.{}.{}", name, setting);
    for (const ActiveOverride& o : live_.overrides())
      if (o.path == path) return "override";
    const Config file = live_.file();
    const auto stands = [&](const std::string& where) {
      const auto found = file.positions.find(where);
      return found == file.positions.end() ? std::string()
                                           : fmt::format("{}:{}", options_.file, found->second.line);
    };
    if (std::string at = stands(path); !at.empty()) return at;
    const BulkheadConfig* const known = file.find(name);
    if (known && !known->type.empty()) {
      if (std::string at = stands(fmt::format("types.{}.{}", known->type, setting)); !at.empty())
        return fmt::format("{} (type {})", at, known->type);
      return fmt::format("default, or of type {}", known->type);
    }
    return "default";
  }

  const RunOptions& options_;
  Report& report_;
  Registry registry_;
  LiveConfig live_;
  std::optional<control::Server> server_;
};

// The next of these signals, or 0 when the time is over.
int wait_for_signal(const sigset_t& signals, std::chrono::milliseconds at_most) {
  const timespec time{at_most.count() / 1000, at_most.count() % 1000 * 1'000'000};
  const int signal = ::sigtimedwait(&signals, nullptr, &time);
  return signal > 0 ? signal : 0;
}

void wait_out_grace(const sigset_t& signals, double seconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  while (std::chrono::steady_clock::now() < until) {
    const int signal = wait_for_signal(signals, std::chrono::milliseconds(100));
    if (signal == SIGINT || signal == SIGTERM) return;  // the second one: no more patience
  }
}

}  // namespace

std::string explain_last_run(const std::string& audit_file) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(audit_file, unknown)) return "";  // a device may have no end
  std::ifstream file(audit_file);
  // What matters is near the end, and a start does not wait for years of history.
  constexpr std::uintmax_t most = 16 << 20;
  if (const auto size = std::filesystem::file_size(audit_file, unknown); !unknown && size > most)
    file.seekg(static_cast<std::streamoff>(size - most));
  std::map<std::string, std::string> in_force;
  bool running = false;
  for (std::string line; std::getline(file, line);) {
    boost::system::error_code error;
    const boost::json::value entry = boost::json::parse(line, error);
    if (error || !entry.is_object()) continue;  // torn off by the end of that run
    const auto text = [&](std::string_view name) {
      const auto* const member = entry.get_object().if_contains(name);
      return member && member->is_string() ? std::string(member->get_string()) : std::string();
    };
    const std::string kind = text("kind"), target = text("target");
    if (kind == "start") in_force.clear();
    running = kind != "stop";  // its start may be in a file that was rotated away
    const bool begins = kind == "override" || kind == "drain";
    if (!begins && kind != "revert" && kind != "expired" && kind != "resume") continue;
    // What it is about (limit, mode, draining) is told by what it became; nothing: all of a bulkhead that is gone.
    const auto* const after = entry.get_object().if_contains("after");
    const bool one = after && after->is_object() && !after->get_object().empty();
    const std::string key = target + ' ' + (one ? std::string(after->get_object().begin()->key()) : "");
    if (begins)
      in_force[key] = fmt::format("{}: {} ({})", target, text("text"), text("actor"));
    else
      std::erase_if(in_force, [&](const auto& o) { return one ? o.first == key : o.first.starts_with(key); });
  }
  if (!running) return "";
  std::string out = "the last run did not end by itself; the file is in force";
  for (const auto& [key, what] : in_force) out += "\n  an override ended with it: " + what;
  return out;
}

int run_file(const RunOptions& o, std::string_view version) {
  // Before anything else, so that no signal is lost and no thread but this one gets any.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // whoever read the output may go
  Report report(o.json);

  // Before the file is read: what changes after that is seen.
  std::atomic<bool> changed{false};
  std::optional<watch::FileWatch> watch;
  if (!o.no_watch)
    watch.emplace(watch::FileWatchOptions{.path = o.file, .on_change = [&changed] { changed = true; }});
  if (watch && !watch->status().warning.empty()) report.warn(watch->status().warning);

  Process process(o, report);
  const ReloadResult first = process.live().reload("start");
  if (!first.ok()) {
    report.invalid(o.file, first.problems);
    return client::kInvalid;
  }
  report.warn(first.warnings);
  try {
    process.serve(version);
  } catch (const std::exception& error) {
    report.failed(error.what());
    return cli::kFailure;
  }
  sd_notify("READY=1\nSTATUS=running");
  const bool watchdog = std::getenv("WATCHDOG_USEC") != nullptr;
  for (;;) {
    const int signal = wait_for_signal(signals, std::chrono::milliseconds(200));
    if (watchdog) sd_notify("WATCHDOG=1");
    report.flush();
    if (signal == SIGHUP)
      process.reload("SIGHUP");
    else if (signal != 0) {
      sd_notify("STOPPING=1");
      report.stopping(signal == SIGTERM ? "SIGTERM" : "SIGINT", signal == SIGTERM ? o.grace : 0);
      process.server().set_stopping();
      if (signal == SIGTERM) wait_out_grace(signals, o.grace);
      return 0;
    } else if (changed.exchange(false)) {
      process.reload("watch");
    }
  }
}

}  // namespace bulkhead::run
