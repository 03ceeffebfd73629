// name_table.h - from a name to its bulkhead: look-ups without a lock, one writer at a time.
//
// Invariants
//   T1 A slot leads from empty to a node, from a node to `gone` or to parked and back, from gone to another
//      node; never back to empty. So who probes from a name's first slot to an empty one has passed every
//      place where it can be, and misses no node that stood there all the while.
//   T2 At most half of the slots are not empty: a probe is short, and ends.
//   T3 A node's name, hash and handles do not change while a slot leads to it. `parked` says that the writer is
//      about to decide whether it goes: who meets that asks the writer.
//   T4 What was taken out of a slot, and a table that a bigger one has replaced, is destroyed after
//      Readers::wait().
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "registry/readers.h"

namespace bulkhead::registry {

struct TenantSet;

// One name. Either a bulkhead, or (its name ends in '/') a set of tenants. What a look-up reads comes first, in one line.
struct alignas(64) Node {
  explicit Node(std::string its_name) : name(std::move(its_name)) {}
  Node(std::string its_name, std::shared_ptr<Bulkhead> bulkhead);

  // A handle that shares its count of references with few other threads.
  const std::shared_ptr<Bulkhead>& handle() const noexcept {
    return handles[base::thread_slot() % handles.size()];
  }
  bool held() const noexcept;  // somebody has a handle; only lasting once no look-up can give one away

  const std::string name;
  std::uint64_t hash = 0;  // set by the table
  std::shared_ptr<Bulkhead> bulkhead;
  // Each with a count of its own, so that looking up one bulkhead from many threads is not a fight for one line.
  std::array<std::shared_ptr<Bulkhead>, 4> handles;
  std::shared_ptr<TenantSet> set;  // of a set of tenants

  // What follows is read and written under the registry's lock.
  std::string type, group;
  Share guaranteed, max;
  Priority criticality = Priority::normal;
  std::shared_ptr<TenantSet> tenants;  // whose it is; null: nobody's
  std::string tenant_id;
  std::uint64_t calls_seen = 0;  // of a tenant, when it was looked at last
  TimePoint quiet_since{};
};

class NameTable {
 public:
  explicit NameTable(std::uint64_t seed);
  ~NameTable();
  NameTable(const NameTable&) = delete;
  NameTable& operator=(const NameTable&) = delete;

  struct Found {
    Node* node = nullptr;  // null: none
    bool parked = false;
  };
  // Inside a stay of readers(), or by the writer.
  Found find(std::string_view name) const noexcept;
  Readers& readers() const noexcept { return readers_; }

  // The writer's.
  Node& insert(std::unique_ptr<Node> node);  // its name must not be there
  void park(Node& node) noexcept;
  void unpark(Node& node) noexcept;
  // Out of the table; the caller waits for the readers, and only then lets go of it.
  std::unique_ptr<Node> take(Node& node) noexcept;
  void wait() noexcept { readers_.wait(); }
  template <class F>
  void for_each(F&& fn) const {
    const Slots& slots = *slots_.load(std::memory_order_relaxed);  // the writer's own
    for (std::size_t i = 0; i <= slots.mask; ++i)
      if (Node* const node = node_of(slots.at[i].load(std::memory_order_relaxed))) fn(*node);
  }
  std::size_t size() const noexcept { return size_; }
  std::size_t slots() const noexcept { return slots_.load(std::memory_order_relaxed)->mask + 1; }

 private:
  // Slots hold the address of a node, the last bit set while it is parked.
  using Slot = std::atomic<std::uintptr_t>;
  static constexpr std::uintptr_t kEmpty = 0, kGone = 2, kParked = 1;
  struct Slots {
    explicit Slots(std::size_t n) : mask(n - 1), at(new Slot[n]{}) {}
    const std::size_t mask;
    const std::unique_ptr<Slot[]> at;
  };
  static Node* node_of(std::uintptr_t word) noexcept {
    return word <= kGone ? nullptr
                         : reinterpret_cast<Node*>(word & ~kParked);  // NOLINT(performance-no-int-to-ptr)
  }
  static std::uintptr_t word_of(const Node& node) noexcept { return reinterpret_cast<std::uintptr_t>(&node); }
  std::uint64_t hash(std::string_view name) const noexcept;
  Slot& slot_of(const Node& node) const noexcept;
  static bool put(Slots& slots, const Node& node) noexcept;  // true: where nothing has been
  void make_room();

  const std::uint64_t seed_, secret_;
  mutable Readers readers_;
  std::atomic<Slots*> slots_;
  std::size_t size_ = 0, used_ = 0;  // nodes; slots that are not empty
};

}  // namespace bulkhead::registry
