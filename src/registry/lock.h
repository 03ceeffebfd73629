// lock.h - the registry's mutex. The first call of a tenant takes it, so it is never held for long: work on many nodes is
// done in batches, and pause() releases it between two of them.
//
// Threads: any. Debug aid: with `measured` on, `longest` keeps the most processor time of the process while it was held
// (bench/registry_bounds.cc, which has one thread).
#pragma once

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <thread>

#include "base/sync_point.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::registry {

inline constexpr std::size_t kBatch = 64;  // nodes that are looked at under the lock at a time

class BULKHEAD_CAPABILITY Lock {
 public:
  void lock() BULKHEAD_ACQUIRE() BULKHEAD_UNCHECKED_LOCKS {  // in two ways
    if (!mutex_.try_lock()) {
      // Relaxed: a hint for pause(), which orders nothing.
      wanted_.fetch_add(1, std::memory_order_relaxed);
      mutex_.lock();
      wanted_.fetch_sub(1, std::memory_order_relaxed);
    }
    base::sync_point("registry.locked");
    if (measured.load(std::memory_order_relaxed)) since_ = std::clock();
  }
  void unlock() BULKHEAD_RELEASE() BULKHEAD_UNCHECKED_LOCKS {
    if (measured.load(std::memory_order_relaxed)) {
      const std::int64_t held = std::clock() - since_;
      if (held > longest.load(std::memory_order_relaxed)) longest.store(held, std::memory_order_relaxed);
    }
    base::sync_point("registry.unlocked");
    mutex_.unlock();
  }
  // Between two batches, without the lock. A mutex is not fair: without the sleep the thread that works in batches
  // would take it again before a thread that waits has woken up.
  void pause() const {
    if (wanted_.load(std::memory_order_relaxed) > 0)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }

  void assert_held() const noexcept BULKHEAD_ASSERT_HELD(this) {}

  static inline std::atomic<bool> measured{false};
  static inline std::atomic<std::int64_t> longest{0};  // in units of std::clock()

 private:
  detail::StdMutex mutex_;
  std::atomic<std::uint32_t> wanted_{0};
  std::clock_t since_ BULKHEAD_GUARDED_BY(mutex_){};
};

}  // namespace bulkhead::registry
