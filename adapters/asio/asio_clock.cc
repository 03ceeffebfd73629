#include "asio_clock.h"

#include <boost/asio/steady_timer.hpp>
#include <optional>
#include <utility>

#include "base/alarm_heap.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead {

// Invariants, under mutex_: while there are alarms, a wait of the timer is pending that ends at rings_at_, no later than
// the first of them, or its handler is on the way; without alarms, none is. The timer is touched only here.
struct AsioClock::Timer final : DeadlineDriver, std::enable_shared_from_this<Timer> {
  explicit Timer(boost::asio::any_io_executor executor) { timer_.emplace(std::move(executor)); }

  void arm(Alarm& alarm) noexcept override {
    const detail::MutexLock lock(mutex_);
    alarms_.insert(alarm);
    if (alarm.at < rings_at_) set(alarm.at);
  }

  void disarm(Alarm& alarm) noexcept override {
    const detail::MutexLock lock(mutex_);  // expire() runs under this lock, so it is not running now
    if (!alarms_.remove(alarm) || alarms_.first() || !timer_) return;
    rings_at_ = no_deadline;
    timer_->cancel();
  }

  void end() {
    std::optional<boost::asio::steady_timer> timer;
    const detail::MutexLock lock(mutex_);
    timer.swap(timer_);
  }

 private:
  void set(TimePoint at) noexcept BULKHEAD_REQUIRES(mutex_) {
    if (!timer_) return;
    rings_at_ = at;
    timer_->expires_at(at);
    timer_->async_wait([self = shared_from_this()](const boost::system::error_code& cancelled) {
      if (!cancelled) self->ring();
    });
  }

  void ring() noexcept {
    detail::UniqueLock lock(mutex_);
    for (;;) {
      Alarm* const alarm = alarms_.first();
      const TimePoint now = std::chrono::steady_clock::now();
      if (!alarm) {
        if (rings_at_ <= now) rings_at_ = no_deadline;
        return;
      }
      if (now < alarm->at) {
        if (rings_at_ <= now) set(alarm->at);  // else an earlier time was set meanwhile
        return;
      }
      alarms_.remove(*alarm);
      if (!alarm->expire()) continue;
      lock.unlock();
      alarm->expired();
      lock.lock();
    }
  }

  detail::StdMutex mutex_;
  AlarmHeap alarms_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<boost::asio::steady_timer> timer_ BULKHEAD_GUARDED_BY(mutex_);
  TimePoint rings_at_ BULKHEAD_GUARDED_BY(mutex_) = no_deadline;
};

AsioClock::AsioClock(boost::asio::any_io_executor executor)
    : timer_(std::make_shared<Timer>(std::move(executor))) {}
AsioClock::~AsioClock() { timer_->end(); }

TimePoint AsioClock::now() const noexcept { return Clock::steady().now(); }
TimePoint AsioClock::glance() const noexcept { return Clock::steady().glance(); }
void AsioClock::wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept {
  Clock::steady().wait(word, value, until);
}
DeadlineDriver& AsioClock::deadlines() noexcept { return *timer_; }

}  // namespace bulkhead
