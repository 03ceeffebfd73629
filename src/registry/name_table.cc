#include "registry/name_table.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bulkhead::registry {
namespace {

constexpr std::size_t kFirstSlots = 16;

std::uint64_t folded_product(std::uint64_t a, std::uint64_t b) noexcept {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

}  // namespace

Node::Node(std::string its_name, std::shared_ptr<Bulkhead> its_bulkhead)
    : name(std::move(its_name)), bulkhead(std::move(its_bulkhead)) {
  for (auto& handle : handles)
    handle =
        std::shared_ptr<Bulkhead>(bulkhead.get(), [keep = bulkhead](Bulkhead*) mutable { keep.reset(); });
}

bool Node::held() const noexcept {
  return std::any_of(handles.begin(), handles.end(), [](const auto& h) { return h.use_count() > 1; });
}

NameTable::NameTable(std::uint64_t seed) : seed_(seed), slots_(new Slots(kFirstSlots)) {}

NameTable::~NameTable() {
  std::vector<std::unique_ptr<Node>> nodes;
  for_each([&](Node& node) { nodes.emplace_back(&node); });
  delete slots_.load(std::memory_order_relaxed);
}

// Names come from strangers: the seed, which they do not know, keeps them from meeting in one slot.
std::uint64_t NameTable::hash(std::string_view name) const noexcept {
  constexpr std::uint64_t kOdd = 0x9e3779b97f4a7c15, kOther = 0xd6e8feb86659fd93;
  std::uint64_t h = seed_ ^ (name.size() * kOther);
  while (!name.empty()) {
    std::uint64_t word = 0;
    const std::size_t n = std::min(name.size(), sizeof word);
    std::memcpy(&word, name.data(), n);
    name.remove_prefix(n);
    h = folded_product(h ^ word ^ kOdd, seed_ | 1) + kOther;
  }
  return folded_product(h ^ kOdd, kOther);
}

NameTable::Found NameTable::find(std::string_view name) const noexcept {
  const std::uint64_t wanted = hash(name);
  // Sequentially consistent, as are the loads of slots: see Readers, R1.
  const Slots& slots = *slots_.load();
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
  make_room();
  used_ += put(*slots_.load(std::memory_order_relaxed), *node);
  ++size_;
  return *node.release();
}

// A table in which one more fits (T2), without those that are gone.
void NameTable::make_room() {
  Slots* const old = slots_.load(std::memory_order_relaxed);
  if (used_ + 1 <= (old->mask + 1) / 2) return;
  std::size_t n = kFirstSlots;
  while (n < 4 * (size_ + 1)) n *= 2;
  auto fresh = std::make_unique<Slots>(n);
  for (std::size_t i = 0; i <= old->mask; ++i)
    if (Node* const node = node_of(old->at[i].load(std::memory_order_relaxed))) put(*fresh, *node);
  used_ = size_;
  slots_.store(fresh.release());
  readers_.wait();
  delete old;
}

NameTable::Slot& NameTable::slot_of(const Node& node) const noexcept {
  const Slots& slots = *slots_.load(std::memory_order_relaxed);
  std::size_t i = node.hash & slots.mask;
  while (node_of(slots.at[i].load(std::memory_order_relaxed)) != &node) i = (i + 1) & slots.mask;
  return slots.at[i];
}

void NameTable::park(Node& node) noexcept { slot_of(node).store(word_of(node) | kParked); }
void NameTable::unpark(Node& node) noexcept { slot_of(node).store(word_of(node)); }

std::unique_ptr<Node> NameTable::take(Node& node) noexcept {
  slot_of(node).store(kGone);
  --size_;
  return std::unique_ptr<Node>(&node);
}

}  // namespace bulkhead::registry
