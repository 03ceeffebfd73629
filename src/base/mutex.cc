#include "bulkhead/detail/mutex.h"

#include <chrono>
#include <thread>

#include "base/futex.h"
#include "bulkhead/detail/platform.h"

namespace bulkhead::detail {

void Mutex::lock_slow() noexcept {
  // About a microsecond: longer than many sections, and much shorter than sleeping and waking.
  for (int spins = 0; spins < 40; ++spins) {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    if (state == kFree &&
        state_.compare_exchange_weak(state, kTaken, std::memory_order_acquire, std::memory_order_relaxed))
      return;
    StdPlatform::pause();
  }
  while (state_.exchange(kContended, std::memory_order_acquire) != kFree)
    base::futex_wait(state_, kContended, no_deadline);
}

void Mutex::wake_one() noexcept { base::futex_wake(&state_, 1); }

// A thread needs some tens of microseconds to wake up. Without this wait the calling thread would always get the lock
// again first.
void Mutex::wake_one_and_wait() noexcept {
  wake_one();
  const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(200);
  while (state_.load(std::memory_order_relaxed) == kFree && std::chrono::steady_clock::now() < until) {
    StdPlatform::pause();
    std::this_thread::yield();
  }
}

}  // namespace bulkhead::detail
