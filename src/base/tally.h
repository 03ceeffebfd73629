// tally.h - counters that many threads increase and few read: mostly one thread per stripe, which then needs no atomic
// addition. The last stripe is shared by all other threads.
//
//   base::Tally<2> tally;
//   tally.add(0);          // exact, a few loads and a store
//   tally.sum(0);          // misses additions that are under way
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bulkhead::base {

inline constexpr std::uint32_t kOwnStripes = 3;  // stripes with one owner each

// A unique number of a thread, from 1.
struct ThreadNumber {
  std::uint32_t number = 0;  // 0: none yet
  std::uint32_t stripe = 0;  // number % kOwnStripes
};

namespace detail {
inline constinit thread_local ThreadNumber number_of_thread{};
ThreadNumber number_thread() noexcept;
}  // namespace detail

inline ThreadNumber this_thread() noexcept {
  const ThreadNumber mine = detail::number_of_thread;
  return mine.number != 0 ? mine : detail::number_thread();
}
inline std::uint32_t thread_number() noexcept { return this_thread().number; }

template <std::size_t Kinds>
class Tally {
 public:
  void add(std::size_t kind, std::uint64_t n = 1) noexcept { add(this_thread(), kind, n); }
  // For callers that have the number of this thread.
  [[gnu::always_inline]] void add(ThreadNumber me, std::size_t kind, std::uint64_t n = 1) noexcept {
    Stripe& mine = stripes_[me.stripe];
    std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
    if (owner == 0 && mine.owner.compare_exchange_strong(owner, me.number, std::memory_order_relaxed))
      owner = me.number;
    if (owner == me.number) [[likely]]
      mine.counts[kind].store(mine.counts[kind].load(std::memory_order_relaxed) + n,
                              std::memory_order_relaxed);
    else
      stripes_[kStripes - 1].counts[kind].fetch_add(n, std::memory_order_relaxed);
  }

  std::uint64_t sum(std::size_t kind) const noexcept {
    std::uint64_t sum = 0;
    for (const Stripe& s : stripes_) sum += s.counts[kind].load(std::memory_order_relaxed);
    return sum;
  }

 private:
  static constexpr std::size_t kStripes = kOwnStripes + 1;
  // Relaxed throughout: a count orders no other memory, and each word has either one writer or atomic additions.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> counts[Kinds]{};
    std::atomic<std::uint32_t> owner{0};  // the only thread that writes here; 0: none yet
  };
  Stripe stripes_[kStripes];
};

}  // namespace bulkhead::base
