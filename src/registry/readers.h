// readers.h - lets one writer wait until no reader uses what it has removed.
//
//   { const Readers::Stay stay(readers);  look at what shared pointers lead to; }     // any thread
//   take the pointer away;  readers.wait();  destroy what it led to;                  // one writer at a time
//
// A stay ends within a look-up. A reader that needs an object for longer marks it before the stay ends. The writer does
// not wait for marks: it calls marked() and keeps the marked objects.
//
// Invariants
//   R1 A stay raises one counter before it loads the first shared pointer, and lowers the same one after its
//      last look. The writer stores to the pointer, passes the barrier in wait(), then loads the counters: either the
//      writer sees the raise, or the stay sees the store. (Without membarrier() all four are sequentially consistent.)
//   R2 If a counter is 0 once after the store, no reader that it counts can have loaded the old pointer. wait() sees each
//      counter at 0 once.
//   R3 There are two sets of counters. New readers use the current one; wait() waits for the other one, exchanges
//      them and waits again. So it waits for earlier readers only, not for a stream of new ones.
//   R4 A stay contains no stay of the same thread, and no code of others.
//   R5 A stripe but the last has one thread, which alone sets its marks; any thread may clear one. A mark is set inside a
//      stay: so after wait() the writer sees the marks of all readers that have found what it has removed.
//
// Cost: a thread with a stripe of its own enters and leaves by plain stores; those beyond the first 64 by atomic
// additions, and they have no marks. A reader that loses its core delays the writer, never another reader.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/membarrier.h"
#include "base/thread_slot.h"

namespace bulkhead::registry {

class Readers {
 public:
  using Mark = std::atomic<const void*>;

 private:
  static constexpr std::size_t kMarks = 6;  // with the counters, a cache line
  struct alignas(64) Stripe {
    std::atomic<std::uint32_t> inside[2]{};
    Mark marks[kMarks]{};
  };

 public:
  class Stay {
   public:
    explicit Stay(Readers& readers) noexcept : stripe_(readers.stripes_[base::thread_slot()]) {
      owned_ = &stripe_ != &readers.stripes_[base::kThreadSlots];
      // Relaxed: which set is current orders nothing; any is waited for (R3).
      counter_ = &stripe_.inside[readers.current_.load(std::memory_order_relaxed)];
      if (owned_ && readers.light_) [[likely]] {
        counter_->store(1, std::memory_order_relaxed);
        std::atomic_signal_fence(std::memory_order_seq_cst);  // the writer's barrier does the rest (R1)
      } else if (owned_) {
        counter_->store(1);
      } else {
        counter_->fetch_add(1);
      }
    }
    ~Stay() {
      // Release: what was looked at, and marked, comes before the writer's acquiring load of the counter.
      if (owned_) [[likely]]
        counter_->store(0, std::memory_order_release);
      else
        counter_->fetch_sub(1, std::memory_order_release);
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

    // Clear it, with release, when done; null: there is none to give.
    Mark* mark(const void* what) const noexcept {
      if (!owned_) return nullptr;
      for (Mark& mark : stripe_.marks) {
        // Acquire and release: another thread may have cleared it; a thread that sees the new mark also sees that the
        // old one ended.
        if (mark.load(std::memory_order_acquire)) continue;
        mark.store(what, std::memory_order_release);
        return &mark;
      }
      return nullptr;
    }

   private:
    Stripe& stripe_;
    std::atomic<std::uint32_t>* counter_;
    bool owned_;
  };

  void wait() noexcept {
    if (light_) base::membarrier();
    for (int round = 0; round < 2; ++round) {
      const std::uint32_t other = 1 - current_.load(std::memory_order_relaxed);  // written here only
      for (const Stripe& stripe : stripes_)
        while (stripe.inside[other].load() != 0) std::this_thread::yield();
      current_.store(other, std::memory_order_relaxed);
    }
  }

  // Of what was taken away before the last wait(): all that is still needed. Of the rest, some. Sorted.
  std::vector<const void*> marked() const {
    std::vector<const void*> all;
    all.reserve((base::kThreadSlots + 1) * kMarks);
    marked(all);
    return all;
  }
  // The same into a vector that marked() gave: no allocation.
  void marked(std::vector<const void*>& all) const noexcept {
    all.clear();
    for (const Stripe& stripe : stripes_)
      for (const Mark& mark : stripe.marks)
        // Acquire: an object that is no longer marked is no longer used.
        if (const void* const what = mark.load(std::memory_order_acquire)) all.push_back(what);
    std::sort(all.begin(), all.end());
  }

 private:
  Stripe stripes_[base::kThreadSlots + 1];
  std::atomic<std::uint32_t> current_{0};
  const bool light_ = base::membarrier_works();
};

}  // namespace bulkhead::registry
