// core.h - what a registry consists of, for the files that implement it.
#pragma once

#include <array>
#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/text.h"
#include "bulkhead/registry.h"
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

// The pools that are attached. Under the mutex, also while one of them is looked at.
struct Resources {
  std::vector<RegistrySnapshot::Resource> snapshot() const;

  mutable std::mutex mutex;
  std::map<std::string, ResourceSource, std::less<>> sources;
};

}  // namespace registry

// Invariants
//   K1 Who changes settings, groups, sets of tenants or names holds `settings`, but for tenants that come and go.
//      Code of others may run in there, on this thread (calls that a change lets in): so it is recursive.
//   K2 The table is written, and nodes, types, groups and sets are read and written, under `mutex`. No code of others
//      runs under it, and no bulkhead is destroyed under it. It is taken last.
//   K3 A look-up takes neither. It stays with the readers (readers.h) from its first look until it has its handle, or has
//      marked the bulkhead as used.
//   K4 No bulkhead is destroyed while it is marked: who is retired is not, who is removed goes to `leaving`.
struct Registry::Core {
  using Node = registry::Node;
  using TenantSet = registry::TenantSet;
  explicit Core(const RegistryOptions& o);

  Node* find(std::string_view name) const noexcept {  // under the lock; a bulkhead
    Node* const node = table.find(name).node;
    return node && node->bulkhead ? node : nullptr;
  }
  std::shared_ptr<TenantSet> find_set(std::string_view name) const noexcept {  // under the lock
    if (name.size() > registry::kMaxName) return nullptr;
    const Node* const node = table.find(registry::Key(name)).node;
    return node ? node->set : nullptr;
  }
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    table.for_each([&](const Node& node) {
      if (node.bulkhead) all.push_back(node.name);
    });
    return all;
  }
  std::vector<std::string> set_names() const {
    std::vector<std::string> all;
    table.for_each([&](const Node& node) {
      if (node.set) all.push_back(node.set->name);
    });
    return all;
  }
  void changed() noexcept { revision.fetch_add(1, std::memory_order_relaxed); }
  std::shared_ptr<Bulkhead> get(std::string_view name) const;
  std::shared_ptr<Group> group(std::string_view name) const;
  std::shared_ptr<Bulkhead> make(const Registration& r, const std::shared_ptr<Group>& in) const;
  std::shared_ptr<Bulkhead> adopt(const std::shared_ptr<Bulkhead>& tenant, const Registration& r);
  Node& insert(std::shared_ptr<Bulkhead> bulkhead, const Registration& r);
  BulkheadOptions completed(BulkheadOptions o, std::string_view name) const;
  static void update(Bulkhead& bulkhead, const BulkheadOptions& o, const BulkheadOptions& old);
  static BulkheadOptions completed(BulkheadOptions o, const BulkheadOptions& old);
  // Throws if a tenant that comes, or one that is there, cannot have them.
  void try_out(const TenantOptions& options, bool on_the_living = true) const;
  void try_out(const RegistryChange& change) const;
  std::vector<std::pair<std::shared_ptr<Bulkhead>, BulkheadOptions>> living(const TenantSet& wanted) const;
  void insert_overflow(const std::shared_ptr<TenantSet>& set, std::shared_ptr<Bulkhead> bulkhead);
  Result<const Node*> find_tenant(std::string_view tenants, std::string_view id) noexcept;
  Result<std::shared_ptr<Bulkhead>> make_tenant(std::string_view tenants, std::string_view id);
  // Inside the stay that has found the node.
  static BulkheadUse used(const registry::Readers::Stay& stay, const Node& node) noexcept {
    if (auto* const mark = stay.mark(node.bulkhead.get())) return {*node.bulkhead, *mark};
    return BulkheadUse(node.handle());
  }

  // Destroys those that are idle; the others once they are, in a later change: nobody waits for their calls here. Without
  // the lock.
  void let_go(std::vector<std::unique_ptr<Node>> nodes);

  Clock& clock;
  mutable std::recursive_mutex settings;
  mutable std::mutex mutex;
  registry::NameTable table;
  std::map<std::string, BulkheadOptions, std::less<>> types;
  std::map<std::string, std::shared_ptr<Group>, std::less<>> groups;
  std::vector<std::shared_ptr<Bulkhead>> leaving;  // removed, and not yet idle
  std::atomic<std::uint64_t> revision{0};
  const std::shared_ptr<registry::Resources> resources = std::make_shared<registry::Resources>();
};

}  // namespace bulkhead
