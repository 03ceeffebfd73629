#include "operations.h"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <iterator>
#include <utility>

#include "base/text.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

BreakerMode mode_of(Bulkhead& bulkhead) {
  const auto snapshot = bulkhead.snapshot();
  return snapshot.breaker ? snapshot.breaker->mode : BreakerMode::automatic;
}

std::optional<std::uint32_t> number_in(std::string_view text) {
  std::uint32_t n = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), n);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return n;
}

json::value value_json(std::string_view text) {
  if (const auto n = number_in(text)) return *n;
  return json::string(text);
}

std::string_view field_of(OperationKind kind) noexcept {
  return kind == OperationKind::breaker ? "breaker" : kind == OperationKind::drain ? "drain" : "fault";
}

// "budgets.tokens.max": /budgets/tokens
std::string pointer_of(std::string_view setting) {
  constexpr std::string_view kBudgets = "budgets.";
  if (!setting.starts_with(kBudgets)) return '/' + std::string(setting);
  const std::string_view name = setting.substr(kBudgets.size());
  return "/budgets/" + std::string(name.substr(0, name.rfind('.')));
}

OperationKind kind_of(std::string_view field) noexcept {
  return field == "breaker" ? OperationKind::breaker
         : field == "drain" ? OperationKind::drain
         : field == "fault" ? OperationKind::fault
                            : OperationKind::size;
}

}  // namespace

std::string budget_setting(std::string_view budget) { return base::join({"budgets.", budget, ".max"}); }

Operations::~Operations() {
  for (const auto& [key, forced] : forced_) restore(key.second, forced);
}

std::shared_ptr<Bulkhead> Operations::find(std::string_view name) const {
  if (auto bulkhead = registry_.find(name)) return bulkhead;
  throw not_known("bulkhead", name, registry_.names(), "GET /v1/bulkheads lists them");
}

Snapshot Operations::gate_of(const Bulkhead& bulkhead) const {
  Snapshot gate = bulkhead.snapshot().gate;
  if (const auto seen = registry_.look(bulkhead.name())) {
    gate.in_flight = seen->now.gate.in_flight;
    gate.waiting = seen->now.gate.waiting;
  }
  return gate;
}

std::optional<Operations::Forced> Operations::forced(std::string_view name, OperationKind kind) const {
  const detail::MutexLock lock(mutex_);
  const auto found = forced_.find(Key(name, kind));
  return found == forced_.end() ? std::nullopt : std::optional(found->second);
}

std::map<Operations::Key, Operations::Forced> Operations::all_forced() const {
  const detail::MutexLock lock(mutex_);
  return forced_;
}

std::optional<std::uint32_t> Operations::replaced(std::string_view name, std::string_view setting) const {
  for (const ActiveOverride& o : live_.overrides(name))
    if (o.setting == setting) return number_in(o.replaced);
  return std::nullopt;
}

void Operations::restore(OperationKind kind, const Forced& forced) {
  if (kind == OperationKind::fault)
    forced.bulkhead->end_fault();
  else if (kind == OperationKind::drain)
    forced.bulkhead->set_draining(forced.base_draining);
  else if (Breaker* const breaker = forced.bulkhead->breaker())
    breaker->set_mode(forced.base_mode);
}

void Operations::enforce(OperationKind kind, const Forced& forced) {
  if (kind == OperationKind::fault)
    forced.bulkhead->inject({.latency = forced.latency, .error = forced.error, .until = forced.expires});
  else if (kind == OperationKind::drain)
    forced.bulkhead->set_draining(true);
  else if (Breaker* const breaker = forced.bulkhead->breaker();
           breaker && mode_of(*forced.bulkhead) != forced.mode)
    breaker->set_mode(forced.mode);
}

// `now` is the one that it replaces, or null: the state from before the first is the one to restore.
Operations::Forced Operations::forced_by(const Operation& operation,
                                         const std::shared_ptr<Bulkhead>& bulkhead, const Forced* now) const {
  return {.mode = operation.mode,
          .base_mode = now ? now->base_mode : mode_of(*bulkhead),
          .base_draining = now ? now->base_draining : bulkhead->snapshot().draining,
          .actor = operation.actor,
          .reason = operation.reason,
          .since = clock_.now(),
          .expires = clock_.now() + operation.ttl,
          .latency = operation.latency,
          .error = operation.error,
          .bulkhead = bulkhead};
}

Change Operations::apply(const Operation& operation) {
  std::size_t at = 0;
  return std::move(apply(std::vector<Operation>{operation}, at).front());
}

// Sets all sizes at once, then ends those that are to be ended, which is always possible.
void Operations::apply_sizes(const std::vector<Operation>& operations, std::size_t& at) {
  std::vector<OverrideRequest> requests;
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < operations.size(); ++i) {
    const Operation& o = operations[i];
    if (o.kind != OperationKind::size || !o.set) continue;
    const auto ask = [&](std::string setting, std::uint32_t n) {
      requests.push_back({.value = std::to_string(n),
                          .ttl = o.ttl,
                          .reason = o.reason,
                          .actor = o.actor,
                          .bulkhead = o.name,
                          .setting = std::move(setting)});
      places.push_back(i);
    };
    for (const auto& [setting, n] : {std::pair(kMaxConcurrent, o.max_concurrent), {kMaxQueue, o.max_queue}})
      if (n) ask(std::string(setting), *n);
    for (const auto& [budget, n] : o.budgets) ask(budget_setting(budget), n);
  }
  if (!requests.empty())
    if (const auto problems = live_.set(requests); !problems.empty()) {
      const bulkhead::ConfigProblem& wrong = problems.front();
      std::size_t which = 0;
      for (std::size_t i = 0; i < requests.size(); ++i)
        if (wrong.path == "bulkheads." + requests[i].bulkhead + '.' + requests[i].setting) which = i;
      at = places[which];
      throw Problem{.type = kInvalidBody,
                    .detail = wrong.message,
                    .errors = {{.pointer = pointer_of(requests[which].setting),
                                .message = wrong.message,
                                .hint = wrong.hint}}};
    }
  for (const Operation& o : operations)
    if (o.kind == OperationKind::size && !o.set) live_.revert_all(o.name, o.actor);
}

std::vector<Change> Operations::apply(const std::vector<Operation>& operations, std::size_t& at) {
  std::vector<Change> changes;
  const std::map<Key, Forced> before = all_forced();
  std::map<Key, Forced> next = before;
  struct Step {
    void (*take)(OperationKind, const Forced&);
    OperationKind kind;
    const Forced& forced;
  };
  std::vector<Step> steps;
  std::vector<std::string> touched;
  for (at = 0; at < operations.size(); ++at) {
    const Operation& o = operations[at];
    changes.push_back(plan(o));
    if (o.kind == OperationKind::size) continue;
    const Key key(o.name, o.kind);
    const auto now = before.find(key);
    if (o.set) {
      const Forced* const replaced = now == before.end() ? nullptr : &now->second;
      const auto added = next.insert_or_assign(key, forced_by(o, find(o.name), replaced)).first;
      steps.push_back({enforce, o.kind, added->second});
    } else if (now != before.end()) {
      next.erase(key);
      steps.push_back({restore, o.kind, now->second});
    } else {
      continue;
    }
    touched.push_back(o.name);
  }
  apply_sizes(operations, at);  // before the steps, because LiveConfig may reject the sizes
  // Without the lock, because a change of a bulkhead can run handlers of waiting calls.
  for (const Step& step : steps) step.take(step.kind, step.forced);
  const detail::MutexLock lock(mutex_);
  forced_.swap(next);
  for (const std::string& name : touched) ++versions_[name];
  return changes;
}

std::vector<Operations::Ended> Operations::expire() {
  live_.expire();
  const TimePoint now = clock_.now();
  std::vector<Ended> ended = reconcile();  // first those of removed bulkheads, which apply() does not find
  for (const auto& [key, forced] : all_forced()) {
    const auto& [name, kind] = key;
    if (forced.expires > now || !registry_.find(name)) continue;
    Change change = apply({.kind = kind, .set = false, .name = name});
    if (change.nothing) continue;
    ended.push_back(
        {name, change.text + ", its time is over", std::move(change.before), std::move(change.after)});
  }
  return ended;
}

std::vector<Operations::Ended> Operations::reconcile() {
  std::map<Key, Forced> next = all_forced();
  if (next.empty()) return {};
  std::vector<Ended> ended;
  // A bulkhead that was removed and added again: it is in force for the new one.
  for (auto& [key, forced] : next) forced.bulkhead = registry_.find(key.first);
  const auto ends = [&](const auto& entry) {
    const auto& [name, kind] = entry.first;
    const Forced& forced = entry.second;
    if (!forced.bulkhead) {
      ended.push_back({name, std::string(field_of(kind)) + " ends: the bulkhead was removed", {}, {}});
    } else if (kind == OperationKind::breaker && !forced.bulkhead->breaker()) {
      ended.push_back({name,
                       "breaker ends: the bulkhead has no breaker any more",
                       {{"mode", to_string(forced.mode)}},
                       {{"mode", nullptr}}});
    } else {
      enforce(kind, forced);
      return false;
    }
    return true;
  };
  std::erase_if(next, ends);
  const detail::MutexLock lock(mutex_);
  forced_.swap(next);
  for (const Ended& e : ended) ++versions_[e.name];
  return ended;
}

// A hash of everything that an operator can change, so that If-Match notices changes by others, also by a reload.
std::string Operations::etag(std::string_view name) const {
  const auto bulkhead = find(name);
  const BulkheadOptions o = bulkhead->options();
  const BulkheadSnapshot s = bulkhead->snapshot();
  std::uint64_t version = 0;
  {
    const detail::MutexLock lock(mutex_);
    if (const auto found = versions_.find(name); found != versions_.end()) version = found->second;
  }
  std::uint64_t hash = base::hash_of(name);
  for (const std::uint64_t n :
       {std::uint64_t{o.max_concurrent}, std::uint64_t{s.gate.max_queue}, version, live_.version(name),
        std::uint64_t{s.draining}, static_cast<std::uint64_t>(mode_of(*bulkhead))})
    hash = base::hash_of(' ' + std::to_string(n), hash);
  char text[24];
  std::snprintf(text, sizeof text, "\"%016llx\"", static_cast<unsigned long long>(hash));
  return text;
}

// LiveConfig has the overrides of settings; forced breaker, drain and fault are of this object. Clients see one list.
json::array Operations::of(std::string_view name) const {
  json::array list;
  const auto add = [&](const auto& o, std::string_view field, json::value from, json::value to) {
    list.push_back(json::object{{"field", field},
                                {"from", std::move(from)},
                                {"to", std::move(to)},
                                {"by", o.actor},
                                {"reason", o.reason},
                                {"since", unix_seconds(wall_time(o.since, clock_))},
                                {"expires", unix_seconds(wall_time(o.expires, clock_))}});
  };
  for (const ActiveOverride& o : live_.overrides(name))
    add(o, o.setting, value_json(o.replaced), value_json(o.value));
  if (const auto breaker = forced(name, OperationKind::breaker))
    add(*breaker, "breaker", json::string(to_string(breaker->base_mode)),
        json::string(to_string(breaker->mode)));
  if (const auto drain = forced(name, OperationKind::drain)) add(*drain, "drain", drain->base_draining, true);
  if (const auto fault = forced(name, OperationKind::fault))
    add(*fault, "fault", "none", json::string(fault_text(fault->latency, fault->error)));
  return list;
}

std::vector<OverrideState> Operations::in_force() const {
  std::vector<OverrideState> list;
  for (const ActiveOverride& o : live_.overrides())
    list.push_back({.bulkhead = o.bulkhead.empty() ? o.path : o.bulkhead,
                    .field = o.setting,
                    .expires = wall_time(o.expires, clock_)});
  for (const auto& [key, forced] : all_forced())
    list.push_back({.bulkhead = key.first,
                    .field = std::string(field_of(key.second)),
                    .expires = wall_time(forced.expires, clock_)});
  return list;
}

json::object Operations::resource(std::string_view name, OperationKind kind) const {
  const auto bulkhead = find(name);
  json::object o = state_of(kind, *bulkhead);
  o["name"] = name;
  if (kind == OperationKind::drain) {
    const Snapshot gate = gate_of(*bulkhead);
    o["in_flight"] = gate.in_flight;
    o["waiting"] = gate.waiting;
  }
  if (kind == OperationKind::fault) o["allowed"] = faults_;
  json::array fields;
  for (json::value& field : of(name))
    if (kind_of(field.as_object().at("field").as_string()) == kind) fields.push_back(std::move(field));
  o["overrides"] = std::move(fields);
  return o;
}

std::size_t Operations::count() const { return live_.overrides().size() + all_forced().size(); }

std::vector<std::string> Operations::names() const {
  std::vector<std::string> names;
  for (const ActiveOverride& o : live_.overrides())
    if (!o.bulkhead.empty()) names.push_back(o.bulkhead);
  for (const auto& [key, forced] : all_forced()) names.push_back(key.first);
  std::ranges::sort(names);
  names.erase(std::unique(names.begin(), names.end()), names.end());
  return names;
}

}  // namespace bulkhead::control
