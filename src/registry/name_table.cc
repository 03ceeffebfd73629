#include "registry/name_table.h"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/sync_point.h"

namespace bulkhead::registry {
namespace {

constexpr std::size_t kFirstSlots = 4;
constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15, kOther = 0xd6e8feb86659fd93;

std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

template <class Word>
Word word(const char* at) noexcept {
  Word value;
  std::memcpy(&value, at, sizeof value);
  return value;
}

// Gives each count of references a cache line of its own: beside another's it would be fought for all the same.
template <class T>
struct OwnLines {
  using value_type = T;
  static constexpr std::size_t kLine = 64;
  OwnLines() = default;
  template <class U>
  OwnLines(const OwnLines<U>&) noexcept {}
  T* allocate(std::size_t n) { return static_cast<T*>(::operator new(bytes(n), std::align_val_t(kLine))); }
  void deallocate(T* p, std::size_t n) noexcept { ::operator delete(p, bytes(n), std::align_val_t(kLine)); }
  static std::size_t bytes(std::size_t n) noexcept { return (n * sizeof(T) + kLine - 1) / kLine * kLine; }
  bool operator==(const OwnLines&) const = default;
};

}  // namespace

Node::Node(std::string its_name, std::shared_ptr<Bulkhead> its_bulkhead)
    : name(std::move(its_name)), bulkhead(std::move(its_bulkhead)) {
  for (auto& handle : handles)
    handle = std::shared_ptr<Bulkhead>(
        bulkhead.get(), [keep = bulkhead](Bulkhead*) mutable { keep.reset(); }, OwnLines<Bulkhead>());
}

bool Node::held() const noexcept {
  return std::any_of(handles.begin(), handles.end(), [](const auto& h) { return h.use_count() > 1; });
}

NameTable::NameTable(std::uint64_t seed) : seed_(seed), secret_(folded_product(seed ^ kOdd, kOther)) {}

NameTable::~NameTable() {
  for (Node* first : {lasting_, on_demand_})
    while (first) delete std::exchange(first, first->older);
  for (Shard& shard : shards_)
    if (Slots* const slots = shard.slots.load(std::memory_order_relaxed); slots != &none()) delete slots;
}

NameTable::Slots& NameTable::none() {
  static Slots empty(1);  // never written
  return empty;
}

std::size_t NameTable::slots() const noexcept {
  std::size_t n = 0;
  for (const Shard& shard : shards_)
    if (const Slots* const slots = shard.slots.load(std::memory_order_relaxed); slots != &none())
      n += slots->mask + 1;
  return n;
}

// Names come from strangers: the seed, which they do not know, keeps them from meeting in one slot. Each word is mixed with
// something they do not know before it is multiplied, so that none of their choosing makes a product 0.
std::uint64_t NameTable::hash(std::string_view name) const noexcept {
  const char* at = name.data();
  const std::size_t size = name.size();
  std::uint64_t h = seed_, first = 0, last = 0;
  // The last words overlap what comes before: names of 17 to 32 bytes all take one way.
  if (size > 16) {
    for (const char* const end = at + size - 16; at < end; at += 16)
      h = folded_product(word<std::uint64_t>(at) ^ secret_, word<std::uint64_t>(at + 8) ^ h);
    at = name.data() + size - 16;
    first = word<std::uint64_t>(at);
    last = word<std::uint64_t>(at + 8);
  } else if (size >= 8) {
    first = word<std::uint64_t>(at);
    last = word<std::uint64_t>(at + size - 8);
  } else if (size >= 4) {
    first = word<std::uint32_t>(at);
    last = word<std::uint32_t>(at + size - 4);
  } else if (size > 0) {
    first = word<std::uint8_t>(at) | std::uint64_t{word<std::uint8_t>(at + size / 2)} << 8;
    last = word<std::uint8_t>(at + size - 1);
  }
  // The size comes last: beside a word of the name, a change of one could undo that of the other.
  return folded_product(folded_product(first ^ secret_, last ^ h) ^ size, kOdd);
}

NameTable::Found NameTable::find(std::string_view name) const noexcept {
  const std::uint64_t wanted = hash(name);
  // Sequentially consistent, as are the loads of slots: see Readers, R1. (On x86 they are plain loads.)
  const Slots& slots = *shard_of(wanted).slots.load();
  for (std::size_t i = wanted & slots.mask;; i = (i + 1) & slots.mask) {
    const std::uintptr_t word = slots.at[i].load();
    if (word == kEmpty) return {};
    Node* const node = node_of(word);
    if (node && node->hash == wanted && node->name == name) return {node, (word & kParked) != 0};
  }
}

bool NameTable::put(Slots& slots, const Node& node) noexcept {
  std::size_t i = node.hash & slots.mask;
  while (node_of(slots.at[i].load(std::memory_order_relaxed))) i = (i + 1) & slots.mask;
  return slots.at[i].exchange(word_of(node)) == kEmpty;
}

Node& NameTable::insert(std::unique_ptr<Node> node) {
  node->hash = hash(node->name);
  Shard& shard = shard_of(node->hash);
  make_room(shard);
  shard.used += put(*shard.slots.load(std::memory_order_relaxed), *node);
  ++shard.size;
  ++size_;
  link(*node);
  return *node.release();
}

// Slots in which one more fits (T2), without those that are gone.
void NameTable::make_room(Shard& shard) {
  Slots* const old = shard.slots.load(std::memory_order_relaxed);
  if (shard.used + 1 <= (old->mask + 1) / 2) return;
  std::size_t n = kFirstSlots;
  while (n < 4 * (shard.size + 1)) n *= 2;
  auto fresh = std::make_unique<Slots>(n);
  for (std::size_t i = 0; i <= old->mask; ++i)
    if (Node* const node = node_of(old->at[i].load(std::memory_order_relaxed))) {
      base::sync_point("registry.step");
      put(*fresh, *node);
    }
  shard.used = shard.size;
  shard.slots.store(fresh.release());
  if (old == &none()) return;
  readers_.wait();
  delete old;
}

NameTable::Slot& NameTable::slot_of(const Node& node) const noexcept {
  const Slots& slots = *shard_of(node.hash).slots.load(std::memory_order_relaxed);
  std::size_t i = node.hash & slots.mask;
  while (node_of(slots.at[i].load(std::memory_order_relaxed)) != &node) i = (i + 1) & slots.mask;
  return slots.at[i];
}

void NameTable::park(Node& node) noexcept { slot_of(node).store(word_of(node) | kParked); }
void NameTable::unpark(Node& node) noexcept { slot_of(node).store(word_of(node)); }

std::unique_ptr<Node> NameTable::take(Node& node) noexcept {
  slot_of(node).store(kGone);
  --shard_of(node.hash).size;
  --size_;
  unlink(node);
  return std::unique_ptr<Node>(&node);
}

// ---- lists and walks ----

void NameTable::link(Node& node) noexcept {
  Node*& first = node.on_demand ? on_demand_ : lasting_;
  node.newer = nullptr;
  node.older = first;
  if (first) first->newer = &node;
  first = &node;
}

void NameTable::unlink(Node& node) noexcept {
  for (Walk* walk = walks_; walk; walk = walk->outer_)
    for (Node** at : {&walk->lasting_, &walk->on_demand_})
      if (*at == &node) *at = node.older;
  Node*& first = node.on_demand ? on_demand_ : lasting_;
  if (node.newer)
    node.newer->older = node.older;
  else
    first = node.older;
  if (node.older) node.older->newer = node.newer;
}

void NameTable::make_lasting(Node& node) noexcept {
  unlink(node);
  node.on_demand = false;
  link(node);
}

NameTable::Walk::Walk(NameTable& table, Which which) noexcept
    : table_(table),
      lasting_(table.lasting_),
      on_demand_(which == Which::all ? table.on_demand_ : nullptr),
      outer_(std::exchange(table.walks_, this)) {}

NameTable::Walk::~Walk() {
  Walk** at = &table_.walks_;
  while (*at != this) at = &(*at)->outer_;
  *at = outer_;
}

Node* NameTable::Walk::next() noexcept {
  Node*& at = lasting_ ? lasting_ : on_demand_;
  if (!at) return nullptr;
  base::sync_point("registry.step");
  return std::exchange(at, at->older);
}

}  // namespace bulkhead::registry
