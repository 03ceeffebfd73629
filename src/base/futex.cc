#include "base/futex.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

namespace bulkhead::base {

static_assert(sizeof(std::atomic<std::uint32_t>) == sizeof(std::uint32_t));

void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept {
  // steady_clock is CLOCK_MONOTONIC, the clock of FUTEX_WAIT_BITSET, so the absolute time needs no conversion.
  timespec at{};
  timespec* timeout = nullptr;
  if (until != no_deadline) {
    const auto ns = until.time_since_epoch().count();
    at.tv_sec = ns > 0 ? ns / 1'000'000'000 : 0;
    at.tv_nsec = ns > 0 ? ns % 1'000'000'000 : 0;
    timeout = &at;
  }
  syscall(SYS_futex, &word, FUTEX_WAIT_BITSET_PRIVATE, value, timeout, nullptr, FUTEX_BITSET_MATCH_ANY);
}

void futex_wake(const std::atomic<std::uint32_t>* word, int threads) noexcept {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, threads, nullptr, nullptr, 0);
}

}  // namespace bulkhead::base
