#include "bulkhead/detail/mutex.h"

#include "base/futex.h"
#include "bulkhead/detail/platform.h"

namespace bulkhead::detail {

void Mutex::lock_slow() noexcept {
  // About a microsecond: many sections long, and a small part of what sleeping and waking cost.
  for (int spins = 0; spins < 40; ++spins) {
    std::uint32_t state = state_.load(std::memory_order_relaxed);
    if (state == free &&
        state_.compare_exchange_weak(state, taken, std::memory_order_acquire, std::memory_order_relaxed))
      return;
    StdPlatform::pause();
  }
  while (state_.exchange(contended, std::memory_order_acquire) != free)
    base::futex_wait(state_, contended, no_deadline);
}

void Mutex::wake_one() noexcept { base::futex_wake(&state_, 1); }

}  // namespace bulkhead::detail
