// live_config.h - keeps a running registry in step with a configuration file: plans, reloads, overrides.
//
//   bulkhead::LiveConfig live(registry, {.file = path, .read = [path] {
//     return bulkhead::config_text(bulkhead::yaml::load(path)); }});
//   if (!live.reload("start").ok()) return 1;                      // creates all bulkheads of the file
//   ...
//   live.reload("SIGHUP");                                         // or from adapters/watch, or from the control plane
//   live.set({.path = "bulkheads.db.max_concurrent", .value = "40", .ttl = 15min, .reason = "sale", .actor = "ann"});
//
// A reload reads the file, checks it as a whole, compares it with the running configuration (a ConfigPlan), checks that every
// change can be applied, and then applies all of them or none. A setting that cannot be changed on a running bulkhead
// keeps its value, and is reported as "needs restart".
//
// An override is a temporary change of one setting by an operator, with a path, a value, a reason, an actor and an end. It
// has precedence over the file and remembers the value it replaced. It does not affect overrides of other settings, also
// of the same bulkhead. It ends when its time is over, when it is reverted, when the file changes the same setting (then
// the file wins), when the bulkhead is removed, or when it no longer fits: after a reload, or because another override has
// ended. Each end is an event, and none prevents another override from ending. Bulkheads created by code, and tenants, can
// be overridden too; a tenant is not retired while it has an override.
//
// Threads: every member may be called from any thread. Changes are serialized. A change may run hooks and handlers of calls
//   that it admits; from these, and from `read`, nothing can be changed: set() and reload() return a problem, revert() and
//   expire() do nothing. Events are delivered without a lock held.
// Promises: the registry matches the last valid file plus the overrides in force. An invalid file changes nothing, and is
//   reported until a valid one is read, also if that equals the running configuration. A registry has at most one
//   LiveConfig.
// Time: a thread, which the first override starts, ends overrides on time (LiveConfigOptions::ends_overrides).
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
    drains,         // smaller, or removed: no call is interrupted; calls above the new maximum finish
    needs_restart,  // keeps its value until the process restarts
  };
  What what{};
  Effect effect{};
  std::string path;           // "bulkheads.db.max_queue"; "bulkheads.db" if that is added or removed
  std::string before, after;  // as a file would write it
  Position at{};              // in the new file
};

struct ConfigPlan {
  std::vector<PlanLine> lines;  // in the order of the settings table

  bool empty() const noexcept { return lines.empty(); }
  std::vector<PlanLine> needing_restart() const;
};

ConfigPlan plan(const Config& running, const Config& wanted);
std::string to_text(const PlanLine& line);    // ~ bulkheads.db.max_queue: 40 -> 20 (drains)
std::string to_text(const ConfigPlan& plan);  // one line each; "no changes" if there are none

// A file that was read.
struct ConfigText {
  Config config{};  // valid only without problems
  std::vector<ConfigProblem> problems{}, warnings{};
  std::string text{};  // the text of the file
};

// From the result of adapters/yaml.
template <class Loaded>
ConfigText config_text(Loaded file) {
  return {std::move(file.config), std::move(file.problems), std::move(file.warnings), std::move(file.text)};
}

struct ReloadResult {
  enum class Outcome : std::uint8_t { applied, unchanged, failed };
  Outcome outcome{};
  ConfigPlan plan{};                      // the changes; if it failed, those found before the failure
  std::vector<ConfigProblem> problems{};  // why it failed
  std::vector<ConfigProblem> warnings{};
  std::uint64_t revision = 0;  // of the running configuration
  bool ok() const noexcept { return outcome != Outcome::failed; }
};

struct OverrideRequest {
  std::string path{};   // "bulkheads.db.max_concurrent": a setting of one bulkhead, set of tenants or group
  std::string value{};  // as a file would write it
  std::chrono::nanoseconds ttl = std::chrono::minutes(15);  // one second to 24 hours
  std::string reason{}, actor{};
  // Instead of `path`, for names that are not from a file and may contain a '.'.
  std::string bulkhead{}, setting{};
};

struct ActiveOverride {
  std::string path, value,
      replaced;  // `replaced`: the value of the file, or the one the bulkhead was created with
  std::string reason, actor;
  TimePoint since{}, expires{};
  std::string bulkhead{}, setting{};  // the two parts of a path below bulkheads
};

struct ConfigEvent {
  enum class Kind : std::uint8_t {
    reload,         // a new file is in force
    reload_failed,  // a file was rejected
    recovered,      // after a failure: the file equals the running configuration
    set,            // an override began or changed
    reverted,       // an operator ended an override
    expired,        // the time of an override is over
    dropped,  // an override ended: the file changed or removed the setting, or the override no longer fits
    stuck,    // the value before an override cannot be restored; retried every ten seconds
  };
  std::uint64_t id = 0;  // from 1, without gaps
  Kind kind{};
  TimePoint at{};
  std::string path, actor, text;
  std::string bulkhead{}, setting{}, before{}, after{};  // for an override of a bulkhead
};
std::string_view to_string(ConfigEvent::Kind kind) noexcept;

struct ConfigStatus {
  std::string file;
  bool loaded = false;                 // a valid file has been loaded
  bool last_reload_successful = true;  // the last reload did not fail
  TimePoint last_attempt{}, last_success{};
  std::vector<ConfigProblem> problems;  // of the last reload if it failed
  std::uint64_t revision = 0;           // increases with every change of the running configuration
  std::uint64_t text_hash = 0;          // of the file in force
  std::uint64_t reloads = 0, failures = 0;
  std::size_t overrides = 0;
  std::vector<PlanLine> needs_restart;  // settings of the file that are not in force
};

struct LiveConfigOptions {
  std::string file{};  // for reports
  // Reads and checks the file; must not throw because of its contents. Empty: there is no file, only overrides.
  std::function<ConfigText()> read{};
  // Checks a text other than the file, for the control plane; empty: not offered.
  std::function<ConfigText(std::string_view text)> parse{};
  std::size_t max_events = 256;  // older events are discarded
  // Called after each event, without a lock held.
  std::function<void(const ConfigEvent&)> on_event{};
  Clock* clock = nullptr;      // default: that of the registry
  bool ends_overrides = true;  // false: no thread is started; the caller calls expire()
};

// While it lives, a function is called after each event. The destructor waits for a call in progress.
class [[nodiscard]] ConfigSubscription {
 public:
  ConfigSubscription() noexcept = default;
  ConfigSubscription(ConfigSubscription&&) noexcept = default;
  ConfigSubscription& operator=(ConfigSubscription&& other) noexcept {
    end();
    listener_ = std::move(other.listener_);
    return *this;
  }
  ~ConfigSubscription() { end(); }

 private:
  friend class LiveConfig;
  struct Listener;
  explicit ConfigSubscription(std::shared_ptr<Listener> listener) noexcept : listener_(std::move(listener)) {}
  void end() noexcept;
  std::shared_ptr<Listener> listener_;
};

class LiveConfig {
 public:
  // Reads nothing yet. std::invalid_argument if the registry has a LiveConfig already.
  LiveConfig(Registry& registry, LiveConfigOptions options);
  ~LiveConfig();  // the registry stays as it is
  LiveConfig(const LiveConfig&) = delete;
  LiveConfig& operator=(const LiveConfig&) = delete;

  ReloadResult reload(std::string_view actor = {});                   // reads the file
  ReloadResult reload(ConfigText text, std::string_view actor = {});  // uses this text instead of the file
  ConfigPlan preview(const Config& wanted) const;                     // the changes of a reload
  ConfigPlan preview() const;                                         // for the file; empty if it is invalid
  ReloadResult try_reload() const;  // the result of reload(), without any change or event

  // Returns the problems; without any the override is in force. Several requests: all are applied, or none.
  std::vector<ConfigProblem> set(const OverrideRequest& request);
  std::vector<ConfigProblem> set(const std::vector<OverrideRequest>& requests);
  bool revert(std::string_view path, std::string_view actor = {});  // false: no such override
  // All overrides of a bulkhead; returns how many.
  std::size_t revert_all(std::string_view bulkhead, std::string_view actor = {});
  std::size_t expire();                           // ends those whose time is over; returns how many
  TimePoint next_expiry() const;                  // no_deadline: none
  std::vector<ActiveOverride> overrides() const;  // by path
  std::vector<ActiveOverride> overrides(std::string_view bulkhead) const;  // of one bulkhead
  // Increases when an override of the bulkhead begins, changes or ends.
  std::uint64_t version(std::string_view bulkhead) const;

  Config file() const;     // the last valid file
  Config running() const;  // in force: the file without what needs a restart, plus the overrides
  std::string text() const;
  ConfigStatus status() const;
  std::vector<ConfigEvent> events(
      std::uint64_t since = 0) const;  // with a greater id than `since`; oldest first
  ConfigSubscription subscribe(std::function<void(const ConfigEvent&)> fn);
  // The origin of a setting of a bulkhead: "shop.yaml:12", "shop.yaml:5 (type api)", "override", "default", "code".
  std::string source(std::string_view bulkhead, std::string_view setting) const;
  const LiveConfigOptions& options() const noexcept;
  Registry& registry() const noexcept;
  Clock& clock() const noexcept;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
