// counter_clock.h - std::chrono::steady_clock computed from the processor's counter, at half the cost.
//
//   const std::int64_t ns = base::counter_now();       // within a few microseconds of steady_clock
//   if (base::counter_glance(ns)) ...                  // the same without a call; rarely false
//
// For measuring, not for deadlines: every tenth of a second it is corrected by the system's clock, and may then step
// forward or back by the error of that tenth. If the counter has jumped against the system's clock (it runs while the
// machine is suspended, or the process moved to another machine), the correction notices it and the rate is measured
// again. Without a reliable counter this is the system's clock.
// Threads: any. Cost: a counter read, five loads and a multiplication; nothing is written.
#pragma once

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace bulkhead::base {

// The rate of the counter, from marks of both clocks at one moment. Not synchronised.
//
// The rate is that of the last second or two: it is measured from `since_` to the newest mark, and since_ advances every
// second. During the first second every mark improves the rate.
class Calibration {
 public:
  struct Mark {
    std::uint64_t counter;
    std::int64_t ns;
  };
  // False: no rate is known yet.
  bool add(const Mark& mark) noexcept {
    if (!consistent(mark)) return start_at(mark);
    last_ = mark;
    const std::int64_t span = mark.ns - since_.ns;
    if (span < (settled_ ? kSecond : 1'000'000)) return rate_ > 0;
    rate_ = static_cast<double>(span) / static_cast<double>(mark.counter - since_.counter);
    if (rate_ < 0.1 || rate_ > 5) return start_at(mark);  // a counter has more than 0.2 and less than 10 GHz
    reach_ = span > kSecond / 80 ? kSecond / 10 : 8 * span;
    if (span < kSecond) return true;
    settled_ = true;
    since_ = mark;
    return true;
  }
  double rate() const noexcept { return rate_; }  // ns per count
  std::int64_t reach() const noexcept {
    return reach_;
  }  // ns after the last mark for which the rate is exact enough

 private:
  static constexpr std::int64_t kSecond = 1'000'000'000;
  bool start_at(const Mark& mark) noexcept {  // the counter or the clock has jumped
    since_ = last_ = mark;
    started_ = true;
    settled_ = false;
    reach_ = 0;
    return false;
  }
  // The system's clock is slewed by at most 500 in a million. Reading a mark has an error of a microsecond or two, so a
  // rate over a short time is less exact.
  bool consistent(const Mark& mark) const noexcept {
    if (!started_ || mark.counter <= last_.counter || mark.ns < last_.ns) return false;
    if (rate_ == 0 || reach_ == 0) return true;
    const double passed = static_cast<double>(mark.ns - last_.ns);
    const double counted = static_cast<double>(mark.counter - last_.counter) * rate_;
    const double tolerance = 20'000 + passed * (settled_ ? 0.001 : 0.01);
    return counted - passed < tolerance && passed - counted < tolerance;
  }

  Mark since_{}, last_{};
  double rate_ = 0;
  std::int64_t reach_ = 0;
  bool started_ = false;
  bool settled_ = false;  // the rate was measured over a second or more
};

#if defined(__x86_64__)

// Invariants
//  C1  The three numbers after `version_` belong together while it is even and unchanged. It is odd while the thread that
//      made it odd writes them.
//  C2  rate_ is nanoseconds per count, times 2^32. longest_ is 0 while no reliable rate is known.
class CounterClock {
 public:
  std::int64_t now() noexcept {
    std::int64_t ns = 0;
    return glance(ns) ? ns : set_right();
  }
  // False: a correction is due, call now().
  [[gnu::always_inline]] bool glance(std::int64_t& now) const noexcept {
    const std::uint32_t version = version_.load(std::memory_order_acquire);
    const std::uint64_t counter = counter_.load(std::memory_order_relaxed);
    const std::int64_t ns = ns_.load(std::memory_order_relaxed);
    const std::uint64_t rate = rate_.load(std::memory_order_relaxed);
    // acquire above and below: the three numbers are read between the two reads of the version
    std::atomic_thread_fence(std::memory_order_acquire);
    const std::uint64_t passed = __rdtsc() - counter;
    now = ns + static_cast<std::int64_t>(passed * rate >> 32);
    // `version & ~1` differs from an odd version, and without a rate longest_ is 0: both give false.
    return passed <= longest_.load(std::memory_order_relaxed) &&
           version_.load(std::memory_order_relaxed) == (version & ~1U);
  }

 private:
  using Mark = Calibration::Mark;
  static bool read_both(Mark& mark) noexcept;
  std::int64_t set_right() noexcept;

  alignas(64) std::atomic<std::uint32_t> version_{0};
  std::atomic<std::uint64_t> counter_{0}, rate_{0}, longest_{0};
  std::atomic<std::int64_t> ns_{0};
  Calibration calibration_;  // used by the thread that made the version odd
};

extern constinit CounterClock counter_clock;

inline std::int64_t counter_now() noexcept { return counter_clock.now(); }
[[gnu::always_inline]] inline bool counter_glance(std::int64_t& now) noexcept {
  return counter_clock.glance(now);
}

#else

std::int64_t counter_now() noexcept;  // the system's clock
inline bool counter_glance(std::int64_t&) noexcept { return false; }

#endif

}  // namespace bulkhead::base
