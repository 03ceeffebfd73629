#include <mutex>
#include <utility>

#include "registry/core.h"

namespace bulkhead {

using registry::invalid;
using registry::Key;
using registry::missing;
using registry::NameTable;
using registry::Node;
using registry::Readers;
using registry::TenantSet;

void Registry::Core::insert_overflow(const std::shared_ptr<TenantSet>& set,
                                     std::shared_ptr<Bulkhead> bulkhead) {
  std::string name(bulkhead->name());
  auto node = std::make_unique<Node>(std::move(name), std::move(bulkhead));
  node->tenants = set;
  node->criticality = set->options.criticality;
  set->overflow.store(&table.insert(std::move(node)));
}

// A wrong setting is told now, not to the first tenant that comes; and one that those who live cannot have is told
// before any of them has it.
void Registry::Core::try_out(const TenantOptions& options, bool on_the_living) const {
  registry::check(options);
  const TenantSet wanted(options);
  (void)Bulkhead(wanted.overflow_options(clock));
  (void)Bulkhead(wanted.options_of("*", clock));
  if (!on_the_living) return;
  for (const auto& [bulkhead, o] : living(wanted)) bulkhead->check(o);
}

// Of the set of that name, each with what it shall have. Handles, so that none is retired meanwhile.
std::vector<std::pair<std::shared_ptr<Bulkhead>, BulkheadOptions>> Registry::Core::living(
    const TenantSet& wanted) const {
  std::vector<std::pair<std::shared_ptr<Bulkhead>, BulkheadOptions>> all;
  const std::lock_guard lock(mutex);
  const auto set = find_set(wanted.name);
  if (!set) return all;
  for (const Node* const node : set->nodes)
    all.emplace_back(node->handle(), wanted.options_of(node->tenant_id, clock));
  if (const Node* const shared = set->overflow.load())
    all.emplace_back(shared->handle(), wanted.overflow_options(clock));
  return all;
}

void Registry::define_tenants(const TenantOptions& options) {
  Core& core = *core_;
  const std::lock_guard settings(core.settings);
  core.try_out(options);
  auto set = std::make_shared<TenantSet>(options);
  auto overflow = std::make_shared<Bulkhead>(set->overflow_options(core.clock));
  auto node = std::make_unique<Node>(base::join({options.name, "/"}));
  node->set = set;
  {
    const std::lock_guard lock(core.mutex);
    if (!core.find_set(options.name)) {
      core.table.insert(std::move(node));
      if (options.at_bound == AtBound::overflow) core.insert_overflow(set, std::move(overflow));
      core.changed();
      return;
    }
  }
  invalid("tenants", options.name, "the name is taken: update those, or give another name");
}

void Registry::update_tenants(const TenantOptions& options) {
  Core& core = *core_;
  const std::lock_guard settings(core.settings);
  core.try_out(options);
  const TenantSet wanted(options);
  auto overflow = std::make_shared<Bulkhead>(wanted.overflow_options(core.clock));
  std::shared_ptr<TenantSet> set;
  std::vector<std::string> others;
  {
    const std::lock_guard lock(core.mutex);
    set = core.find_set(options.name);
    if (!set) others = core.set_names();
  }
  if (!set) missing("set of tenants", options.name, std::move(others));

  std::vector<std::unique_ptr<Node>> gone;
  {
    const std::lock_guard lock(core.mutex);
    set->options = options;
    set->max.store(options.max_tenants, std::memory_order_relaxed);
    set->max_id_length.store(options.max_id_length, std::memory_order_relaxed);
    set->next_sweep = TimePoint::min();
    set->make_room();
    Node* const shared = set->overflow.load();
    if (!shared && options.at_bound == AtBound::overflow)
      core.insert_overflow(set, std::move(overflow));
    else if (shared && options.at_bound == AtBound::reject) {
      set->overflow.store(nullptr);
      gone.push_back(core.table.take(*shared));
      core.table.wait();
    }
    core.changed();
  }
  // Those that come from now on are made with it.
  for (const auto& [bulkhead, o] : core.living(wanted)) Core::update(*bulkhead, o, bulkhead->options());
  core.let_go(std::move(gone));
}

bool Registry::remove_tenants(std::string_view name) {
  Core& core = *core_;
  std::vector<std::unique_ptr<Node>> gone;
  const std::lock_guard settings(core.settings);
  {
    const std::lock_guard lock(core.mutex);
    const auto set = core.find_set(name);
    if (!set) return false;
    if (Node* const shared = set->overflow.exchange(nullptr)) gone.push_back(core.table.take(*shared));
    for (Node* const node : set->nodes) gone.push_back(core.table.take(*node));
    set->nodes.clear();
    gone.push_back(core.table.take(*core.table.find(Key(name)).node));
    core.table.wait();
    core.changed();
  }
  for (const auto& node : gone)
    if (node->bulkhead) node->bulkhead->close();
  core.let_go(std::move(gone));
  return true;
}

// Inside a stay: the one whose bulkhead it gets; null: that is not for certain.
Result<const Node*> Registry::Core::find_tenant(std::string_view tenants, std::string_view id) noexcept {
  const Key key(tenants, id);
  // What has a '/' in it would be a name in another set.
  const bool plausible = tenants.size() <= registry::kMaxName && id.size() <= registry::kMaxTenantId &&
                         id.find('/') == std::string_view::npos && id != registry::kOverflow.substr(1);
  const NameTable::Found own = plausible ? table.find(key) : NameTable::Found{};
  if (own.node && own.node->bulkhead && !own.parked) return own.node;
  // One that is parked is neither here nor gone; all others are told without the lock.
  const NameTable::Found found = own.node ? NameTable::Found{} : table.find(key.of_set());
  if (!found.node) return nullptr;
  TenantSet& set = *found.node->set;
  if (!set.valid(id) || clock.glance() < set.full_until.load()) return set.at_bound();
  return nullptr;
}

Result<std::shared_ptr<Bulkhead>> Registry::tenant(std::string_view tenants, std::string_view id) {
  {
    const Readers::Stay stay(core_->table.readers());
    const auto found = core_->find_tenant(tenants, id);
    if (!found) return std::unexpected(found.error());
    if (*found) return (*found)->handle();
  }
  return core_->make_tenant(tenants, id);
}

Result<BulkheadUse> Registry::use_tenant(std::string_view tenants, std::string_view id) {
  {
    const Readers::Stay stay(core_->table.readers());
    const auto found = core_->find_tenant(tenants, id);
    if (!found) return std::unexpected(found.error());
    if (*found) return Core::used(stay, **found);
  }
  auto made = core_->make_tenant(tenants, id);
  if (!made) return std::unexpected(made.error());
  return BulkheadUse(std::move(*made));
}

// With the lock: it is not known, or not for certain.
Result<std::shared_ptr<Bulkhead>> Registry::Core::make_tenant(std::string_view tenants, std::string_view id) {
  std::vector<std::unique_ptr<Node>> gone;  // outlives the lock
  std::vector<std::string> others;
  {
    const std::lock_guard lock(mutex);
    if (const auto set = find_set(tenants)) {
      const auto at_bound = [&]() -> Result<std::shared_ptr<Bulkhead>> {
        const auto shared = set->at_bound();
        if (!shared) return std::unexpected(shared.error());
        return (*shared)->handle();
      };
      if (!set->valid(id)) return at_bound();
      const Key key(tenants, id);
      if (const Node* const node = find(key)) return node->handle();
      const TimePoint now = clock.now();
      if (now >= set->next_sweep) {
        gone = registry::retire(table, *set, now);
        set->next_sweep = now + set->options.idle_after / 4;
        if (!gone.empty()) changed();
      }
      if (set->nodes.size() >= set->options.max_tenants) {
        set->full_until.store(set->next_sweep);
        return at_bound();
      }
      auto node = std::make_unique<Node>(std::string(std::string_view(key)),
                                         std::make_shared<Bulkhead>(set->options_of(id, clock)));
      node->tenants = set;
      node->tenant_id = id;
      node->criticality = set->options.criticality;
      node->quiet_since = now;
      set->nodes.push_back(nullptr);  // what can fail comes first
      Node& placed = table.insert(std::move(node));
      set->nodes.back() = &placed;
      set->live.store(static_cast<std::uint32_t>(set->nodes.size()), std::memory_order_relaxed);
      ++set->created;
      changed();
      return placed.handle();
    }
    others = set_names();
  }
  missing("set of tenants", tenants, std::move(others));
}

std::size_t Registry::retire_idle() {
  Core& core = *core_;
  core.let_go({});
  std::vector<std::unique_ptr<Node>> gone;
  const std::lock_guard lock(core.mutex);
  std::vector<std::shared_ptr<TenantSet>> sets;
  core.table.for_each([&](const Node& node) {
    if (node.set) sets.push_back(node.set);
  });
  const TimePoint now = core.clock.now();
  for (const auto& set : sets)
    for (auto& node : registry::retire(core.table, *set, now)) gone.push_back(std::move(node));
  if (!gone.empty()) core.changed();
  return gone.size();
}

}  // namespace bulkhead
