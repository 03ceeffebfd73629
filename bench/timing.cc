#include "bench/timing.h"

#include <sched.h>
#include <time.h>

#include <algorithm>
#include <cstdio>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace bench {
namespace {

std::int64_t clock_ns(clockid_t id) noexcept {
  timespec t{};
  clock_gettime(id, &t);
  return std::int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

#if defined(__x86_64__)
// The time stamp counter, tied to CLOCK_MONOTONIC once at the start: three times cheaper to read.
struct Tsc {
  std::int64_t monotonic, ticks;
  double ns_per_tick;
  Tsc() {
    monotonic = clock_ns(CLOCK_MONOTONIC);
    ticks = static_cast<std::int64_t>(__rdtsc());
    std::int64_t m = monotonic;
    while (m - monotonic < 20'000'000) m = clock_ns(CLOCK_MONOTONIC);
    ns_per_tick = static_cast<double>(m - monotonic) /
                  static_cast<double>(static_cast<std::int64_t>(__rdtsc()) - ticks);
  }
};
const Tsc tsc;
#endif

inline void work(std::uint64_t steps) noexcept {
  std::uint64_t x = steps;
  for (std::uint64_t i = 0; i < steps; ++i) {
    x = x * 3 + 1;
    asm volatile("" : "+r"(x));
  }
}

double measure_steps_per_ns() {
  constexpr std::uint64_t steps = 20'000;
  double best = 0;
  for (int i = 0; i < 50; ++i) {
    const std::int64_t start = now_ns();
    work(steps);
    best = std::max(best, static_cast<double>(steps) / static_cast<double>(now_ns() - start));
  }
  return best;
}
const double steps_per_ns = measure_steps_per_ns();

// Seconds in which some core did something, or was taken away by the hypervisor.
double busy_seconds() {
  double user = 0, nice = 0, system = 0, idle = 0, iowait = 0, irq = 0, softirq = 0, steal = 0;
  if (std::FILE* f = std::fopen("/proc/stat", "r")) {
    if (std::fscanf(f, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &iowait, &irq,
                    &softirq, &steal) != 8)
      user = 0;
    std::fclose(f);
  }
  return (user + nice + system + irq + softirq + steal) / 100.0;
}

unsigned usable_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return static_cast<unsigned>(CPU_COUNT(&set));
}

}  // namespace

std::int64_t now_ns() noexcept {
#if defined(__x86_64__)
  const double ticks = static_cast<double>(static_cast<std::int64_t>(__rdtsc()) - tsc.ticks);
  return tsc.monotonic + static_cast<std::int64_t>(ticks * tsc.ns_per_tick);
#else
  return clock_ns(CLOCK_MONOTONIC);
#endif
}

void burn(std::int64_t ns) noexcept {
  work(static_cast<std::uint64_t>(static_cast<double>(ns) * steps_per_ns));
}

void nap(std::int64_t ns) noexcept {
  timespec t{ns / 1'000'000'000, ns % 1'000'000'000};
  clock_nanosleep(CLOCK_MONOTONIC, 0, &t, nullptr);
}

std::int64_t thread_cpu_ns() noexcept { return clock_ns(CLOCK_THREAD_CPUTIME_ID); }

Quiet::Quiet()
    : start_(now_ns()),
      busy_(busy_seconds()),
      own_(static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9) {}

double Quiet::share() const {
  const double wall = static_cast<double>(now_ns() - start_) * 1e-9;
  const double own = static_cast<double>(clock_ns(CLOCK_PROCESS_CPUTIME_ID)) * 1e-9 - own_;
  const double others = busy_seconds() - busy_ - own;
  return 1 - std::clamp(others / (wall * cores()), 0.0, 1.0);
}

unsigned cores() {
  static const unsigned count = usable_cores();
  return count;
}

}  // namespace bench
