#include "registry/tenants.h"

#include <algorithm>
#include <utility>

#include "base/sync_point.h"
#include "base/text.h"
#include "registry/names.h"

namespace bulkhead::registry {
namespace {

// Grows with every beginning and every end of a call.
std::uint64_t calls_of(Bulkhead& bulkhead) {
  const Snapshot s = bulkhead.gate().snapshot();
  return s.admitted + s.released + s.rejected();
}

}  // namespace

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
  answers.add(refused);
  // Relaxed: numbers to show.
  return std::unexpected(Rejection{.reason = Reason::tenant_limit,
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

void TenantSet::forget(const Node& node) noexcept {
  std::erase(nodes, &node);
  live.store(static_cast<std::uint32_t>(nodes.size()), std::memory_order_relaxed);
  make_room();
}

RegistrySnapshot::Tenants TenantSet::snapshot() const {
  RegistrySnapshot::Tenants s{.name = name,
                              .live = live.load(std::memory_order_relaxed),
                              .max = options.max_tenants,
                              .created = created,
                              .retired = retired,
                              .overflowed = answers.sum(overflowed),
                              .refused = answers.sum(refused),
                              .invalid = answers.sum(invalid),
                              .other = {}};
  if (retired > 0) {
    s.other = other;
    s.other->name = {};
  }
  return s;
}

void fold(BulkheadSnapshot& into, const BulkheadSnapshot& from) {
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

std::vector<std::unique_ptr<Node>> retire(NameTable& table, TenantSet& set, TimePoint now) {
  auto marked = table.readers().marked();
  const auto in_use = [&](Node& node) {
    const std::uint64_t calls = calls_of(*node.bulkhead);
    const bool used = std::find(marked.begin(), marked.end(), node.bulkhead.get()) != marked.end();
    if (!used && calls == node.calls_seen && !node.held() && node.bulkhead->idle()) return false;
    node.calls_seen = calls;
    node.quiet_since = now;
    return true;
  };
  std::vector<Node*> idle;
  for (Node* const node : set.nodes)
    if (!in_use(*node) && now - node->quiet_since >= set.options.idle_after) idle.push_back(node);
  if (idle.empty()) return {};

  // Once parked and the readers gone, nobody can get a handle: what is not in use now stays so.
  base::sync_point("retire.before_park");
  for (Node* const node : idle) table.park(*node);
  table.wait();
  marked = table.readers().marked();
  std::vector<std::unique_ptr<Node>> gone;
  for (Node* const node : idle) {
    if (in_use(*node)) {
      table.unpark(*node);
      continue;
    }
    set.forget(*node);
    gone.push_back(table.take(*node));
  }
  if (!gone.empty()) table.wait();
  for (const auto& node : gone) {
    // The last to let go of a handle has counted everything by now: giving up ours waits for nobody, and sees that.
    for (auto& handle : node->handles) handle.reset();
    fold(set.other, node->bulkhead->snapshot());
    ++set.retired;
  }
  return gone;
}

}  // namespace bulkhead::registry
