#include "bulkhead/registry_snapshot.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "registry/core.h"

namespace bulkhead {

using registry::Node;

const RegistrySnapshot::Entry* RegistrySnapshot::find(std::string_view name) const noexcept {
  const auto at =
      std::lower_bound(bulkheads.begin(), bulkheads.end(), name,
                       [](const Entry& entry, std::string_view wanted) { return entry.name < wanted; });
  return at != bulkheads.end() && at->name == name ? &*at : nullptr;
}

// What there is, and what the retired left behind, is of one instant: nobody is missing and nobody counted twice.
// The bulkheads are then looked at without that lock; no change of settings comes in between.
RegistrySnapshot Registry::snapshot() const {
  const Core& core = *core_;
  const std::lock_guard settings(core.settings);
  RegistrySnapshot s;
  s.taken = core.clock.now();
  std::vector<std::shared_ptr<Group>> groups;
  {
    const std::lock_guard lock(core.mutex);
    s.revision = revision();
    std::vector<const Node*> nodes;  // sorted as such: an entry is several kilobytes
    core.table.for_each([&](const Node& node) { nodes.push_back(&node); });
    std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->name < b->name; });
    s.bulkheads.reserve(nodes.size());
    for (const Node* const node : nodes) {
      if (node->set) s.tenants.push_back(node->set->snapshot());
      if (!node->bulkhead) continue;
      RegistrySnapshot::Entry& entry = s.bulkheads.emplace_back();
      entry.name = node->name;
      entry.type = node->type;
      entry.group = node->group;
      entry.tenants = node->tenants ? node->tenants->name : "";
      entry.tenant_id = node->tenant_id;
      entry.criticality = node->criticality;
      entry.bulkhead = node->bulkhead;
    }
    for (const auto& [name, group] : core.groups) groups.push_back(group);
  }
  for (RegistrySnapshot::Entry& entry : s.bulkheads) {
    entry.configured = entry.bulkhead->options();
    entry.now = entry.bulkhead->snapshot();
  }
  for (const auto& group : groups) s.groups.push_back(group->snapshot());
  s.resources = core.resources->snapshot();
  return s;
}

}  // namespace bulkhead
