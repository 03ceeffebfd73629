#include "loop_clock.h"

#include "loop.h"

namespace bulkhead::nginx {

void LoopClock::arm(Alarm& alarm) noexcept {
  const detail::MutexLock lock(mutex_);
  alarms_.insert(alarm);
  if (alarm.at >= rings_at_) return;
  rings_at_ = alarm.at;
  if (on_loop())
    ring_at(alarm.at);
  else
    wake();
}

// The loop's timer stays as it is: it may ring for nothing, which costs less than to set it for each alarm.
void LoopClock::disarm(Alarm& alarm) noexcept {
  const detail::MutexLock lock(mutex_);  // expire() runs under this lock, so it is not running now
  alarms_.remove(alarm);
}

// expired() runs without the lock, because it may arm and disarm other alarms.
void LoopClock::ring() noexcept {
  detail::UniqueLock lock(mutex_);
  for (;;) {
    Alarm* const alarm = alarms_.first();
    if (!alarm || now() < alarm->at) {
      rings_at_ = alarm ? alarm->at : no_deadline;
      ring_at(rings_at_);
      return;
    }
    alarms_.remove(*alarm);
    if (!alarm->expire()) continue;
    lock.unlock();
    alarm->expired();
    lock.lock();
  }
}

}  // namespace bulkhead::nginx
