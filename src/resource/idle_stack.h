// idle_stack.h - the slots of a pool, and the stack of those whose resources are idle: the last in is the
// first out.
//
// A lock-free stack of slot numbers, whose two topmost stand in the head itself. So most pushes and pops are a
// compare-exchange that reads nothing of a slot, whose line is in another core's cache as a rule; and since what
// they write depends on the head alone, one that is fooled by slots that left and came back does no harm.
//
// Only what lies below those two is kept in a slot: the one that was pushed onto a full head has the old head in its
// `rest`. That, and nothing else, can make a compare-exchange believe what is out of date, so the head carries a tag that
// grows with every push that writes a `rest`. Slots are never freed while the stack exists. So a thread
// that reads the `rest` of a slot that another thread has just taken reads a stale value, not freed memory, and its
// compare-exchange fails.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/sync_point.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/resource_core.h"
#include "bulkhead/gate.h"

namespace bulkhead::detail {

enum class SlotState : std::uint8_t { vacant, opening, idle, validating, lent, cleaning, closing };

// What a helper is to do with a slot; `seek` is for calls, and by hand only.
enum class JobKind : std::uint8_t { none, open, validate, check, clean, seek };
struct ResourceJob {
  ResourceJob* next_job = nullptr;
  JobKind job = JobKind::none;
};

struct alignas(64) ResourceSlot : ResourceJob {     // a line of its own: neighbours have different holders
  std::atomic<SlotState> state{SlotState::vacant};  // for snapshots; the owner of the slot does not need it
  bool broken = false;
  bool suspect = false;                // to be validated before it is lent, however short it was idle
  std::atomic<std::uint32_t> rest{0};  // what lies below, as in the head; see IdleStack
  std::uint32_t number = 0;
  void* resource = nullptr;
  TimePoint expires{};
  TimePoint idle_since{};                // TimePoint(): not yet seen idle by maintenance
  TimePoint known_good{};                // when it was returned, validated or opened
  std::atomic<std::int64_t> lent_at{0};  // ns; 0: not lent, or time is not looked at
  alignas(64)
      Permit held{};  // while it is cleaned, or opened for a claimant that left: the permit that covers it
  std::function<Result<void*, std::string>(const Opening&)> opener{};  // of a claimant that left
};

class IdleStack {
 public:
  static constexpr std::uint32_t kPerChunk = 64, kChunks = 160;

  // What a head says without its tag: two numbers + 1, the topmost first, 0: none; and whether there is more below,
  // in the `rest` of the lower one. 0 and nothing else: empty.
  using Contents = std::uint32_t;

  // Before the first use: the head is to be this word, which is 0. For one in a line that its users fetch anyway.
  void live_in(std::atomic<std::uint64_t>& word) noexcept { head_ = &word; }

  // A thread that used this stack last begins with the head as it left it: the exchange then need not
  // wait for a load, and fetches the right one if it was wrong. What it left is believed only by the
  // exchange, so "empty" never is.
  ResourceSlot* pop() noexcept {
    Guess& guess = mine;
    std::uint64_t head = guess.stack == id_ ? guess.head : 0;
    // Acquire: reads `rest`.
    if (contents(head) == 0) head = head_->load(std::memory_order_acquire);
    for (;;) {
      if (contents(head) == 0) return nullptr;
      ResourceSlot& slot = top(contents(head));
      const std::uint64_t next = (head & ~kContents) | below(contents(head));
      base::sync_point("idle_stack.pop.exchange");
      // Acquire: what its last owner wrote into the slot. Every change of the head is a
      // read-modify-write, so this synchronises with all pushes before.
      if (head_->compare_exchange_weak(head, next, std::memory_order_acquire)) {
        guess = {id_, next};
        return &slot;
      }
      // The next exchange most likely takes this slot: fetch its line while the exchange waits for that of the head. (Not
      // before the first exchange, when another thread may still hold the slot.)
      if (contents(head) != 0) __builtin_prefetch(&top(contents(head)), 1);
    }
  }
  void push(ResourceSlot& slot) noexcept {
    Guess& guess = mine;
    std::uint64_t head =
        guess.stack == id_ ? guess.head : head_->load(std::memory_order_relaxed);  // relaxed: only a guess
    std::uint64_t now = 0;
    do {
      const Contents old = contents(head);
      if (((old >> kBits) & kEntry) == 0) [[likely]]
        now = (head & ~kContents) | (old & kMore) | ((old & kEntry) << kBits) | (slot.number + 1);
      else
        now = onto(slot, slot, head);
      // seq_cst: the pusher then checks for waiters and watchers, which check the stack in turn (R3, R5).
    } while (!head_->compare_exchange_weak(head, now, std::memory_order_seq_cst));
    guess = {id_, now};
  }
  // `first` is above `last`, joined by join().
  void push_chain(ResourceSlot& first, ResourceSlot& last) noexcept {
    std::uint64_t head = head_->load(std::memory_order_relaxed);  // relaxed: only a guess
    while (!head_->compare_exchange_weak(head, onto(first, last, head), std::memory_order_seq_cst)) {
    }
  }
  // By the owner of both: `upper` lies on `lower`.
  static void join(ResourceSlot& upper, const ResourceSlot& lower) noexcept {
    upper.rest.store(kMore | (lower.number + 1), std::memory_order_relaxed);  // relaxed: pushed with release
  }
  // All of them, for pop(Contents&).
  Contents take_all() noexcept {
    std::uint64_t head = head_->load(std::memory_order_relaxed);  // relaxed: only a guess
    while (!head_->compare_exchange_weak(head, head & ~kContents, std::memory_order_acquire)) {
    }
    return contents(head);
  }
  ResourceSlot* pop(Contents& taken) const noexcept {
    if (taken == 0) return nullptr;
    ResourceSlot& slot = top(taken);
    taken = below(taken);
    return &slot;
  }
  bool empty() const noexcept { return contents(head_->load(std::memory_order_seq_cst)) == 0; }

  // Whether there are n or more. The stack may change meanwhile: then this is only a guess.
  bool at_least(std::uint32_t n) const noexcept {
    // Acquire: reads `rest`.
    Contents seen = contents(head_->load(std::memory_order_acquire));
    for (; n > 0 && seen != 0; --n) seen = below(seen);
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
  static constexpr unsigned kBits = 14;
  static constexpr Contents kEntry = (1u << kBits) - 1, kMore = 1u << (2 * kBits);
  static constexpr std::uint64_t kContents = (std::uint64_t{kMore} << 1) - 1;  // the rest is the tag
  static_assert(kPerChunk * kChunks <= kEntry);

  struct Guess {
    std::uint64_t stack, head;
  };
  static constinit thread_local Guess mine;  // which stack this thread used last, and its head then

  static std::uint64_t new_id() noexcept {
    static constinit std::atomic<std::uint64_t> last{0};
    return last.fetch_add(1, std::memory_order_relaxed) + 1;  // relaxed: only has to be unique
  }
  static Contents contents(std::uint64_t head) noexcept { return static_cast<Contents>(head & kContents); }
  ResourceSlot& top(Contents of) const noexcept { return at((of & kEntry) - 1); }
  Contents below(Contents of) const noexcept {
    if (const Contents second = (of >> kBits) & kEntry) return (of & kMore) | second;
    // Relaxed: if it is out of date, so is the head, and the exchange says so. (With a guess: all that
    // was pushed before this thread wrote that head happened before.)
    return of & kMore ? top(of).rest.load(std::memory_order_relaxed) : 0;
  }
  static std::uint64_t onto(ResourceSlot& first, ResourceSlot& last, std::uint64_t head) noexcept {
    last.rest.store(contents(head), std::memory_order_relaxed);  // relaxed: pushed with release
    return ((head & ~kContents) + kContents + 1) | kMore | (first.number + 1);
  }

  alignas(64) std::atomic<std::uint64_t> own_{0};
  // A chunk is there before the number of any of its slots is pushed.
  alignas(64) std::array<std::unique_ptr<ResourceSlot[]>, kChunks> chunks_;
  std::uint32_t size_ = 0;
  const std::uint64_t id_ = new_id();
  std::atomic<std::uint64_t>* head_ = &own_;  // tag, Contents
};

inline constinit thread_local IdleStack::Guess IdleStack::mine{};

}  // namespace bulkhead::detail
