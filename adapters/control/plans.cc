// What a wish would do, in numbers, before it is done.
#include <algorithm>

#include "changes.h"
#include "config/values.h"

namespace bulkhead::control {
namespace json = boost::json;
namespace {

std::string arrow(std::string_view what, std::uint32_t from, std::uint32_t to) {
  return std::string(what) + ' ' + std::to_string(from) + " -> " + std::to_string(to);
}

std::string duration_text(std::chrono::nanoseconds d) {
  std::string text = config::show_duration(d);
  return text.insert(text.find_first_not_of("0123456789"), " ");
}

std::string calls(std::uint32_t n, std::string_view adjective) {
  return std::to_string(n) + ' ' + std::string(adjective) + (n == 1 ? " call" : " calls");
}

std::string limit_effect(std::uint32_t from, std::uint32_t to, const Snapshot& now) {
  const std::string what = arrow("limit", from, to) + ": ";
  if (to < now.in_flight)
    return what + calls(now.in_flight, "running") +
           " go on to their end; none is admitted until fewer than " + std::to_string(to) + " run";
  if (to < from) return what + calls(now.in_flight, "running") + ", so nobody is affected at once";
  if (to == from) return what + "as it is";
  const std::uint32_t admitted = std::min(now.waiting, to - std::min(to, now.in_flight));
  return what +
         (admitted > 0 ? calls(admitted, "waiting") + " can start at once" : "no call is waiting for it");
}

std::string queue_effect(std::uint32_t from, std::uint32_t to, const Snapshot& now) {
  const std::string what = arrow("queue", from, to) + ": ";
  if (to < now.waiting) return what + calls(now.waiting, "waiting") + " stay in line; it is full for others";
  return what + calls(now.waiting, "waiting");
}

Problem conflict(std::string detail) {
  return {.status = 409, .type = "conflict", .detail = std::move(detail)};
}

}  // namespace

json::object Changes::state_of(ChangeKind kind, Bulkhead& bulkhead) {
  const BulkheadSnapshot s = bulkhead.snapshot();
  if (kind == ChangeKind::size) return {{"limit", s.gate.max_concurrent}, {"queue", s.gate.max_queue}};
  if (kind == ChangeKind::drain) return {{"draining", s.draining}};
  if (!s.breaker) return {{"mode", nullptr}, {"state", nullptr}};
  return {{"mode", to_string(s.breaker->mode)}, {"state", to_string(s.breaker->state)}};
}

void Changes::plan_size(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now) {
  const BulkheadOptions o = bulkhead.options();
  const Snapshot gate = bulkhead.snapshot().gate;
  if (wish.set && wish.limit && o.gate)
    throw conflict("the limit of \"" + wish.name +
                   "\" is what its group allots: override another bulkhead, or change the group's shares in "
                   "the file");
  if (wish.set && wish.limit && o.adaptive)
    throw conflict("the limit of \"" + wish.name + "\" is moved by its adaptive limiter, between floor " +
                   std::to_string(o.adaptive->floor) + " and ceiling " + std::to_string(o.adaptive->ceiling) +
                   ": change these in the file");
  const bool moved = o.gate || o.adaptive;  // by others: then it is what it is
  const std::uint32_t base_limit = now && now->base_limit && !moved ? *now->base_limit : gate.max_concurrent;
  const std::uint32_t base_queue = now && now->base_queue ? *now->base_queue : gate.max_queue;
  const std::uint32_t limit = wish.set && wish.limit ? *wish.limit : base_limit;
  const std::uint32_t queue = wish.set && wish.queue ? *wish.queue : base_queue;
  change.after = {{"limit", limit}, {"queue", queue}};
  if (limit != gate.max_concurrent) {
    change.effects.push_back(limit_effect(gate.max_concurrent, limit, gate));
    change.text = arrow("limit", gate.max_concurrent, limit);
  }
  if (queue != gate.max_queue) {
    change.effects.push_back(queue_effect(gate.max_queue, queue, gate));
    change.text += (change.text.empty() ? "" : ", ") + arrow("queue", gate.max_queue, queue);
  }
  if (change.text.empty())
    change.text = "limit " + std::to_string(limit) + ", queue " + std::to_string(queue) + ", as before";
}

void Changes::plan_breaker(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now) {
  const auto breaker = bulkhead.snapshot().breaker;
  if (!breaker && wish.set)
    throw conflict('"' + wish.name +
                   "\" has no breaker: give it one in the file, or drain it: PUT /v1/drains/" + wish.name);
  change.after = change.before;
  change.text = "there is no breaker any more";
  if (!breaker) return;
  const BreakerMode mode = wish.set ? wish.mode : now->base_mode;
  change.after = {{"mode", to_string(mode)}};
  change.text = "breaker " + std::string(to_string(breaker->mode)) + " -> " + std::string(to_string(mode));
  if (mode == BreakerMode::forced_open)
    change.effects.push_back("every new call is refused (breaker_open)");
  else if (mode == BreakerMode::forced_closed)
    change.effects.push_back("every call goes through, whatever fails");
  else
    change.effects.push_back("closed, with an empty window: the next calls decide");
}

void Changes::plan_drain(Change& change, const Wish& wish, Bulkhead& bulkhead, const Override* now) {
  const Snapshot gate = bulkhead.snapshot().gate;
  const bool draining = wish.set || now->base_draining;
  change.after = {{"draining", draining}};
  change.text = wish.set ? "draining" : draining ? "the program itself goes on draining it" : "resumed";
  if (gate.closed)
    change.effects.push_back("it is closed for good: no call is admitted either way");
  else if (draining)
    change.effects.push_back("new calls are refused (shutdown); " + calls(gate.in_flight, "running") +
                             " and " + calls(gate.waiting, "waiting") + " go on to their end");
  else
    change.effects.push_back("calls are admitted again");
}

Change Changes::plan(const Wish& wish) const {
  const auto bulkhead = find(wish.name);
  std::optional<Override> now;
  {
    std::lock_guard lock(mutex_);
    if (const auto set = overrides_.find(wish.name); set != overrides_.end())
      now = set->second[static_cast<std::size_t>(wish.kind)];
  }
  Change change{.before = state_of(wish.kind, *bulkhead)};
  change.nothing = !wish.set && !now;
  if (change.nothing) {
    change.after = change.before;
    change.text = "there was no override";
    return change;
  }
  const Override* const replaced = now ? &*now : nullptr;
  if (wish.kind == ChangeKind::size)
    plan_size(change, wish, *bulkhead, replaced);
  else if (wish.kind == ChangeKind::breaker)
    plan_breaker(change, wish, *bulkhead, replaced);
  else
    plan_drain(change, wish, *bulkhead, replaced);
  if (wish.set) change.text += " for " + duration_text(wish.ttl);
  if (!wish.reason.empty()) change.text += ": " + wish.reason;
  return change;
}

}  // namespace bulkhead::control
