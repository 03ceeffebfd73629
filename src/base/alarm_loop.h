// alarm_loop.h - expires alarms in order of their time, on the thread that calls run().
//
// Threads: run() one; the other members any. An alarm's expire() runs under the lock, expired() without it. While many alarms
//   are due, run() lets a thread that waits for the lock have it every millisecond: callers arm and disarm under it.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/alarm_heap.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/mutex.h"

namespace bulkhead {

class AlarmLoop : public DeadlineDriver {
 public:
  void arm(Alarm& alarm) noexcept override;
  void disarm(Alarm& alarm) noexcept override;

  void run() noexcept;    // returns after stop()
  void hurry() noexcept;  // makes every alarm due at once, from now on
  bool hurried() const noexcept { return hurried_.load(std::memory_order_relaxed); }
  void stop() noexcept;  // hurry(); run() returns when no alarm is left

 protected:
  ~AlarmLoop() = default;

 private:
  void wake() noexcept;

  detail::Mutex mutex_;
  std::atomic<std::uint32_t> changes_{0};  // that run() has to look at
  AlarmHeap heap_ BULKHEAD_GUARDED_BY(mutex_);
  std::atomic<bool> hurried_{false};  // written under the lock; hurried() reads it as a hint
  bool stopping_ BULKHEAD_GUARDED_BY(mutex_) = false;
};

}  // namespace bulkhead
