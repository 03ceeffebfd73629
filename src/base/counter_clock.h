// counter_clock.h - std::chrono::steady_clock read from the processor's own counter, at half the cost.
//
//   const std::int64_t ns = base::counter_now();       // within a few microseconds of steady_clock
//   if (base::counter_glance(ns)) ...                  // the same where nothing can be called; seldom false
//
// Good for measuring, not for deadlines: every tenth of a second it is set right by the system's clock, and may
// then step by the error of that tenth, forward or back. Where there is no such counter, or it cannot be
// trusted, this is the system's clock.
// Threads: any. Cost: a counter read, five loads and a multiplication; nothing is written.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace bulkhead::base {

#if defined(__x86_64__)

// Invariants
//  C1  The three numbers that follow `version_` belong together while it is even and does not change. It
//      is odd while one thread, the one that made it so, writes them.
//  C2  rate_ is nanoseconds per count, times 2^32; 0 until two marks were a millisecond apart.
class CounterClock {
 public:
  std::int64_t now() noexcept {
    std::int64_t ns = 0;
    return glance(ns) ? ns : set_right();
  }
  // False: it has to be set right first, ask now().
  [[gnu::always_inline]] bool glance(std::int64_t& now) const noexcept {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    const std::uint64_t counter = counter_.load(std::memory_order_relaxed);
    const std::int64_t ns = ns_.load(std::memory_order_relaxed);
    const std::uint64_t rate = rate_.load(std::memory_order_relaxed);
    // acquire above and below, so that the three were read between the two looks at the version
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t passed = __rdtsc() - counter;
    now = ns + static_cast<std::int64_t>(passed * rate >> 32);
    // An odd version is never found again one lower, and before there is a rate any time is too long.
    return passed <= longest_.load(std::memory_order_relaxed) &&
           version_.load(std::memory_order_relaxed) == (version & ~1U);
  }

 private:
  struct Mark {
    std::uint64_t counter;
    std::int64_t ns;
  };
  static bool read_both(Mark& mark) noexcept;
  std::int64_t set_right() noexcept;

  alignas(64) std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uint64_t> counter_{0}, rate_{0}, longest_{0};
  std::atomic<std::int64_t> ns_{0};
  Mark first_{0, 0};  // written by the one that made the version odd
};

extern constinit CounterClock counter_clock;

inline std::int64_t counter_now() noexcept { return counter_clock.now(); }
[[gnu::always_inline]] inline bool counter_glance(std::int64_t& now) noexcept {
  return counter_clock.glance(now);
}

#else

std::int64_t counter_now() noexcept;  // the system's
inline bool counter_glance(std::int64_t&) noexcept { return false; }

#endif

}  // namespace bulkhead::base
