#include "base/counter_clock.h"

#include <chrono>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace bulkhead::base {
namespace {

std::int64_t system_now() noexcept { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

#if defined(__x86_64__)

namespace {

// Whether the counter has one rate in every state of the processor and on every core.
bool counter_is_steady() noexcept {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(0x80000007, &a, &b, &c, &d) && (d & (1U << 8));
}

}  // namespace

constinit CounterClock counter_clock;

// Reads both clocks at one moment. False: this thread was preempted in between.
bool CounterClock::read_both(Mark& mark) noexcept {
  const std::uint64_t before = __rdtsc();
  mark.ns = system_now();
  const std::uint64_t after = __rdtsc();
  mark.counter = before + (after - before) / 2;
  return after - before < 3'000;
}

std::int64_t CounterClock::set_right() noexcept {
  static const bool usable = counter_is_steady();
  const std::int64_t now = system_now();
  std::uint32_t version = version_.load(std::memory_order_relaxed);
  if (!usable || version & 1 ||
      !version_.compare_exchange_strong(version, version + 1, std::memory_order_acquire,
                                        std::memory_order_relaxed))
    return now;                                         // another thread corrects it
  std::atomic_thread_fence(std::memory_order_release);  // the odd version comes before the numbers
  if (Mark mark{}; read_both(mark)) {
    if (calibration_.add(mark)) {
      const double rate = calibration_.rate();
      rate_.store(static_cast<std::uint64_t>(rate * 4294967296.0), std::memory_order_relaxed);
      longest_.store(static_cast<std::uint64_t>(static_cast<double>(calibration_.reach()) / rate),
                     std::memory_order_relaxed);
    } else {
      longest_.store(
          0, std::memory_order_relaxed);  // all threads use the system's clock until a rate is known again
    }
    counter_.store(mark.counter, std::memory_order_relaxed);
    ns_.store(mark.ns, std::memory_order_relaxed);
  }
  version_.store(version + 2, std::memory_order_release);
  return now;
}

#else

std::int64_t counter_now() noexcept { return system_now(); }

#endif

}  // namespace bulkhead::base
