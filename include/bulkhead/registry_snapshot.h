// registry_snapshot.h - the state of all bulkheads, groups, tenants and pools of a registry, as metrics, health and the
// control plane read it.
//
//   const bulkhead::RegistrySnapshot all = registry.snapshot();
//   for (const auto& entry : all.bulkheads) print(entry.name, entry.now.gate.in_flight, entry.configured.max_concurrent);
//
// A plain value: it owns its names and stays readable after its bulkheads are destroyed. Each entry is as exact as a
// BulkheadSnapshot; the bulkheads are read one after the other.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/resource_snapshot.h"

namespace bulkhead {

struct SnapshotOptions {
  // At most this many tenants are listed in `bulkheads`, over all sets. A set whose live tenants are more than what the
  // sets before it leave is added up in Tenants::sum. An entry is 9 KB, so a list of 100 000 tenants is 900 MB.
  std::uint32_t list_tenants = 0xffff'ffff;
  // false: such a set is not added up either; only the counters of RegistrySnapshot::Tenants are filled in, without
  // reading the tenants.
  bool add_up = true;
};

struct RegistrySnapshot {
  struct Entry {
    std::string name;
    std::string type;   // it was created from; empty: none
    std::string group;  // it is a member of; empty: none
    // For tenants: the name of the set, and the tenant. The overflow bulkhead has no tenant_id.
    std::string tenants, tenant_id;
    Priority criticality = Priority::normal;  // how serious a rejection is; for alerts and sorting
    BulkheadOptions configured;               // as given last, see Bulkhead::options()
    BulkheadSnapshot now;                     // its name is that of this entry
    std::shared_ptr<const Bulkhead>
        bulkhead;  // keeps what `now` points to alive; a tenant is retired all the same
  };
  // Bulkheads that are not listed, added up.
  struct Sum {
    BulkheadSnapshot now;          // counters and current numbers
    std::uint32_t members = 0;     // how many
    std::uint64_t configured = 0;  // their max_concurrent
    Priority criticality = Priority::best_effort;
    std::array<std::uint32_t, 3> breakers{};  // by BreakerState
    void add(const Entry& entry);
  };
  struct Tenants {
    std::string name;  // of the set
    std::uint32_t live = 0, max = 0;
    std::uint64_t created = 0, retired = 0;
    std::uint64_t overflowed = 0;  // lookups that got the overflow bulkhead
    std::uint64_t rejected = 0;    // lookups that got a Rejection
    std::uint64_t invalid = 0;     // of these two: invalid tenant ids
    std::optional<BulkheadSnapshot>
        other;               // the counters of retired tenants, added up; none: no tenant was retired
    std::optional<Sum> sum;  // the live tenants, if they are not listed: see SnapshotOptions
  };
  struct Resource {  // a resource pool, see Registry::attach()
    std::string name, kind;
    ResourceSnapshot now;
    std::string bulkhead{};  // around the pool: ResourceSource::bulkhead
  };
  struct Group : GroupSnapshot {
    std::uint32_t configured = 0;             // its total, as given last
    std::optional<LimiterSnapshot> adaptive;  // moves the total
  };
  std::vector<Entry> bulkheads;     // by name
  std::vector<Group> groups;        // by name
  std::vector<Tenants> tenants;     // by name
  std::vector<Resource> resources;  // by name
  std::uint64_t revision = 0;       // increases with every add, update, resize and remove
  TimePoint taken{};

  const Entry* find(std::string_view name) const noexcept;
};

}  // namespace bulkhead
