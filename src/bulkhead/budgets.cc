#include "bulkhead/budgets.h"

#include <algorithm>
#include <cctype>

#include "base/text.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/bulkhead_core.h"
#include "bulkhead/detail/block_pool.h"

namespace bulkhead {
namespace detail {
namespace {

[[noreturn]] void invalid_budget(std::string_view bulkhead, std::string_view budget,
                                 std::string_view problem) {
  base::throw_invalid(base::join({"bulkhead \"", bulkhead, "\": budgets.", budget, " ", problem}));
}

constexpr std::uint32_t kMostUnits = 268'435'455;  // of a gate

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxBudgetName && std::ranges::all_of(name, [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-';
  });
}

// Other processes know a shared budget by this name. No bulkhead has it, because names do not begin with '/'.
GateOptions gate_of(const BudgetOptions& o, GateOptions line) {
  line.name = base::join({"/", line.name, "/", o.name});
  line.max_concurrent = o.max;
  line.hooks = {};  // the bulkhead's, for its calls
  line.track_holders = false;
  return line;
}

Reason reason_of(Reason at_gate) noexcept {
  const bool missing =
      at_gate == Reason::concurrency_limit || at_gate == Reason::queue_limit || at_gate == Reason::timeout;
  return missing ? Reason::budget_limit : at_gate;
}

}  // namespace

Budget::Budget(const BudgetOptions& o, const GateOptions& line, UnitSources* sources)
    : name(o.name), scope(o.scope), per_call_max(o.per_call_max) {
  if (scope == Scope::process)
    gate = &own.emplace(gate_of(o, line));
  else
    gate = &scoped.emplace(gate_of(o, line), scope, *sources, true).gate();
}

std::uint32_t Budget::most_per_call() const noexcept {
  const std::uint32_t given = per_call_max.load(std::memory_order_relaxed), max = gate->limit();
  return given != 0 ? std::min(given, max) : max;
}

Rejection Budget::rejection(Gate& place, Priority priority, const Rejection& of_gate,
                            std::uint32_t units) const noexcept {
  Rejection why = place.reject(priority, reason_of(of_gate.reason));
  why.in_flight = of_gate.in_flight;
  why.max_concurrent = of_gate.max_concurrent;
  why.waiting = of_gate.waiting;
  why.max_queue = of_gate.max_queue;
  why.deadline_passed = of_gate.deadline_passed;
  why.budget = BudgetName(name);
  why.asked = units;
  why.per_call_max = most_per_call();
  return why;
}

// Counters since the last reset_statistics(), current numbers as they are.
BudgetSnapshot Budget::snapshot() const {
  const Snapshot s = gate->snapshot();
  return {.name = name,
          .in_use = s.in_flight,
          .max = s.max_concurrent,
          .per_call_max = most_per_call(),
          .calls = s.permits,
          .waiting = s.waiting,
          .max_queue = s.max_queue,
          .admitted = s.admitted - baseline.admitted,
          .rejected = s.rejected() - baseline.rejected(),
          .occupancy = s.occupancy - baseline.occupancy,
          .saturated = s.saturated - baseline.saturated,
          .scope = scope};
}

// As of the bulkhead: calls in flight stay admitted.
void Budget::reset_statistics() {
  baseline = gate->snapshot();
  baseline.admitted = baseline.released;
}

void Budgets::check(std::string_view bulkhead, const std::vector<BudgetOptions>& options,
                    const GateOptions& line, UnitSources* sources) {
  if (options.size() > kMostBudgets)
    base::throw_invalid(base::join({"bulkhead \"", bulkhead, "\": budgets has more than ",
                                    std::to_string(kMostBudgets), " entries: leave some out"}));
  for (const BudgetOptions& o : options) {
    if (!is_name(o.name))
      invalid_budget(bulkhead, base::join({"\"", o.name, "\""}),
                     "is not a name: give 1 to 23 letters, digits, '_' and '-'");
    if (std::ranges::count(options, o.name, &BudgetOptions::name) > 1)
      invalid_budget(bulkhead, o.name, "is given twice: keep one of them");
    if (o.max == 0 || o.max > kMostUnits)
      invalid_budget(bulkhead, o.name,
                     base::join({"max = ", std::to_string(o.max), " is out of range: give 1 to ",
                                 std::to_string(kMostUnits)}));
    const GateOptions gate = gate_of(o, line);
    if (o.scope == Scope::process) {
      [[maybe_unused]] const Gate tried(gate);
      continue;
    }
    if (!sources)
      invalid_budget(bulkhead, o.name,
                     base::join({"scope = ", to_string(o.scope),
                                 " is not available here: give RegistryOptions::sources or "
                                 "BulkheadOptions::sources, such as a shm::Host"}));
    shared::ScopedGate::check(gate, o.scope, *sources, true);
  }
}

void Budgets::check_change(std::string_view bulkhead, const std::vector<BudgetOptions>& options) const {
  std::size_t names = 0;
  each([&](const Budget&) { ++names; });
  for (const BudgetOptions& o : options) {
    const Budget* const budget = known(o.name);
    if (!budget && ++names > kMostEver)
      invalid_budget(bulkhead, o.name,
                     "is the 17th name of a budget of this bulkhead: restart, or use an earlier name");
    if (budget && budget->scope != o.scope)
      invalid_budget(bulkhead, o.name, "scope cannot change while the bulkhead exists: make a new one");
  }
}

void Budgets::apply(const std::vector<BudgetOptions>& options, const GateOptions& line, UnitSources* sources,
                    const std::vector<BudgetOptions>& before) {
  for (const BudgetOptions& o : options) {
    if (Budget* const budget = known(o.name)) {
      const auto last = std::ranges::find(before, o.name, &BudgetOptions::name);
      // As for max_concurrent: a number of a fleet is stated only if these options change it.
      const bool stated = o.scope != Scope::fleet ? o.max != budget->gate->snapshot().max_concurrent
                                                  : last != before.end() && last->max != o.max;
      if (stated) budget->gate->resize(o.max);
      if (line.max_queue != budget->gate->snapshot().max_queue) budget->gate->resize_queue(line.max_queue);
      budget->per_call_max.store(o.per_call_max, std::memory_order_relaxed);
      budget->in_force.store(true, std::memory_order_relaxed);
      continue;
    }
    auto made = std::make_unique<Budget>(o, line, sources);
    for (auto& slot : all_) {
      if (slot.load(std::memory_order_relaxed)) continue;
      slot.store(made.release(), std::memory_order_release);  // with everything in it
      break;
    }
  }
  each([&](Budget& budget) {
    if (std::ranges::find(options, budget.name, &BudgetOptions::name) == options.end())
      budget.in_force.store(false, std::memory_order_relaxed);
  });
}

Budget* Budgets::known(std::string_view name) const noexcept {
  for (const auto& one : all_) {
    Budget* const budget = one.load(std::memory_order_acquire);
    if (!budget) return nullptr;  // they are filled in order
    if (budget->name == name) return budget;
  }
  return nullptr;
}

Budget* Budgets::find(std::string_view name) const noexcept {
  Budget* const budget = known(name);
  return budget && budget->in_force.load(std::memory_order_relaxed) ? budget : nullptr;
}

std::vector<BudgetSnapshot> Budgets::snapshot() const {
  std::vector<BudgetSnapshot> all;
  each([&](const Budget& budget) {
    if (budget.in_force.load(std::memory_order_relaxed)) all.push_back(budget.snapshot());
  });
  return all;
}

void Budgets::reset_statistics() {
  each([](Budget& budget) { budget.reset_statistics(); });
}

Budgets::~Budgets() {
  for (auto& one : all_) delete one.load(std::memory_order_relaxed);
}

// ---- one call ----

BudgetHold::BudgetHold(const AcquireOptions& options) noexcept : asked(options) {
  asked.label = {label, options.label.copy(label, sizeof label)};
  asked.costs = {};
}

BudgetHold* BudgetHold::make(const AcquireOptions& options) noexcept {
  void* const block = try_take_block(sizeof(BudgetHold));
  return block ? new (block) BudgetHold(options) : nullptr;
}

void BudgetHold::destroy(BudgetHold* hold) noexcept {
  if (!hold) return;
  hold->~BudgetHold();
  give_block(hold, sizeof(BudgetHold));
}

AcquireOptions BudgetHold::options_for(std::uint32_t cost, Clock& clock) const noexcept {
  AcquireOptions o = asked;
  o.cost = cost;
  if (until != no_deadline) o.timeout = std::max(until - clock.now(), std::chrono::nanoseconds(0));
  return o;
}

BudgetHold::Item* BudgetHold::find(std::string_view name) noexcept {
  for (Item& item : items)
    if (item.budget && item.budget->name == name) return &item;
  return nullptr;
}

bool settle_budget(BudgetHold* hold, std::string_view budget, std::uint32_t units) noexcept {
  BudgetHold::Item* const item = hold ? hold->find(budget) : nullptr;
  return item && item->permit.settle(units);
}

bool grow_budget(BudgetHold* hold, std::string_view budget, std::uint32_t units) noexcept {
  BudgetHold::Item* const item = hold ? hold->find(budget) : nullptr;
  if (!item || !item->permit) return false;
  const std::uint32_t most = item->budget->most_per_call(), has = item->permit.cost();
  return units <= most && has <= most - units && item->permit.try_grow(units);
}

std::uint32_t held_of_budget(const BudgetHold* hold, std::string_view budget) noexcept {
  const BudgetHold::Item* const item = hold ? const_cast<BudgetHold*>(hold)->find(budget) : nullptr;
  return item && item->permit ? item->permit.cost() : 0;
}

// ---- the stage between breaker and place ----

// The call has its pass. Checks the costs that it names, and puts them into the order in which every call takes its
// budgets.
bool CallPath::reserve(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept {
  const auto rejection = [&](Reason reason) {
    return call.free() ? Rejection{.reason = reason} : gate_->reject(options.priority, reason);
  };
  // The earlier stages get back what they gave. A call in shadow mode keeps it, and runs.
  const auto end = [&] {
    if (call.free()) return false;
    hold(call);
    call.finish(Outcome::ignored);
    return false;
  };
  // The rejection has the numbers of the budget, not those of the gate.
  const auto reject_at = [&](std::string_view name, std::uint32_t units, std::uint32_t most) {
    Rejection& r = why.make(rejection(Reason::budget_limit));
    r.in_flight = r.max_concurrent = r.waiting = r.max_queue = 0;
    if (const Budget* const budget = core().budgets.find(name)) {
      const auto s = budget->gate->numbers(options.priority);
      r.in_flight = s.in_flight;
      r.max_concurrent = budget->gate->limit();
      r.waiting = s.waiting;
      r.max_queue = s.max_queue;
    }
    r.budget = BudgetName(name);
    r.asked = units;
    r.per_call_max = most;
    return end();
  };
  BudgetHold* const held = BudgetHold::make(options);
  if (!held) {
    why.make(rejection(Reason::queue_limit));
    return end();
  }
  for (const Cost& cost : options.costs) {
    if (cost.units == 0) continue;
    Budget* const budget = core().budgets.find(cost.budget);
    const std::uint32_t most = budget ? budget->most_per_call() : 0;
    BudgetHold::Item* const twice = budget ? held->find(cost.budget) : nullptr;
    const std::uint64_t units = std::uint64_t{cost.units} + (twice ? twice->units : 0);
    if (units > most) {
      BudgetHold::destroy(held);
      return reject_at(cost.budget, static_cast<std::uint32_t>(std::min<std::uint64_t>(units, UINT32_MAX)),
                       most);
    }
    BudgetHold::Item& item = twice ? *twice : held->items[held->count++];
    item.budget = budget;
    item.units = static_cast<std::uint32_t>(units);
  }
  if (held->count == 0) {
    BudgetHold::destroy(held);
    return true;
  }
  // By name, because another process may list the same budgets in another order, and they share units.
  std::ranges::sort(held->items.begin(), held->items.begin() + held->count, {},
                    [](const BudgetHold::Item& item) { return std::string_view(item.budget->name); });
  auto& timeout = held->asked.timeout;
  if (timeout == gate_default) timeout = max_wait_.load(std::memory_order_relaxed);
  if (timeout > std::chrono::nanoseconds(0) && timeout != wait_forever)
    held->until = saturating_add(clock_.now(), timeout);
  call.budgets_ = held;
  pin(call);  // it may hold units without a place
  return true;
}

void CallPath::set_stop(Call& call, const std::stop_token& stop) noexcept {
  call.budgets_->asked.stop = stop;
}

Gate& CallPath::budget_gate(Call& call) noexcept { return *call.budgets_->current().budget->gate; }

AcquireOptions CallPath::budget_options(const Call& call) const noexcept {
  return call.budgets_->options_for(call.budgets_->current().units, clock_);
}

bool CallPath::budget_answer(Call& call, Result<Permit> permit, RejectionSlot& why) noexcept {
  BudgetHold& hold = *call.budgets_;
  BudgetHold::Item& item = hold.current();
  if (!permit) {
    why.make(item.budget->rejection(*gate_, hold.asked.priority, permit.error(), item.units));
    call.finish(Outcome::ignored);
    return false;
  }
  item.permit = *std::move(permit);
  if (item.permit.waited()) call.flags_ |= Call::kWaited;
  ++hold.next;
  return true;
}

bool CallPath::take_budgets(Call& call, bool may_wait, RejectionSlot& why) noexcept {
  while (call.budgets_ && call.budgets_->waits()) {
    const AcquireOptions options = budget_options(call);
    Gate& gate = budget_gate(call);
    if (!budget_answer(call, may_wait ? gate.acquire(options) : gate.try_acquire(options), why)) return false;
  }
  return true;
}

CallPath::Place CallPath::budgets_at_once(Call& call, bool may_wait, RejectionSlot& why) noexcept {
  while (call.budgets_->waits()) {
    const AcquireOptions options = budget_options(call);
    Gate& gate = budget_gate(call);
    std::optional<Result<Permit>> answer;
    if (may_wait)
      answer = gate.at_once(options);
    else
      answer = gate.try_acquire(options);
    if (!answer) return Place::wait;
    if (!budget_answer(call, *std::move(answer), why)) return Place::rejected;
  }
  return Place::taken;
}

bool CallPath::waits_for_budget(const Call& call) noexcept { return call.budgets_ && call.budgets_->waits(); }

// Takes what is free, counts nothing, and never waits. False: a budget lacks units.
bool CallPath::peek_budgets(Call& call) noexcept {
  bool all = true;
  for (BudgetHold& hold = *call.budgets_; hold.waits(); ++hold.next) {
    BudgetHold::Item& item = hold.current();
    Result<Permit> permit = item.budget->gate->peek({.priority = hold.asked.priority, .cost = item.units});
    if (permit)
      item.permit = *std::move(permit);
    else
      all = false;
  }
  return all;
}

AcquireOptions CallPath::place_options(const Call& call, AcquireOptions options) const noexcept {
  if (!call.budgets_) return with_defaults(std::move(options));
  return call.budgets_->options_for(options.cost, clock_);
}

RunningCallOf::RunningCallOf(CallBody::Attempt& attempt) noexcept
    : RunningCall(attempt.call.permit_, attempt.call.budgets_, attempt.call.free()) {
  attempt_ = &attempt;
}

std::stop_token RunningCallOf::stop_of(void* attempt) {
  return static_cast<CallBody::Attempt*>(attempt)->stop();
}

void BudgetHoldDelete::operator()(BudgetHold* hold) const noexcept { BudgetHold::destroy(hold); }

}  // namespace detail

bool RunningCall::settle(std::string_view budget, std::uint32_t units) noexcept {
  return detail::settle_budget(budgets_, budget, units) || free_;
}
bool RunningCall::try_grow(std::string_view budget, std::uint32_t units) noexcept {
  return detail::grow_budget(budgets_, budget, units) || free_;
}
std::uint32_t RunningCall::held(std::string_view budget) const noexcept {
  return detail::held_of_budget(budgets_, budget);
}
std::stop_token RunningCall::stop_token() {
  if (void* const attempt = std::exchange(attempt_, nullptr)) stop_ = detail::RunningCallOf::stop_of(attempt);
  return stop_;
}

bool Call::settle(std::string_view budget, std::uint32_t units) noexcept {
  return detail::settle_budget(budgets_, budget, units) || has_no_place();
}
bool Call::try_grow(std::string_view budget, std::uint32_t units) noexcept {
  return detail::grow_budget(budgets_, budget, units) || has_no_place();
}
std::uint32_t Call::held(std::string_view budget) const noexcept {
  return detail::held_of_budget(budgets_, budget);
}

}  // namespace bulkhead
