#include <algorithm>
#include <array>
#include <utility>

#include "bulkhead/detail/mutex.h"
#include "registry/registry_core.h"

namespace bulkhead {

using registry::invalid;
using registry::Key;
using registry::missing;
using registry::NameTable;
using registry::Node;
using registry::Readers;
using registry::TenantSet;

std::shared_ptr<Bulkhead> Registry::Core::make_overflow(const TenantSet& set) const {
  BulkheadOptions o = set.overflow_options(clock);
  give_code(o, set.name, "");
  return std::make_shared<Bulkhead>(o);
}

void Registry::Core::insert_overflow(const std::shared_ptr<TenantSet>& set,
                                     std::shared_ptr<Bulkhead> bulkhead) {
  std::string name(bulkhead->name());
  auto node = std::make_unique<Node>(std::move(name), std::move(bulkhead));
  node->tenants = set;
  node->criticality = set->options.criticality;
  set->overflow.store(&table.insert(std::move(node)));
}

// Reports an invalid setting now, not at the first call of a tenant; and one that live tenants cannot have before any of
// them is changed.
void Registry::Core::try_out(const TenantOptions& options, bool on_the_living) const {
  registry::check(options);
  for (const BulkheadOptions* o : {&options.each, options.overflow ? &*options.overflow : &options.each})
    if (o->scope != Scope::process)
      registry::invalid(
          "tenants", options.name,
          base::join({"scope = ", to_string(o->scope), " is for single bulkheads: leave it out"}));
  const TenantSet wanted(options);
  (void)Bulkhead(wanted.overflow_options(clock));
  (void)Bulkhead(wanted.options_of("*", clock));
  if (!on_the_living) return;
  each_living(wanted, [](Bulkhead& bulkhead, const BulkheadOptions& o) { bulkhead.check(o); });
}

// By handles, so that none is retired meanwhile; a batch of them at a time, because an option is a kilobyte.
void Registry::Core::each_living(const TenantSet& wanted,
                                 const std::function<void(Bulkhead&, const BulkheadOptions&)>& fn) const {
  std::shared_ptr<TenantSet> set;
  {
    const detail::MutexLock lock(mutex);
    set = find_set(wanted.name);
  }
  if (!set) return;
  std::vector<std::pair<std::shared_ptr<Bulkhead>, std::string>> batch;
  walk(
      Which::all,
      [&](const Node& node) {
        if (node.tenants == set) batch.emplace_back(node.handle(), node.tenant_id);
      },
      [&] {
        for (const auto& [bulkhead, id] : batch)
          fn(*bulkhead, id.empty() ? wanted.overflow_options(clock) : wanted.options_of(id, clock));
        batch.clear();
      });
}

// The template is tried out with the real classes, so that the first tenant cannot fail because of it.
void Registry::define_tenants(const TenantOptions& options) {
  Core& core = *core_;
  const detail::MutexLock settings(core.settings);
  core.try_out(options);
  auto set = std::make_shared<TenantSet>(options);
  auto overflow = core.make_overflow(*set);
  auto node = std::make_unique<Node>(base::join({options.name, "/"}));
  node->set = set;
  {
    const detail::MutexLock lock(core.mutex);
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
  const detail::MutexLock settings(core.settings);
  core.try_out(options);
  const TenantSet wanted(options);
  auto overflow = core.make_overflow(wanted);
  std::shared_ptr<TenantSet> set;
  {
    const detail::MutexLock lock(core.mutex);
    set = core.find_set(options.name);
  }
  if (!set) missing("set of tenants", options.name, core.set_names());

  std::unique_ptr<Node> gone;
  {
    const detail::MutexLock lock(core.mutex);
    set->options = options;
    set->max.store(options.max_tenants, std::memory_order_relaxed);
    set->max_id_length.store(options.max_id_length, std::memory_order_relaxed);
    ++set->round;
    set->make_room();
    Node* const shared = set->overflow.load();
    if (!shared && options.at_bound == AtBound::overflow)
      core.insert_overflow(set, std::move(overflow));
    else if (shared && options.at_bound == AtBound::reject) {
      set->overflow.store(nullptr);
      gone = core.table.take(*shared);
      core.table.wait();
    }
    core.changed();
  }
  // Those that come from now on are made with it.
  core.each_living(wanted, [](Bulkhead& bulkhead, const BulkheadOptions& o) {
    const BulkheadOptions old = bulkhead.options();
    Core::update(bulkhead, Core::completed(o, old), old);
  });
  core.leave(std::move(gone));
  core.let_go();
}

// The set goes first, so that no tenant comes any more; then its tenants, a batch at a time.
bool Registry::remove_tenants(std::string_view name) {
  Core& core = *core_;
  const detail::MutexLock settings(core.settings);
  std::shared_ptr<TenantSet> set;
  for (bool more = true; more;) {
    std::array<std::unique_ptr<Node>, registry::kBatch + 2> gone;  // no allocation: apply() could not undo it
    std::size_t n = 0;
    {
      const detail::MutexLock lock(core.mutex);
      if (!set) {
        set = core.find_set(name);
        if (!set) return false;
        if (Node* const shared = set->overflow.exchange(nullptr)) gone[n++] = core.table.take(*shared);
        gone[n++] = core.table.take(*core.table.find(Key(name)).node);
      }
      for (std::size_t i = 0; i < registry::kBatch && set->first; ++i) {
        Node& node = *set->first;
        base::sync_point("registry.step");
        set->forget(node);
        gone[n++] = core.table.take(node);
      }
      more = set->first != nullptr;
      core.table.wait();
      core.changed();
    }
    for (std::unique_ptr<Node>& node : gone) {
      if (node && node->bulkhead) node->bulkhead->close();
      core.leave(std::move(node));
    }
    core.let_go();
    if (more) core.mutex.pause();
  }
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
  // A parked node is neither present nor removed: the lock decides. All other cases are answered without it.
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
    if (!found) return Unexpected(found.error());
    if (*found) return (*found)->handle();
  }
  return core_->make_tenant(tenants, id);
}

Result<BulkheadUse> Registry::use_tenant(std::string_view tenants, std::string_view id) {
  {
    const Readers::Stay stay(core_->table.readers());
    const auto found = core_->find_tenant(tenants, id);
    if (!found) return Unexpected(found.error());
    if (*found) return Core::used(stay, **found);
  }
  auto made = core_->make_tenant(tenants, id);
  if (!made) return Unexpected(made.error());
  return BulkheadUse(std::move(*made));
}

registry::Retirement Registry::Core::retire(TenantSet& set, TimePoint now, bool all, std::size_t most) {
  registry::Retirement r = registry::retire_batch(table, set, now, all, most);
  if (!r.gone.empty()) changed();
  if (missed && set.walked == walks)
    for (const auto& node : r.gone)
      if (node->walked != walks) missed->push_back(copy_of(*node));
  return r;
}

// With the lock: it is not known, or not for certain. The bulkhead is made without it, because making one may take long.
Result<std::shared_ptr<Bulkhead>> Registry::Core::make_tenant(std::string_view tenants, std::string_view id) {
  constexpr std::size_t kMostLooks = 1024;  // for room; the next newcomer goes on from there
  std::shared_ptr<TenantSet> set;
  std::unique_ptr<Node> made;
  std::uint64_t made_in = 0;
  for (std::size_t looked = 0;;) {
    registry::Retirement retired;  // outlives the lock
    BulkheadOptions options;
    {
      const detail::MutexLock lock(mutex);
      const auto at_bound = [&]() -> Result<std::shared_ptr<Bulkhead>> {
        const auto shared = set->at_bound();
        if (!shared) return Unexpected(shared.error());
        return (*shared)->handle();
      };
      const auto found = find_set(tenants);
      if (found != set) made.reset();
      set = found;
      if (!set) break;
      if (!set->valid(id)) return at_bound();
      const Key key(tenants, id);
      if (const Node* const node = find(key)) return node->handle();
      const TimePoint now = clock.now();
      retired = retire(*set, now, false, registry::kBatch);
      looked += retired.looked;
      if (set->size >= set->options.max_tenants) {
        if (retired.looked == registry::kBatch && looked < kMostLooks)
          continue;  // without the lock in between
        if (set->first && set->due_at(*set->first) > now) set->full_until.store(set->due_at(*set->first));
        return at_bound();
      }
      if (made && made_in == set->round) {
        made->criticality = set->options.criticality;
        made->quiet_since = made->looked_at = now;
        made->looked_in = set->round;
        made->walked =
            walks;  // a snapshot that is being taken began before it was there, and does not tell of it
        Node& placed = table.insert(std::move(made));
        set->append(placed);
        ++set->created;
        changed();
        return placed.handle();
      }
      options = set->options_of(id, clock);
      made_in = set->round;
    }
    give_code(options, tenants, "");
    made = std::make_unique<Node>(options.name, std::make_shared<Bulkhead>(options));
    made->tenants = set;
    made->tenant_id = id;
    made->on_demand = true;
  }
  missing("set of tenants", tenants, set_names());
}

std::size_t Registry::retire_idle() {
  Core& core = *core_;
  core.let_go();
  std::vector<std::shared_ptr<TenantSet>> sets;
  core.walk(
      Core::Which::lasting,
      [&](const Node& node) {
        if (node.set) sets.push_back(node.set);
      },
      [] {});
  const TimePoint now = core.clock.now();
  std::size_t count = 0;
  for (const auto& set : sets)
    for (std::size_t left = SIZE_MAX; left > 0;) {
      registry::Retirement retired;  // outlives the lock
      {
        const detail::MutexLock lock(core.mutex);
        left = std::min<std::size_t>(left, set->size);  // each once
        retired = core.retire(*set, now, true, left);
      }
      left -= std::min(left, retired.looked);
      count += retired.gone.size();
      if (left > 0) core.mutex.pause();
    }
  return count;
}

}  // namespace bulkhead
