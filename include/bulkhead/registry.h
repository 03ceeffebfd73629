// registry.h - all bulkheads of a process by name: create, find, change, remove and inspect them in one place.
//
//   bulkhead::Registry registry;
//   auto payments = registry.add({.options = {.name = "payments", .max_concurrent = 20, .max_queue = 40}});
//   auto users    = registry.get_or_create("users", "database");           // a type: 20 at once, 50 in line, 5 s
//   auto done = registry.get("payments")->execute(work);                   // Result<void>; by name, from anywhere
//   if (auto use = registry.use("users")) done = use->execute(work);       // for one call: cheaper than get()
//   registry.resize("payments", 30);                                       // same object; calls and counters stay
//
// Tenants get bulkheads of their own, created on demand, up to a maximum:
//
//   registry.define_tenants({.name = "orders", .each = {.max_concurrent = 4}, .max_tenants = 1000});
//   if (auto own = registry.tenant("orders", customer)) done = (*own)->execute(work);  // "orders/acme", or "orders/*"
//   else reply(429, own.error().message());                                            // Reason::tenant_limit
//
// There are three ways to reach a bulkhead: keep the handle that add() returns (no further cost), use() it for one call,
// or find() it, which returns a handle that can be kept.
//
// Threads: every member may be called from any thread, and from hooks and handlers, but not from a signal handler.
//   Changes are serialized. A hook or handler that runs inside a change must not wait for another thread that makes a
//   change or takes a snapshot.
// Promises: a name refers to one bulkhead at a time, and to the same object until that is removed or retired. A handle
//   keeps its bulkhead alive and working, also after its removal from the registry and after the registry's end. A
//   BulkheadUse does so too, but the registry's destructor waits for it. A wrong setting changes nothing.
// Tenants: a set never has more than `max_tenants` bulkheads; calls of further tenants are handled as `at_bound` says,
//   and counted. A tenant without a call for `idle_after` is retired when room is needed, or by retire_idle(); never
//   while one of its calls is in flight or waiting, or a handle or a use of it exists. Its counters are added to the
//   set's `other`. A tenant id that is too long, is not UTF-8, or contains control characters or a '/' never becomes a
//   name: it is handled as `at_bound` says.
// Cost: by handle none. By name a hash and a few plain stores; find() adds the two atomic additions of a shared_ptr. No
//   lock and no allocation, also for tenants and for rejected ids. Changes take a lock that no call and no lookup takes.
//   docs/benchmarks.md has figures.
// Bounds: 10 000 bulkheads and 1 000 000 tenants. The first call of a tenant takes the lock of the changes. Operations
//   on many bulkheads (retiring, listing, a snapshot, a new template) hold it for 64 bulkheads at a time; docs/design/
//   registry.md has the measured times (bulkhead_registry_bounds). A change and a snapshot delay other changes until
//   they are done. Memory: 15 KB per tenant, 15 GB at the bound; 9 KB more for each tenant that a snapshot lists, see
//   SnapshotOptions.
#pragma once

#include <atomic>
#include <chrono>
#include <concepts>
#include <cstdint>
#include <exception>
#include <functional>
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

class LiveConfig;

struct RegistryOptions {
  Clock* clock = nullptr;  // of the bulkheads that name none; default: Clock::steady()
  // Seed of the hash of names, which clients may choose; 0: a random one for each registry.
  std::uint64_t seed = 0;
  // Where bulkheads with Scope::host get their units from, such as a shm::Host; it outlives the registry's bulkheads.
  UnitSources* sources = nullptr;
  // Completes each snapshot() and look() with the numbers of other processes that serve the same bulkheads, such as the
  // workers of nginx (adapters/workers). Called from any thread, without a lock of the registry.
  std::function<void(RegistrySnapshot&)> complete{};
};

struct Registration {
  BulkheadOptions options{};  // options.name is the name in the registry
  std::string type{};         // a label; the defaults of the type are not applied here, see get_or_create()
  // Makes it a member of this group, under its own name. `guaranteed` and `max` then replace options.max_concurrent.
  std::string group{};
  Share guaranteed{};
  Share max{.percent = 100};
  Priority criticality = Priority::normal;  // how serious a rejection is; for alerts and sorting
};

// The options that a configuration file cannot express, see Registry::attach().
struct BulkheadCode {
  Hooks hooks{};
  std::function<Opinion(const std::exception_ptr&)> judge{};
};

enum class AtBound : std::uint8_t {
  overflow,  // further tenants share one bulkhead, "orders/*"
  reject,    // further tenants get Reason::tenant_limit
};

struct TenantOptions {
  std::string name{};                // of the set: the part before the '/'
  BulkheadOptions each{};            // the bulkhead of each tenant; its name is generated
  std::uint32_t max_tenants = 1000;  // 1 to 1'000'000
  AtBound at_bound = AtBound::overflow;
  std::optional<BulkheadOptions> overflow{};                       // default: `each`
  std::chrono::nanoseconds idle_after = std::chrono::minutes(10);  // wait_forever: none is retired
  std::uint32_t max_id_length = 64;                                // bytes: 1 to 128
  Priority criticality = Priority::normal;
};

// Changes that belong together, see Registry::apply().
struct RegistryChange {
  std::vector<std::pair<std::string, BulkheadOptions>> types{};  // to define
  std::vector<GroupOptions> add_groups{};
  std::vector<std::pair<std::string, std::uint32_t>> resize_groups{};
  // What moves their totals from now on; none: nothing does.
  std::vector<std::pair<std::string, std::optional<LimiterOptions>>> adapt_groups{};
  std::vector<std::string> remove_groups{};
  std::vector<Registration> add{};
  std::vector<Registration> update{};  // everything but the group, which cannot change
  std::vector<std::string> remove{};   // apply() does not wait for their calls
  std::vector<TenantOptions> add_tenants{}, update_tenants{};
  std::vector<std::string> remove_tenants{};
};

// A scoped reference for one call. Do not store it. It may be moved, also to another thread.
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
    // Release: the use of the bulkhead happens before its destruction by the registry.
    if (mark_) mark_->store(nullptr, std::memory_order_release);
  }

  Bulkhead* bulkhead_ = nullptr;
  Mark* mark_ = nullptr;              // seen by the registry; null: handle_ keeps the bulkhead alive
  std::shared_ptr<Bulkhead> handle_;  // for a thread that uses many bulkheads at once, or has no marks
};

namespace registry {
struct Resources;
}

// While it lives, the snapshots of the registry contain a pool, see Registry::attach(). It may outlive the registry.
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
  void detach() noexcept;  // waits for a snapshot of the pool that is being taken

 private:
  friend class Registry;
  Attached(std::shared_ptr<registry::Resources> all, std::string name) noexcept;
  std::shared_ptr<registry::Resources> all_;
  std::string name_;
};

class Registry {
 public:
  explicit Registry(const RegistryOptions& options = {});
  // Closes the bulkheads without a handle, and waits for their calls and for every BulkheadUse.
  ~Registry();
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // std::invalid_argument if a setting is wrong or the name is taken. The name of a tenant that was created on demand
  // ("orders/acme") may be added: the tenant's bulkhead gets these options and is never retired.
  std::shared_ptr<Bulkhead> add(const Registration& registration);  // Registration{...} names a wrong field
  std::shared_ptr<Bulkhead> find(std::string_view name) const noexcept;  // null: none
  std::shared_ptr<Bulkhead> get(std::string_view name) const;  // std::invalid_argument names similar ones
  BulkheadUse use(std::string_view name) const noexcept;       // empty: none
  std::vector<std::string> names() const;                      // sorted

  // Types: "database" (20 at once, 50 in line, 5 s), "external-api" (10, 20, 10 s), "cache" (50, 100, 1 s) and the
  // defined ones. A new definition applies to bulkheads that are created later.
  void define(std::string_view type, const BulkheadOptions& defaults);
  // The bulkhead of that name, whatever its type; else a new one. std::invalid_argument if the type is unknown.
  std::shared_ptr<Bulkhead> get_or_create(std::string_view name, std::string_view type);

  // The members of Bulkhead, by name. They throw what those throw, and std::invalid_argument for an unknown name. In
  // `options` name, gate and clock may be omitted. For a member of a group a new max_queue is applied, a new max_wait is
  // not. Hooks and judge do not change; to give some to a bulkhead without is std::invalid_argument, see attach().
  void update(std::string_view name, const BulkheadOptions& options);
  void resize(std::string_view name, std::uint32_t max_concurrent);
  void resize_queue(std::string_view name, std::uint32_t max_queue);
  void reset(std::string_view name);  // resets its statistics
  // Frees the name and closes the bulkhead: waiting calls are rejected with shutdown, calls in flight finish. Waits for
  // them; false if `until` came first, or the name is unknown. Not for tenants created on demand.
  bool remove(std::string_view name, TimePoint until = no_deadline);

  // Groups are added without members. Members are bulkheads, see Registration::group.
  std::shared_ptr<Group> add_group(GroupOptions options);  // std::invalid_argument if the name is taken
  std::shared_ptr<Group> find_group(std::string_view name) const;  // null: none
  void resize_group(std::string_view name,
                    std::uint32_t total);  // while adapted: the total that it was given
  // Its members report their calls to one AdaptiveLimiter, which moves the total; none: the total is the one that was given.
  void adapt_group(std::string_view name, const std::optional<LimiterOptions>& adaptive);
  void update_share(std::string_view bulkhead, Share guaranteed, Share max = {.percent = 100});
  bool remove_group(std::string_view name);  // false: unknown; std::invalid_argument if it has members

  void define_tenants(const TenantOptions& options);  // std::invalid_argument if the name is taken
  // Also applies to existing tenants. A smaller max_tenants removes no tenant before it is idle.
  void update_tenants(const TenantOptions& options);
  // remove() for all tenants of the set, without waiting. False: the name is unknown.
  bool remove_tenants(std::string_view name);
  // The tenant's bulkhead, created if necessary; std::invalid_argument if the set is unknown.
  Result<std::shared_ptr<Bulkhead>> tenant(std::string_view tenants, std::string_view tenant_id);
  Result<BulkheadUse> use_tenant(std::string_view tenants,
                                 std::string_view tenant_id);  // for one call
  std::size_t retire_idle();                                   // in all sets; returns how many

  // Hooks and a judge, which a configuration file cannot express, for the bulkhead or the set of tenants that will be
  // created under this name, or for all bulkheads that will be created of this type. Those of the Registration have
  // precedence, then those of the name, then those of the type. std::invalid_argument if such a bulkhead exists: hooks and
  // judge of an existing bulkhead cannot change.
  void attach(std::string_view bulkhead, BulkheadCode code);
  void attach_to_type(std::string_view type, BulkheadCode code);

  // Adds a resource pool (resource_pool.h, adapters/postgres ...) to snapshot(), and so to metrics, health and the control
  // plane. The registry does not own the pool, which must outlive the returned Attached. `bulkhead` names the one around
  // the pool, if there is one: its waiting calls are shown beside those of the pool, where a full bulkhead lets none wait.
  // std::invalid_argument if a pool of that name is attached.
  Attached attach(ResourceSource source);
  template <class Pool>
    requires std::same_as<decltype(std::declval<const Pool&>().snapshot()), ResourceSnapshot>
  Attached attach(const Pool& pool, std::string_view bulkhead = {}) {
    ResourceSource source{.name = std::string(pool.name()),
                          .snapshot = [&pool] { return pool.snapshot(); },
                          .bulkhead = std::string(bulkhead)};
    if constexpr (requires { Pool::kKind; }) source.kind = Pool::kKind;
    return attach(std::move(source));
  }

  // Applies all changes or, if one is wrong (std::invalid_argument), none: all are checked first. A snapshot contains all
  // of them or none. Names, groups and shares need to be consistent only after all changes.
  void apply(const RegistryChange& change);
  void check(const RegistryChange& change) const;  // throws what apply() would, and changes nothing

  RegistrySnapshot snapshot(const SnapshotOptions& options = {}) const;
  std::optional<RegistrySnapshot::Entry> look(std::string_view name) const;  // one entry of a snapshot
  std::uint64_t revision() const noexcept;                                   // see RegistrySnapshot
  Clock& clock() const noexcept;
  LiveConfig* live_config() const noexcept;  // the owner of its settings, see live_config.h; null: none

 private:
  friend class LiveConfig;
  bool follow(LiveConfig* before, LiveConfig* now) noexcept;  // false: it was not `before`
  struct Core;
  std::unique_ptr<Core> core_;
};

}  // namespace bulkhead
