// What an operation would do, in numbers, before it is done.
#include <algorithm>
#include <cstdio>

#include "config/values.h"
#include "operations.h"

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

std::string concurrent_effect(std::uint32_t from, std::uint32_t to, const Snapshot& now) {
  const std::string what = arrow(kMaxConcurrent, from, to) + ": ";
  if (to < now.in_flight)
    return what + calls(now.in_flight, "running") + " continue; none is admitted until fewer than " +
           std::to_string(to) + " run";
  if (to < from) return what + calls(now.in_flight, "running") + ", none is affected";
  const std::uint32_t admitted = std::min(now.waiting, to - std::min(to, now.in_flight));
  return what + (admitted > 0 ? calls(admitted, "waiting") + " can start at once" : "no call is waiting");
}

std::string queue_effect(std::uint32_t from, std::uint32_t to, const Snapshot& now) {
  return arrow(kMaxQueue, from, to) + ": " + calls(now.waiting, "waiting") +
         (to < now.waiting ? " keep their places; new ones are rejected until fewer wait" : "");
}

constexpr std::string_view kUnchanged = "unchanged";

json::object sizes(std::uint32_t concurrent, std::uint32_t queue,
                   const std::vector<BudgetSnapshot>& budgets) {
  json::object all{{kMaxConcurrent, concurrent}, {kMaxQueue, queue}};
  if (budgets.empty()) return all;
  json::object by_name;
  for (const BudgetSnapshot& one : budgets) by_name[one.name] = one.max;
  all["budgets"] = std::move(by_name);
  return all;
}

std::string budget_effect(const BudgetSnapshot& now, std::uint32_t to) {
  const std::string what =
      arrow("budget \"" + now.name + '"', now.max, to) + ": " + std::to_string(now.in_use) + " units in use";
  if (to < now.in_use) return what + "; no call gets units until fewer than " + std::to_string(to) + " are";
  return what + ", " + calls(now.waiting, "waiting");
}

json::object fault_state(const std::optional<Fault>& fault) {
  return {{"latency", fault ? std::chrono::duration<double>(fault->latency).count() : 0.0},
          {"error", fault ? fault->error : 0.0}};
}

Problem conflict(std::string detail) { return {kConflict, std::move(detail)}; }

}  // namespace

std::string fault_text(std::chrono::nanoseconds latency, double error) {
  std::string text;
  if (latency > std::chrono::nanoseconds(0)) text = "latency " + duration_text(latency);
  if (error <= 0) return text;
  char percent[32];
  std::snprintf(percent, sizeof percent, "error %.4g %%", 100 * error);
  return text + (text.empty() ? "" : ", ") + percent;
}

json::object Operations::state_of(OperationKind kind, Bulkhead& bulkhead) {
  const BulkheadSnapshot s = bulkhead.snapshot();
  if (kind == OperationKind::size) return sizes(s.gate.max_concurrent, s.gate.max_queue, s.budgets);
  if (kind == OperationKind::drain) return {{"draining", s.draining}};
  if (kind == OperationKind::fault) return fault_state(bulkhead.fault());
  if (!s.breaker) return {{"mode", nullptr}, {"state", nullptr}};
  return {{"mode", to_string(s.breaker->mode)}, {"state", to_string(s.breaker->state)}};
}

void Operations::plan_size(Change& change, const Operation& operation, Bulkhead& bulkhead) const {
  const BulkheadOptions o = bulkhead.options();
  const Snapshot gate = gate_of(bulkhead);
  if (operation.set && operation.max_concurrent && o.gate)
    throw conflict("the group of \"" + operation.name +
                   "\" sets its max_concurrent: override another bulkhead, or change the shares of the group "
                   "in the file");
  if (operation.set && operation.max_concurrent && o.adaptive)
    throw conflict("the adaptive limiter of \"" + operation.name +
                   "\" sets its max_concurrent, between floor " + std::to_string(o.adaptive->floor) +
                   " and ceiling " + std::to_string(o.adaptive->ceiling) + ": change these in the file");
  // A value that the operation leaves out stays as it is, also if it is overridden.
  std::uint32_t concurrent = gate.max_concurrent, queue = gate.max_queue;
  if (operation.set) {
    concurrent = operation.max_concurrent.value_or(concurrent);
    queue = operation.max_queue.value_or(queue);
  } else {
    if (!o.gate && !o.adaptive) concurrent = replaced(operation.name, kMaxConcurrent).value_or(concurrent);
    queue = replaced(operation.name, kMaxQueue).value_or(queue);
  }
  std::vector<BudgetSnapshot> budgets = bulkhead.snapshot().budgets;
  for (const auto& [name, max] : operation.budgets)
    if (std::ranges::find(budgets, name, &BudgetSnapshot::name) == budgets.end())
      throw conflict('"' + operation.name + "\" has no budget \"" + name + "\": add it in the file");
  std::string changed;  // of budgets
  for (BudgetSnapshot& one : budgets) {
    const auto given = operation.budgets.find(one.name);
    const std::uint32_t to = !operation.set
                                 ? replaced(operation.name, budget_setting(one.name)).value_or(one.max)
                             : given != operation.budgets.end() ? given->second
                                                                : one.max;
    if (to == one.max) continue;
    change.effects.push_back(budget_effect(one, to));
    changed += ", " + arrow(budget_setting(one.name), one.max, to);
    one.max = to;
  }
  change.after = sizes(concurrent, queue, budgets);
  if (concurrent != gate.max_concurrent) {
    change.effects.push_back(concurrent_effect(gate.max_concurrent, concurrent, gate));
    change.text = arrow(kMaxConcurrent, gate.max_concurrent, concurrent);
  }
  if (queue != gate.max_queue) {
    change.effects.push_back(queue_effect(gate.max_queue, queue, gate));
    change.text += (change.text.empty() ? "" : ", ") + arrow(kMaxQueue, gate.max_queue, queue);
  }
  if (!changed.empty()) change.text += change.text.empty() ? changed.substr(2) : changed;
  if (change.text.empty())
    change.text = std::string(kUnchanged) + " (max_concurrent " + std::to_string(concurrent) +
                  ", max_queue " + std::to_string(queue) + ')';
}

void Operations::plan_breaker(Change& change, const Operation& operation, Bulkhead& bulkhead,
                              const Forced* now) {
  const auto breaker = bulkhead.snapshot().breaker;
  if (!breaker && operation.set)
    throw conflict('"' + operation.name +
                   "\" has no breaker: add one in the file, or drain it: PUT /v1/drains/" + operation.name);
  change.after = change.before;
  change.text = "the bulkhead has no breaker any more";
  if (!breaker) return;
  const BreakerMode mode = operation.set ? operation.mode : now->base_mode;
  change.after = {{"mode", to_string(mode)}};
  change.text = "breaker " + std::string(to_string(breaker->mode)) + " -> " + std::string(to_string(mode));
  if (mode == BreakerMode::forced_open)
    change.effects.push_back("every new call is rejected (breaker_open)");
  else if (mode == BreakerMode::forced_closed)
    change.effects.push_back("the breaker rejects no call, also if calls fail");
  else
    change.effects.push_back("closed, with an empty window: the next calls decide");
}

// Rejected where a fault could not be seen: it would look like a rehearsal that went well.
void Operations::plan_fault(Change& change, const Operation& operation, Bulkhead& bulkhead) const {
  if (!operation.set) {
    change.after = fault_state(std::nullopt);
    change.text = "fault ends";
    change.effects.push_back("calls are made as they are; those that are delayed finish their latency");
    return;
  }
  const BulkheadOptions o = bulkhead.options();
  if (!faults_)
    throw conflict(
        "faults are not allowed in this process: set control.allow_faults: true in its file and restart it");
  if (!o.enabled || o.shadow)
    throw conflict('"' + operation.name + "\" is " + (o.enabled ? "in shadow mode" : "switched off") +
                   ": a fault would have no effect");
  if (operation.latency == std::chrono::nanoseconds(0) && operation.error == 0)
    throw conflict("latency and error are both 0: give one of them, or end the fault with DELETE");
  change.after = fault_state(Fault{.latency = operation.latency, .error = operation.error});
  change.text = "fault: " + fault_text(operation.latency, operation.error);
  if (operation.latency > std::chrono::nanoseconds(0))
    change.effects.push_back("each new call holds its place for " + duration_text(operation.latency) +
                             " before it runs");
  if (operation.error > 0)
    change.effects.push_back(fault_text({}, operation.error).substr(6) +
                             " of the new calls fail instead of running (injected_fault)");
}

void Operations::plan_drain(Change& change, const Operation& operation, Bulkhead& bulkhead,
                            const Forced* now) const {
  const Snapshot gate = gate_of(bulkhead);
  const bool draining = operation.set || now->base_draining;
  change.after = {{"draining", draining}};
  change.text = operation.set ? "draining"
                : draining    ? "still draining: the program drains it, too"
                              : "resumed";
  if (gate.closed)
    change.effects.push_back("it is closed for good: no call is admitted either way");
  else if (draining)
    change.effects.push_back("new calls are rejected (draining); " + calls(gate.in_flight, "running") +
                             " and " + calls(gate.waiting, "waiting") + " continue");
  else
    change.effects.push_back("calls are admitted again");
}

Change Operations::plan(const Operation& operation) const {
  const auto bulkhead = find(operation.name);
  const bool size = operation.kind == OperationKind::size;
  const std::optional<Forced> now = size ? std::nullopt : forced(operation.name, operation.kind);
  const bool active = size ? !live_.overrides(operation.name).empty() : now.has_value();
  Change change{.before = state_of(operation.kind, *bulkhead)};
  change.nothing = !operation.set && !active;
  if (change.nothing) {
    change.after = change.before;
    change.text = "there was no override";
    return change;
  }
  if (size)
    plan_size(change, operation, *bulkhead);
  else if (operation.kind == OperationKind::breaker)
    plan_breaker(change, operation, *bulkhead, now ? &*now : nullptr);
  else if (operation.kind == OperationKind::fault)
    plan_fault(change, operation, *bulkhead);
  else
    plan_drain(change, operation, *bulkhead, now ? &*now : nullptr);
  if (operation.set) change.text += " for " + duration_text(operation.ttl);
  if (operation.set && size && change.text.starts_with(kUnchanged)) {
    // Only the end changes.
    std::chrono::nanoseconds left{};
    for (const ActiveOverride& o : live_.overrides(operation.name))
      left = std::max(left, o.expires - clock_.now());
    change.text.erase(change.text.rfind(')') + 1);
    if (left > std::chrono::seconds(0))
      change.text += "; now ends in " + duration_text(operation.ttl) + " instead of " +
                     duration_text(std::chrono::ceil<std::chrono::seconds>(left));
  }
  if (!operation.reason.empty()) change.text += ": " + operation.reason;
  return change;
}

}  // namespace bulkhead::control
