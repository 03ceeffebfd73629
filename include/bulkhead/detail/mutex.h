// mutex.h - a lock for sections of a few dozen instructions: four bytes, spins a little before it sleeps.
//
// The turnstile's sections are much shorter than a wake-up, so spinning mostly gets the lock sooner than sleeping;
// std::mutex sleeps at once. BasicLockable. Threads: any.
#pragma once

#include <atomic>
#include <cstdint>

#include "bulkhead/detail/annotations.h"

namespace bulkhead::detail {

class BULKHEAD_CAPABILITY Mutex {
 public:
  using Native = Mutex;
  Mutex() = default;
  Mutex(const Mutex&) = delete;
  Mutex& operator=(const Mutex&) = delete;

  void lock() noexcept BULKHEAD_ACQUIRE() {
    std::uint32_t state = kFree;
    if (!state_.compare_exchange_strong(state, kTaken, std::memory_order_acquire, std::memory_order_relaxed))
      lock_slow();
  }
  void unlock() noexcept BULKHEAD_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) wake_one();
  }
  // For a thread that is about to lock again: waits briefly until a sleeping thread has taken the lock.
  void unlock_fairly() noexcept BULKHEAD_RELEASE() {
    if (state_.exchange(kFree, std::memory_order_release) == kContended) wake_one_and_wait();
  }
  void assert_held() const noexcept BULKHEAD_ASSERT_HELD(this) {}

 private:
  static constexpr std::uint32_t kFree = 0, kTaken = 1,
                                 kContended = 2;  // contended: taken, and a thread may sleep

  void lock_slow() noexcept;
  void wake_one() noexcept;  // uses only the address: the mutex may be destroyed by now
  void wake_one_and_wait() noexcept;

  std::atomic<std::uint32_t> state_{kFree};
};

// An annotated std::lock_guard.
template <class M>
class BULKHEAD_SCOPED_CAPABILITY MutexLock {
 public:
  explicit MutexLock(M& mutex) BULKHEAD_ACQUIRE(mutex) : mutex_(mutex) { mutex_.lock(); }
  ~MutexLock() BULKHEAD_RELEASE() { mutex_.unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  M& mutex_;
};

}  // namespace bulkhead::detail
