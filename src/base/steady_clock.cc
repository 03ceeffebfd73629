#include <condition_variable>
#include <cstddef>
#include <exception>
#include <mutex>
#include <new>
#include <thread>

#include "base/alarm_heap.h"
#include "base/counter_clock.h"
#include "base/futex.h"
#include "bulkhead/clock.h"

namespace bulkhead {
namespace {

// One thread for all alarms of the process, started by the first. It is never joined: alarms may be armed
// until the process ends, and it holds nothing that needs an end.
class TimerThread final : public DeadlineDriver {
 public:
  void arm(Alarm& alarm) noexcept override {
    bool earlier = false;
    {
      std::lock_guard lock(mutex_);
      heap_.insert(alarm);
      earlier = heap_.first() == &alarm;
      if (!started_) started_ = start();
    }
    if (earlier) changed_.notify_one();
  }

  void disarm(Alarm& alarm) noexcept override {
    std::lock_guard lock(mutex_);  // expire() runs under this lock, so it is not running now
    heap_.remove(alarm);
  }

 private:
  // False: there is no memory or no thread left. The alarms wait, and the next one tries again.
  bool start() noexcept {
#if defined(__cpp_exceptions)
    try {
      std::thread([this] { loop(); }).detach();
    } catch (const std::exception&) {
      return false;
    }
#else
    std::thread([this] { loop(); }).detach();
#endif
    return true;
  }

  void loop() noexcept {
    std::unique_lock lock(mutex_);
    for (;;) {
      Alarm* alarm = heap_.first();
      if (!alarm) {
        changed_.wait(lock);
      } else if (const TimePoint at = alarm->at; std::chrono::steady_clock::now() < at) {
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

  std::mutex mutex_;
  std::condition_variable changed_;
  AlarmHeap heap_;
  bool started_ = false;
};

class SteadyClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return std::chrono::steady_clock::now(); }
  TimePoint glance() const noexcept override {
    return TimePoint(std::chrono::nanoseconds(base::counter_now()));
  }
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override {
    base::futex_wait(word, value, until);
  }
  DeadlineDriver& deadlines() noexcept override { return timer_; }

 private:
  TimerThread timer_;
};

}  // namespace

Clock& Clock::steady() noexcept {
  // Made in place and never destroyed: static gates may use it to the very end.
  alignas(SteadyClock) static std::byte storage[sizeof(SteadyClock)];
  static SteadyClock* clock = new (storage) SteadyClock;
  return *clock;
}

}  // namespace bulkhead
