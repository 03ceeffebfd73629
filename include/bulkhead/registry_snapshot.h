// registry_snapshot.h - what a registry can tell about everything in it: what metrics, health and the control
// plane read.
//
//   const bulkhead::RegistrySnapshot all = registry.snapshot();
//   for (const auto& entry : all.bulkheads) print(entry.name, entry.now.gate.in_flight, entry.configured.max_concurrent);
//
// A plain value: it owns its names and stays readable after the bulkheads it tells of are gone. Exactness: that
// of BulkheadSnapshot for each bulkhead; the bulkheads are looked at one after the other.
#pragma once

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

struct RegistrySnapshot {
  struct Entry {
    std::string name;
    std::string type;   // it was made from; empty: none
    std::string group;  // it is a member of; empty: none
    // Of tenants: the template's name, and whose it is. The overflow bulkhead has no tenant_id.
    std::string tenants, tenant_id;
    Priority criticality = Priority::normal;   // how bad it is if this one rejects: for alerts and order
    BulkheadOptions configured;                // as given last, see Bulkhead::options()
    BulkheadSnapshot now;                      // its name is this entry's
    std::shared_ptr<const Bulkhead> bulkhead;  // keeps what `now` points to alive; no tenant stays for it
  };
  struct Tenants {
    std::string name;  // of the template
    std::uint32_t live = 0, max = 0;
    std::uint64_t created = 0, retired = 0;
    std::uint64_t overflowed = 0;           // look-ups that got the overflow bulkhead
    std::uint64_t refused = 0;              // look-ups that got a Rejection
    std::uint64_t invalid = 0;              // of these two: ids that cannot be a name
    std::optional<BulkheadSnapshot> other;  // the counters of the retired, added up; none: nobody was
  };
  struct Resource {  // a pool of things, see Registry::attach()
    std::string name, kind;
    ResourceSnapshot now;
  };
  std::vector<Entry> bulkheads;       // by name
  std::vector<GroupSnapshot> groups;  // by name
  std::vector<Tenants> tenants;       // by name
  std::vector<Resource> resources;    // by name
  std::uint64_t revision = 0;         // grows with every add, update, resize and remove
  TimePoint taken{};

  const Entry* find(std::string_view name) const noexcept;
};

}  // namespace bulkhead
