// name_table.h - maps names to bulkheads: lookups take no lock; there is one writer at a time.
//
// Invariants
//   T1 A slot changes from empty to a node, from a node to `gone` or to parked and back, from gone to another
//      node; never back to empty. So a probe from a name's first slot to an empty one has passed every slot that can
//      hold the name, and misses no node that was there during the whole probe.
//   T2 At most half of the slots are not empty: a probe is short, and ends.
//   T3 A node's name, hash and handles do not change while a slot points to it. `parked` means that the writer is
//      about to decide whether the node is removed: a reader that finds it asks the writer.
//   T4 A removed node, and a slot array that a larger one has replaced, are destroyed after Readers::wait().
//   T5 The slots are divided into kShards parts by the hash, each of which grows by itself: growing moves about one
//      1024th of the nodes, so that an insertion is short however many nodes there are.
//   T6 Every node is in one of two lists, the newest first: permanent nodes, and tenants created on demand. A walk goes
//      through them in batches; removing a node advances the walks that stand at it.
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

// One name: a bulkhead or, if the name ends in '/', a set of tenants. The members that a lookup reads come first, in one
// cache line.
struct alignas(64) Node {
  explicit Node(std::string its_name) : name(std::move(its_name)) {}
  Node(std::string its_name, std::shared_ptr<Bulkhead> bulkhead);

  // A handle whose reference count is shared with few other threads.
  const std::shared_ptr<Bulkhead>& handle() const noexcept {
    return handles[base::thread_slot() % handles.size()];
  }
  bool held() const noexcept;  // a handle exists; stays true or false only while no lookup can return one

  const std::string name;
  std::uint64_t hash = 0;  // set by the table
  std::shared_ptr<Bulkhead> bulkhead;
  // Each with its own reference count, so that threads that look up one bulkhead do not contend for one cache line.
  std::array<std::shared_ptr<Bulkhead>, 4> handles;
  std::shared_ptr<TenantSet> set;  // of a set of tenants

  // The members below are read and written under the registry's lock.
  std::string type, group;
  Share guaranteed, max;
  Priority criticality = Priority::normal;
  std::shared_ptr<TenantSet> tenants;  // the set it belongs to; null: not a tenant
  std::string tenant_id;
  std::uint64_t calls_seen = 0;  // of a tenant, at the last inspection
  TimePoint quiet_since{}, looked_at{};
  std::uint64_t looked_in = 0;                // TenantSet::round of that inspection
  Node *earlier = nullptr, *later = nullptr;  // TenantSet::queue
  std::uint64_t walked = 0;                   // the last snapshot that contains it
  Node *newer = nullptr, *older = nullptr;    // T6
  bool on_demand = false;                     // which list
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
  // For the writer, and for readers inside a Readers::Stay.
  Found find(std::string_view name) const noexcept;
  Readers& readers() const noexcept { return readers_; }

  // For the writer. insert() throws std::bad_alloc before it changes anything.
  Node& insert(std::unique_ptr<Node> node);  // its name must be new
  void park(Node& node) noexcept;
  void unpark(Node& node) noexcept;
  // Removes the node; the caller destroys it after wait().
  std::unique_ptr<Node> take(Node& node) noexcept;
  void wait() noexcept { readers_.wait(); }
  void make_lasting(Node& node) noexcept;  // of a tenant created on demand

  // Visits the nodes that existed at its start and still exist. Create, use and destroy it under the writer's lock,
  // which may be released between two calls of next().
  class Walk {
   public:
    enum class Which : std::uint8_t { all, lasting };
    explicit Walk(NameTable& table, Which which = Which::all) noexcept;
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    Node* next() noexcept;  // null: no more

   private:
    friend class NameTable;
    NameTable& table_;
    Node *lasting_, *on_demand_;
    Walk* outer_;
  };
  std::size_t size() const noexcept { return size_; }
  std::size_t slots() const noexcept;

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
  struct Shard {
    std::atomic<Slots*> slots{&none()};
    std::size_t size = 0, used = 0;  // nodes; slots that are not empty
  };
  static constexpr unsigned kShardBits = 10;
  static constexpr std::size_t kShards = std::size_t{1} << kShardBits;
  static Slots& none();  // for a shard that never had a node
  const Shard& shard_of(std::uint64_t hash) const noexcept { return shards_[hash >> (64 - kShardBits)]; }
  Shard& shard_of(std::uint64_t hash) noexcept { return shards_[hash >> (64 - kShardBits)]; }
  void link(Node& node) noexcept;
  void unlink(Node& node) noexcept;
  static std::uintptr_t word_of(const Node& node) noexcept { return reinterpret_cast<std::uintptr_t>(&node); }
  std::uint64_t hash(std::string_view name) const noexcept;
  Slot& slot_of(const Node& node) const noexcept;
  static bool put(Slots& slots, const Node& node) noexcept;  // true: the slot was empty
  void make_room(Shard& shard);

  const std::uint64_t seed_, secret_;
  mutable Readers readers_;
  std::array<Shard, kShards> shards_;
  std::size_t size_ = 0;
  Node *lasting_ = nullptr, *on_demand_ = nullptr;  // the newest of each list
  Walk* walks_ = nullptr;
};

}  // namespace bulkhead::registry
