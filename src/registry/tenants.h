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
//   S2 The queue has the nodes of the table that were made on demand, at most max_tenants unless that was lowered. The one
//      that was looked at longest ago is its first; a look moves a node to the end.
//   S3 Until `full_until` there is no room, and no node is due for a look: an unknown id is answered without the lock.
//      make_room() sets it back.
//   S4 `overflow` leads to a node of the table, or nowhere; it is followed inside a stay of the readers.
struct TenantSet {
  explicit TenantSet(const TenantOptions& o)
      : name(o.name), options(o), max(o.max_tenants), max_id_length(o.max_id_length) {}

  enum Answer : std::size_t { overflowed, rejected, invalid };
  // These two inside a stay, or under the lock. Can it be a name; if not, that is counted.
  bool valid(std::string_view id) noexcept;
  // There is no room for it: the shared one, or why not.
  Result<const Node*> at_bound() noexcept;
  BulkheadOptions options_of(std::string_view tenant_id, Clock& clock) const;
  BulkheadOptions overflow_options(Clock& clock) const;
  void append(Node& node) noexcept;  // to the queue
  void forget(Node& node) noexcept;  // takes it out of the queue
  // A tenant is looked at four times while it is idle, so it goes after at most 1.25 times idle_after.
  TimePoint due_at(const Node& node) const noexcept;
  void make_room() noexcept { full_until.store(TimePoint::min()); }
  RegistrySnapshot::Tenants snapshot() const;

  const std::string name;
  TenantOptions options;
  Node *first = nullptr, *last = nullptr;  // of the queue
  std::uint32_t size = 0;
  std::uint64_t round =
      0;  // a node that was looked at in an earlier one is due: the settings have changed since
  std::uint64_t walked = 0;  // the last snapshot that has listed it
  std::uint64_t created = 0, retired = 0;
  BulkheadSnapshot other;

  std::atomic<TimePoint> full_until{TimePoint::min()};
  std::atomic<Node*> overflow{nullptr};
  // For those without the lock: `size`, and what the options say.
  std::atomic<std::uint32_t> live{0}, max, max_id_length;
  base::Tally<3> answers;  // by Answer
};

void check(const TenantOptions& options);  // std::invalid_argument naming the setting

// The counters, to which those of a bulkhead that goes are added. What is of an instant stays 0.
void fold(BulkheadSnapshot& into, const BulkheadSnapshot& from);
// What is of an instant: calls in flight and in line, limits.
void fold_state(BulkheadSnapshot& into, const BulkheadSnapshot& from);

// Takes nodes of `set` that have been idle out of the table, which the caller destroys without the lock.
struct Retirement {
  std::vector<std::unique_ptr<Node>> gone;
  std::size_t looked = 0;  // how many
};
// Looks at up to kBatch nodes: those that are due, or (`all`) the first `most` of the queue.
Retirement retire_batch(NameTable& table, TenantSet& set, TimePoint now, bool all, std::size_t most);

}  // namespace bulkhead::registry
