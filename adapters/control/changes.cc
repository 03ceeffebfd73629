#include "changes.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <stdexcept>
#include <utility>

namespace bulkhead::control {
namespace json = boost::json;
namespace {

std::size_t index(ChangeKind kind) noexcept { return static_cast<std::size_t>(kind); }

bool is_empty(const auto& set) {
  return std::ranges::none_of(set, [](const auto& o) { return o.has_value(); });
}

// Tells `tell(override, field, from, to)` of each setting that a name's overrides have changed.
void each_field(const auto& set, auto&& tell) {
  if (const auto& o = set[index(ChangeKind::size)]) {
    if (o->limit) tell(*o, "limit", *o->base_limit, *o->limit);
    if (o->queue) tell(*o, "queue", *o->base_queue, *o->queue);
  }
  if (const auto& o = set[index(ChangeKind::breaker)])
    tell(*o, "breaker", json::string(to_string(o->base_mode)), json::string(to_string(o->mode)));
  if (const auto& o = set[index(ChangeKind::drain)]) tell(*o, "drain", o->base_draining, true);
}

BreakerMode mode_of(Bulkhead& bulkhead) {
  const auto snapshot = bulkhead.snapshot();
  return snapshot.breaker ? snapshot.breaker->mode : BreakerMode::automatic;
}

}  // namespace

Changes::~Changes() {
  for (auto& [name, set] : overrides_)
    if (const auto bulkhead = plant_.find(name))
      for (std::size_t i = 0; i < set.size(); ++i)
        if (set[i]) put_back(static_cast<ChangeKind>(i), *bulkhead, *set[i]);
}

std::shared_ptr<Bulkhead> Changes::find(std::string_view name) const {
  if (auto bulkhead = plant_.find(name)) return bulkhead;
  std::vector<std::string> known;
  for (const auto& entry : plant_.snapshot().bulkheads) known.push_back(entry.name);
  throw not_known("bulkhead", name, known, "GET /v1/bulkheads lists them");
}

void Changes::resize(Bulkhead& bulkhead, std::uint32_t limit) {
  plant_.resize ? plant_.resize(bulkhead.name(), limit) : bulkhead.resize(limit);
}

void Changes::resize_queue(Bulkhead& bulkhead, std::uint32_t queue) {
  plant_.resize_queue ? plant_.resize_queue(bulkhead.name(), queue) : bulkhead.resize_queue(queue);
}

void Changes::put_back(ChangeKind kind, Bulkhead& bulkhead, const Override& override) {
  if (kind == ChangeKind::size) {
    if (override.base_limit) resize(bulkhead, *override.base_limit);
    if (override.base_queue) resize_queue(bulkhead, *override.base_queue);
  } else if (kind == ChangeKind::breaker) {
    if (Breaker* const breaker = bulkhead.breaker()) breaker->set_mode(override.base_mode);
  } else {
    bulkhead.set_draining(override.base_draining);
  }
}

// `now` is what the override is before, and is made what it is afterwards.
void Changes::make(const Wish& wish, Bulkhead& bulkhead, std::optional<Override>& now) {
  if (!wish.set) {
    if (now) put_back(wish.kind, bulkhead, *now);
    now.reset();
    return;
  }
  Override next{.limit = wish.limit,
                .queue = wish.queue,
                .mode = wish.mode,
                .actor = wish.actor,
                .reason = wish.reason,
                .since = std::chrono::system_clock::now(),
                .expires = clock_.now() + wish.ttl};
  if (wish.kind == ChangeKind::size) {
    const std::uint32_t limit = bulkhead.options().max_concurrent, queue = bulkhead.snapshot().gate.max_queue;
    const std::uint32_t base_limit = now && now->base_limit ? *now->base_limit : limit;
    const std::uint32_t base_queue = now && now->base_queue ? *now->base_queue : queue;
    if (wish.limit) next.base_limit = base_limit;
    if (wish.queue) next.base_queue = base_queue;
    if (const std::uint32_t wanted = wish.limit.value_or(base_limit); wanted != limit)
      resize(bulkhead, wanted);
    if (const std::uint32_t wanted = wish.queue.value_or(base_queue); wanted != queue)
      resize_queue(bulkhead, wanted);
  } else if (wish.kind == ChangeKind::breaker) {
    next.base_mode = now ? now->base_mode : mode_of(bulkhead);
    if (Breaker* const breaker = bulkhead.breaker()) breaker->set_mode(wish.mode);
  } else {
    next.base_draining = now ? now->base_draining : bulkhead.snapshot().draining;
    bulkhead.set_draining(true);
  }
  now = std::move(next);
}

Change Changes::apply(const Wish& wish) {
  std::size_t at = 0;
  return std::move(apply(std::vector<Wish>{wish}, at).front());
}

std::vector<Change> Changes::apply(const std::vector<Wish>& wishes, std::size_t& at) {
  std::vector<Change> changes;
  for (at = 0; at < wishes.size(); ++at) changes.push_back(plan(wishes[at]));

  struct Done {
    std::shared_ptr<Bulkhead> bulkhead;
    std::uint32_t limit, queue;
    BreakerMode mode;
    bool draining;
  };
  std::vector<Done> done;
  const auto undo = [&] {
    for (const auto& [bulkhead, limit, queue, mode, draining] : done) {
      if (bulkhead->options().max_concurrent != limit) resize(*bulkhead, limit);
      if (bulkhead->snapshot().gate.max_queue != queue) resize_queue(*bulkhead, queue);
      if (Breaker* const breaker = bulkhead->breaker(); breaker && mode_of(*bulkhead) != mode)
        breaker->set_mode(mode);
      bulkhead->set_draining(draining);
    }
  };
  std::map<std::string, Set, std::less<>> next;
  {
    std::lock_guard lock(mutex_);
    next = overrides_;
  }
  // The bulkheads are changed without the lock, because that can run handlers of calls in line.
  for (at = 0; at < wishes.size(); ++at) {
    const Wish& wish = wishes[at];
    try {
      const auto bulkhead = find(wish.name);
      const BulkheadSnapshot s = bulkhead->snapshot();
      done.insert(
          done.begin(),  // the last is undone first
          {bulkhead, bulkhead->options().max_concurrent, s.gate.max_queue, mode_of(*bulkhead), s.draining});
      make(wish, *bulkhead, next[wish.name][index(wish.kind)]);
    } catch (...) {
      undo();
      try {
        throw;
      } catch (const std::invalid_argument& wrong) {
        throw Problem{
            .status = 422,
            .type = "invalid_body",
            .detail = wrong.what(),
            .errors = {{.pointer = wish.limit ? "/limit" : "/queue", .message = wrong.what(), .hint = ""}}};
      }
    }
  }
  std::erase_if(next, [](const auto& entry) { return is_empty(entry.second); });
  std::lock_guard lock(mutex_);
  overrides_.swap(next);
  // Taking back what is not there is no change.
  for (const Wish& wish : wishes) {
    const auto before = next.find(wish.name);
    if (wish.set || (before != next.end() && before->second[index(wish.kind)])) ++versions_[wish.name];
  }
  return changes;
}

std::vector<Changes::Ended> Changes::expire() {
  const TimePoint now = clock_.now();
  std::vector<Wish> due;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [name, set] : overrides_)
      for (std::size_t i = 0; i < set.size(); ++i)
        if (set[i] && set[i]->expires <= now)
          due.push_back({.kind = static_cast<ChangeKind>(i), .set = false, .name = name});
  }
  std::vector<Ended> ended;
  for (const Wish& wish : due) {
    try {
      Change change = apply(wish);
      ended.push_back(
          {wish.name, change.text + ", its time is over", std::move(change.before), std::move(change.after)});
    } catch (const Problem& problem) {  // the bulkhead is gone, or no longer one that can be so
      std::lock_guard lock(mutex_);
      forget(wish);
      ended.push_back(
          {wish.name, "its time is over, and what it replaced cannot come back: " + problem.detail, {}, {}});
    }
  }
  return ended;
}

void Changes::forget(const Wish& wish) {
  const auto found = overrides_.find(wish.name);
  if (found == overrides_.end()) return;
  found->second[index(wish.kind)].reset();
  if (is_empty(found->second)) overrides_.erase(found);
  ++versions_[wish.name];
}

std::vector<Changes::Ended> Changes::reconcile() {
  std::map<std::string, Set, std::less<>> next;
  {
    std::lock_guard lock(mutex_);
    next = overrides_;
  }
  std::vector<Ended> ended;
  for (auto& [name, set] : next) {
    const auto bulkhead = plant_.find(name);
    if (!bulkhead) {
      set = {};
      ended.push_back({name, "the bulkhead is gone, and its overrides with it", {}, {}});
      continue;
    }
    const auto settle = [&](std::optional<std::uint32_t>& wanted, std::optional<std::uint32_t>& base,
                            std::uint32_t is, const std::string& what, auto&& again) {
      if (!wanted || is == *wanted) return;
      std::string why =
          what + ' ' + std::to_string(is) + " of the file replaces the override " + std::to_string(*wanted);
      if (is == *base) try {
          return again(*wanted);
        } catch (const std::exception& cannot) {  // of another kind since: a member of a group, say
          why = what + " override " + std::to_string(*wanted) + " ends: " + cannot.what();
        }
      ended.push_back({name, why, {{what, *wanted}}, {{what, is}}});
      wanted.reset();
      base.reset();
    };
    if (auto& size = set[index(ChangeKind::size)]) {
      settle(size->limit, size->base_limit, bulkhead->options().max_concurrent, "limit",
             [&](std::uint32_t n) { resize(*bulkhead, n); });
      settle(size->queue, size->base_queue, bulkhead->snapshot().gate.max_queue, "queue",
             [&](std::uint32_t n) { resize_queue(*bulkhead, n); });
      if (!size->limit && !size->queue) size.reset();
    }
    if (auto& forced = set[index(ChangeKind::breaker)]; forced && mode_of(*bulkhead) != forced->mode) {
      if (Breaker* const breaker = bulkhead->breaker())
        breaker->set_mode(forced->mode);
      else {
        ended.push_back({name,
                         "there is no breaker any more, and its override ends",
                         {{"mode", to_string(forced->mode)}},
                         {{"mode", nullptr}}});
        forced.reset();
      }
    }
    if (set[index(ChangeKind::drain)]) bulkhead->set_draining(true);
  }
  std::erase_if(next, [](const auto& entry) { return is_empty(entry.second); });
  std::lock_guard lock(mutex_);
  overrides_.swap(next);
  for (const Ended& e : ended) ++versions_[e.name];
  return ended;
}

std::string Changes::etag(std::string_view name) const {
  const auto bulkhead = find(name);
  const BulkheadOptions o = bulkhead->options();
  const BulkheadSnapshot s = bulkhead->snapshot();
  std::uint64_t version = 0;
  {
    std::lock_guard lock(mutex_);
    if (const auto found = versions_.find(name); found != versions_.end()) version = found->second;
  }
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  const auto mix = [&](std::uint64_t n) {
    for (int i = 0; i < 8; ++i) hash = (hash ^ (n >> (8 * i) & 0xff)) * 1099511628211U;
  };
  for (const char c : name) mix(static_cast<unsigned char>(c));
  for (const std::uint64_t n : {std::uint64_t{o.max_concurrent}, std::uint64_t{s.gate.max_queue}, version,
                                std::uint64_t{s.draining}, static_cast<std::uint64_t>(mode_of(*bulkhead))})
    mix(n);
  char text[24];
  std::snprintf(text, sizeof text, "\"%016llx\"", static_cast<unsigned long long>(hash));
  return text;
}

json::array Changes::of(std::string_view name) const {
  json::array list;
  std::lock_guard lock(mutex_);
  const auto found = overrides_.find(name);
  if (found == overrides_.end()) return list;
  each_field(found->second, [&](const Override& o, std::string_view field, json::value from, json::value to) {
    list.push_back(json::object{{"field", field},
                                {"from", std::move(from)},
                                {"to", std::move(to)},
                                {"by", o.actor},
                                {"reason", o.reason},
                                {"since", unix_seconds(o.since)},
                                {"expires", unix_seconds(ends(o))}});
  });
  return list;
}

std::optional<std::uint32_t> Changes::replaced_limit(std::string_view name) const {
  std::lock_guard lock(mutex_);
  const auto found = overrides_.find(name);
  if (found == overrides_.end()) return std::nullopt;
  const auto& size = found->second[index(ChangeKind::size)];
  return size ? size->base_limit : std::nullopt;
}

std::vector<OverrideState> Changes::in_force() const {
  std::vector<OverrideState> list;
  std::lock_guard lock(mutex_);
  for (const auto& [name, set] : overrides_)
    each_field(set, [&](const Override& o, std::string_view field, const json::value&, const json::value&) {
      list.push_back({.bulkhead = name, .field = std::string(field), .expires = ends(o)});
    });
  return list;
}

WallTime Changes::ends(const Override& o) const {
  return std::chrono::round<std::chrono::milliseconds>(std::chrono::system_clock::now() +
                                                       (o.expires - clock_.now()));
}

json::object Changes::resource(std::string_view name, ChangeKind kind) const {
  const auto bulkhead = find(name);
  json::object o = state_of(kind, *bulkhead);
  o["name"] = name;
  if (kind == ChangeKind::drain) {
    const Snapshot gate = bulkhead->snapshot().gate;
    o["in_flight"] = gate.in_flight;
    o["waiting"] = gate.waiting;
  }
  json::array fields;
  for (json::value& field : of(name)) {
    const auto& which = field.as_object().at("field").as_string();
    const ChangeKind of_kind = which == "breaker" ? ChangeKind::breaker
                               : which == "drain" ? ChangeKind::drain
                                                  : ChangeKind::size;
    if (of_kind == kind) fields.push_back(std::move(field));
  }
  o["overrides"] = std::move(fields);
  return o;
}

std::size_t Changes::count() const {
  std::lock_guard lock(mutex_);
  std::size_t n = 0;
  for (const auto& [name, set] : overrides_) each_field(set, [&](const auto&...) { ++n; });
  return n;
}

std::vector<std::string> Changes::names() const {
  std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, set] : overrides_) names.push_back(name);
  return names;
}

}  // namespace bulkhead::control
