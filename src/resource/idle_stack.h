// idle_stack.h - the slots of a pool, and the stack of those whose things are idle: the last in is the
// first out.
//
// A lock-free stack of slot numbers. Its head carries a tag that grows with every change, so that a
// compare-exchange is not fooled by a slot that left and came back. Slots are never freed while the
// stack lives, so whoever reads `next` of one that has just been taken by somebody else reads nonsense,
// not freed memory, and its compare-exchange fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>

#include "bulkhead/clock.h"

namespace bulkhead::detail {

enum class SlotState : std::uint8_t { vacant, opening, idle, lent, cleaning, closing };

struct alignas(64) ResourceSlot {      // a line of its own: neighbours have different holders
  std::atomic<std::uint32_t> next{0};  // number + 1 of the slot below; 0: none
  std::uint32_t number = 0;
  std::atomic<SlotState> state{SlotState::vacant};  // for snapshots; who owns the slot knows
  bool broken = false;
  bool suspect = false;  // to be validated before it is lent, however short it was idle
  void* thing = nullptr;
  TimePoint expires{};
  TimePoint idle_since{};                // TimePoint(): not yet seen idle by maintenance
  std::atomic<std::int64_t> lent_at{0};  // ns; 0: not lent, or time is not looked at
};

class IdleStack {
 public:
  static constexpr std::uint32_t kPerChunk = 64, kChunks = 160;

  // A thread that used this stack last begins with the head as it left it: the exchange then need not
  // wait for a load, and fetches the right one if it was wrong. What it left is believed only by the
  // exchange, so "empty" never is.
  ResourceSlot* pop() noexcept {
    Guess& guess = mine;
    std::uint64_t head = guess.stack == id_ ? guess.head : 0;
    // Acquire: reads `next`.
    if (static_cast<std::uint32_t>(head) == 0) head = head_.load(std::memory_order_acquire);
    for (;;) {
      const auto top = static_cast<std::uint32_t>(head);
      if (top == 0) return nullptr;
      ResourceSlot& slot = at(top - 1);
      // Relaxed: if it is out of date, so is the head, and the exchange says so. (With a guess: all that
      // was pushed before this thread wrote that head happened before.)
      const std::uint64_t next = tag_after(head) | slot.next.load(std::memory_order_relaxed);
      // Acquire: what its last owner wrote into the slot. Every change of the head is a
      // read-modify-write, so this synchronises with all pushes before.
      if (head_.compare_exchange_weak(head, next, std::memory_order_acquire)) {
        guess = {id_, next};
        return &slot;
      }
    }
  }
  void push(ResourceSlot& slot) noexcept {
    Guess& guess = mine;
    guess = {id_,
             push_chain(slot, slot, guess.stack == id_ ? guess.head : head_.load(std::memory_order_relaxed))};
  }
  // `first` is above `last`, joined by their `next`.
  void push_chain(ResourceSlot& first, ResourceSlot& last) noexcept {
    push_chain(first, last, head_.load(std::memory_order_relaxed));  // relaxed: only a guess
  }
  // All of them, the last in first.
  ResourceSlot* take_all() noexcept {
    std::uint64_t head = head_.load(std::memory_order_relaxed);  // relaxed: only a guess
    while (!head_.compare_exchange_weak(head, tag_after(head), std::memory_order_acquire)) {
    }
    return slot_of(static_cast<std::uint32_t>(head));
  }
  ResourceSlot* below(const ResourceSlot& slot) noexcept {
    return slot_of(slot.next.load(std::memory_order_relaxed));  // by the owner
  }
  bool empty() const noexcept {
    return static_cast<std::uint32_t>(head_.load(std::memory_order_seq_cst)) == 0;
  }

  // Whether there are so many, at a glance: the stack may change meanwhile, and then this is only a
  // guess.
  bool at_least(std::uint32_t n) const noexcept {
    // Acquire: reads `next`.
    auto top = static_cast<std::uint32_t>(head_.load(std::memory_order_acquire));
    for (; n > 0 && top != 0; --n) top = at(top - 1).next.load(std::memory_order_relaxed);
    return n == 0;
  }

  // Under the pool's lock.
  ResourceSlot& grow() {
    const std::uint32_t number = size_;
    std::unique_ptr<ResourceSlot[]>& chunk = chunks_[number / kPerChunk];
    if (!chunk) chunk = std::make_unique<ResourceSlot[]>(kPerChunk);
    ResourceSlot& slot = chunk[number % kPerChunk];
    slot.number = number;
    ++size_;
    return slot;
  }
  std::uint32_t size() const noexcept { return size_; }
  ResourceSlot& at(std::uint32_t number) const noexcept {
    return chunks_[number / kPerChunk][number % kPerChunk];
  }

 private:
  struct Guess {
    std::uint64_t stack, head;
  };
  static constinit thread_local Guess mine;  // which stack this thread used last, and its head then

  static std::uint64_t new_id() noexcept {
    static constinit std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: only has to be unique
  }
  std::uint64_t push_chain(ResourceSlot& first, ResourceSlot& last, std::uint64_t head) noexcept {
    std::uint64_t now = 0;
    do {
      last.next.store(static_cast<std::uint32_t>(head), std::memory_order_relaxed);
      now = tag_after(head) | (first.number + 1);
      // seq_cst: the pusher then looks whether somebody waits or watches, who in turn look at the stack
      // (R3, R5).
    } while (!head_.compare_exchange_weak(head, now, std::memory_order_seq_cst));
    return now;
  }
  static std::uint64_t tag_after(std::uint64_t head) noexcept { return ((head >> 32) + 1) << 32; }
  ResourceSlot* slot_of(std::uint32_t number_and_1) noexcept {
    return number_and_1 == 0 ? nullptr : &at(number_and_1 - 1);
  }

  alignas(64) std::atomic<std::uint64_t> head_{0};  // tag, number + 1 of the top slot
  // A chunk is there before the number of any of its slots is pushed.
  alignas(64) std::array<std::unique_ptr<ResourceSlot[]>, kChunks> chunks_;
  std::uint32_t size_ = 0;
  const std::uint64_t id_ = new_id();
};

inline constinit thread_local IdleStack::Guess IdleStack::mine{};

}  // namespace bulkhead::detail
