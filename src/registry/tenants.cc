#include "registry/tenants.h"

#include <algorithm>
#include <utility>

#include "base/sync_point.h"
#include "base/text.h"
#include "registry/lock.h"
#include "registry/names.h"

namespace bulkhead::registry {
namespace {

// Grows with every beginning and every end of a call.
std::uint64_t calls_of(Bulkhead& bulkhead) {
  const Snapshot s = bulkhead.gate().snapshot();
  return s.admitted + s.released + s.rejected();
}

}  // namespace

// Each message names the setting and what to give instead.
void check(const TenantOptions& o) {
  const auto invalid = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"tenants \"", o.name, "\": ", setting, " ", problem}));
  };
  if (const auto problem = problem_of_name(o.name); !problem.empty()) invalid("name", problem);
  if (!o.each.name.empty()) invalid("each.name", "is made from the tenant's id: leave it out");
  if (o.each.gate || (o.overflow && o.overflow->gate))
    invalid("gate", "cannot be shared by tenants: leave it out");
  if (o.max_tenants < 1 || o.max_tenants > 1'000'000)
    invalid("max_tenants",
            base::join({"= ", std::to_string(o.max_tenants), " is out of range: give 1 to 1000000"}));
  if (o.idle_after <= std::chrono::nanoseconds(0))
    invalid("idle_after", "is not positive: give more than 0, or wait_forever");
  if (o.max_id_length < 1 || o.max_id_length > kMaxTenantId)
    invalid("max_id_length",
            base::join({"= ", std::to_string(o.max_id_length), " is out of range: give 1 to 128"}));
}

bool TenantSet::valid(std::string_view id) noexcept {
  // Relaxed: an id that comes while the bound is changed may meet either.
  if (valid_tenant_id(id, max_id_length.load(std::memory_order_relaxed))) return true;
  answers.add(invalid);
  return false;
}

Result<const Node*> TenantSet::at_bound() noexcept {
  if (const Node* const node = overflow.load()) {
    answers.add(overflowed);
    return node;
  }
  answers.add(rejected);
  // Relaxed: numbers to show.
  return Unexpected(Rejection{.reason = Reason::tenant_limit,
                              .name = name,
                              .in_flight = live.load(std::memory_order_relaxed),
                              .max_concurrent = max.load(std::memory_order_relaxed)});
}

BulkheadOptions TenantSet::options_of(std::string_view tenant_id, Clock& clock) const {
  BulkheadOptions o = options.each;
  o.name = base::join({name, "/", tenant_id});
  if (!o.clock) o.clock = &clock;
  return o;
}

BulkheadOptions TenantSet::overflow_options(Clock& clock) const {
  BulkheadOptions o = options.overflow ? *options.overflow : options.each;
  o.name = base::join({name, kOverflow});
  if (!o.clock) o.clock = &clock;
  return o;
}

void TenantSet::append(Node& node) noexcept {
  node.earlier = last;
  node.later = nullptr;
  (last ? last->later : first) = &node;
  last = &node;
  live.store(++size, std::memory_order_relaxed);
}

void TenantSet::forget(Node& node) noexcept {
  (node.earlier ? node.earlier->later : first) = node.later;
  (node.later ? node.later->earlier : last) = node.earlier;
  node.earlier = node.later = nullptr;
  live.store(--size, std::memory_order_relaxed);
  make_room();
}

TimePoint TenantSet::due_at(const Node& node) const noexcept {
  if (node.looked_in != round) return TimePoint::min();
  return saturating_add(node.looked_at, options.idle_after / 4);
}

RegistrySnapshot::Tenants TenantSet::snapshot() const {
  RegistrySnapshot::Tenants s{.name = name,
                              .live = live.load(std::memory_order_relaxed),
                              .max = options.max_tenants,
                              .created = created,
                              .retired = retired,
                              .overflowed = answers.sum(overflowed),
                              .rejected = answers.sum(rejected),
                              .invalid = answers.sum(invalid),
                              .other = {},
                              .sum = {}};
  if (retired > 0) {
    s.other = other;
    s.other->name = {};
  }
  return s;
}

namespace {

BudgetSnapshot& same_budget(BulkheadSnapshot& in, const BudgetSnapshot& as) {
  for (BudgetSnapshot& one : in.budgets)
    if (one.name == as.name) return one;
  BudgetSnapshot& added = in.budgets.emplace_back();
  added.name = as.name;
  added.scope = as.scope;
  added.per_call_max = as.per_call_max;
  return added;
}

}  // namespace

// Counters and histograms only; fold_state() adds the current numbers.
void fold(BulkheadSnapshot& into, const BulkheadSnapshot& from) {
  for (const BudgetSnapshot& one : from.budgets) {
    BudgetSnapshot& sum = same_budget(into, one);
    sum.admitted += one.admitted;
    sum.rejected += one.rejected;
    sum.occupancy += one.occupancy;
    sum.saturated += one.saturated;
  }
  const auto add = [](auto& to, const auto& what) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] += what[i];
  };
  into.gate.admitted += from.gate.admitted;
  into.gate.released += from.gate.released;
  into.gate.succeeded += from.gate.succeeded;
  into.gate.failed += from.gate.failed;
  into.gate.double_releases += from.gate.double_releases;
  into.gate.hook_errors += from.gate.hook_errors;
  into.gate.underflows += from.gate.underflows;
  add(into.gate.rejected_by_reason, from.gate.rejected_by_reason);
  into.gate.occupancy += from.gate.occupancy;
  into.gate.saturated += from.gate.saturated;
  into.bypassed += from.bypassed;
  into.timed_out += from.timed_out;
  add(into.fallbacks, from.fallbacks);
  into.fallback_failures += from.fallback_failures;
  into.handler_errors += from.handler_errors;
  add(into.would_reject, from.would_reject);
  into.would_wait += from.would_wait;
  into.wait += from.wait;
  into.service += from.service;
}

void fold_state(BulkheadSnapshot& sum, const BulkheadSnapshot& one) {
  // Seventeen tenants with the largest maximum have more units than fit.
  const auto add = [](std::uint32_t& to, std::uint32_t more) { to += std::min(more, UINT32_MAX - to); };
  for (const BudgetSnapshot& budget : one.budgets) {
    BudgetSnapshot& all = same_budget(sum, budget);
    add(all.in_use, budget.in_use);
    add(all.max, budget.max);
    add(all.calls, budget.calls);
    add(all.waiting, budget.waiting);
    add(all.max_queue, budget.max_queue);
  }
  Snapshot& gate = sum.gate;
  add(gate.in_flight, one.gate.in_flight);
  add(gate.permits, one.gate.permits);
  add(gate.waiting, one.gate.waiting);
  add(gate.max_concurrent, one.gate.max_concurrent);
  add(gate.max_queue, one.gate.max_queue);
  for (std::size_t i = 0; i < kPriorities; ++i)
    add(gate.waiting_by_priority[i], one.gate.waiting_by_priority[i]);
  gate.oldest_hold = std::max(gate.oldest_hold, one.gate.oldest_hold);
  sum.over_limit += one.over_limit;
  sum.shadow |= one.shadow;
  sum.draining |= one.draining;
}

Retirement retire_batch(NameTable& table, TenantSet& set, TimePoint now, bool all, std::size_t most) {
  std::vector<const void*> marked = table.readers().marked();
  const auto in_use = [&](Node& node) {
    const std::uint64_t calls = calls_of(*node.bulkhead);
    const bool used =
        std::binary_search(marked.begin(), marked.end(), static_cast<const void*>(node.bulkhead.get()));
    if (!used && calls == node.calls_seen && !node.held() && node.bulkhead->idle()) return false;
    node.calls_seen = calls;
    node.quiet_since = now;
    return true;
  };
  Retirement r;
  std::vector<Node*> idle;
  idle.reserve(kBatch);
  r.gone.reserve(kBatch);  // what can fail comes before the first change
  most = std::min(most, kBatch);
  for (Node* node = set.first; node && r.looked < most; node = set.first) {
    if (!all && now < set.due_at(*node)) break;
    base::sync_point("registry.step");
    ++r.looked;
    const TimePoint full = set.full_until.load();
    set.forget(*node);
    set.append(*node);
    set.full_until.store(full);  // no room was made
    node->looked_at = now;
    node->looked_in = set.round;
    if (!in_use(*node) && now - node->quiet_since >= set.options.idle_after) idle.push_back(node);
  }
  if (idle.empty()) return r;

  // Once a node is parked and the readers have left, no caller can get a handle: a node that is unused now stays unused.
  base::sync_point("retire.before_park");
  for (Node* const node : idle) table.park(*node);
  table.wait();
  table.readers().marked(marked);  // without an allocation, which could fail and leave the nodes parked
  for (Node* const node : idle) {
    if (in_use(*node)) {
      table.unpark(*node);
      continue;
    }
    set.forget(*node);
    r.gone.push_back(table.take(*node));
  }
  if (!r.gone.empty()) table.wait();
  for (const auto& node : r.gone) {
    // The last user of a handle has counted everything by now: releasing our handles does not wait, and sees these counts.
    for (auto& handle : node->handles) handle.reset();
    fold(set.other, node->bulkhead->snapshot());
    ++set.retired;
  }
  return r;
}

}  // namespace bulkhead::registry
