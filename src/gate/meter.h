// meter.h - sums over time: how many units were in flight, and how long none was available.
//
//   meter.step(2, 0, t0);            // two units taken at t0 (ns)
//   meter.step(-2, 0, t1);           // and given back
//   meter.read(now).occupancy;       // 2 * (t1 - t0)
//
// A unit that is taken at t0 and given back at t1 adds t1 - t0, which is (now - t0) - (now - t1). So every event adds its
// units, and its units times its time, and a reader needs only these two sums. The order of the events does not matter,
// nor which thread adds them. The same holds for "no unit is available", whose beginnings and ends alternate in the order
// of the gate's word.
//
// Threads: any. Cost: two additions, mostly without an atomic operation, to a cache line of this thread. Exactness: no
// event is lost, and the sums are exact for the times given. A reading misses events that are being added.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/tally.h"

namespace bulkhead::detail {

// Invariants
//  S1  The four sums of a stripe belong together while its version is even and unchanged. A writer makes it odd.
//  S2  The first stripes have one writer each, which needs no atomic operation to make the version odd. The others are
//      shared: a writer that finds one busy takes the next, so no writer waits for a preempted thread.
//  S3  shown_ never falls, modulo 2^63.
class Meter {
 public:
  // `units` were taken (below 0: given back) at `now`. `full`: 1 if none is available from then on, -1 if one is available
  // again, 0 if nothing changed.
  void step(std::int64_t units, int full, std::int64_t now) noexcept {
    if (!step_own(base::this_thread(), units, full, now)) [[unlikely]]
      step_shared(units, full, now);
  }
  // The inline part. False: the stripe belongs to another thread, and nothing has changed; use step().
  [[gnu::always_inline]] bool step_own(base::ThreadNumber me, std::int64_t units, int full,
                                       std::int64_t now) noexcept {
    Stripe& mine = stripes_[me.stripe];
    // relaxed: the owner never changes, and only it writes the stripe
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

  // The sums wrap modulo 2^64; so do the differences that a reader computes.
  struct alignas(64) Stripe {
    std::atomic<std::uint32_t> owner{0};
    std::atomic<std::uint32_t> version{0};
    std::atomic<std::uint64_t> sums[kSums]{};
  };
  [[gnu::always_inline]] static void add(std::atomic<std::uint64_t>& sum, std::int64_t n,
                                         std::int64_t by) noexcept {
    const std::uint64_t more = static_cast<std::uint64_t>(n) * static_cast<std::uint64_t>(by);
    // release: a reader of the new sum also sees the odd version
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
