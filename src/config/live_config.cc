#include "bulkhead/live_config.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>
#include <stdexcept>
#include <utility>

#include "base/text.h"
#include "config/override.h"
#include "config/running.h"
#include "config/values.h"

namespace bulkhead {
namespace {

using base::join;
using Kind = ConfigEvent::Kind;
using Overrides = std::map<std::string, ActiveOverride, std::less<>>;

std::uint64_t hash_of(std::string_view text) {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211U;
  return hash;
}

// What the registry says no to, as a problem. In a build without exceptions it ends the program.
template <class F>
std::vector<Problem> problems_of(F&& fn) {
#if defined(__cpp_exceptions)
  try {
    fn();
  } catch (const std::invalid_argument& wrong) {
    return {{.message = wrong.what()}};
  }
#else
  fn();
#endif
  return {};
}

Config with(Config config, const Overrides& overrides) {
  for (const auto& [path, o] : overrides) config::set_value(config, path, o.value);
  return config;
}

// What is wrong with `next` that is not wrong with `now`: what runs may be a mix of two good files, because some of
// the later one needs a restart, and not be good itself.
std::vector<Problem> new_problems(const Config& now, const Config& next) {
  std::vector<Problem> problems = config::check_all(next);
  if (problems.empty()) return problems;
  for (const Problem& known : config::check_all(now))
    std::erase_if(problems,
                  [&](const Problem& p) { return p.path == known.path && p.message == known.message; });
  return problems;
}

std::string was_replaced(const ActiveOverride& o, std::string_view file_says) {
  return join(
      {o.path, " = ", o.value, " of ", o.actor, " (", o.reason, ") is dropped: the file ", file_says});
}

}  // namespace

std::string_view to_string(Kind kind) noexcept {
  constexpr std::string_view names[] = {"reload",   "reload_failed", "recovered", "set",
                                        "reverted", "expired",       "dropped"};
  const auto i = static_cast<std::size_t>(kind);
  return i < std::size(names) ? names[i] : "unknown";
}

// Invariants
//   L1 Who changes anything holds `changing` from its first look to its last word; the registry is changed in there.
//   L2 The rest is read and written under `mutex`, which is taken last and never while code of others runs.
//   L3 The registry is like `running`, which is `base` with `overrides`; `base` is `file` but for what needs a restart.
//   L4 The path of every override is a setting in `base`, whose value there is `replaced`.
struct LiveConfig::Core {
  Core(Registry& r, LiveConfigOptions o)
      : registry(r), options(std::move(o)), clock(options.clock ? *options.clock : r.clock()) {}

  void tell(Kind kind, std::string_view path, std::string_view actor, std::string said) {
    fresh.push_back({.kind = kind,
                     .at = clock.now(),
                     .path = std::string(path),
                     .actor = std::string(actor),
                     .text = std::move(said)});
  }
  // Makes the registry like `next_base` with `next_overrides`, or says why not: then nothing has changed.
  std::vector<Problem> settle(Config next_base, Overrides next_overrides);
  void drop_outdated(Overrides& next, const Config& next_base, const Config& next_file);
  ReloadResult reload(ConfigText wanted, std::string_view actor);
  ReloadResult fail(ReloadResult result, std::string_view actor);
  // Ends a change: tells the events that came of it, without a lock.
  void publish(std::unique_lock<std::mutex> changing_lock);

  Registry& registry;
  const LiveConfigOptions options;
  Clock& clock;
  std::mutex changing;
  std::vector<ConfigEvent> fresh;  // under `changing`: not yet told

  mutable std::mutex mutex;
  Config file, base, running;
  std::string text;
  Overrides overrides;
  ConfigStatus status;
  std::deque<ConfigEvent> events;
  std::uint64_t last_event = 0;
};

LiveConfig::LiveConfig(Registry& registry, LiveConfigOptions options)
    : core_(std::make_unique<Core>(registry, std::move(options))) {
  core_->status.file = core_->options.file;
}
LiveConfig::~LiveConfig() = default;

void LiveConfig::Core::publish(std::unique_lock<std::mutex> changing_lock) {
  std::vector<ConfigEvent> now = std::exchange(fresh, {});
  {
    const std::lock_guard lock(mutex);
    for (ConfigEvent& event : now) {
      event.id = ++last_event;
      events.push_back(event);
      if (events.size() > options.max_events) events.pop_front();
    }
  }
  changing_lock.unlock();
  if (!options.on_event) return;
  for (const ConfigEvent& event : now) options.on_event(event);
}

std::vector<Problem> LiveConfig::Core::settle(Config next_base, Overrides next_overrides) {
  Config next = with(next_base, next_overrides);
  const RegistryChange change = config::changes(running, next);
  if (auto problems = problems_of([&] { registry.apply(change); }); !problems.empty()) return problems;
  const std::lock_guard lock(mutex);
  base = std::move(next_base);
  overrides = std::move(next_overrides);
  running = std::move(next);
  ++status.revision;
  return {};
}

// ---- reload ----

// Those whose setting the file has changed or no longer has; and those that do not fit what it says now.
void LiveConfig::Core::drop_outdated(Overrides& next, const Config& next_base, const Config& next_file) {
  const config::Values says = config::values_of(next_file);
  std::erase_if(next, [&](const auto& entry) {
    const ActiveOverride& o = entry.second;
    const auto now = says.find(o.path);
    if (now != says.end() && now->second.value == o.replaced) return false;
    tell(Kind::dropped, o.path, o.actor,
         was_replaced(o, now == says.end() ? "no longer has it" : join({"now says ", now->second.value})));
    return true;
  });
  while (!next.empty()) {
    const std::vector<Problem> problems = new_problems(next_base, with(next_base, next));
    if (problems.empty()) return;
    const std::string thing(config::thing_of(problems.front().path));
    const auto concerns = [&](const auto& entry) { return config::thing_of(entry.first) == thing; };
    // A problem of the whole is one of all of them.
    const bool named = std::any_of(next.begin(), next.end(), concerns);
    std::erase_if(next, [&](const auto& entry) {
      if (named && !concerns(entry)) return false;
      tell(Kind::dropped, entry.first, entry.second.actor,
           was_replaced(entry.second, join({"does not allow it: ", problems.front().message})));
      return true;
    });
  }
}

ReloadResult LiveConfig::Core::fail(ReloadResult result, std::string_view actor) {
  result.outcome = ReloadResult::Outcome::failed;
  {
    const std::lock_guard lock(mutex);
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
    const std::lock_guard lock(mutex);
    status.last_attempt = clock.now();
    ++status.reloads;
    was_bad = !status.last_reload_successful;
  }
  if (!result.problems.empty()) return fail(std::move(result), actor);

  const auto succeed = [&](ReloadResult::Outcome outcome) {
    const std::lock_guard lock(mutex);
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
    for (Problem& problem : result.problems) problem.file = options.file;
    return fail(std::move(result), actor);
  }
  {
    const std::lock_guard lock(mutex);
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
  std::unique_lock changing(core_->changing);
  ReloadResult result = core_->reload(std::move(text), actor);
  core_->publish(std::move(changing));
  return result;
}

ReloadResult LiveConfig::reload(std::string_view actor) {
  std::unique_lock changing(core_->changing);  // who reads later decides later
  ReloadResult result = core_->reload(core_->options.read(), actor);
  core_->publish(std::move(changing));
  return result;
}

Plan LiveConfig::preview(const Config& wanted) const {
  const std::lock_guard lock(core_->mutex);
  return plan(core_->base, wanted);
}

Plan LiveConfig::preview() const {
  const ConfigText now = core_->options.read();
  return now.problems.empty() ? preview(now.config) : Plan{};
}

// ---- overrides ----

std::vector<Problem> LiveConfig::set(const OverrideRequest& request) {
  Core& core = *core_;
  const auto problem = [&](std::string message, std::string hint) {
    return std::vector<Problem>{
        {.path = request.path, .message = std::move(message), .hint = std::move(hint)}};
  };
  using namespace std::chrono_literals;
  if (request.ttl < 1s || request.ttl > 24h)
    return problem(join({"ttl = ", config::show_duration(request.ttl), " is out of range"}),
                   "give 1s to 24h: every override ends by itself; for good, change the file");
  if (request.reason.empty()) return problem("has no reason", "say why, for those who find it");

  std::unique_lock changing(core.changing);
  Config tried = core.running;
  if (auto wrong = config::set_value(tried, request.path, request.value); !wrong.empty()) return wrong;
  if (auto wrong = new_problems(core.running, tried); !wrong.empty()) return wrong;
  const config::Values base = config::values_of(core.base), now = config::values_of(tried);
  Overrides next = core.overrides;
  const TimePoint since = core.clock.now();
  const std::string value = now.find(request.path)->second.value;  // as it is always written
  const std::string before = config::values_of(core.running).find(request.path)->second.value;
  next.insert_or_assign(request.path, ActiveOverride{.path = request.path,
                                                     .value = value,
                                                     .replaced = base.find(request.path)->second.value,
                                                     .reason = request.reason,
                                                     .actor = request.actor,
                                                     .since = since,
                                                     .expires = since + request.ttl});
  if (auto wrong = core.settle(core.base, std::move(next)); !wrong.empty()) {
    for (Problem& p : wrong) p.path = request.path;
    return wrong;
  }
  core.tell(Kind::set, request.path, request.actor,
            join({request.path, ": ", before, " -> ", value, " for ", config::show_duration(request.ttl),
                  ": ", request.reason}));
  core.publish(std::move(changing));
  return {};
}

bool LiveConfig::revert(std::string_view path, std::string_view actor) {
  Core& core = *core_;
  std::unique_lock changing(core.changing);
  Overrides next = core.overrides;
  const auto found = next.find(path);
  if (found == next.end()) return false;
  const ActiveOverride gone = found->second;
  next.erase(found);
  if (!core.settle(core.base, std::move(next)).empty()) return false;
  core.tell(Kind::reverted, path, actor, join({gone.path, ": ", gone.value, " -> ", gone.replaced}));
  core.publish(std::move(changing));
  return true;
}

std::size_t LiveConfig::expire() {
  Core& core = *core_;
  std::unique_lock changing(core.changing);
  const TimePoint now = core.clock.now();
  Overrides next = core.overrides;
  std::vector<ActiveOverride> over;
  std::erase_if(next, [&](const auto& entry) {
    if (entry.second.expires > now) return false;
    over.push_back(entry.second);
    return true;
  });
  if (over.empty() || !core.settle(core.base, std::move(next)).empty()) return 0;
  for (const ActiveOverride& o : over)
    core.tell(Kind::expired, o.path, o.actor, join({o.path, ": ", o.value, " -> ", o.replaced}));
  core.publish(std::move(changing));
  return over.size();
}

TimePoint LiveConfig::next_expiry() const {
  const std::lock_guard lock(core_->mutex);
  TimePoint next = no_deadline;
  for (const auto& [path, o] : core_->overrides) next = std::min(next, o.expires);
  return next;
}

std::vector<ActiveOverride> LiveConfig::overrides() const {
  const std::lock_guard lock(core_->mutex);
  std::vector<ActiveOverride> all;
  for (const auto& [path, o] : core_->overrides) all.push_back(o);
  return all;
}

// ---- what it can tell ----

Config LiveConfig::file() const {
  const std::lock_guard lock(core_->mutex);
  return core_->file;
}
Config LiveConfig::running() const {
  const std::lock_guard lock(core_->mutex);
  return core_->running;
}
std::string LiveConfig::text() const {
  const std::lock_guard lock(core_->mutex);
  return core_->text;
}

ConfigStatus LiveConfig::status() const {
  const std::lock_guard lock(core_->mutex);
  ConfigStatus status = core_->status;
  status.overrides = core_->overrides.size();
  return status;
}

std::vector<ConfigEvent> LiveConfig::events(std::uint64_t since) const {
  const std::lock_guard lock(core_->mutex);
  std::vector<ConfigEvent> some;
  for (const ConfigEvent& event : core_->events)
    if (event.id > since) some.push_back(event);
  return some;
}

}  // namespace bulkhead
