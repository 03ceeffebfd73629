// loop_clock.h - a clock whose timeouts ring on the event loop of an nginx worker, so that the library needs no thread.
//
// Threads: as any clock; alarms expire on the loop only.
// Cost: one nginx timer for all alarms, set when a time earlier than all others is armed.
#pragma once

#include "base/alarm_heap.h"
#include "base/counter_clock.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::nginx {

class LoopClock final : public Clock, private DeadlineDriver {
 public:
  TimePoint now() const noexcept override { return Clock::steady().now(); }
  TimePoint glance() const noexcept override {
    return TimePoint(std::chrono::nanoseconds(base::counter_now()));
  }
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override {
    Clock::steady().wait(word, value, until);
  }
  DeadlineDriver& deadlines() noexcept override { return *this; }

  // On the loop: fires what is due, and has the loop ring again at the next alarm.
  void ring() noexcept;

 private:
  void arm(Alarm& alarm) noexcept override;
  void disarm(Alarm& alarm) noexcept override;

  // Invariant, under mutex_: while there are alarms, the loop rings at rings_at_, no later than the first of them, or
  // has been woken to set that time.
  detail::StdMutex mutex_;
  AlarmHeap alarms_ BULKHEAD_GUARDED_BY(mutex_);
  TimePoint rings_at_ BULKHEAD_GUARDED_BY(mutex_) = no_deadline;
};

}  // namespace bulkhead::nginx
