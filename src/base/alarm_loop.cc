#include "base/alarm_loop.h"

#include <chrono>

#include "base/futex.h"

namespace bulkhead {

void AlarmLoop::arm(Alarm& alarm) noexcept {
  bool earlier = false;
  {
    detail::MutexLock lock(mutex_);
    heap_.insert(alarm);
    earlier = heap_.first() == &alarm;
  }
  if (earlier) wake();
}

void AlarmLoop::disarm(Alarm& alarm) noexcept {
  detail::MutexLock lock(mutex_);  // expire() runs under this lock, so it is not running now
  heap_.remove(alarm);
}

void AlarmLoop::hurry() noexcept {
  {
    detail::MutexLock lock(mutex_);
    hurried_ = true;
  }
  wake();
}

void AlarmLoop::stop() noexcept {
  {
    detail::MutexLock lock(mutex_);
    hurried_ = true;
    stopping_ = true;
  }
  wake();
}

// After the change, which was made under the lock: run() has seen it there, or does not sleep.
void AlarmLoop::wake() noexcept {
  changes_.fetch_add(1, std::memory_order_relaxed);
  base::futex_wake(&changes_, 1);
}

// Lets other threads have the lock at least every millisecond, because arm() and disarm() wait for it.
void AlarmLoop::run() noexcept {
  constexpr std::chrono::milliseconds kTurn(1);
  mutex_.lock();
  TimePoint turn_begins = std::chrono::steady_clock::now();
  for (;;) {
    Alarm* const alarm = heap_.first();
    if (!alarm && stopping_) break;
    const TimePoint at = alarm ? alarm->at : no_deadline;
    const TimePoint now = std::chrono::steady_clock::now();
    if (!alarm || (!hurried_ && now < at)) {
      const std::uint32_t seen = changes_.load(std::memory_order_relaxed);
      mutex_.unlock();
      base::futex_wait(changes_, seen, at);
      mutex_.lock();
      turn_begins = std::chrono::steady_clock::now();
      continue;
    }
    heap_.remove(*alarm);
    if (alarm->expire()) {
      mutex_.unlock();
      alarm->expired();
      mutex_.lock();
    }
    if (now - turn_begins >= kTurn) {
      mutex_.unlock_fairly();
      mutex_.lock();
      turn_begins = std::chrono::steady_clock::now();
    }
  }
  mutex_.unlock();
}

}  // namespace bulkhead
