#include <algorithm>
#include <map>
#include <mutex>
#include <set>
#include <utility>

#include "registry/core.h"

namespace bulkhead {

using registry::check_name;
using registry::invalid;
using registry::missing;
using registry::Node;

namespace {

template <class Range>
bool has(const Range& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// What the change says about the shares of one group's members.
std::vector<Group::NewShare> shares_of(const RegistryChange& change, std::string_view group) {
  std::vector<Group::NewShare> shares;
  for (const auto* registrations : {&change.add, &change.update})
    for (const Registration& r : *registrations)
      if (r.group == group) shares.push_back({r.options.name, r.guaranteed, r.max});
  return shares;
}

}  // namespace

// Trials are made of the real thing: what can be made now, apart from the rest, can be made later.
void Registry::Core::try_out(const RegistryChange& change) const {
  for (const auto& [type, defaults] : change.types) {
    check_name("type", type);
    (void)Bulkhead(completed(defaults, type));
  }

  // The groups as they will be.
  std::map<std::string, std::shared_ptr<Group>, std::less<>> after;
  {
    const std::lock_guard lock(mutex);
    after = groups;
    for (const std::string& name : change.remove) {
      const Node* const node = find(name);
      if (!node) invalid("bulkhead", name, "there is none to remove");
      if (node->tenants) invalid("bulkhead", name, "it is a tenant's, made on demand, and cannot be removed");
    }
    for (const std::string& name : change.remove_groups) {
      if (after.erase(name) == 0) invalid("group", name, "there is none to remove");
      table.for_each([&](const Node& node) {
        if (node.group == name && !has(change.remove, node.name))
          invalid("group", name, base::join({"bulkhead \"", node.name, "\" is a member: remove that too"}));
      });
    }
  }
  std::map<std::string, std::uint32_t, std::less<>> totals;
  for (const auto& [name, group] : after) totals[name] = group->total();
  for (GroupOptions o : change.add_groups) {
    check_name("group", o.name);
    if (after.contains(o.name)) invalid("group", o.name, "the name is taken");
    if (!o.clock) o.clock = &clock;
    totals[o.name] = o.total;
    const std::string name = o.name;
    after.emplace(name, std::make_shared<Group>(std::move(o)));
  }
  for (const auto& [name, total] : change.resize_groups) {
    if (!after.contains(name)) missing("group", name, registry::keys(after));
    totals[name] = total;
  }

  std::set<std::string_view> added;
  for (const Registration& r : change.add) {
    const std::string& name = r.options.name;
    check_name("bulkhead", name);
    if (!added.insert(name).second) invalid("bulkhead", name, "it is added twice");
    std::shared_ptr<Bulkhead> tenant;
    {
      const std::lock_guard lock(mutex);
      const Node* const node = has(change.remove, name) ? nullptr : find(name);
      if (node && (!r.group.empty() || !node->tenants || node->tenant_id.empty()))
        invalid("bulkhead", name, "the name is taken");
      if (node) tenant = node->handle();
    }
    if (tenant) {
      tenant->check(completed(r.options, tenant->options()));
    } else if (r.group.empty()) {
      (void)make(r, nullptr);
    } else {
      if (!after.contains(r.group)) missing("group", r.group, registry::keys(after));
      if (after.find(r.group)->second->find(name))
        invalid("bulkhead", name,
                "group \"" + r.group + "\" still has a member of that name, removed but in somebody's hands");
      (void)make(r, std::make_shared<Group>(GroupOptions{
                        .name = r.group, .total = totals.find(r.group)->second, .clock = &clock}));
    }
  }
  for (const Registration& r : change.update) {
    const auto bulkhead = get(r.options.name);
    bulkhead->check(completed(r.options, bulkhead->options()));
    const std::lock_guard lock(mutex);
    if (find(r.options.name)->group != r.group)
      invalid("bulkhead", r.options.name, "group cannot be changed on a living bulkhead: make a new one");
  }
  for (const auto& [name, group] : after) {
    std::vector<Group::NewShare> shares = shares_of(change, name);
    for (const std::string& gone : change.remove)
      if (group->find(gone)) shares.push_back({gone, {}, {.percent = 100}});
    group->check(totals.find(name)->second, shares);
  }

  for (const auto* tenants : {&change.add_tenants, &change.update_tenants})
    for (const TenantOptions& o : *tenants) {
      try_out(o, !has(change.remove_tenants, o.name));
      const std::lock_guard lock(mutex);
      const bool there = find_set(o.name) && !has(change.remove_tenants, o.name);
      if (there != (tenants == &change.update_tenants))
        invalid("tenants", o.name, there ? "the name is taken" : "there are none to update");
    }
}

void Registry::check(const RegistryChange& change) const {
  const std::lock_guard settings(core_->settings);
  core_->try_out(change);
}

void Registry::apply(const RegistryChange& change) {
  Core& core = *core_;
  const std::lock_guard settings(core.settings);
  core.let_go({});
  core.try_out(change);
  for (const auto& [type, defaults] : change.types) define(type, defaults);
  for (const GroupOptions& o : change.add_groups) add_group(o);
  for (const std::string& name : change.remove_tenants) remove_tenants(name);
  for (const std::string& name : change.remove) remove(name, TimePoint::min());
  // Members come without a guarantee: what fits together in the end may not fit one by one.
  std::set<std::string, std::less<>> reshaped;
  for (Registration r : change.add) {
    r.guaranteed = {};
    if (!r.group.empty()) reshaped.insert(r.group);
    add(r);
  }
  for (const Registration& r : change.update) {
    update(r.options.name, r.options);
    if (!r.group.empty()) reshaped.insert(r.group);
  }
  for (const auto& [name, total] : change.resize_groups) reshaped.insert(name);
  for (const std::string& name : reshaped) {
    const auto group = core.group(name);
    std::uint32_t total = group->total();
    for (const auto& [resized, wanted] : change.resize_groups)
      if (resized == name) total = wanted;
    group->update(total, shares_of(change, name));
  }
  for (const TenantOptions& o : change.add_tenants) define_tenants(o);
  for (const TenantOptions& o : change.update_tenants) update_tenants(o);
  for (const std::string& name : change.remove_groups) remove_group(name);

  const std::lock_guard lock(core.mutex);
  for (const auto* registrations : {&change.add, &change.update})
    for (const Registration& r : *registrations) {
      Node& node = *core.find(r.options.name);
      node.type = r.type;
      node.criticality = r.criticality;
      node.guaranteed = r.guaranteed;
      node.max = r.max;
    }
}

}  // namespace bulkhead
