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
#include <memory>
#include <optional>
#include <ranges>
#include <stdexcept>

#include "adapters/redis/fleet.h"
#include "adapters/shm/host.h"
#include "adapters/watch/file_watch.h"
#include "adapters/yaml/yaml.h"
#include "app/cli/command_line.h"
#include "app/client/admin.h"
#include "app/config/environment.h"
#include "app/gateway/gateway.h"
#include "app/gateway/run.h"
#include "app/run/report.h"
#include "app/run/sd_notify.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/live_config.h"
#include "control/server.h"

namespace bulkhead::run {
namespace {

// Everything a file makes: the bulkheads, what keeps them like the file, and the control plane.
class Process {
 public:
  Process(const RunOptions& options, Report& report)
      : options_(options),
        report_(report),
        gateway_(options.gateway ? std::make_unique<gateway::Runner>(gateway::RunnerOptions{
                                       .file = options.file,
                                       .board = options.board,
                                       .say = [&report](std::string_view text) { report.warn(text); }})
                                 : nullptr),
        registry_({.sources = &sources_,
                   .complete = gateway_ ? [this](RegistrySnapshot& all) { gateway_->board().add_up(all); }
                                        : std::function<void(RegistrySnapshot&)>()}),
        live_(registry_, {.file = options.file,
                          .read =
                              [this] {
                                // The workers of nginx read the file themselves, without the environment.
                                yaml::Loaded file = gateway_
                                                        ? gateway::load(options_.file).file
                                                        : config::with_environment(yaml::load(options_.file));
                                if (file.ok() && file.config.host) host_.set_region(file.config.host->region);
                                if (file.ok() && file.config.fleet) set_fleet(file);
                                return config_text(std::move(file));
                              },
                          .parse =
                              [this](std::string_view text) {
                                return config_text(gateway_ ? gateway::parse(std::string(text), "body").file
                                                            : yaml::parse(std::string(text), "body"));
                              }}) {}

  // Non-zero: the exit code; it has said why.
  int start_gateway() { return gateway_ ? gateway_->start(live_) : 0; }
  gateway::Runner* gateway() noexcept { return gateway_ ? &*gateway_ : nullptr; }

  LiveConfig& live() noexcept { return live_; }

  void serve(std::string_view version) {
    const ControlConfig c =
        live_.running().control.value_or(ControlConfig{.listen = std::string(client::kUsualUrl.substr(7))});
    control::ServerOptions o =
        control::options_of(c, {.version = std::string(version),
                                .on_event = [this](std::string_view line) { report_.event(line); }});
    if (!options_.unix_socket.empty()) o.unix_socket = options_.unix_socket;
    if (!options_.listen.empty()) o.listen = options_.listen;
    // Read before this run writes to it; reported after the server has started, when the last run has certainly ended.
    const std::string last_run = explain_last_run(o.audit_file);
    server_.emplace(registry_, live_, o);
    if (!last_run.empty()) report_.warn(last_run);
    for (const auto part : std::views::split(last_run, '\n')) {
      const std::string_view line(part.begin(), part.end());
      server_->note("last_run", line.substr(line.find_first_not_of(' ')));
    }
    report_.ready({.file = options_.file,
                   .version = std::string(version),
                   .url = server_->url(),
                   .unix_socket = o.unix_socket,
                   .bulkheads = live_.running().bulkheads.size(),
                   .listeners = gateway_ ? gateway_->addresses() : std::vector<std::string>()});
  }
  control::Server& server() noexcept { return *server_; }

  void report_news() {
    std::vector<std::string> news;
    {
      const detail::MutexLock lock(news_mutex_);
      news.swap(news_);
    }
    for (const std::string& text : news) {
      report_.warn(text);
      server_->note("fleet", text);
    }
  }

  void reload(std::string_view actor) {
    sd_notify_reloading();
    const ReloadResult result = live_.reload(actor);
    if (result.outcome != ReloadResult::Outcome::unchanged) {
      report_.loaded(options_.file, actor, result);
    }
    sd_notify(result.ok() ? "READY=1\nSTATUS=running"
                          : "READY=1\nSTATUS=the file is not valid; the last valid file stays in force");
  }

 private:
  void set_fleet(yaml::Loaded& file) {
    try {
      fleet_.set_settings(*file.config.fleet);
    } catch (const std::invalid_argument& error) {
      file.problems.push_back({.file = options_.file,
                               .at = file.config.where("fleet"),
                               .path = "fleet",
                               .message = error.what()});
    }
  }

  const RunOptions& options_;
  Report& report_;
  shm::Host host_{{}};
  // Messages of the fleet's thread, until this one reports them.
  detail::StdMutex news_mutex_;
  std::vector<std::string> news_ BULKHEAD_GUARDED_BY(news_mutex_);
  redis::Fleet fleet_{{},
                      [this](const std::string& text) {
                        const detail::MutexLock lock(news_mutex_);
                        news_.push_back(text);
                      },
                      &host_};
  SourcesByScope sources_{&host_, &fleet_};
  const std::unique_ptr<gateway::Runner> gateway_;  // null: the file has none
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

// nginx finishes the requests that have begun, within the grace. A second signal ends it at once.
void drain(gateway::Runner& gateway, const sigset_t& signals, double seconds, Report& report) {
  const auto until =
      std::chrono::steady_clock::now() +
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
  const auto hurry = [&] {
    const int again = wait_for_signal(signals, std::chrono::milliseconds(20));
    return again == SIGTERM || again == SIGINT;
  };
  if (!gateway.drain(until, hurry) && seconds > 0)
    report.warn("the grace is over; requests in flight are cut");
}

}  // namespace

std::string explain_last_run(const std::string& audit_file) {
  std::error_code unknown;
  if (!std::filesystem::is_regular_file(audit_file, unknown)) return "";  // a device may have no end
  std::ifstream file(audit_file);
  // What matters is near the end, and a start does not wait for years of history.
  constexpr std::uintmax_t kMost = 16 << 20;
  if (const auto size = std::filesystem::file_size(audit_file, unknown); !unknown && size > kMost)
    file.seekg(static_cast<std::streamoff>(size - kMost));
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
    const bool begins = kind == "override" || kind == "drain" || kind == "fault";
    if (!begins && kind != "revert" && kind != "expired" && kind != "resume") continue;
    // The fields that differ (max_concurrent, mode, draining ...) say what it changed; without fields it is all of a
    // removed bulkhead.
    const auto object = [&](std::string_view name) {
      const auto* const member = entry.get_object().if_contains(name);
      return member && member->is_object() ? member->get_object() : boost::json::object();
    };
    const boost::json::object before = object("before"), after = object("after");
    if (!begins && after.empty())
      std::erase_if(in_force, [&](const auto& o) { return o.first.starts_with(target + ' '); });
    for (const auto& field : after) {
      // A fault is one: its fields begin and end together.
      const bool of_fault = field.key() == "latency" || field.key() == "error";
      const std::string key = target + ' ' + (of_fault ? "fault" : std::string(field.key()));
      const auto* const was = before.if_contains(field.key());
      if (!begins)
        in_force.erase(key);
      else if (!was || *was != field.value())
        in_force[key] = fmt::format("{}: {} ({})", target, text("text"), text("actor"));
    }
  }
  if (!running) return "";
  std::string out = "the last run did not stop cleanly; the file is in force";
  for (const auto& [key, what] : in_force) out += "\n  an override ended with it: " + what;
  return out;
}

int run_file(const RunOptions& o, std::string_view version) {
  // Before anything else, so that no signal is lost and no thread but this one gets any.
  sigset_t signals;
  ::sigemptyset(&signals);
  for (const int s : {SIGINT, SIGTERM, SIGHUP}) ::sigaddset(&signals, s);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);  // the reader of the output may exit
  ::signal(SIGXFSZ, SIG_IGN);  // a file at its limit of size is an error of that write, as a full disk
  Report report(o.json);

  // Before the file is read: what changes after that is seen.
  std::atomic<bool> changed{false};
  std::optional<watch::FileWatch> watch;
  try {
    if (!o.no_watch)
      watch.emplace(watch::FileWatchOptions{.path = o.file, .on_change = [&changed] { changed = true; }});
  } catch (const std::exception& error) {
    report.failed(error.what());
    return cli::kFailure;
  }
  if (watch && !watch->status().warning.empty()) report.warn(watch->status().warning);

  std::optional<Process> running;
  try {
    running.emplace(o, report);
  } catch (const std::exception& error) {
    report.failed(error.what());
    return cli::kFailure;
  }
  Process& process = *running;
  const ReloadResult first = process.live().reload("start");
  if (!first.ok()) {
    report.invalid(o.file, first.problems);
    // As bulkhead check: a file that is not there is no invalid file.
    return ::access(o.file.c_str(), R_OK) == 0 ? client::kInvalid : cli::kFailure;
  }
  report.warn(first.warnings);
  if (o.gateway && !config::environment().empty())
    report.warn("BULKHEAD_* variables have no effect with a gateway: write these settings to the file");
  if (const int code = process.start_gateway(); code != 0) return code;
  try {
    process.serve(version);
  } catch (const std::exception& error) {
    report.failed(error.what());
    return cli::kFailure;
  }
  sd_notify("READY=1\nSTATUS=running");
  const bool watchdog = std::getenv("WATCHDOG_USEC") != nullptr;
  for (;;) {
    const int signal = wait_for_signal(signals, std::chrono::milliseconds(o.gateway ? 50 : 200));
    if (watchdog) sd_notify("WATCHDOG=1");
    process.report_news();
    report.flush();
    if (signal == SIGHUP) {
      process.reload("SIGHUP");
      if (process.gateway()) process.gateway()->reload();
    } else if (signal != 0) {
      sd_notify("STOPPING=1");
      const double grace = signal == SIGTERM ? o.grace : 0;
      report.stopping(signal == SIGTERM ? "SIGTERM" : "SIGINT", grace);
      process.server().set_stopping();
      if (process.gateway())
        drain(*process.gateway(), signals, grace, report);
      else if (signal == SIGTERM)
        wait_out_grace(signals, grace);
      return 0;
    } else if (changed.exchange(false)) {
      process.reload("watch");
    }
    if (process.gateway()) process.gateway()->tend(process.live());
  }
}

}  // namespace bulkhead::run
