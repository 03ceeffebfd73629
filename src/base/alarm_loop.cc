#include "base/alarm_loop.h"

#include <chrono>

namespace bulkhead {

void AlarmLoop::arm(Alarm& alarm) noexcept {
  bool earlier = false;
  {
    detail::MutexLock lock(mutex_);
    heap_.insert(alarm);
    earlier = heap_.first() == &alarm;
  }
  if (earlier) changed_.notify_one();
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
  changed_.notify_one();
}

void AlarmLoop::stop() noexcept {
  {
    detail::MutexLock lock(mutex_);
    hurried_ = true;
    stopping_ = true;
  }
  changed_.notify_one();
}

void AlarmLoop::run() noexcept {
  detail::UniqueLock lock(mutex_);
  for (;;) {
    Alarm* const alarm = heap_.first();
    if (!alarm) {
      if (stopping_) return;
      changed_.wait(lock);
    } else if (const TimePoint at = alarm->at; !hurried_ && std::chrono::steady_clock::now() < at) {
      changed_.wait_until(lock, at);
    } else {
      heap_.remove(*alarm);
      if (alarm->expire()) {
        lock.unlock();
        alarm->expired();
        lock.lock();
      }
    }
  }
}

}  // namespace bulkhead
