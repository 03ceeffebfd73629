// registry_core.h - the implementation of Registry, shared by its source files.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/limiter.h"
#include "bulkhead/registry.h"
#include "registry/lock.h"
#include "registry/name_table.h"
#include "registry/names.h"
#include "registry/readers.h"
#include "registry/tenants.h"

namespace bulkhead {
namespace registry {

[[noreturn]] inline void invalid(std::string_view what, std::string_view name, std::string_view problem) {
  base::throw_invalid(base::join({what, " \"", name, "\": ", problem}));
}

[[noreturn]] inline void missing(std::string_view what, std::string_view name,
                                 std::vector<std::string> others) {
  base::throw_invalid(
      base::join({"registry: there is no ", what, " \"", name, "\"", suggest(name, std::move(others))}));
}

inline void check_name(std::string_view what, std::string_view name) {
  if (const auto problem = problem_of_name(name); !problem.empty())
    invalid(what, name, base::join({"its name ", problem}));
}

template <class Map>
std::vector<std::string> keys(const Map& map) {
  std::vector<std::string> all;
  all.reserve(map.size());
  for (const auto& [name, value] : map) all.push_back(name);
  return all;
}

// The key of a tenant, and of its set, put together without allocating.
class Key {
 public:
  explicit Key(std::string_view set, std::string_view id = {}) noexcept
      : set_size_(set.copy(text_.data(), kMaxName)) {
    text_[set_size_++] = '/';
    size_ = set_size_ + id.copy(text_.data() + set_size_, kMaxTenantId);
  }
  Key(const Key&) = delete;
  Key& operator=(const Key&) = delete;
  std::string_view of_set() const noexcept { return {text_.data(), set_size_}; }  // ends in '/'
  operator std::string_view() const noexcept { return {text_.data(), size_}; }

 private:
  std::array<char, kMaxName + 1 + kMaxTenantId> text_;
  std::size_t set_size_, size_;
};

// What a snapshot says of a bulkhead apart from its settings and numbers, which are several kilobytes.
struct NodeCopy {
  std::string name, type, group, tenants, tenant_id;
  Priority criticality{};
  std::shared_ptr<Bulkhead> bulkhead;
};

// A group with the limiter of its total, which is made with the first `adaptive` and lives as long as the group: calls of its
// members may still report to it.
struct AdaptiveGroup {
  explicit AdaptiveGroup(GroupOptions options) : group(std::move(options)) {}
  AdaptiveLimiter* follows() const noexcept { return adaptive ? limiter.get() : nullptr; }

  Group group;
  std::optional<LimiterOptions> adaptive;  // with `limiter` under Core::settings
  std::unique_ptr<AdaptiveLimiter> limiter;
};
// The group, which keeps all of it.
inline std::shared_ptr<Group> group_of(const std::shared_ptr<AdaptiveGroup>& all) {
  return {all, &all->group};
}

// The pools that are attached. Under the mutex, also while one of them is looked at.
struct Resources {
  std::vector<RegistrySnapshot::Resource> snapshot() const;

  mutable detail::StdMutex mutex;
  std::map<std::string, ResourceSource, std::less<>> sources BULKHEAD_GUARDED_BY(mutex);
};

}  // namespace registry

// Invariants
//   K1 Settings, groups, sets of tenants and names change only under `settings`, except that tenants are made and retired.
//      User code can run under it, on this thread (calls that a change admits): so it is recursive.
//   K2 The table is written, and nodes, types, groups and sets are read and written, under `mutex`. No user code
//      runs under it, and no bulkhead is made or destroyed under it. It is taken last, and is held for a batch of nodes
//      at most (lock.h), because a call for a new tenant needs it.
//   K3 A look-up takes neither. It stays with the readers (readers.h) from its first look until it has its handle, or has
//      marked the bulkhead as used.
//   K4 No bulkhead is destroyed while it is marked: a marked tenant is not retired, a removed bulkhead goes to `leaving`.
struct Registry::Core {
  using Node = registry::Node;
  using TenantSet = registry::TenantSet;
  explicit Core(const RegistryOptions& o);
  ~Core();
  Core(const Core&) = delete;
  Core& operator=(const Core&) = delete;

  Node* find(std::string_view name) const noexcept BULKHEAD_REQUIRES(mutex) {  // a bulkhead
    Node* const node = table.find(name).node;
    return node && node->bulkhead ? node : nullptr;
  }
  std::shared_ptr<TenantSet> find_set(std::string_view name) const noexcept BULKHEAD_REQUIRES(mutex) {
    if (name.size() > registry::kMaxName) return nullptr;
    const Node* const node = table.find(registry::Key(name)).node;
    return node ? node->set : nullptr;
  }
  // Calls visit(const Node&) under the lock, in batches; what() without it, after each batch. Without the lock.
  using Which = registry::NameTable::Walk::Which;
  template <class Visit, class Between>
  void walk(Which which, Visit&& visit, Between&& between) const {
    std::optional<registry::NameTable::Walk> walk;
    struct End {  // also by an exception
      ~End() {
        const detail::MutexLock lock(core.mutex);
        walk.reset();
      }
      const Core& core;
      std::optional<registry::NameTable::Walk>& walk;
    } const end{*this, walk};
    for (bool more = true; more;) {
      {
        const detail::MutexLock lock(mutex);
        if (!walk) walk.emplace(table, which);
        for (std::size_t i = 0; i < registry::kBatch && more; ++i) {
          Node* const node = walk->next();
          if (node)
            visit(*node);
          else
            more = false;
        }
      }
      between();
      if (more) mutex.pause();
    }
  }
  // The names of what lasts, for suggestions. Without the lock.
  std::vector<std::string> lasting_names() const {
    std::vector<std::string> all;
    walk(
        Which::lasting,
        [&](const Node& node) {
          if (node.bulkhead) all.push_back(node.name);
        },
        [] {});
    return all;
  }
  std::vector<std::string> set_names() const {  // without the lock
    std::vector<std::string> all;
    walk(
        Which::lasting,
        [&](const Node& node) {
          if (node.set) all.push_back(node.set->name);
        },
        [] {});
    return all;
  }
  void changed() noexcept { revision.fetch_add(1, std::memory_order_relaxed); }
  std::shared_ptr<Bulkhead> get(std::string_view name) const;
  std::shared_ptr<registry::AdaptiveGroup> group(std::string_view name) const;
  void adapt(registry::AdaptiveGroup& group, const std::optional<LimiterOptions>& adaptive) const;
  std::shared_ptr<Bulkhead> make(const Registration& r,
                                 const std::shared_ptr<registry::AdaptiveGroup>& in) const;
  std::shared_ptr<Bulkhead> adopt(const std::shared_ptr<Bulkhead>& tenant, const Registration& r);
  void take_back(std::string_view name) noexcept;  // removes and closes, without waiting for its calls
  std::vector<std::pair<std::string, std::string>> members() const;  // of groups: name, group
  Node& insert(std::shared_ptr<Bulkhead> bulkhead, const Registration& r);
  BulkheadOptions completed(BulkheadOptions o, std::string_view name) const;
  static void update(Bulkhead& bulkhead, const BulkheadOptions& o, const BulkheadOptions& old);
  static BulkheadOptions completed(BulkheadOptions o, const BulkheadOptions& old);
  // Throws if a tenant that comes, or one that is there, cannot have them.
  void try_out(const TenantOptions& options, bool on_the_living = true) const;
  void try_out(const RegistryChange& change) const;
  void try_out(Registration r, const std::shared_ptr<registry::AdaptiveGroup>& in) const;
  // Calls fn(bulkhead, what it shall have) for those that live in the set of that name. Without the lock.
  void each_living(const TenantSet& wanted,
                   const std::function<void(Bulkhead&, const BulkheadOptions&)>& fn) const;
  // Looks at up to kBatch nodes of the set, and tells a snapshot that is being taken of those that go. Under the lock.
  registry::Retirement retire(TenantSet& set, TimePoint now, bool all, std::size_t most)
      BULKHEAD_REQUIRES(mutex);
  static registry::NodeCopy copy_of(const Node& node);  // under the lock
  std::shared_ptr<Bulkhead> make_overflow(const TenantSet& set) const;
  void insert_overflow(const std::shared_ptr<TenantSet>& set, std::shared_ptr<Bulkhead> bulkhead);
  Result<const Node*> find_tenant(std::string_view tenants, std::string_view id) noexcept;
  Result<std::shared_ptr<Bulkhead>> make_tenant(std::string_view tenants, std::string_view id);
  // Inside the stay that has found the node.
  static BulkheadUse used(const registry::Readers::Stay& stay, const Node& node) noexcept {
    if (auto* const mark = stay.mark(node.bulkhead.get())) return {*node.bulkhead, *mark};
    return BulkheadUse(node.handle());
  }

  // Keeps a node that was taken out of the table, and that no reader looks at, until it is no longer used. Takes no lock
  // and does not allocate.
  void leave(std::unique_ptr<Node> node) noexcept;
  // Destroys those of them that are idle. The others are destroyed in a later change: this does not wait for calls.
  void let_go() noexcept;

  RegistrySnapshot snapshot(const SnapshotOptions& options) const;  // of this process

  // Hooks and judge that were attached, for a bulkhead that is about to be made.
  void give_code(BulkheadOptions& o, std::string_view name, std::string_view type) const;

  Clock& clock;
  UnitSources* const sources;
  const std::function<void(RegistrySnapshot&)> complete;
  mutable detail::RecursiveMutex settings;  // one change at a time: K1
  mutable registry::Lock mutex;
  mutable registry::NameTable table;
  std::map<std::string, BulkheadOptions, std::less<>> types BULKHEAD_GUARDED_BY(mutex);
  std::map<std::string, std::shared_ptr<registry::AdaptiveGroup>, std::less<>> groups
      BULKHEAD_GUARDED_BY(mutex);
  // K5 A snapshot walks in batches. The counts of retired tenants are read in its first batch. A node that is retired before
  //    the walk has reached it is added to `missed`, so that no tenant is missing or counted twice.
  mutable std::uint64_t walks BULKHEAD_GUARDED_BY(mutex) =
      0;  // the number of the snapshot that is being taken, or was last
  mutable std::vector<registry::NodeCopy>* missed BULKHEAD_GUARDED_BY(mutex) =
      nullptr;                                                 // null: none is being taken
  detail::StdMutex leaving_mutex;                              // nothing else is locked inside
  Node* leaving BULKHEAD_GUARDED_BY(leaving_mutex) = nullptr;  // removed, and not yet idle; linked by `older`
  std::vector<const void*> marked BULKHEAD_GUARDED_BY(leaving_mutex) =
      table.readers().marked();         // room for let_go()
  mutable detail::StdMutex code_mutex;  // taken last
  // See Registry::attach().
  std::map<std::string, BulkheadCode, std::less<>> code BULKHEAD_GUARDED_BY(code_mutex);
  std::map<std::string, BulkheadCode, std::less<>> type_code BULKHEAD_GUARDED_BY(code_mutex);
  std::atomic<std::uint64_t> revision{0};
  std::atomic<LiveConfig*> live_config{nullptr};
  const std::shared_ptr<registry::Resources> resources = std::make_shared<registry::Resources>();
};

}  // namespace bulkhead
