// live_config.h - keeps a registry as the configuration file says, while it runs: plans, reloads, overrides.
//
//   bulkhead::LiveConfig live(registry, {.file = path, .read = [path] {
//     return bulkhead::config_text(bulkhead::yaml::load(path)); }});
//   if (!live.reload("start").ok()) return 1;                      // all bulkheads of the file are made
//   ...
//   live.reload("SIGHUP");                                         // or from adapters/watch, or from the control plane
//   live.set({.path = "bulkheads.db.max_concurrent", .value = "40", .ttl = 15min, .reason = "sale", .actor = "ann"});
//
// A reload reads the file, checks it as a whole, compares it with what runs (a Plan: what becomes what, and how), tries
// everything out, and then makes all of it so, or nothing. What cannot be changed on a living bulkhead stays as it is,
// and is told as "needs restart" until then.
//
// An override is a setting that somebody has changed at run time, for a while. It stands above the file, and remembers the
// value it replaced. It ends when its time is over, when it is taken back, or when the file changes that very setting: then
// the file wins. Every one of these is an event.
//
// Threads: every member may be called from any thread. What changes something does so one after the other, and may run
//   hooks and handlers of calls that it lets in; these must not change the configuration.
// Promises: the registry is what the last good file says, plus the overrides that live. A bad file changes nothing, and
//   is reported until a good one comes; also if the good one is what already runs.
// Time: overrides end in expire(), which whoever has a timer calls; next_expiry() says when.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bulkhead/config.h"
#include "bulkhead/registry.h"

namespace bulkhead {

// One difference between two configurations.
struct PlanLine {
  enum class What : std::uint8_t { added, removed, changed };
  enum class Effect : std::uint8_t {
    live,           // in force from the next call on
    drains,         // smaller, or gone: nobody is cut, those who are above it run to their end
    needs_restart,  // stays as it is until then
  };
  What what{};
  Effect effect{};
  std::string path;           // "bulkheads.db.max_queue"; of what is added or removed "bulkheads.db"
  std::string before, after;  // as the file would write it
  Position at{};              // in the wanted file
};

struct Plan {
  std::vector<PlanLine> lines;  // in the order of the settings table

  bool empty() const noexcept { return lines.empty(); }
  std::vector<PlanLine> needing_restart() const;
};

Plan plan(const Config& running, const Config& wanted);
std::string to_text(const PlanLine& line);  // ~ bulkheads.db.max_queue: 40 -> 20 (drains)
std::string to_text(const Plan& plan);      // one after the other; "no changes" if there are none

// A file as it was read.
struct ConfigText {
  Config config{};  // counts only if there are no problems
  std::vector<Problem> problems{}, warnings{};
  std::string text{};  // the file itself
};

// From what adapters/yaml gives.
template <class Loaded>
ConfigText config_text(Loaded file) {
  return {std::move(file.config), std::move(file.problems), std::move(file.warnings), std::move(file.text)};
}

struct ReloadResult {
  enum class Outcome : std::uint8_t { applied, unchanged, failed };
  Outcome outcome{};
  Plan plan{};                      // what it did, or would do; of one that failed, as far as it came
  std::vector<Problem> problems{};  // why it failed
  std::vector<Problem> warnings{};
  std::uint64_t revision = 0;  // of what runs now
  bool ok() const noexcept { return outcome != Outcome::failed; }
};

struct OverrideRequest {
  std::string path{};   // "bulkheads.db.max_concurrent": a setting of one bulkhead, set of tenants or group
  std::string value{};  // as the file would write it
  std::chrono::nanoseconds ttl = std::chrono::minutes(15);  // one second to 24 hours
  std::string reason{}, actor{};
};

struct ActiveOverride {
  std::string path, value, replaced;  // `replaced`: what the file says
  std::string reason, actor;
  TimePoint since{}, expires{};
};

struct ConfigEvent {
  enum class Kind : std::uint8_t {
    reload,         // a new file is in force
    reload_failed,  // a file was refused
    recovered,      // after that: the file is what runs already
    set,            // an override began, or was changed
    reverted,       // ... was taken back
    expired,        // ... its time was over
    dropped,        // ... the file has changed the setting, or no longer has it
  };
  std::uint64_t id = 0;  // from 1, without gaps
  Kind kind{};
  TimePoint at{};
  std::string path, actor, text;
};
std::string_view to_string(ConfigEvent::Kind kind) noexcept;

struct ConfigStatus {
  std::string file;
  bool loaded = false;                 // a good file has been there
  bool last_reload_successful = true;  // no reload has failed, or one that did was followed by a good one
  TimePoint last_attempt{}, last_success{};
  std::vector<Problem> problems;  // of the last reload, if it failed
  std::uint64_t revision = 0;     // grows with every change of what runs
  std::uint64_t text_hash = 0;    // of the file in force
  std::uint64_t reloads = 0, failures = 0;
  std::size_t overrides = 0;
  std::vector<PlanLine> needs_restart;  // what the file says and does not run
};

struct LiveConfigOptions {
  std::string file{};                  // for reports
  std::function<ConfigText()> read{};  // reads and checks it; must not throw for what it contains
  std::size_t max_events = 256;        // older ones are forgotten
  // Called after each event, without a lock.
  std::function<void(const ConfigEvent&)> on_event{};
  Clock* clock = nullptr;  // default: the registry's
};

class LiveConfig {
 public:
  LiveConfig(Registry& registry, LiveConfigOptions options);  // nothing is read yet
  ~LiveConfig();                                              // the registry stays as it is
  LiveConfig(const LiveConfig&) = delete;
  LiveConfig& operator=(const LiveConfig&) = delete;

  ReloadResult reload(std::string_view actor = {});                   // reads the file
  ReloadResult reload(ConfigText text, std::string_view actor = {});  // this one instead
  Plan preview(const Config& wanted) const;                           // what a reload would do
  Plan preview() const;                                               // of the file; empty if it is wrong

  // What is wrong with it, or nothing: then it is in force.
  std::vector<Problem> set(const OverrideRequest& request);
  bool revert(std::string_view path, std::string_view actor = {});  // false: there is none
  std::size_t expire();                                             // those whose time is over; how many
  TimePoint next_expiry() const;                                    // no_deadline: none
  std::vector<ActiveOverride> overrides() const;                    // by path

  Config file() const;     // the last good one
  Config running() const;  // what runs: without what needs a restart, with the overrides
  std::string text() const;
  ConfigStatus status() const;
  std::vector<ConfigEvent> events(std::uint64_t since = 0) const;  // with a greater id; oldest first

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
