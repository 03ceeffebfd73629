// mutex.h - a lock for sections of a few dozen instructions: four bytes, spins a little before it sleeps.
//
// The turnstile's sections are far shorter than a wake-up, so a thread that finds the lock taken mostly gets
// it sooner by looking again than by going to sleep; std::mutex sleeps at once. BasicLockable. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

namespace bulkhead::detail {

class Mutex {
 public:
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() noexcept {
    std::uint32_t state = free;
    if (!state_.compare_exchange_strong(state, taken, std::memory_order_acquire, std::memory_order_relaxed))
      lock_slow();
  }
  void unlock() noexcept {
    if (state_.exchange(free, std::memory_order_release) == contended) wake_one();
  }

 private:
  static constexpr std::uint32_t free = 0, taken = 1,
                                 contended = 2;  // contended: taken, and somebody may sleep

  void lock_slow() noexcept;
  void wake_one() noexcept;  // the mutex may be gone by now: uses its address only

  std::atomic<std::uint32_t> state_{free};
};

}  // namespace bulkhead::detail
