// tally.h - counters that many threads raise and few read: mostly one thread per stripe, which then
// needs no atomic addition. The last stripe is for all the other threads.
//
//   base::Tally<2> tally;
//   tally.add(0);          // exact, a few loads and a store
//   tally.sum(0);          // what was added before; additions under way may be missing
//
// Threads: any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace bulkhead::base {

namespace detail {
inline constinit thread_local std::uint32_t number_of_thread = 0;  // 0: none yet
std::uint32_t number_thread() noexcept;
}  // namespace detail

// Numbers threads from 1, and never gives a number twice.
inline std::uint32_t thread_number() noexcept {
  const std::uint32_t mine = detail::number_of_thread;
  return mine != 0 ? mine : detail::number_thread();
}

template <std::size_t Kinds>
class Tally {
 public:
  void add(std::size_t kind, std::uint64_t n = 1) noexcept {
    const std::uint32_t me = thread_number();
    Stripe& mine = stripes_[me % (kStripes - 1)];
    std::uint32_t owner = mine.owner.load(std::memory_order_relaxed);
    if (owner == 0 && mine.owner.compare_exchange_strong(owner, me, std::memory_order_relaxed)) owner = me;
    if (owner == me) [[likely]]
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
  static constexpr std::size_t kStripes = 4;
  // Relaxed throughout: a count orders nothing, and each word has either one writer or atomic additions.
  struct alignas(64) Stripe {
    std::atomic<std::uint64_t> counts[Kinds]{};
    std::atomic<std::uint32_t> owner{0};  // the only thread that writes here; 0: nobody yet
  };
  Stripe stripes_[kStripes];
};

}  // namespace bulkhead::base
