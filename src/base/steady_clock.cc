#include <atomic>
#include <cstddef>
#include <exception>
#include <new>
#include <thread>

#include "base/alarm_loop.h"
#include "base/counter_clock.h"
#include "base/futex.h"
#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead {
namespace {

// One thread for all alarms of the process, started by the first alarm. It is never joined, because alarms may be armed
// until the process ends, and it holds nothing that has to be released.
class TimerThread final : public AlarmLoop {
 public:
  void arm(Alarm& alarm) noexcept override {
    AlarmLoop::arm(alarm);
    if (!started_.load(std::memory_order_acquire)) start();
  }

 private:
  // Without memory or a thread the alarms wait, and the next one tries again.
  void start() noexcept {
    detail::MutexLock lock(mutex_);
    if (started_) return;
#if defined(__cpp_exceptions)
    try {
      std::thread([this] { run(); }).detach();
    } catch (const std::exception&) {
      return;
    }
#else
    std::thread([this] { run(); }).detach();
#endif
    started_ = true;
  }

  detail::StdMutex mutex_;  // of start()
  std::atomic<bool> started_{false};
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
  // Never destroyed, because static gates may use it until the process ends.
  alignas(SteadyClock) static std::byte storage[sizeof(SteadyClock)];
  static SteadyClock* clock = new (storage) SteadyClock;
  return *clock;
}

}  // namespace bulkhead
