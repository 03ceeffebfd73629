#include "base/counter_clock.h"

#include <atomic>
#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

namespace bulkhead::base {
namespace {

std::int64_t system_now() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

#if defined(__x86_64__)

std::uint64_t read_counter() noexcept { return __rdtsc(); }

// Counts at one rate in every state of the processor and on every core.
bool counter_is_steady() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1U << 8));
}

struct Mark {
  std::uint64_t counter;
  std::int64_t ns;
};

// Both clocks at one moment. False: this thread lost its core in between.
bool read_both(Mark& mark) noexcept {
  const std::uint64_t before = read_counter();
  mark.ns = system_now();
  const std::uint64_t after = read_counter();
  mark.counter = before + (after - before) / 2;
  return after - before < 3'000;
}

// Invariants
//  C1  The three numbers that follow `version_` belong together while it is even and does not change. It
//      is odd while one thread, the one that made it so, writes them.
//  C2  rate_ is nanoseconds per count, times 2^32; 0 until two marks were a millisecond apart.
class Calibration {
 public:
  std::int64_t now() noexcept {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    const std::uint64_t counter = counter_.load(std::memory_order_relaxed);
    const std::int64_t ns = ns_.load(std::memory_order_relaxed);
    const std::uint64_t rate = rate_.load(std::memory_order_relaxed);
    // acquire above and below, so that the three were read between the two looks at the version
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t passed = read_counter() - counter;
    if (rate == 0 || passed > longest_.load(std::memory_order_relaxed) || version & 1 ||
        version_.load(std::memory_order_relaxed) != version) [[unlikely]]
      return set_right();
    return ns + static_cast<std::int64_t>(passed * rate >> 32);
  }

 private:
  [[gnu::noinline]] std::int64_t set_right() noexcept {
    static const bool usable = counter_is_steady();
    const std::int64_t now = system_now();
    std::uint32_t version = version_.load(std::memory_order_relaxed);
    if (!usable || version & 1 ||
        !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire,
                                          std::memory_order_relaxed))
      return now;                                         // somebody else is at it
    std::atomic_thread_fence(std::memory_order_release);  // the odd version before what is written now
    if (Mark mark{}; read_both(mark)) {
      if (first_.counter == 0 || mark.counter < first_.counter) first_ = mark;  // the latter: another machine
      const std::int64_t span = mark.ns - first_.ns;
      if (span >= 1'000'000) {
        const double rate = static_cast<double>(span) / static_cast<double>(mark.counter - first_.counter);
        rate_.store(static_cast<std::uint64_t>(rate * 4294967296.0), std::memory_order_relaxed);
        longest_.store(static_cast<std::uint64_t>(1e8 / rate), std::memory_order_relaxed);
        counter_.store(mark.counter, std::memory_order_relaxed);
        ns_.store(mark.ns, std::memory_order_relaxed);
      }
    }
    version_.store(version + 2, std::memory_order_release);
    return now;
  }

  std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uint64_t> counter_{0}, rate_{0}, longest_{0};
  std::atomic<std::int64_t> ns_{0};
  Mark first_{0, 0};  // written by the one that made the version odd
};

constinit Calibration calibration;

#endif

}  // namespace

std::int64_t counter_now() noexcept {
#if defined(__x86_64__)
  return calibration.now();
#else
  return system_now();
#endif
}

}  // namespace bulkhead::base
