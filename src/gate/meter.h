// meter.h - how many units were in flight, and whether one was available, summed over time.
//
//   meter.step(2, 0, t0);            // two units taken at t0 (ns)
//   meter.step(-2, 0, t1);           // and given back
//   meter.read(now).occupancy;       // 2 * (t1 - t0)
//
// A unit taken at t0 and given back at t1 adds t1 - t0, which is (now - t0) - (now - t1): so every event
// adds its units and its units times its time, and a reader needs only the two sums. In which order the
// events are added does not matter, nor by whom. The same goes for "no unit is available", whose
// beginnings and ends alternate in the order of the gate's word.
//
// Threads: any. Cost: two additions to a cache line that is mostly this thread's own, without an atomic
// addition. Exactness: what is added is never lost and is right to the nanosecond of the times given. An
// event whose addition is under way is missing by the time since it happened.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/tally.h"

namespace bulkhead::detail {

// Invariants
//  S1  The four sums of a stripe belong together while its version is even and does not change. It is odd
//      while the one that made it so writes them.
//  S2  Of the first stripes only their owners write, and need no atomic operation to make the version
//      odd. The others are for everybody, and who finds one busy takes the next: nobody waits for a
//      thread that lost its core.
//  S3  shown_ never falls, modulo 2^63.
class Meter {
 public:
  // `units` were taken (below 0: given back) at `now`; `full`: 1, and none was available from then on;
  // -1, and one was again; 0, neither.
  void step(std::int64_t units, int full, std::int64_t now) noexcept {
    if (!step_own(base::this_thread(), units, full, now)) [[unlikely]]
      step_shared(units, full, now);
  }
  // The same without a call. False: nothing has happened, because the stripe is not this thread's; use step().
  [[gnu::always_inline]] bool step_own(base::ThreadNumber me, std::int64_t units, int full,
                                       std::int64_t now) noexcept {
    Stripe& mine = stripes_[me.stripe];
    // relaxed: an owner is chosen once, and reads back what it has written itself
    if (mine.owner.load(std::memory_order_relaxed) != me.number) [[unlikely]]
      return false;
    const std::uint32_t version = mine.version.load(std::memory_order_relaxed);
    mine.version.store(version + 1, std::memory_order_relaxed);  // seen before the sums, which are released
    write(mine, version + 1, units, full, now);
    return true;
  }

  struct Reading {
    std::uint64_t occupancy, saturated;  // ns; they wrap at 2^63
  };
  Reading read(std::int64_t now) noexcept;

 private:
  static constexpr std::size_t kOwned = base::kOwnStripes, kShared = 4;
  enum Sum : std::uint8_t { taken, taken_by_time, filled, filled_by_time, kSums };

  // The sums wrap: what a reader makes of them is right modulo 2^64.
  struct alignas(64) Stripe {
    std::atomic<std::uint32_t> owner{0};
    std::atomic<std::uint32_t> version{0};
    std::atomic<std::uint64_t> sums[kSums]{};
  };
  [[gnu::always_inline]] static void add(std::atomic<std::uint64_t>& sum, std::int64_t n,
                                         std::int64_t by) noexcept {
    const std::uint64_t more = static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(by);
    // release: who reads a new sum also reads that the version was odd
    sum.store(sum.load(std::memory_order_relaxed) + more, std::memory_order_release);
  }
  [[gnu::always_inline]] static void write(Stripe& stripe, std::uint32_t version, std::int64_t units,
                                           int full, std::int64_t now) noexcept {
    if (units != 0) {
      add(stripe.sums[taken], units, 1);
      add(stripe.sums[taken_by_time], units, now);
    }
    if (full != 0) {
      add(stripe.sums[filled], full, 1);
      add(stripe.sums[filled_by_time], full, now);
    }
    stripe.version.store(version + 1, std::memory_order_release);
  }
  void step_shared(std::int64_t units, int full, std::int64_t now) noexcept;
  static bool add_up(const Stripe& stripe, std::uint64_t (&sums)[kSums]) noexcept;
  static std::uint64_t rise(std::atomic<std::uint64_t>& shown, std::uint64_t to) noexcept;

  Stripe stripes_[kOwned + kShared];
  alignas(64) std::atomic<std::uint64_t> shown_[2]{};
};

}  // namespace bulkhead::detail
