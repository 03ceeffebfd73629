// tenants.h - the bulkheads of one set of tenants, as the registry keeps them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/tally.h"
#include "bulkhead/registry.h"
#include "registry/name_table.h"

namespace bulkhead::registry {

// Invariants
//   S1 Everything but the atomics is read and written under the registry's lock.
//   S2 `nodes` are those of the table that were made on demand, at most max_tenants unless that was lowered.
//   S3 Until `full_until` there is no room, and nobody can have become idle: an unknown id needs no lock to be told.
//      Whoever makes room sets it back.
//   S4 `overflow` leads to a node of the table, or nowhere; it is followed inside a stay of the readers.
struct TenantSet {
  explicit TenantSet(const TenantOptions& o)
      : name(o.name), options(o), max(o.max_tenants), max_id_length(o.max_id_length) {}

  enum Answer : std::size_t { overflowed, refused, invalid };
  // These two inside a stay, or under the lock. Can it be a name; if not, that is counted.
  bool valid(std::string_view id) noexcept;
  // There is no room for it: the shared one, or why not.
  Result<const Node*> at_bound() noexcept;
  BulkheadOptions options_of(std::string_view tenant_id, Clock& clock) const;
  BulkheadOptions overflow_options(Clock& clock) const;
  void forget(const Node& node) noexcept;  // takes it out of `nodes`
  void make_room() noexcept { full_until.store(TimePoint::min()); }
  RegistrySnapshot::Tenants snapshot() const;

  const std::string name;
  TenantOptions options;
  std::vector<Node*> nodes;
  std::uint64_t created = 0, retired = 0;
  BulkheadSnapshot other;
  TimePoint next_sweep = TimePoint::min();

  std::atomic<TimePoint> full_until{TimePoint::min()};
  std::atomic<Node*> overflow{nullptr};
  // For those without the lock: nodes.size(), and what the options say.
  std::atomic<std::uint32_t> live{0}, max, max_id_length;
  base::Tally<3> answers;  // by Answer
};

void check(const TenantOptions& options);  // std::invalid_argument naming the setting

// The counters, to which those of a bulkhead that goes are added. What is of an instant stays 0.
void fold(BulkheadSnapshot& into, const BulkheadSnapshot& from);

// Finds the nodes of `set` that have been idle, and takes them out of the table. The caller lets go of them without
// the lock.
std::vector<std::unique_ptr<Node>> retire(NameTable& table, TenantSet& set, TimePoint now);

}  // namespace bulkhead::registry
