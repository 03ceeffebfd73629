#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <utility>

#include "bulkhead/detail/mutex.h"
#include "registry/registry_core.h"

namespace bulkhead {

using registry::AdaptiveGroup;
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

// A trial constructs a real bulkhead: if that succeeds now, on its own, it succeeds later.
void Registry::Core::try_out(const RegistryChange& change) const {
  for (const auto& [type, defaults] : change.types) {
    check_name("type", type);
    try_out(Registration{.options = completed(defaults, type)}, nullptr);
  }

  // The groups as they will be.
  std::map<std::string, std::shared_ptr<AdaptiveGroup>, std::less<>> after;
  {
    const detail::MutexLock lock(mutex);
    after = groups;
    for (const std::string& name : change.remove) {
      const Node* const node = find(name);
      if (!node) invalid("bulkhead", name, "there is none to remove");
      if (node->tenants) invalid("bulkhead", name, "it is a tenant's, made on demand, and cannot be removed");
    }
    for (const std::string& name : change.remove_groups)
      if (after.erase(name) == 0) invalid("group", name, "there is none to remove");
  }
  const std::set<std::string_view> removed(change.remove.begin(), change.remove.end());
  for (const auto& [name, group] :
       change.remove_groups.empty() ? std::vector<std::pair<std::string, std::string>>{} : members())
    if (has(change.remove_groups, group) && !removed.contains(name))
      invalid("group", group, base::join({"bulkhead \"", name, "\" is a member: remove that too"}));
  std::map<std::string, std::uint32_t, std::less<>> totals;
  for (const auto& [name, group] : after) totals[name] = group->group.total();
  for (GroupOptions o : change.add_groups) {
    check_name("group", o.name);
    if (after.contains(o.name)) invalid("group", o.name, "the name is taken");
    if (!o.clock) o.clock = &clock;
    totals[o.name] = o.total;
    const std::string name = o.name;
    after.emplace(name, std::make_shared<AdaptiveGroup>(std::move(o)));
  }
  for (const auto& [name, adaptive] : change.adapt_groups) {
    if (!after.contains(name)) missing("group", name, registry::keys(after));
    if (!adaptive) continue;
    Group tried(GroupOptions{.name = name, .clock = &clock});
    [[maybe_unused]] const AdaptiveLimiter limiter(tried, *adaptive);
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
      const detail::MutexLock lock(mutex);
      const Node* const node = removed.contains(name) ? nullptr : find(name);
      if (node && (!r.group.empty() || !node->tenants || node->tenant_id.empty()))
        invalid("bulkhead", name, "the name is taken");
      if (node) tenant = node->handle();
    }
    if (tenant) {
      tenant->check(completed(r.options, tenant->options()));
    } else if (r.group.empty()) {
      try_out(r, nullptr);
    } else {
      if (!after.contains(r.group)) missing("group", r.group, registry::keys(after));
      if (after.find(r.group)->second->group.find(name))
        invalid("bulkhead", name,
                "group \"" + r.group + "\" still has a removed member of that name that is in use");
      try_out(r, std::make_shared<AdaptiveGroup>(
                     GroupOptions{.name = r.group, .total = totals.find(r.group)->second, .clock = &clock}));
    }
  }
  for (const Registration& r : change.update) {
    const auto bulkhead = get(r.options.name);
    bulkhead->check(completed(r.options, bulkhead->options()));
    const detail::MutexLock lock(mutex);
    if (find(r.options.name)->group != r.group)
      invalid("bulkhead", r.options.name, "group cannot change while the bulkhead exists: make a new one");
  }
  for (const auto& [name, group] : after) {
    std::vector<Group::NewShare> shares = shares_of(change, name);
    for (const std::string& gone : change.remove)
      if (group->group.find(gone)) shares.push_back({gone, {}, {.percent = 100}});
    group->group.check(totals.find(name)->second, shares);
  }

  for (const auto* tenants : {&change.add_tenants, &change.update_tenants})
    for (const TenantOptions& o : *tenants) {
      try_out(o, !has(change.remove_tenants, o.name));
      const detail::MutexLock lock(mutex);
      const bool there = find_set(o.name) && !has(change.remove_tenants, o.name);
      if (there != (tenants == &change.update_tenants))
        invalid("tenants", o.name, there ? "the name is taken" : "there are none to update");
    }
}

void Registry::check(const RegistryChange& change) const {
  const detail::MutexLock settings(core_->settings);
  core_->try_out(change);
}

namespace {

// Runs what it was given backwards, unless all went well. Each step is given before it is done, and may be undone although
// it was not. What cannot be undone (memory is out again) stays; the others are undone all the same.
class Undo {
 public:
  ~Undo() {
    for (auto step = steps_.rbegin(); step != steps_.rend(); ++step) {
#if defined(__cpp_exceptions)
      try {
        (*step)();
      } catch (...) {  // NOLINT(bugprone-empty-catch): see above
      }
#else
      (*step)();
#endif
    }
  }
  Undo() = default;
  Undo(const Undo&) = delete;
  Undo& operator=(const Undo&) = delete;
  void add(std::function<void()> step) { steps_.push_back(std::move(step)); }
  void forget() noexcept { steps_.clear(); }

 private:
  std::vector<std::function<void()>> steps_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> Registry::Core::members() const {
  std::vector<std::pair<std::string, std::string>> all;
  walk(
      Which::lasting,
      [&](const Node& node) {
        if (!node.group.empty()) all.emplace_back(node.name, node.group);
      },
      [] {});
  return all;
}

void Registry::Core::take_back(std::string_view added) noexcept {
  std::unique_ptr<Node> node;
  {
    const detail::MutexLock lock(mutex);
    Node* const found = find(added);
    if (!found) return;
    node = table.take(*found);
    table.wait();
    changed();
  }
  node->bulkhead->close();
  leave(std::move(node));
  let_go();
}

// What is taken out comes last, because a bulkhead that is closed cannot be opened again; everything before can be undone,
// and is if memory runs out. Only a name that is removed and added in one change has to be freed before.
void Registry::apply(const RegistryChange& change) {
  Core& core = *core_;
  const detail::MutexLock settings(core.settings);
  core.let_go();
  core.try_out(change);

  Undo undo;
  std::set<std::string_view> added;
  for (const Registration& r : change.add) added.insert(r.options.name);
  std::vector<std::string> remove_first, remove_last;
  for (const std::string& name : change.remove)
    (added.contains(name) ? remove_first : remove_last).push_back(name);
  auto types = [&] {
    const detail::MutexLock lock(core.mutex);
    return core.types;
  }();
  for (const auto& [type, defaults] : change.types) types.insert_or_assign(type, defaults);

  for (const GroupOptions& o : change.add_groups) {
    undo.add([this, name = o.name] { remove_group(name); });
    add_group(o);
  }
  for (const auto& [name, adaptive] : change.adapt_groups) {
    const auto group = core.group(name);
    undo.add([&core, group, old = group->adaptive] { core.adapt(*group, old); });
    core.adapt(*group, adaptive);
  }
  // The shares as they are, of every group that is touched.
  std::set<std::string, std::less<>> reshaped;
  for (const auto* registrations : {&change.add, &change.update})
    for (const Registration& r : *registrations)
      if (!r.group.empty()) reshaped.insert(r.group);
  for (const auto& [name, total] : change.resize_groups) reshaped.insert(name);
  std::map<std::string, std::vector<Group::NewShare>, std::less<>> before, freed;
  core.walk(
      Core::Which::lasting,
      [&](const Node& node) {
        if (node.group.empty()) return;
        before[node.group].push_back({node.name, node.guaranteed, node.max});
        if (has(remove_last, node.name)) freed[node.group].push_back({node.name, {}, node.max});
      },
      [] {});
  for (const auto& [group, shares] : freed) reshaped.insert(group);
  for (const std::string& name : remove_first) remove(name, TimePoint::min());
  // Members come without a guarantee: what fits together in the end may not fit one by one.
  for (Registration r : change.add) {
    r.guaranteed = {};
    const auto tenant = find(r.options.name);
    if (tenant)
      undo.add([tenant, old = tenant->options()] { tenant->update(old); });
    else
      undo.add([&core, name = r.options.name] { core.take_back(name); });
    add(r);
  }
  for (const Registration& r : change.update) {
    const auto bulkhead = get(r.options.name);
    undo.add([bulkhead, old = bulkhead->options(), gate = bulkhead->snapshot().gate] {
      const BulkheadOptions now = bulkhead->options();
      Core::update(*bulkhead, old, now);
      if (old.gate && now.max_queue != old.max_queue) bulkhead->resize_queue(gate.max_queue);
    });
    update(r.options.name, r.options);
  }
  for (const std::string& name : reshaped) {
    const auto adaptive = core.group(name);
    const std::shared_ptr<Group> group = registry::group_of(adaptive);
    std::uint32_t total = group->total();
    std::vector<Group::NewShare> old;
    if (const auto shares = before.find(name); shares != before.end()) old = shares->second;
    for (const Registration& r :
         change.add)  // undone before they are taken back, which frees their guarantee
      if (r.group == name) old.push_back({r.options.name, {}, r.max});
    // A total that a limiter keeps follows the one that is given.
    const auto settle = [&core, adaptive] {
      if (adaptive->limiter) core.adapt(*adaptive, adaptive->adaptive);
    };
    undo.add([group, total, old = std::move(old), settle] {
      group->update(total, old);
      settle();
    });
    for (const auto& [resized, wanted] : change.resize_groups)
      if (resized == name) total = wanted;
    std::vector<Group::NewShare> shares = shares_of(change, name);
    if (const auto gone = freed.find(name); gone != freed.end())
      shares.insert(shares.end(), gone->second.begin(), gone->second.end());
    group->update(total, shares);
    settle();
  }
  for (const TenantOptions& o : change.add_tenants) {
    if (has(change.remove_tenants, o.name)) remove_tenants(o.name);
    undo.add([this, name = o.name] { remove_tenants(name); });
    define_tenants(o);
  }
  for (const TenantOptions& o : change.update_tenants) {
    TenantOptions old;
    {
      const detail::MutexLock lock(core.mutex);
      old = core.find_set(o.name)->options;
    }
    undo.add([this, old = std::move(old)] { update_tenants(old); });
    update_tenants(o);
  }
  struct Words {
    std::string type;
    const Registration* of;
  };
  std::vector<Words> words;
  for (const auto* registrations : {&change.add, &change.update})
    for (const Registration& r : *registrations) words.push_back({r.type, &r});

  undo.forget();  // from here on nothing allocates that is not of what goes
  {
    const detail::MutexLock lock(core.mutex);
    core.types.swap(types);
  }
  for (Words& word : words) {
    const detail::MutexLock lock(core.mutex);
    Node& node = *core.find(word.of->options.name);
    node.type.swap(word.type);
    node.criticality = word.of->criticality;
    node.guaranteed = word.of->guaranteed;
    node.max = word.of->max;
  }
  for (const std::string& name : change.remove_tenants)
    if (std::none_of(change.add_tenants.begin(), change.add_tenants.end(),
                     [&](const TenantOptions& o) { return o.name == name; }))
      remove_tenants(name);
  for (const std::string& name : remove_last) core.take_back(name);
  for (const std::string& name : change.remove_groups) remove_group(name);
}

}  // namespace bulkhead
