// clock.h - where a gate gets its time from, so that every timing rule can be tested on virtual time.
//
//   bulkhead::ManualClock clock;                                   // in manual_clock.h
//   bulkhead::Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
//   clock.advance(50ms);                                           // waiters time out now, not in 50 ms
//
// Threads: every member may be called from any thread. A clock outlives the gates that use it.
// Cost: a gate reads the time only when something needs it: a wait, a deadline, a sampled call.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bulkhead {

using TimePoint = std::chrono::steady_clock::time_point;

inline constexpr TimePoint no_deadline = TimePoint::max();

// Something that must happen at a point in time unless it is disarmed before. It is embedded in the object
// that waits, so arming allocates nothing.
class Alarm {
 public:
  TimePoint at{};

  // The driver calls expire() once, when `at` has come and the alarm is still armed. The driver may hold a
  // lock of its own: expire() decides quickly, and never calls the driver. When it returns true, the driver
  // calls expired() after dropping its lock, and touches the alarm no more.
  virtual bool expire() noexcept = 0;
  virtual void expired() noexcept = 0;

 protected:
  Alarm() = default;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  virtual ~Alarm() = default;

 private:
  friend class AlarmHeap;
  Alarm* child_ = nullptr;
  Alarm* next_ = nullptr;
  Alarm* prev_ = nullptr;  // the previous sibling, or the parent of a first child
  bool armed_ = false;
};

// Fires the alarms of asynchronous waiters. The library has one on a lazily started thread, which a process that
// fork()s does not take along; an event loop or a simulator brings its own.
class DeadlineDriver {
 public:
  virtual void arm(Alarm& alarm) noexcept = 0;
  // After this returns, expire() is neither running nor will run. Harmless when the alarm is not armed.
  virtual void disarm(Alarm& alarm) noexcept = 0;

 protected:
  ~DeadlineDriver() = default;
};

class Clock {
 public:
  virtual TimePoint now() const noexcept = 0;
  // For measuring, not for deadlines: now(), give or take some microseconds, if that is cheaper.
  virtual TimePoint glance() const noexcept { return now(); }
  // Parks this thread while `word` holds `value`, until `until` at the latest. May return early.
  virtual void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                    TimePoint until) noexcept = 0;
  virtual DeadlineDriver& deadlines() noexcept = 0;

  static Clock& steady() noexcept;  // std::chrono::steady_clock, and the library's timer thread

 protected:
  ~Clock() = default;
};

}  // namespace bulkhead
