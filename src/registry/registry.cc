#include "bulkhead/registry.h"

#include <algorithm>
#include <iterator>
#include <random>
#include <thread>
#include <utility>

#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "gate/line_options.h"
#include "registry/registry_core.h"
#include "registry/types.h"
#include "shared/trial.h"

namespace bulkhead {

using registry::AdaptiveGroup;
using registry::check_name;
using registry::invalid;
using registry::missing;
using registry::NameTable;
using registry::Node;
using registry::Readers;

namespace {

bool has_any(const Hooks& hooks) noexcept {
  return hooks.on_admit || hooks.on_release || hooks.on_resize || hooks.on_close || hooks.on_reject;
}

std::uint64_t seed_of(const RegistryOptions& o) {
  if (o.seed != 0) return o.seed;
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

Registry::Core::Core(const RegistryOptions& o)
    : clock(o.clock ? *o.clock : Clock::steady()),
      sources(o.sources),
      complete(o.complete),
      table(seed_of(o)) {
  for (auto& [name, defaults] : registry::built_in_types()) types.emplace(name, std::move(defaults));
}

Registry::Core::~Core() {
  while (leaving) delete std::exchange(leaving, leaving->older);
}

Registry::Registry(const RegistryOptions& options) : core_(std::make_unique<Core>(options)) {}
Registry::~Registry() {
  for (;;) {
    core_->table.readers().marked(core_->marked);  // without an allocation
    if (core_->marked.empty()) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

Clock& Registry::clock() const noexcept { return core_->clock; }
std::uint64_t Registry::revision() const noexcept { return core_->revision.load(std::memory_order_relaxed); }

LiveConfig* Registry::live_config() const noexcept { return core_->live_config.load(); }
bool Registry::follow(LiveConfig* before, LiveConfig* now) noexcept {
  return core_->live_config.compare_exchange_strong(before, now);
}

// ---- look-up ----

std::shared_ptr<Bulkhead> Registry::find(std::string_view name) const noexcept {
  Core& core = *core_;
  {
    const Readers::Stay stay(core.table.readers());
    const NameTable::Found found = core.table.find(name);
    if (!found.node) return nullptr;
    if (!found.parked) return found.node->handle();  // of a set of tenants: null
  }
  const detail::MutexLock lock(core.mutex);  // it is being decided whether it goes
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
  {
    const detail::MutexLock lock(mutex);
    if (const Node* const node = find(name)) return node->handle();
  }
  missing("bulkhead", name, lasting_names());
}

std::vector<std::string> Registry::names() const {
  const detail::MutexLock settings(core_->settings);  // so that none changes its list meanwhile
  std::vector<std::string> all, batch;                // a large vector would grow under the lock
  core_->walk(
      Core::Which::all,
      [&](const Node& node) {
        if (node.bulkhead) batch.push_back(node.name);
      },
      [&] {
        all.insert(all.end(), std::make_move_iterator(batch.begin()), std::make_move_iterator(batch.end()));
        batch.clear();
      });
  std::sort(all.begin(), all.end());
  return all;
}

// ---- making ----

BulkheadOptions Registry::Core::completed(BulkheadOptions o, std::string_view name) const {
  if (o.name.empty()) o.name = name;
  if (!o.clock) o.clock = &clock;
  if (!o.sources) o.sources = sources;
  return o;
}

BulkheadOptions Registry::Core::completed(BulkheadOptions o, const BulkheadOptions& old) {
  if (o.name.empty()) o.name = old.name;
  if (!o.clock) o.clock = old.clock;
  if (!o.gate) o.gate = old.gate;
  if (!o.limiter) o.limiter = old.limiter;
  if (!o.sources) o.sources = old.sources;
  // Functions cannot be compared: options that came from Bulkhead::options() have the ones it was made with.
  const auto fixed = [&](bool given, bool there, std::string_view what) {
    if (given && !there)
      invalid(
          "bulkhead", old.name,
          base::join({what,
                      " cannot be given to a bulkhead that exists: Registry::attach() gives them before it "
                      "is made"}));
  };
  fixed(has_any(o.hooks), has_any(old.hooks), "hooks");
  fixed(static_cast<bool>(o.judge), static_cast<bool>(old.judge), "a judge");
  o.hooks = old.hooks;
  o.judge = old.judge;
  return o;
}

void Registry::Core::give_code(BulkheadOptions& o, std::string_view name, std::string_view type) const {
  const detail::MutexLock lock(code_mutex);
  const auto give = [&](const auto& all, std::string_view key) {
    const auto found = all.find(key);
    if (found == all.end()) return;
    if (!has_any(o.hooks)) o.hooks = found->second.hooks;
    if (!o.judge) o.judge = found->second.judge;
  };
  give(code, name);
  if (!type.empty()) give(type_code, type);
}

// An existing bulkhead would go on without the hooks, so this is an error and not ignored.
void Registry::attach(std::string_view name, BulkheadCode code) {
  Core& core = *core_;
  check_name("bulkhead", name);
  const detail::MutexLock settings(core.settings);
  bool living = false;
  {
    const detail::MutexLock lock(core.mutex);
    living = core.find(name) || core.find_set(name);
  }
  if (living)
    invalid("bulkhead", name,
            "hooks and judge cannot be given to a bulkhead that exists: attach them before it is made");
  const detail::MutexLock lock(core.code_mutex);
  core.code.insert_or_assign(std::string(name), std::move(code));
}

// As attach(): no bulkhead of the type may exist yet.
void Registry::attach_to_type(std::string_view type, BulkheadCode code) {
  Core& core = *core_;
  check_name("type", type);
  const detail::MutexLock settings(core.settings);
  std::string living;
  core.walk(
      Core::Which::lasting,
      [&](const Node& node) {
        if (node.type == type) living = node.name;
      },
      [] {});
  if (!living.empty())
    invalid(
        "type", type,
        base::join({"bulkhead \"", living,
                    "\" of it lives, and cannot be given hooks or a judge: attach them before it is made"}));
  const detail::MutexLock lock(core.code_mutex);
  core.type_code.insert_or_assign(std::string(type), std::move(code));
}

void Registry::Core::try_out(Registration r, const std::shared_ptr<AdaptiveGroup>& in) const {
  r.options = completed(std::move(r.options), std::string_view());
  std::optional<shared::TrialSources> trial;
  if (r.options.sources) r.options.sources = &trial.emplace(*r.options.sources);
  (void)make(r, in);
}

std::shared_ptr<Bulkhead> Registry::Core::make(const Registration& r,
                                               const std::shared_ptr<AdaptiveGroup>& in) const {
  BulkheadOptions o = completed(r.options, std::string_view());
  give_code(o, o.name, r.type);
  if (!in) return std::make_shared<Bulkhead>(o);
  if (o.gate) invalid("bulkhead", o.name, "both gate and group are given: leave one out");
  if (o.limiter)
    invalid("bulkhead", o.name, "both limiter and group are given: leave limiter out, and adapt the group");
  // The gate lives as long as the bulkhead, and the group as long as the gate; the member goes with the last handle,
  // or at once if the bulkhead cannot be made. Made before the member is, because this allocates.
  struct Leave {
    std::shared_ptr<AdaptiveGroup> in;
    std::string name;
    bool added = false;
    ~Leave() {
      // remove() allocates. If memory is out twice, the member stays in its group, closed and without a guarantee.
      for (int tries = 0; added && tries < 2; ++tries) {
#if defined(__cpp_exceptions)
        try {
          in->group.remove(name);
          added = false;
        } catch (...) {
          std::this_thread::yield();
        }
#else
        in->group.remove(name);
        added = false;
#endif
      }
    }
  };
  auto leave = std::make_shared<Leave>(in, o.name);
  MemberOptions member{.name = o.name, .guaranteed = r.guaranteed, .max = r.max};
  copy_line_options(member.gate, o);
  member.gate.clock = o.clock;
  member.gate.measure_occupancy |= o.histograms;
  o.gate = &in->group.add(std::move(member));
  o.limiter = in->follows();
  leave->added = true;
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
  const detail::MutexLock settings(core.settings);
  core.let_go();  // a bulkhead that has ended by now leaves its group here
  std::shared_ptr<Bulkhead> made;
  for (;;) {
    if (auto there = find(name)) return core.adopt(there, r);
    if (!made) made = core.make(r, r.group.empty() ? nullptr : core.group(r.group));
    const detail::MutexLock lock(core.mutex);
    if (core.find(name)) continue;  // a tenant has come meanwhile
    return core.insert(std::move(made), r).handle();
  }
}

// The handle keeps it from being retired meanwhile.
std::shared_ptr<Bulkhead> Registry::Core::adopt(const std::shared_ptr<Bulkhead>& tenant,
                                                const Registration& r) {
  const std::string& name = r.options.name;
  const auto on_demand = [&] {
    const detail::MutexLock lock(mutex);
    const Node* const node = find(name);
    return node && node->tenants && !node->tenant_id.empty();
  };
  if (!r.group.empty() || !on_demand())
    invalid("bulkhead", name, "the name is taken: remove that one first, update it, or give another name");
  tenant->update(completed(r.options, tenant->options()));
  const detail::MutexLock lock(mutex);
  Node& node = *find(name);
  node.tenants->forget(node);
  table.make_lasting(node);
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
  BulkheadOptions tried = core_->completed(defaults, type);
  core_->try_out(Registration{.options = tried}, nullptr);
  const detail::MutexLock lock(core_->mutex);
  core_->types.insert_or_assign(std::string(type), defaults);
}

// The bulkhead is made without the table lock; if the name has appeared meanwhile, that bulkhead is returned.
std::shared_ptr<Bulkhead> Registry::get_or_create(std::string_view name, std::string_view type) {
  if (auto found = find(name)) return found;
  Core& core = *core_;
  check_name("bulkhead", name);
  const detail::MutexLock settings(core.settings);
  Registration r{.options = {}, .type = std::string(type)};
  std::vector<std::string> types;
  {
    const detail::MutexLock lock(core.mutex);
    if (const auto defaults = core.types.find(type); defaults != core.types.end())
      r.options = defaults->second;
    else
      types = registry::keys(core.types);
  }
  r.options.name = name;
  const auto made = types.empty() ? core.make(r, nullptr) : nullptr;
  {
    const detail::MutexLock lock(core.mutex);
    if (const Node* const node = core.find(name)) return node->handle();
    if (made) return core.insert(made, r).handle();
  }
  missing("type", type, std::move(types));
}

// ---- changing ----

// The mode is set by operators or code, not learnt by the breaker: it stays unless the settings change it.
void Registry::Core::update(Bulkhead& bulkhead, const BulkheadOptions& o, const BulkheadOptions& old) {
  bulkhead.update(o);
  const BreakerMode before = old.breaker ? old.breaker->mode : BreakerMode::automatic;
  if (o.breaker && o.breaker->mode != before) bulkhead.breaker()->set_mode(o.breaker->mode);
}

void Registry::update(std::string_view name, const BulkheadOptions& options) {
  const detail::MutexLock settings(core_->settings);
  const auto bulkhead = get(name);
  const BulkheadOptions old = bulkhead->options();
  const BulkheadOptions o = Core::completed(options, old);
  Core::update(*bulkhead, o, old);
  if (o.gate && o.max_queue != old.max_queue) bulkhead->resize_queue(o.max_queue);
  core_->changed();
}

void Registry::resize(std::string_view name, std::uint32_t max_concurrent) {
  const detail::MutexLock settings(core_->settings);
  get(name)->resize(max_concurrent);
  core_->changed();
}

void Registry::resize_queue(std::string_view name, std::uint32_t max_queue) {
  const detail::MutexLock settings(core_->settings);
  get(name)->resize_queue(max_queue);
  core_->changed();
}

void Registry::Core::leave(std::unique_ptr<Node> node) noexcept {
  if (!node || !node->bulkhead) return;
  for (auto& handle : node->handles) handle.reset();
  const detail::MutexLock lock(leaving_mutex);
  node->older = leaving;
  leaving = node.release();
}

// Destroys removed bulkheads that no use marks and no call needs any more; outside of the lock, because it may take
// long.
void Registry::Core::let_go() noexcept {
  Node* idle = nullptr;
  {
    const detail::MutexLock lock(leaving_mutex);
    if (!leaving) return;
    table.readers().marked(marked);
    for (Node** at = &leaving; *at;) {
      Node* const node = *at;
      const void* const what = node->bulkhead.get();
      if (std::binary_search(marked.begin(), marked.end(), what) || !node->bulkhead->idle()) {
        at = &node->older;
        continue;
      }
      *at = node->older;
      node->older = idle;
      idle = node;
    }
  }
  while (idle) delete std::exchange(idle, idle->older);
}

void Registry::reset(std::string_view name) { get(name)->reset_statistics(); }

bool Registry::remove(std::string_view name, TimePoint until) {
  Core& core = *core_;
  std::unique_ptr<Node> node;
  {
    const detail::MutexLock settings(core.settings);
    {
      const detail::MutexLock lock(core.mutex);
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
  core.leave(std::move(node));
  core.let_go();
  return drained;
}

// ---- groups ----

std::shared_ptr<AdaptiveGroup> Registry::Core::group(std::string_view name) const {
  std::vector<std::string> others;
  {
    const detail::MutexLock lock(mutex);
    if (const auto found = groups.find(name); found != groups.end()) return found->second;
    others = registry::keys(groups);
  }
  missing("group", name, std::move(others));
}

// Made without the lock, and dropped if the name is taken.
std::shared_ptr<Group> Registry::add_group(GroupOptions options) {
  Core& core = *core_;
  const std::string name = options.name;
  check_name("group", name);
  if (!options.members.empty())
    invalid("group", name, "it has members already: leave them out, and add bulkheads with this group");
  if (!options.clock) options.clock = &core.clock;
  auto made = std::make_shared<AdaptiveGroup>(std::move(options));
  {
    const detail::MutexLock lock(core.mutex);
    if (core.groups.emplace(name, made).second) {
      core.changed();
      return registry::group_of(made);
    }
  }
  invalid("group", name, "the name is taken: remove that one first, or give another name");
}

std::shared_ptr<Group> Registry::find_group(std::string_view name) const {
  const detail::MutexLock lock(core_->mutex);
  const auto found = core_->groups.find(name);
  return found == core_->groups.end() ? nullptr : registry::group_of(found->second);
}

void Registry::resize_group(std::string_view name, std::uint32_t total) {
  const detail::MutexLock settings(core_->settings);
  const auto group = core_->group(name);
  if (group->limiter) {
    group->group.update(total, {});
    core_->adapt(*group, group->adaptive);
  } else {
    group->group.resize(total);
  }
  core_->changed();
}

void Registry::adapt_group(std::string_view name, const std::optional<LimiterOptions>& adaptive) {
  const detail::MutexLock settings(core_->settings);
  core_->adapt(*core_->group(name), adaptive);
  core_->changed();
}

// As with a bulkhead (C4 in bulkhead_core.h), once there is a limiter only it moves the total: without `adaptive` it is fixed
// at the one that was given.
void Registry::Core::adapt(AdaptiveGroup& group, const std::optional<LimiterOptions>& adaptive) const {
  const std::uint32_t total = group.group.total();
  const LimiterOptions fixed{.floor = total, .ceiling = total, .initial = total};
  if (!group.limiter) {
    if (adaptive) group.limiter = std::make_unique<AdaptiveLimiter>(group.group, *adaptive);
  } else {
    group.limiter->update(adaptive.value_or(fixed));
    group.limiter->hold(!adaptive);
  }
  group.adaptive = adaptive;
  std::vector<std::shared_ptr<Bulkhead>> members;
  walk(
      Which::lasting,
      [&](const Node& node) {
        if (node.group == group.group.name()) members.push_back(node.bulkhead);
      },
      [] {});
  for (const auto& member : members) {
    BulkheadOptions o = member->options();
    if (o.limiter == group.follows()) continue;
    o.limiter = group.follows();
    member->update(o);
  }
}

// The group is updated without the table lock, because it may run handlers of waiting calls.
void Registry::update_share(std::string_view bulkhead, Share guaranteed, Share max) {
  Core& core = *core_;
  const detail::MutexLock settings(core.settings);
  const auto held = get(bulkhead);
  std::string group;
  {
    const detail::MutexLock lock(core.mutex);
    group = core.find(bulkhead)->group;
  }
  if (group.empty())
    invalid("bulkhead", bulkhead, "it is in no group and has no share: resize it, or add it to one");
  core.group(group)->group.update(bulkhead, guaranteed, max);
  const detail::MutexLock lock(core.mutex);
  Node& node = *core.find(bulkhead);
  node.guaranteed = guaranteed;
  node.max = max;
  core.changed();
}

bool Registry::remove_group(std::string_view name) {
  Core& core = *core_;
  std::shared_ptr<AdaptiveGroup> out;  // its destructor waits
  const detail::MutexLock settings(core.settings);
  std::string member;
  core.walk(
      Core::Which::lasting,
      [&](const Node& node) {
        if (node.group == name) member = node.name;
      },
      [] {});
  {
    const detail::MutexLock lock(core.mutex);
    const auto found = core.groups.find(name);
    if (found == core.groups.end()) return false;
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
