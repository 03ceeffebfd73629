// readers.h - lets one writer find out that nobody looks any more at what it has taken away.
//
//   { const Readers::Stay stay(readers);  look at what shared pointers lead to; }     // any thread
//   take the pointer away;  readers.wait();  destroy what it led to;                  // one writer at a time
//
// Invariants
//   R1 A stay raises one counter before it loads the first shared pointer, and lowers the same one after its
//      last look. Both the raise and those loads are sequentially consistent, and so are the writer's store to
//      the pointer and its loads of the counters: either the writer sees the raise, or the stay sees the store.
//   R2 Seen at 0 once after the store, a counter hides nobody who could have loaded the old pointer. wait()
//      sees each of them at 0 once.
//   R3 The counters come in two sets. Newcomers use the current one, wait() waits for the other one, exchanges
//      them and waits again. So it waits for those who came before, not for those who keep coming.
//   R4 A stay contains no stay of the same thread, and no code of others: it is over within a look-up.
//
// Cost: mostly one thread per stripe, which then enters by one exchange and leaves by a plain store; the last
// stripe is for all the other threads. A reader that loses its core delays the writer, never another reader.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <thread>

#include "base/tally.h"

namespace bulkhead::registry {

class Readers {
  struct alignas(64) Stripe {
    std::atomic<std::uint32_t> inside[2]{};
    std::atomic<std::uint32_t> owner{0};  // the only thread that writes here; 0: nobody yet
  };

 public:
  class Stay {
   public:
    explicit Stay(Readers& readers) noexcept {
      const std::uint32_t me = base::thread_number();
      Stripe& mine = readers.stripes_[me % (kStripes - 1)];
      // Relaxed: who owns a stripe, and which set is current, orders nothing; any set is waited for (R3).
      std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
      if (owner == 0 && mine.owner.compare_exchange_strong(owner, me, std::memory_order_relaxed)) owner = me;
      owned_ = owner == me;
      Stripe& stripe = owned_ ? mine : readers.stripes_[kStripes - 1];
      counter_ = &stripe.inside[readers.current_.load(std::memory_order_relaxed)];
      if (owned_) [[likely]]
        counter_->store(1);
      else
        counter_->fetch_add(1);
    }
    ~Stay() {
      // Release: what was looked at comes before the writer's acquiring load of the counter.
      if (owned_) [[likely]]
        counter_->store(0, std::memory_order_release);
      else
        counter_->fetch_sub(1, std::memory_order_release);
    }
    Stay(const Stay&) = delete;
    Stay& operator=(const Stay&) = delete;

   private:
    std::atomic<std::uint32_t>* counter_;
    bool owned_;
  };

  void wait() noexcept {
    for (int round = 0; round < 2; ++round) {
      const std::uint32_t other = 1 - current_.load(std::memory_order_relaxed);  // written here only
      for (const Stripe& stripe : stripes_)
        while (stripe.inside[other].load() != 0) std::this_thread::yield();
      current_.store(other, std::memory_order_relaxed);
    }
  }

 private:
  static constexpr std::size_t kStripes = 9;
  Stripe stripes_[kStripes];
  std::atomic<std::uint32_t> current_{0};
};

}  // namespace bulkhead::registry
