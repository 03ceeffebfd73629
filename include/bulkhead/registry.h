// registry.h - all bulkheads of a process by name: made, found, changed, removed and looked at in one place.
//
//   bulkhead::Registry registry;
//   auto payments = registry.add({.options = {.name = "payments", .max_concurrent = 20, .max_queue = 40}});
//   auto users    = registry.get_or_create("users", "database");           // a type: 20 at once, 50 in line, 5 s
//   registry.get("payments")->execute(...);                                // by name, from anywhere
//   if (auto users = registry.use("users")) users->execute(...);           // the same for one call: cheaper
//   registry.resize("payments", 30);                                       // the same object, calls and counters stay
//
// Tenants get bulkheads of their own, on demand and in bounded number:
//
//   registry.define_tenants({.name = "orders", .each = {.max_concurrent = 4}, .max_tenants = 1000});
//   if (auto own = registry.tenant("orders", customer)) (*own)->execute(...);   // "orders/acme", or "orders/*"
//   else reply(429, own.error().message());                                     // Reason::tenant_limit
//
// Three ways to a bulkhead: keep the handle that add() gives (the call costs what a call costs), use() it for the time of
// a call, or find() it, which gives a handle to keep.
//
// Threads: every member may be called from any thread, and from hooks and handlers, but not from a signal handler.
//   Changes are made one after the other; a hook or handler that runs inside one must not wait for another thread
//   that makes one or takes a snapshot.
// Promises: a name stands for one bulkhead at a time, and for the same object until it is removed or retired. A
//   handle keeps its bulkhead alive and working, also when the registry no longer knows it, and when the registry is
//   gone. A use does so, too, but the registry's destructor waits for it. A setting that is wrong changes nothing.
// Tenants: never more than `max_tenants` of a set at once; beyond that the policy answers, and counts it. One that has
//   had no call for `idle_after` is retired when room is looked for, or by retire_idle(): never while a call of its
//   is in flight or in line, or while somebody has a handle or uses it. What it counted goes into the set's `other`. An id that
//   is too long, no UTF-8, or has control characters or a '/' in it never becomes a name: it is answered as if there
//   were no room.
// Cost: by handle nothing. By name a hash of it and a few plain stores; find() adds the two atomic additions of a
//   shared_ptr. No lock and no allocation, also for tenants, and for ids that are refused. Changes take a lock that no
//   call and no look-up takes. docs/benchmarks.md has figures.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/registry_snapshot.h"

namespace bulkhead {

struct RegistryOptions {
  Clock* clock = nullptr;  // of the bulkheads that name none; default: Clock::steady()
  // Of the hash of names, which strangers choose; 0: another one for each registry.
  std::uint64_t seed = 0;
};

struct Registration {
  BulkheadOptions options{};  // options.name is its name
  std::string type{};         // what to call its kind; it gives no defaults here, see get_or_create()
  // It becomes a member of this group, under its own name: `guaranteed` and `max` say how many calls at once, not
  // options.max_concurrent.
  std::string group{};
  Share guaranteed{};
  Share max{.percent = 100};
  Priority criticality = Priority::normal;  // how bad it is if it rejects: for alerts and order
};

enum class AtBound : std::uint8_t {
  overflow,  // those for whom there is no room share one bulkhead, "orders/*"
  reject,    // they get Reason::tenant_limit
};

struct TenantOptions {
  std::string name{};                // of the set: what comes before the '/'
  BulkheadOptions each{};            // what a tenant gets; the name is made
  std::uint32_t max_tenants = 1000;  // at once: 1 to 1'000'000
  AtBound at_bound = AtBound::overflow;
  std::optional<BulkheadOptions> overflow{};                       // default: as `each`
  std::chrono::nanoseconds idle_after = std::chrono::minutes(10);  // wait_forever: none is retired
  std::uint32_t max_id_length = 64;                                // bytes: 1 to 128
  Priority criticality = Priority::normal;
};

// Changes that belong together, see Registry::apply().
struct RegistryChange {
  std::vector<std::pair<std::string, BulkheadOptions>> types{};  // to define
  std::vector<GroupOptions> add_groups{};
  std::vector<std::pair<std::string, std::uint32_t>> resize_groups{};
  std::vector<std::string> remove_groups{};
  std::vector<Registration> add{};
  std::vector<Registration> update{};  // all of it but the group, which cannot change
  std::vector<std::string> remove{};   // nobody waits for their calls
  std::vector<TenantOptions> add_tenants{}, update_tenants{};
  std::vector<std::string> remove_tenants{};
};

// A bulkhead for as long as this lives: the end of a call, not a place to keep it. Moves, also to another thread.
class BulkheadUse {
 public:
  BulkheadUse() noexcept = default;
  ~BulkheadUse() { end(); }
  BulkheadUse(BulkheadUse&& other) noexcept
      : bulkhead_(std::exchange(other.bulkhead_, nullptr)),
        mark_(std::exchange(other.mark_, nullptr)),
        handle_(std::move(other.handle_)) {}
  BulkheadUse& operator=(BulkheadUse&& other) noexcept {
    if (this == &other) return *this;
    end();
    bulkhead_ = std::exchange(other.bulkhead_, nullptr);
    mark_ = std::exchange(other.mark_, nullptr);
    handle_ = std::move(other.handle_);
    return *this;
  }

  explicit operator bool() const noexcept { return bulkhead_ != nullptr; }
  Bulkhead* get() const noexcept { return bulkhead_; }
  Bulkhead& operator*() const noexcept { return *bulkhead_; }
  Bulkhead* operator->() const noexcept { return bulkhead_; }

 private:
  friend class Registry;
  using Mark = std::atomic<const void*>;
  BulkheadUse(Bulkhead& bulkhead, Mark& mark) noexcept : bulkhead_(&bulkhead), mark_(&mark) {}
  explicit BulkheadUse(std::shared_ptr<Bulkhead> handle) noexcept
      : bulkhead_(handle.get()), handle_(std::move(handle)) {}
  void end() noexcept {
    // Release: what was done with the bulkhead comes before the registry may destroy it.
    if (mark_) mark_->store(nullptr, std::memory_order_release);
  }

  Bulkhead* bulkhead_ = nullptr;
  Mark* mark_ = nullptr;              // tells the registry; null: the handle keeps it
  std::shared_ptr<Bulkhead> handle_;  // for a thread that uses many at once, or has no marks
};

namespace registry {
struct Resources;
}

// As long as it lives, the registry tells of a pool, see Registry::attach(). It may outlive the registry.
class [[nodiscard]] Attached {
 public:
  Attached() noexcept = default;
  Attached(Attached&& other) noexcept = default;
  Attached& operator=(Attached&& other) noexcept {
    if (this != &other) {
      detach();
      all_ = std::move(other.all_);
      name_ = std::move(other.name_);
    }
    return *this;
  }
  ~Attached() { detach(); }
  void detach() noexcept;  // waits for a look that is being taken

 private:
  friend class Registry;
  Attached(std::shared_ptr<registry::Resources> all, std::string name) noexcept;
  std::shared_ptr<registry::Resources> all_;
  std::string name_;
};

class Registry {
 public:
  explicit Registry(const RegistryOptions& options = {});
  // Lets go of everything: what nobody has a handle of is closed, and its calls are waited for, as is every BulkheadUse.
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // std::invalid_argument if a setting is wrong or the name is taken. The name of a tenant that was made on demand
  // ("orders/acme") is not: from then on it is that tenant's own bulkhead, with these options, and is never retired.
  std::shared_ptr<Bulkhead> add(const Registration& registration);
  std::shared_ptr<Bulkhead> find(std::string_view name) const noexcept;  // null: none
  std::shared_ptr<Bulkhead> get(std::string_view name) const;  // std::invalid_argument names similar ones
  BulkheadUse use(std::string_view name) const noexcept;       // empty: none
  std::vector<std::string> names() const;                      // sorted

  // Types: "database" (20 at once, 50 in line, 5 s), "external-api" (10, 20, 10 s), "cache" (50, 100, 1 s) and
  // what is defined. Defining one anew is for those that are made later.
  void define(std::string_view type, const BulkheadOptions& defaults);
  // The one of that name, whatever its type; else a new one. std::invalid_argument if there is no such type.
  std::shared_ptr<Bulkhead> get_or_create(std::string_view name, std::string_view type);

  // As the members of Bulkhead, by name; std::invalid_argument if there is none, or as they say. In `options` name,
  // gate and clock may be left out. For a member of a group a new max_queue counts, a new max_wait does not.
  void update(std::string_view name, const BulkheadOptions& options);
  void resize(std::string_view name, std::uint32_t max_concurrent);
  void resize_queue(std::string_view name, std::uint32_t max_queue);
  void reset(std::string_view name);  // its statistics
  // The name is free at once and the bulkhead closed: its line is told shutdown, its calls run to their end. Waits for
  // them; false if `until` came first, or there is none of that name. Not for tenants made on demand.
  bool remove(std::string_view name, TimePoint until = no_deadline);

  // Groups, without members: these are bulkheads, see Registration::group.
  std::shared_ptr<Group> add_group(GroupOptions options);  // std::invalid_argument if the name is taken
  std::shared_ptr<Group> find_group(std::string_view name) const;  // null: none
  void resize_group(std::string_view name, std::uint32_t total);
  void update_share(std::string_view bulkhead, Share guaranteed, Share max = {.percent = 100});
  bool remove_group(std::string_view name);  // false: there is none; std::invalid_argument if it has members

  void define_tenants(const TenantOptions& options);  // std::invalid_argument if the name is taken
  // In force for those that live, too. With a smaller max_tenants nobody goes before it is idle.
  void update_tenants(const TenantOptions& options);
  // As remove(), for all of them, without waiting. False: there is none of that name.
  bool remove_tenants(std::string_view name);
  // The tenant's bulkhead, made if need be; std::invalid_argument if there are no such tenants. The rejection
  // refers to the set: use it while that is defined.
  Result<std::shared_ptr<Bulkhead>> tenant(std::string_view tenants, std::string_view tenant_id);
  Result<BulkheadUse> use_tenant(std::string_view tenants,
                                 std::string_view tenant_id);  // the same, for one call
  std::size_t retire_idle();                                   // in all sets, now; how many

  // Pools of things (resource_pool.h, adapters/postgres ...) are not the registry's, but it can tell of them: in
  // snapshot(), and so in metrics, health and the control plane. The pool outlives what this gives.
  // std::invalid_argument if another of that name is attached.
  Attached attach(ResourceSource source);
  template <class Pool>
    requires std::same_as<decltype(std::declval<const Pool&>().snapshot()), ResourceSnapshot>
  Attached attach(const Pool& pool) {
    ResourceSource source{.name = std::string(pool.name()), .snapshot = [&pool] { return pool.snapshot(); }};
    if constexpr (requires { Pool::kKind; }) source.kind = Pool::kKind;
    return attach(std::move(source));
  }

  // All of it or, if anything is wrong (std::invalid_argument), nothing: everything is tried out first. A snapshot sees
  // all of it or nothing, too. Names, groups and shares need only fit together when it is done.
  void apply(const RegistryChange& change);
  void check(const RegistryChange& change) const;  // throws what apply() would, and changes nothing

  RegistrySnapshot snapshot() const;
  std::uint64_t revision() const noexcept;  // see RegistrySnapshot
  Clock& clock() const noexcept;

 private:
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
