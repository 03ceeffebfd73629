#include "bulkhead/registry_snapshot.h"

#include <algorithm>
#include <iterator>
#include <unordered_map>
#include <utility>

#include "bulkhead/detail/mutex.h"
#include "registry/registry_core.h"

namespace bulkhead {

using registry::Node;

const RegistrySnapshot::Entry* RegistrySnapshot::find(std::string_view name) const noexcept {
  const auto at =
      std::lower_bound(bulkheads.begin(), bulkheads.end(), name,
                       [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return at != bulkheads.end() && at->name == name ? &*at : nullptr;
}

void RegistrySnapshot::Sum::add(const Entry& entry) {
  registry::fold(now, entry.now);
  registry::fold_state(now, entry.now);
  ++members;
  configured += entry.configured.max_concurrent;
  criticality = std::min(criticality, entry.criticality);
  if (entry.now.breaker) ++breakers[static_cast<std::size_t>(entry.now.breaker->state)];
}

registry::NodeCopy Registry::Core::copy_of(const Node& node) {
  return {.name = node.name,
          .type = node.type,
          .group = node.group,
          .tenants = node.tenants ? node.tenants->name : "",
          .tenant_id = node.tenant_id,
          .criticality = node.criticality,
          .bulkhead = node.bulkhead};
}

namespace {

RegistrySnapshot::Entry entry_of(registry::NodeCopy copy) {
  RegistrySnapshot::Entry entry;
  entry.name = std::move(copy.name);
  entry.type = std::move(copy.type);
  entry.group = std::move(copy.group);
  entry.tenants = std::move(copy.tenants);
  entry.tenant_id = std::move(copy.tenant_id);
  entry.criticality = copy.criticality;
  entry.bulkhead = std::move(copy.bulkhead);
  entry.configured = entry.bulkhead->options();
  entry.now = entry.bulkhead->snapshot();
  return entry;
}

}  // namespace

// The lock is held for a copy of the node only. A bulkhead that only other processes have comes from `complete`.
std::optional<RegistrySnapshot::Entry> Registry::look(std::string_view name) const {
  std::optional<registry::NodeCopy> copy;
  {
    const detail::MutexLock lock(core_->mutex);
    if (const Node* const node = core_->find(name)) copy = Core::copy_of(*node);
  }
  if (!core_->complete) {
    if (!copy) return std::nullopt;
    return entry_of(*std::move(copy));
  }
  RegistrySnapshot one;
  if (copy) one.bulkheads.push_back(entry_of(*std::move(copy)));
  core_->complete(one);
  const RegistrySnapshot::Entry* const found = one.find(name);
  return found ? std::optional(*found) : std::nullopt;
}

// The live bulkheads and the counts of retired ones add up: none is missing or counted twice (K5). The walk holds the lock
// for one batch at a time and reads the bulkheads without it. Settings do not change meanwhile.
RegistrySnapshot Registry::snapshot(const SnapshotOptions& options) const {
  RegistrySnapshot s = core_->snapshot(options);
  if (core_->complete) core_->complete(s);
  return s;
}

RegistrySnapshot Registry::Core::snapshot(const SnapshotOptions& options) const {
  const Core& core = *this;
  const detail::MutexLock unchanged(core.settings);
  RegistrySnapshot s;
  s.taken = core.clock.now();
  s.revision = core.revision.load(std::memory_order_relaxed);
  std::vector<registry::NodeCopy> listed, lost, to_add, batch;  // a large one would grow under the lock
  struct Watch {  // tells retirements that a snapshot is being taken
    Watch(const Core& its_core, std::vector<registry::NodeCopy>& to) : core(its_core) {
      const detail::MutexLock lock(core.mutex);
      ++core.walks;
      core.missed = &to;
    }
    ~Watch() {
      const detail::MutexLock lock(core.mutex);
      core.missed = nullptr;
    }
    const Core& core;
  };
  std::unordered_map<std::string, std::size_t> sets;  // those that are added up, in s.tenants
  std::uint32_t room = options.list_tenants;          // tenants that still may be listed
  const auto add_up = [&](std::vector<registry::NodeCopy>& some) {
    for (registry::NodeCopy& copy : some) {
      RegistrySnapshot::Tenants& tenants = s.tenants[sets.find(copy.tenants)->second];
      if (!tenants.sum) tenants.sum = RegistrySnapshot::Sum{};
      tenants.sum->add(entry_of(std::move(copy)));
    }
    some.clear();
  };
  {
    const Watch watch(core, lost);
    core.walk(
        Core::Which::all,
        [&](Node& node) {
          core.mutex.assert_held();
          node.walked = core.walks;
          if (node.set) {  // comes before its tenants, which are in the other list
            node.set->walked = core.walks;
            if (node.set->size > room)
              sets.emplace(node.set->name, s.tenants.size());
            else
              room -= node.set->size;
            s.tenants.push_back(node.set->snapshot());
          }
          if (!node.bulkhead) return;
          const bool summed = node.on_demand && sets.contains(node.tenants->name);
          if (summed && !options.add_up) return;
          (summed ? to_add : batch).push_back(Core::copy_of(node));
        },
        [&] {
          add_up(to_add);
          listed.insert(listed.end(), std::make_move_iterator(batch.begin()),
                        std::make_move_iterator(batch.end()));
          batch.clear();
        });
  }
  for (registry::NodeCopy& copy : lost) {
    const bool summed = sets.contains(copy.tenants);
    if (summed && !options.add_up) continue;
    (summed ? to_add : listed).push_back(std::move(copy));
  }
  add_up(to_add);
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(listed.begin(), listed.end(), by_name);  // as such: an entry is several kilobytes
  std::sort(s.tenants.begin(), s.tenants.end(), by_name);
  s.bulkheads.reserve(listed.size());
  for (registry::NodeCopy& copy : listed) s.bulkheads.push_back(entry_of(std::move(copy)));

  std::vector<std::shared_ptr<registry::AdaptiveGroup>> known;
  {
    const detail::MutexLock lock(core.mutex);
    for (const auto& [name, group] : core.groups) known.push_back(group);
  }
  for (const auto& group : known) {
    s.groups.push_back({group->group.snapshot(), group->group.total(), std::nullopt});
    if (group->adaptive) s.groups.back().adaptive = group->limiter->snapshot();
  }
  s.resources = core.resources->snapshot();
  return s;
}

}  // namespace bulkhead
