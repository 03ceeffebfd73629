// The overrides of a LiveConfig: how they begin and how they end.
#include <algorithm>
#include <stdexcept>
#include <system_error>
#include <utility>

#include "base/futex.h"
#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/live_config.h"
#include "config/live_core.h"
#include "config/override.h"
#include "config/values.h"

namespace bulkhead {
namespace {

using base::join;
using config::Override;
using config::Overrides;
using Kind = ConfigEvent::Kind;

constexpr std::string_view kBulkheads = "bulkheads.", kIt = "bulkheads.it.";
constexpr auto kAgain = std::chrono::seconds(10);  // until one that is stuck is tried again

// What the registry says no to, as a problem. In a build without exceptions it ends the program.
template <class F>
std::vector<ConfigProblem> problems_of(F&& fn) {
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

template <class F>
void quietly(F&& fn) noexcept {
#if defined(__cpp_exceptions)
  try {
    fn();
  } catch (...) {  // NOLINT(bugprone-empty-catch): what cannot be undone stays
  }
#else
  fn();
#endif
}

// A bulkhead that is not in the file, as a file would have it. Its name may be one that no file can have.
Config alone(const BulkheadOptions& o) {
  Config c;
  c.bulkheads.push_back({.options = o});
  c.bulkheads[0].options.name = "it";
  return c;
}

std::string value_in(const Config& config, std::string_view path) {
  const config::Values values = config::values_of(config);
  const auto found = values.find(path);
  return found == values.end() ? "" : found->second.value;
}

std::string value_of(const Override& o) {
  return value_in(alone(o.loose->options()), join({kIt, o.setting}));
}

// "db" and "max_queue" of "bulkheads.db.max_queue"; nothing of other paths.
std::pair<std::string_view, std::string_view> parts_of(std::string_view path) {
  if (!path.starts_with(kBulkheads)) return {};
  path.remove_prefix(kBulkheads.size());
  const std::size_t dot = path.find('.');
  if (dot == path.npos) return {};
  return {path.substr(0, dot), path.substr(dot + 1)};
}

}  // namespace

void LiveConfig::Core::put(const Override& o, std::string_view value) const {
  Config config = alone(o.loose->options());
  config::set_value(config, join({kIt, o.setting}), value);
  BulkheadOptions& next = config.bulkheads[0].options;
  next.name = o.bulkhead;
  registry.update(o.bulkhead, next);
}

// First the loose ones, each for itself, because they can be put back; then the registry as a whole.
std::vector<ConfigProblem> LiveConfig::Core::settle(Config next_base, Overrides next_overrides) {
  // With what each was before. Undone if the rest cannot be, also by an exception.
  struct Done {
    ~Done() {
      for (auto step = steps.rbegin(); step != steps.rend(); ++step)
        quietly([&] { core.put(*step->first, step->second); });
    }
    const Core& core;
    std::vector<std::pair<const Override*, std::string>> steps{};
  } done{*this};
  const auto put_loose = [&](const Override& o, const std::string& value) {
    const std::string before = value_of(o);
    if (before == value) return std::vector<ConfigProblem>{};
    done.steps.reserve(done.steps.size() + 1);
    auto problems = problems_of([&] { put(o, value); });
    if (problems.empty()) done.steps.emplace_back(&o, before);
    return problems;
  };
  for (const auto& [path, o] : overrides) {
    if (!o.loose || next_overrides.contains(path)) continue;
    // What the program has changed meanwhile is the program's; a bulkhead that was removed needs nothing.
    if (!in_force(o) || value_of(o) != o.value) continue;
    if (auto problems = put_loose(o, o.replaced); !problems.empty()) return problems;
  }
  for (const auto& [path, o] : next_overrides) {
    const auto before = overrides.find(path);
    if (!o.loose || (before != overrides.end() && before->second.value == o.value)) continue;
    if (auto problems = put_loose(o, o.value); !problems.empty()) return problems;
  }
  Config next = config::with(next_base, next_overrides);
  const RegistryChange change = config::changes(running, next);
  if (auto problems = problems_of([&] { registry.apply(change); }); !problems.empty()) return problems;
  done.steps.clear();
  const detail::MutexLock lock(mutex);
  for (const auto* all : {&overrides, &next_overrides})
    for (const auto& [path, o] : *all) {
      const auto& other = all == &overrides ? next_overrides : overrides;
      const auto same = other.find(path);
      if (same == other.end()) ++versions[o.bulkhead];
    }
  base = std::move(next_base);
  overrides.swap(next_overrides);
  running = std::move(next);
  ++status.revision;
  return {};
}

// ---- beginning ----

std::vector<ConfigProblem> LiveConfig::Core::add(Overrides& next, Config& tried,
                                                 const OverrideRequest& request, Begun& begun) {
  const bool by_parts = !request.bulkhead.empty();
  Override o;
  o.path = by_parts ? join({kBulkheads, request.bulkhead, ".", request.setting}) : request.path;
  const auto problem = [&](std::string message, std::string hint) {
    return std::vector<ConfigProblem>{
        {.path = o.path, .message = std::move(message), .hint = std::move(hint)}};
  };
  using namespace std::chrono_literals;
  if (request.ttl < 1s || request.ttl > 24h)
    return problem(join({"ttl = ", config::show_duration(request.ttl), " is out of range"}),
                   "give 1s to 24h: every override ends by itself; for good, change the file");
  if (request.reason.empty()) return problem("has no reason", "say why, for those who find it");
  const auto parts = by_parts
                         ? std::pair<std::string_view, std::string_view>(request.bulkhead, request.setting)
                         : parts_of(o.path);
  o.bulkhead = parts.first;
  o.setting = parts.second;
  o.reason = request.reason;
  o.actor = request.actor;
  o.since = clock.now();
  o.expires = o.since + request.ttl;
  if (!o.bulkhead.empty() && !tried.find(o.bulkhead) && registry.find(o.bulkhead))
    return add_loose(next, std::move(o), request, begun);

  Config with_it = tried;
  if (auto wrong = config::set_value(with_it, o.path, request.value); !wrong.empty()) return wrong;
  if (auto wrong = config::new_problems(tried, with_it); !wrong.empty()) return wrong;
  o.replaced = value_in(base, o.path);
  o.value = value_in(with_it, o.path);  // as it is always written
  begun.before = value_in(tried, o.path);
  begun.said = join({o.path, ": ", begun.before, " -> ", o.value, " for ", config::show_duration(request.ttl),
                     ": ", request.reason});
  tried = std::move(with_it);
  next.insert_or_assign(o.path, std::move(o));
  return {};
}

std::vector<ConfigProblem> LiveConfig::Core::add_loose(Overrides& next, Override o,
                                                       const OverrideRequest& request, Begun& begun) {
  const auto problem = [&](std::string message, std::string hint) {
    return std::vector<ConfigProblem>{
        {.path = o.path, .message = std::move(message), .hint = std::move(hint)}};
  };
  o.loose = registry.find(o.bulkhead);
  const std::string path = join({kIt, o.setting});
  const BulkheadOptions now = o.loose->options();
  if (now.gate && o.setting == "max_concurrent")
    return problem("is what its group allots", "change the shares of the group");
  const Config before = alone(now);
  Config after = before;
  auto wrong = config::set_value(after, path, request.value);
  if (wrong.empty()) wrong = config::new_problems(before, after);
  if (!wrong.empty()) {
    wrong.front().path = o.path;
    return wrong;
  }
  o.value = value_in(after, path);
  if (value_in(alone(after.bulkheads[0].options), path) != o.value)
    return problem("means nothing for a bulkhead that is not in a file", "override a setting of its calls");
  if (auto rejected = problems_of([&] {
        BulkheadOptions wanted = after.bulkheads[0].options;
        wanted.name = now.name;
        o.loose->check(wanted);
      });
      !rejected.empty()) {
    rejected.front().path = o.path;
    return rejected;
  }
  const auto there = next.find(o.path);
  o.replaced = there != next.end() ? there->second.replaced : value_in(before, path);
  begun.before = value_in(before, path);
  begun.said = join({o.path, ": ", begun.before, " -> ", o.value, " for ", config::show_duration(request.ttl),
                     ": ", request.reason});
  next.insert_or_assign(o.path, std::move(o));
  return {};
}

std::vector<ConfigProblem> LiveConfig::set(const OverrideRequest& request) {
  return set(std::vector<OverrideRequest>{request});
}

std::vector<ConfigProblem> LiveConfig::set(const std::vector<OverrideRequest>& requests) {
  Core& core = *core_;
  Core::Turn turn(core);
  if (!turn) return {Core::inside_a_change()};
  Overrides next = core.overrides;
  Config tried = core.running;
  std::vector<Core::Begun> begun(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const OverrideRequest& r = requests[i];
    begun[i].path = r.bulkhead.empty() ? r.path : join({kBulkheads, r.bulkhead, ".", r.setting});
    if (auto wrong = core.add(next, tried, r, begun[i]); !wrong.empty()) return wrong;
  }
  if (requests.empty()) return {};
  // Before it is in force: one that nothing ends must not begin.
  if (core.options.ends_overrides && !core.ender.joinable()) {
#if defined(__cpp_exceptions)
    try {
      core.ender = std::thread([&core] { core.end_on_time(); });
    } catch (const std::system_error& none) {
      return {{.path = begun.front().path,
               .message = join({"no thread can be made that would end it: ", none.what()})}};
    }
#else
    core.ender = std::thread([&core] { core.end_on_time(); });
#endif
  }
  if (auto wrong = core.settle(core.base, std::move(next)); !wrong.empty()) {
    for (ConfigProblem& p : wrong) p.path = begun.front().path;
    return wrong;
  }
  for (std::size_t i = 0; i < requests.size(); ++i) {
    const ActiveOverride& o = core.overrides.find(begun[i].path)->second;
    {
      const detail::MutexLock lock(core.mutex);
      ++core.versions[o.bulkhead];  // also if it is the same again
    }
    core.tell(Kind::set, o, o.actor, std::move(begun[i].said), std::move(begun[i].before), o.value);
  }
  turn.end();
  core.wake();
  return {};
}

// ---- ending ----

bool LiveConfig::Core::end(const std::vector<std::string>& gone, Kind kind, std::string_view actor) {
  Overrides next = overrides;
  const std::size_t told = fresh.size();
  for (const std::string& path : gone) {
    const Override& o = next.find(path)->second;
    std::string said = join({o.path, ": ", o.value, " -> ", o.replaced});
    if (!in_force(o))
      said = join({o.path, ": ", o.value, ", and the bulkhead is gone"});
    else if (o.loose && value_of(o) != o.value)
      said = join({o.path, ": ", o.value, ", which the program has changed to ", value_of(o)});
    tell(kind, o, actor.empty() ? o.actor : actor, std::move(said), o.value, o.replaced);
    next.erase(path);
  }
  drop_unfit(next, base);
  if (settle(base, std::move(next)).empty()) return true;
  fresh.resize(told);  // nothing has ended
  return false;
}

bool LiveConfig::revert(std::string_view path, std::string_view actor) {
  Core& core = *core_;
  Core::Turn turn(core);
  if (!turn || !core.overrides.contains(path)) return false;
  const bool ended = core.end({std::string(path)}, Kind::reverted, actor);
  turn.end();
  return ended;
}

std::size_t LiveConfig::revert_all(std::string_view bulkhead, std::string_view actor) {
  Core& core = *core_;
  Core::Turn turn(core);
  if (!turn) return 0;
  std::vector<std::string> paths;
  for (const auto& [path, o] : core.overrides)
    if (o.bulkhead == bulkhead) paths.push_back(path);
  const bool ended = !paths.empty() && core.end(paths, Kind::reverted, actor);
  turn.end();
  return ended ? paths.size() : 0;
}

// All that are due at once, because what replaced values fit together need not fit one by one; and if that cannot be,
// one by one, so that one that cannot end keeps no other from ending.
std::size_t LiveConfig::expire() {
  Core& core = *core_;
  Core::Turn turn(core);
  if (!turn) return 0;
  const TimePoint now = core.clock.now();
  std::vector<std::string> due;
  std::size_t ended = 0;
  bool gone = false;
  for (const auto& [path, o] : core.overrides) {
    if (o.expires <= now) due.push_back(path);
    gone |= !core.in_force(o);
  }
  if (gone) (void)core.end({}, Kind::dropped, "");  // whatever does not fit any more, and these do not
  std::erase_if(due, [&](const auto& path) { return !core.overrides.contains(path); });
  if (!due.empty() && core.end(due, Kind::expired, "")) {
    ended = due.size();
  } else {
    for (const std::string& path : due) {
      if (!core.overrides.contains(path)) continue;  // did not fit without one that has ended
      if (core.end({path}, Kind::expired, "")) {
        ++ended;
        continue;
      }
      const detail::MutexLock lock(core.mutex);
      Override& stuck = core.overrides.find(path)->second;
      stuck.expires = now + kAgain;
      core.tell_end(Kind::stuck, stuck,
                    join({path, " = ", stuck.value, " cannot go back to ", stuck.replaced, ", and stays"}));
    }
  }
  turn.end();
  return ended;
}

void LiveConfig::Core::wake() {
  turns.fetch_add(1);
  base::futex_wake(&turns);
}

void LiveConfig::Core::end_on_time() {
  while (!stopping.load()) {
    const std::uint32_t seen = turns.load();
    TimePoint next = no_deadline;
    {
      const detail::MutexLock lock(mutex);
      for (const auto& [path, o] : overrides) next = std::min(next, o.expires);
    }
    if (stopping.load()) return;
    if (next > clock.now()) {
      clock.wait(turns, seen, next);
      continue;
    }
#if defined(__cpp_exceptions)
    try {
      owner->expire();
    } catch (const std::exception&) {  // memory is out: there will be some again
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
#else
    owner->expire();
#endif
  }
}

// ---- what there is ----

TimePoint LiveConfig::next_expiry() const {
  const detail::MutexLock lock(core_->mutex);
  TimePoint next = no_deadline;
  for (const auto& [path, o] : core_->overrides) next = std::min(next, o.expires);
  return next;
}

std::vector<ActiveOverride> LiveConfig::overrides() const {
  const detail::MutexLock lock(core_->mutex);
  std::vector<ActiveOverride> all;
  for (const auto& [path, o] : core_->overrides)
    if (core_->in_force(o)) all.push_back(o);
  return all;
}

std::vector<ActiveOverride> LiveConfig::overrides(std::string_view bulkhead) const {
  const detail::MutexLock lock(core_->mutex);
  std::vector<ActiveOverride> some;
  for (const auto& [path, o] : core_->overrides)
    if (o.bulkhead == bulkhead && core_->in_force(o)) some.push_back(o);
  return some;
}

std::uint64_t LiveConfig::version(std::string_view bulkhead) const {
  const detail::MutexLock lock(core_->mutex);
  const auto found = core_->versions.find(bulkhead);
  return found == core_->versions.end() ? 0 : found->second;
}

}  // namespace bulkhead
