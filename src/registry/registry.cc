#include "bulkhead/registry.h"

#include <algorithm>
#include <iterator>
#include <mutex>
#include <random>
#include <thread>
#include <utility>

#include "base/text.h"
#include "registry/core.h"
#include "registry/types.h"

namespace bulkhead {

using registry::check_name;
using registry::invalid;
using registry::missing;
using registry::NameTable;
using registry::Node;
using registry::Readers;

namespace {

std::uint64_t seed_of(const RegistryOptions& o) {
  if (o.seed != 0) return o.seed;
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

Registry::Core::Core(const RegistryOptions& o)
    : clock(o.clock ? *o.clock : Clock::steady()), table(seed_of(o)) {
  for (auto& [name, defaults] : registry::built_in_types()) types.emplace(name, std::move(defaults));
}

Registry::Registry(const RegistryOptions& options) : core_(std::make_unique<Core>(options)) {}
Registry::~Registry() {
  while (!core_->table.readers().marked().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

Clock& Registry::clock() const noexcept { return core_->clock; }
std::uint64_t Registry::revision() const noexcept { return core_->revision.load(std::memory_order_relaxed); }

// ---- look-up ----

std::shared_ptr<Bulkhead> Registry::find(std::string_view name) const noexcept {
  Core& core = *core_;
  {
    const Readers::Stay stay(core.table.readers());
    const NameTable::Found found = core.table.find(name);
    if (!found.node) return nullptr;
    if (!found.parked) return found.node->handle();  // of a set of tenants: null
  }
  const std::lock_guard lock(core.mutex);  // it is being decided whether it goes
  const Node* const node = core.find(name);
  return node ? node->handle() : nullptr;
}

BulkheadUse Registry::use(std::string_view name) const noexcept {
  {
    const Readers::Stay stay(core_->table.readers());
    const NameTable::Found found = core_->table.find(name);
    if (!found.node || !found.node->bulkhead) return {};
    if (!found.parked) return Core::used(stay, *found.node);
  }
  return BulkheadUse(find(name));
}

std::shared_ptr<Bulkhead> Registry::get(std::string_view name) const {
  if (auto found = find(name)) return found;
  return core_->get(name);
}

std::shared_ptr<Bulkhead> Registry::Core::get(std::string_view name) const {
  std::vector<std::string> others;
  {
    const std::lock_guard lock(mutex);
    if (const Node* const node = find(name)) return node->handle();
    others = names();
  }
  missing("bulkhead", name, std::move(others));
}

std::vector<std::string> Registry::names() const {
  std::vector<std::string> all;
  {
    const std::lock_guard lock(core_->mutex);
    all = core_->names();
  }
  std::sort(all.begin(), all.end());
  return all;
}

// ---- making ----

BulkheadOptions Registry::Core::completed(BulkheadOptions o, std::string_view name) const {
  if (o.name.empty()) o.name = name;
  if (!o.clock) o.clock = &clock;
  return o;
}

BulkheadOptions Registry::Core::completed(BulkheadOptions o, const BulkheadOptions& old) {
  if (o.name.empty()) o.name = old.name;
  if (!o.clock) o.clock = old.clock;
  if (!o.gate) o.gate = old.gate;
  return o;
}

std::shared_ptr<Bulkhead> Registry::Core::make(const Registration& r,
                                               const std::shared_ptr<Group>& in) const {
  BulkheadOptions o = completed(r.options, std::string_view());
  if (!in) return std::make_shared<Bulkhead>(o);
  if (o.gate) invalid("bulkhead", o.name, "both gate and group are given: leave one out");
  o.gate = &in->add({.name = o.name,
                     .guaranteed = r.guaranteed,
                     .max = r.max,
                     .gate = {.max_queue = o.max_queue,
                              .max_wait = o.max_wait,
                              .critical_reserve = o.critical_reserve,
                              .fairness = o.fairness,
                              .hooks = o.hooks,
                              .flow_queues = o.flow_queues,
                              .flow_hand = o.flow_hand,
                              .flow_seed = o.flow_seed,
                              .measure_service = o.measure_service,
                              .track_holders = o.track_holders,
                              .measure_occupancy = o.histograms,
                              .clock = o.clock}});
  // The gate lives as long as the bulkhead, and the group as long as the gate; the member goes with the last handle,
  // or at once if the bulkhead cannot be made.
  struct Leave {
    std::shared_ptr<Group> group;
    std::string name;
    ~Leave() { group->remove(name); }
  };
  auto leave = std::make_shared<Leave>(in, o.name);
  auto bulkhead = std::make_unique<Bulkhead>(o);
  return {bulkhead.release(), [leave = std::move(leave)](Bulkhead* b) mutable {
            delete b;
            leave.reset();
          }};
}

Node& Registry::Core::insert(std::shared_ptr<Bulkhead> bulkhead, const Registration& r) {
  auto node = std::make_unique<Node>(r.options.name, std::move(bulkhead));
  node->type = r.type;
  node->group = r.group;
  node->guaranteed = r.guaranteed;
  node->max = r.max;
  node->criticality = r.criticality;
  Node& placed = table.insert(std::move(node));
  changed();
  return placed;
}

std::shared_ptr<Bulkhead> Registry::add(const Registration& r) {
  Core& core = *core_;
  const std::string& name = r.options.name;
  check_name("bulkhead", name);
  const std::lock_guard settings(core.settings);
  core.let_go({});  // who is gone by now is no longer a member of its group
  std::shared_ptr<Bulkhead> made;
  for (;;) {
    if (auto there = find(name)) return core.adopt(there, r);
    if (!made) made = core.make(r, r.group.empty() ? nullptr : core.group(r.group));
    const std::lock_guard lock(core.mutex);
    if (core.find(name)) continue;  // a tenant has come meanwhile
    return core.insert(std::move(made), r).handle();
  }
}

// The handle keeps it from being retired meanwhile.
std::shared_ptr<Bulkhead> Registry::Core::adopt(const std::shared_ptr<Bulkhead>& tenant,
                                                const Registration& r) {
  const std::string& name = r.options.name;
  const auto on_demand = [&] {
    const std::lock_guard lock(mutex);
    const Node* const node = find(name);
    return node && node->tenants && !node->tenant_id.empty();
  };
  if (!r.group.empty() || !on_demand())
    invalid("bulkhead", name, "the name is taken: remove that one first, update it, or give another name");
  tenant->update(completed(r.options, tenant->options()));
  const std::lock_guard lock(mutex);
  Node& node = *find(name);
  node.tenants->forget(node);
  node.tenants.reset();
  node.tenant_id.clear();
  node.type = r.type;
  node.criticality = r.criticality;
  changed();
  return tenant;
}

void Registry::define(std::string_view type, const BulkheadOptions& defaults) {
  check_name("type", type);
  if (defaults.gate) invalid("type", type, "its bulkheads cannot share a gate: leave it out");
  (void)Bulkhead(core_->completed(defaults, type));
  const std::lock_guard lock(core_->mutex);
  core_->types.insert_or_assign(std::string(type), defaults);
}

std::shared_ptr<Bulkhead> Registry::get_or_create(std::string_view name, std::string_view type) {
  if (auto found = find(name)) return found;
  Core& core = *core_;
  check_name("bulkhead", name);
  std::vector<std::string> types;
  const std::lock_guard settings(core.settings);
  {
    const std::lock_guard lock(core.mutex);
    if (const Node* const node = core.find(name)) return node->handle();
    if (const auto defaults = core.types.find(type); defaults != core.types.end()) {
      Registration r{.options = defaults->second, .type = std::string(type)};
      r.options.name = name;
      return core.insert(core.make(r, nullptr), r).handle();
    }
    types = registry::keys(core.types);
  }
  missing("type", type, std::move(types));
}

// ---- changing ----

// A mode is what somebody has set, not what a breaker has learnt: it stays unless the settings change it.
void Registry::Core::update(Bulkhead& bulkhead, const BulkheadOptions& o, const BulkheadOptions& old) {
  bulkhead.update(o);
  const BreakerMode before = old.breaker ? old.breaker->mode : BreakerMode::automatic;
  if (o.breaker && o.breaker->mode != before) bulkhead.breaker()->set_mode(o.breaker->mode);
}

void Registry::update(std::string_view name, const BulkheadOptions& options) {
  const std::lock_guard settings(core_->settings);
  const auto bulkhead = get(name);
  const BulkheadOptions old = bulkhead->options();
  const BulkheadOptions o = Core::completed(options, old);
  Core::update(*bulkhead, o, old);
  if (o.gate && o.max_queue != old.max_queue) bulkhead->resize_queue(o.max_queue);
  core_->changed();
}

void Registry::resize(std::string_view name, std::uint32_t max_concurrent) {
  const std::lock_guard settings(core_->settings);
  get(name)->resize(max_concurrent);
  core_->changed();
}

void Registry::resize_queue(std::string_view name, std::uint32_t max_queue) {
  const std::lock_guard settings(core_->settings);
  get(name)->resize_queue(max_queue);
  core_->changed();
}

void Registry::Core::let_go(std::vector<std::unique_ptr<Node>> nodes) {
  std::vector<std::shared_ptr<Bulkhead>> idle;  // outlives the lock
  const std::lock_guard lock(mutex);
  for (auto& node : nodes)
    if (node->bulkhead) leaving.push_back(node->bulkhead);
  const auto marked = table.readers().marked();
  const auto busy = std::partition(leaving.begin(), leaving.end(), [&](const auto& b) {
    return std::find(marked.begin(), marked.end(), b.get()) == marked.end() && b->idle();
  });
  idle.assign(std::make_move_iterator(leaving.begin()), std::make_move_iterator(busy));
  leaving.erase(leaving.begin(), busy);
}

void Registry::reset(std::string_view name) { get(name)->reset_statistics(); }

bool Registry::remove(std::string_view name, TimePoint until) {
  Core& core = *core_;
  std::unique_ptr<Node> node;
  {
    const std::lock_guard settings(core.settings);
    {
      const std::lock_guard lock(core.mutex);
      Node* const found = core.find(name);
      if (!found) return false;
      if (!found->tenants) {
        node = core.table.take(*found);
        core.table.wait();
        core.changed();
      }
    }
    if (!node)
      invalid("bulkhead", name, "it is a tenant's, made on demand: it goes when it is idle, or with its set");
    node->bulkhead->close();
    // The others may have its guarantee from now on, although its calls are not over.
    if (!node->group.empty())
      if (const auto in = find_group(node->group)) in->update(name, {}, node->max);
  }
  const bool drained = node->bulkhead->drain(until);
  std::vector<std::unique_ptr<Node>> gone;
  gone.push_back(std::move(node));
  core.let_go(std::move(gone));
  return drained;
}

// ---- groups ----

std::shared_ptr<Group> Registry::Core::group(std::string_view name) const {
  std::vector<std::string> others;
  {
    const std::lock_guard lock(mutex);
    if (const auto found = groups.find(name); found != groups.end()) return found->second;
    others = registry::keys(groups);
  }
  missing("group", name, std::move(others));
}

std::shared_ptr<Group> Registry::add_group(GroupOptions options) {
  Core& core = *core_;
  const std::string name = options.name;
  check_name("group", name);
  if (!options.members.empty())
    invalid("group", name, "it has members already: leave them out, and add bulkheads with this group");
  if (!options.clock) options.clock = &core.clock;
  auto made = std::make_shared<Group>(std::move(options));
  {
    const std::lock_guard lock(core.mutex);
    if (core.groups.emplace(name, made).second) {
      core.changed();
      return made;
    }
  }
  invalid("group", name, "the name is taken: remove that one first, or give another name");
}

std::shared_ptr<Group> Registry::find_group(std::string_view name) const {
  const std::lock_guard lock(core_->mutex);
  const auto found = core_->groups.find(name);
  return found == core_->groups.end() ? nullptr : found->second;
}

void Registry::resize_group(std::string_view name, std::uint32_t total) {
  const std::lock_guard settings(core_->settings);
  core_->group(name)->resize(total);
  core_->changed();
}

void Registry::update_share(std::string_view bulkhead, Share guaranteed, Share max) {
  Core& core = *core_;
  const std::lock_guard settings(core.settings);
  const auto held = get(bulkhead);
  std::string group;
  {
    const std::lock_guard lock(core.mutex);
    group = core.find(bulkhead)->group;
  }
  if (group.empty())
    invalid("bulkhead", bulkhead, "it is in no group and has no share: resize it, or add it to one");
  core.group(group)->update(bulkhead, guaranteed, max);
  const std::lock_guard lock(core.mutex);
  Node& node = *core.find(bulkhead);
  node.guaranteed = guaranteed;
  node.max = max;
  core.changed();
}

bool Registry::remove_group(std::string_view name) {
  Core& core = *core_;
  std::shared_ptr<Group> out;  // its destructor waits
  const std::lock_guard settings(core.settings);
  std::string member;
  {
    const std::lock_guard lock(core.mutex);
    const auto found = core.groups.find(name);
    if (found == core.groups.end()) return false;
    core.table.for_each([&](const Node& node) {
      if (node.group == name) member = node.name;
    });
    if (member.empty()) {
      out = std::move(found->second);
      core.groups.erase(found);
      core.changed();
      return true;
    }
  }
  invalid("group", name, base::join({"bulkhead \"", member, "\" is a member: remove that first"}));
}

}  // namespace bulkhead
