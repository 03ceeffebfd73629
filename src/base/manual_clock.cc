#include "bulkhead/manual_clock.h"

#include <algorithm>

#include "base/alarm_heap.h"
#include "base/futex.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead {

struct ManualClock::State {
  explicit State(TimePoint start) : now(start) {}
  std::atomic<TimePoint> now;
  mutable detail::StdMutex mutex;
  AlarmHeap alarms BULKHEAD_GUARDED_BY(mutex);
};

ManualClock::ManualClock(TimePoint start) : state_(std::make_unique<State>(start)) {}
ManualClock::~ManualClock() = default;

void ManualClock::advance(std::chrono::nanoseconds by) {
  const TimePoint from = now();
  by = std::max(by, std::chrono::nanoseconds(0));
  advance_to(from > TimePoint::max() - by ? TimePoint::max() : from + by);  // saturating
}

void ManualClock::advance_to(TimePoint then) {
  detail::UniqueLock lock(state_->mutex);
  while (Alarm* alarm = state_->alarms.first()) {
    if (alarm->at > then) break;
    state_->now = std::max(state_->now.load(), alarm->at);
    state_->alarms.remove(*alarm);
    if (!alarm->expire()) continue;
    lock.unlock();
    alarm->expired();
    lock.lock();
  }
  state_->now = std::max(state_->now.load(), then);
}

TimePoint ManualClock::next_alarm() const noexcept {
  detail::MutexLock lock(state_->mutex);
  const Alarm* alarm = state_->alarms.first();
  return alarm ? alarm->at : no_deadline;
}

TimePoint ManualClock::now() const noexcept { return state_->now; }

void ManualClock::wait(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                       TimePoint until) noexcept {
  const bool timed = until != no_deadline;
  base::futex_wait(word, value,
                   timed ? std::chrono::steady_clock::now() + std::chrono::milliseconds(1) : no_deadline);
}

void ManualClock::arm(Alarm& alarm) noexcept {
  detail::MutexLock lock(state_->mutex);
  state_->alarms.insert(alarm);
}

void ManualClock::disarm(Alarm& alarm) noexcept {
  detail::MutexLock lock(state_->mutex);
  state_->alarms.remove(alarm);
}

}  // namespace bulkhead
