#include "bulkhead/live_config.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "config/live_core.h"
#include "config/override.h"
#include "config/running.h"

namespace bulkhead {
namespace {

using base::hash_of;
using base::join;
using config::new_problems;
using config::with;
using Kind = ConfigEvent::Kind;

std::string was_dropped(const ActiveOverride& o, std::string_view why) {
  return join({o.path, " = ", o.value, " of ", o.actor, " (", o.reason, ") is dropped: ", why});
}

std::string was_replaced(const ActiveOverride& o, std::string_view file_says) {
  return was_dropped(o, join({"the file ", file_says}));
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
  constexpr std::string_view kNames[] = {"reload",   "reload_failed", "recovered", "set",
                                         "reverted", "expired",       "dropped",   "stuck"};
  const auto i = static_cast<std::size_t>(kind);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

namespace config {

Config with(Config config, const Overrides& overrides) {
  for (const auto& [path, o] : overrides)
    if (!o.loose) set_value(config, path, o.value);
  return config;
}

std::vector<ConfigProblem> new_problems(const Config& now, const Config& next) {
  std::vector<ConfigProblem> problems = check_all(next);
  if (problems.empty()) return problems;
  // An override of the max of a budget may be below its per_call_max, which counts only up to max. A file may not.
  const Values before = values_of(now), after = values_of(next);
  std::erase_if(problems, [&](const ConfigProblem& p) {
    if (!p.path.ends_with(".per_call_max") || p.path.find(".budgets.") == p.path.npos) return false;
    const auto was = before.find(p.path), is = after.find(p.path);
    return was != before.end() && is != after.end() && was->second.value == is->second.value;
  });
  for (const ConfigProblem& known : check_all(now))
    std::erase_if(problems,
                  [&](const ConfigProblem& p) { return p.path == known.path && p.message == known.message; });
  return problems;
}

}  // namespace config

// ---- turns and events ----

// Inside a change the lock is this thread's already; then the turn is false, and its owner touches nothing.
LiveConfig::Core::Turn::Turn(Core& core) BULKHEAD_UNCHECKED_LOCKS : core_(core) {
  if (core.changer.load() == std::this_thread::get_id()) return;
  core.changing.lock();
  holds_ = true;
  core.changer.store(std::this_thread::get_id());
  core.fresh.clear();  // of a change that an exception has ended
}

LiveConfig::Core::Turn::~Turn() BULKHEAD_UNCHECKED_LOCKS {
  if (!holds_) return;
  core_.changer.store(std::thread::id());
  core_.changing.unlock();
}

// Listeners are called after both locks are released, because they may read this LiveConfig.
void LiveConfig::Core::Turn::end() BULKHEAD_UNCHECKED_LOCKS {
  std::vector<ConfigEvent> now = std::exchange(core_.fresh, {});
  std::vector<std::shared_ptr<ConfigSubscription::Listener>> told;
  {
    const detail::MutexLock lock(core_.mutex);
    for (ConfigEvent& event : now) {
      event.id = ++core_.last_event;
      core_.events.push_back(event);
      if (core_.events.size() > core_.options.max_events) core_.events.pop_front();
    }
    told = core_.listeners;
  }
  core_.changer.store(std::thread::id());
  holds_ = false;
  core_.changing.unlock();
  for (const ConfigEvent& event : now) {
    if (core_.options.on_event) core_.options.on_event(event);
    for (const auto& listener : told) {
      const detail::MutexLock lock(listener->mutex);
      if (listener->fn) listener->fn(event);
    }
  }
}

ConfigProblem LiveConfig::Core::inside_a_change() {
  return {.message = "cannot be changed from inside a change, by a hook, a handler or `read`",
          .hint = "do it on another thread, without waiting for it"};
}

ConfigSubscription LiveConfig::subscribe(std::function<void(const ConfigEvent&)> fn) {
  auto listener = std::make_shared<ConfigSubscription::Listener>();
  {
    const detail::MutexLock lock(listener->mutex);
    listener->fn = std::move(fn);
  }
  const detail::MutexLock lock(core_->mutex);
  std::erase_if(core_->listeners, [](const auto& l) { return l.use_count() == 1; });  // those that ended
  core_->listeners.push_back(listener);
  return ConfigSubscription(std::move(listener));
}

void ConfigSubscription::end() noexcept {
  if (!listener_) return;
  {
    const detail::MutexLock lock(listener_->mutex);
    listener_->fn = nullptr;
  }
  listener_.reset();
}

LiveConfig::LiveConfig(Registry& registry, LiveConfigOptions options)
    : core_(std::make_unique<Core>(*this, registry, std::move(options))) {
  core_->status.file = core_->options.file;
  if (!registry.follow(nullptr, this))
    base::throw_invalid(
        "live config: the registry has one already, its own or that of a control::Server: make this one "
        "first, and "
        "give it to the server");
}

LiveConfig::~LiveConfig() {
  core_->stopping.store(true);
  core_->wake();
  if (core_->ender.joinable()) core_->ender.join();
  core_->registry.follow(this, nullptr);
}

// ---- reload ----

// Those whose setting the file has changed or no longer has; and those that do not fit what it says now.
void LiveConfig::Core::drop_outdated(Overrides& next, const Config& next_base, const Config& next_file) {
  const config::Values says = config::values_of(next_file);
  std::erase_if(next, [&](const auto& entry) {
    changing.assert_held();
    const config::Override& o = entry.second;
    if (o.loose) return false;
    const auto now = says.find(o.path);
    if (now != says.end() && now->second.value == o.replaced) return false;
    tell_end(
        Kind::dropped, o,
        was_replaced(o, now == says.end() ? "no longer has it" : join({"now says ", now->second.value})));
    return true;
  });
  drop_unfit(next, next_base);
}

void LiveConfig::Core::drop_unfit(Overrides& next, const Config& next_base) {
  std::erase_if(next, [&](const auto& entry) {
    changing.assert_held();
    const config::Override& o = entry.second;
    if (in_force(o)) return false;
    tell_end(Kind::dropped, o, was_dropped(o, "the bulkhead was removed"));
    return true;
  });
  while (!next.empty()) {
    const std::vector<ConfigProblem> problems = new_problems(next_base, with(next_base, next));
    if (problems.empty()) return;
    const std::string path(config::entry_path(problems.front().path));
    const auto concerns = [&](const auto& entry) { return config::entry_path(entry.first) == path; };
    // A problem of the whole is one of all of them.
    const bool named = std::any_of(next.begin(), next.end(), concerns);
    std::erase_if(next, [&](const auto& entry) {
      changing.assert_held();
      if (entry.second.loose || (named && !concerns(entry))) return false;
      tell_end(Kind::dropped, entry.second,
               was_dropped(entry.second, join({"it does not fit any more: ", problems.front().message})));
      return true;
    });
    if (std::all_of(next.begin(), next.end(), [](const auto& e) { return e.second.loose != nullptr; }))
      return;
  }
}

// The event has the first problem only; status() has all.
ReloadResult LiveConfig::Core::fail(ReloadResult result, std::string_view actor) {
  result.outcome = ReloadResult::Outcome::failed;
  {
    const detail::MutexLock lock(mutex);
    status.last_reload_successful = false;
    status.problems = result.problems;
    ++status.failures;
    result.revision = status.revision;
  }
  std::string said = to_text(result.problems.front());
  if (!said.empty() && said.back() == '\n') said.pop_back();
  if (result.problems.size() > 1)
    said += join({"\nand ", std::to_string(result.problems.size() - 1), " more"});
  tell(Kind::reload_failed, "", actor, std::move(said));
  return result;
}

ReloadResult LiveConfig::Core::reload(ConfigText wanted, std::string_view actor) {
  ReloadResult result{.problems = std::move(wanted.problems), .warnings = std::move(wanted.warnings)};
  bool was_bad = false;
  {
    const detail::MutexLock lock(mutex);
    status.last_attempt = clock.now();
    ++status.reloads;
    was_bad = !status.last_reload_successful;
  }
  if (!result.problems.empty()) return fail(std::move(result), actor);

  const auto succeed = [&](ReloadResult::Outcome outcome) {
    const detail::MutexLock lock(mutex);
    status.last_reload_successful = status.loaded = true;
    status.last_success = status.last_attempt;
    status.problems.clear();
    result.outcome = outcome;
    result.revision = status.revision;
  };
  if (status.loaded && wanted.text == text) {
    succeed(ReloadResult::Outcome::unchanged);
    if (was_bad) tell(Kind::recovered, "", actor, "the file is again what runs");
    return result;
  }
  result.plan = plan(base, wanted.config);
  Config next_base = status.loaded ? config::without_restart(base, wanted.config) : wanted.config;
  Overrides next_overrides = overrides;
  const std::size_t told = fresh.size();
  drop_outdated(next_overrides, next_base, wanted.config);
  result.problems = settle(std::move(next_base), std::move(next_overrides));
  if (!result.problems.empty()) {
    fresh.resize(told);  // nothing was dropped
    for (ConfigProblem& problem : result.problems) problem.file = options.file;
    return fail(std::move(result), actor);
  }
  {
    const detail::MutexLock lock(mutex);
    file = std::move(wanted.config);
    text = std::move(wanted.text);
    status.text_hash = hash_of(text);
    status.needs_restart = plan(base, file).needing_restart();
  }
  succeed(ReloadResult::Outcome::applied);
  const std::size_t waiting = result.plan.needing_restart().size();
  std::string said = join(
      {std::to_string(result.plan.lines.size()), result.plan.lines.size() == 1 ? " change" : " changes"});
  if (waiting > 0) said += join({", ", std::to_string(waiting), " of them need a restart"});
  tell(Kind::reload, "", actor, std::move(said));
  return result;
}

ReloadResult LiveConfig::reload(ConfigText text, std::string_view actor) {
  Core::Turn turn(*core_);
  if (!turn) return {.outcome = ReloadResult::Outcome::failed, .problems = {Core::inside_a_change()}};
  ReloadResult result = core_->reload(std::move(text), actor);
  turn.end();
  return result;
}

ReloadResult LiveConfig::reload(std::string_view actor) {
  Core::Turn turn(*core_);  // before the file is read: the change that reads last is applied last
  if (!turn) return {.outcome = ReloadResult::Outcome::failed, .problems = {Core::inside_a_change()}};
  ReloadResult result;
  if (core_->options.read) {
    result = core_->reload(core_->options.read(), actor);
  } else {
    result.outcome = ReloadResult::Outcome::failed;
    result.problems = {{.message = "there is no file to read", .hint = "give LiveConfigOptions::read"}};
  }
  turn.end();
  return result;
}

// Only reads and compares; what the registry itself would reject shows when the reload is done.
ReloadResult LiveConfig::try_reload() const {
  ReloadResult result{.outcome = ReloadResult::Outcome::failed};
  if (!core_->options.read) {
    result.problems = {{.message = "there is no file to read", .hint = "give LiveConfigOptions::read"}};
    return result;
  }
  ConfigText now = core_->options.read();
  result.problems = std::move(now.problems);
  result.warnings = std::move(now.warnings);
  const detail::MutexLock lock(core_->mutex);
  result.revision = core_->status.revision;
  if (!result.problems.empty()) return result;
  result.plan = plan(core_->base, now.config);
  result.outcome = result.plan.empty() ? ReloadResult::Outcome::unchanged : ReloadResult::Outcome::applied;
  return result;
}

ConfigPlan LiveConfig::preview(const Config& wanted) const {
  const detail::MutexLock lock(core_->mutex);
  return plan(core_->base, wanted);
}

ConfigPlan LiveConfig::preview() const {
  if (!core_->options.read) return {};
  const ConfigText now = core_->options.read();
  return now.problems.empty() ? preview(now.config) : ConfigPlan{};
}

// ---- what it can tell ----

Config LiveConfig::file() const {
  const detail::MutexLock lock(core_->mutex);
  return core_->file;
}
Config LiveConfig::running() const {
  const detail::MutexLock lock(core_->mutex);
  return core_->running;
}
std::string LiveConfig::text() const {
  const detail::MutexLock lock(core_->mutex);
  return core_->text;
}

ConfigStatus LiveConfig::status() const {
  const detail::MutexLock lock(core_->mutex);
  ConfigStatus status = core_->status;
  status.overrides = core_->overrides.size();
  return status;
}

// In order of precedence: override, file, type, default. A bulkhead that is not in the file was made by code.
std::string LiveConfig::source(std::string_view bulkhead, std::string_view setting) const {
  const detail::MutexLock lock(core_->mutex);
  const std::string path = join({"bulkheads.", bulkhead, ".", setting});
  if (core_->overrides.contains(path)) return "override";
  const Config& file = core_->file;
  const auto stands = [&](std::string_view where) {
    const auto found = file.positions.find(where);
    if (found == file.positions.end()) return std::string();
    return join({core_->options.file, ":", std::to_string(found->second.line)});
  };
  const BulkheadConfig* const known = file.find(bulkhead);
  if (!known) return "code";
  if (std::string at = stands(path); !at.empty()) return at;
  if (known->type.empty()) return "default";
  if (const std::string at = stands(join({"types.", known->type, ".", setting})); !at.empty())
    return join({at, " (type ", known->type, ")"});
  return join({"default, or of type ", known->type});
}

const LiveConfigOptions& LiveConfig::options() const noexcept { return core_->options; }
Registry& LiveConfig::registry() const noexcept { return core_->registry; }
Clock& LiveConfig::clock() const noexcept { return core_->clock; }

std::vector<ConfigEvent> LiveConfig::events(std::uint64_t since) const {
  const detail::MutexLock lock(core_->mutex);
  std::vector<ConfigEvent> some;
  for (const ConfigEvent& event : core_->events)
    if (event.id > since) some.push_back(event);
  return some;
}

}  // namespace bulkhead
