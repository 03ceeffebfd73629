// clock.h - the source of time of a gate; tests replace it by virtual time.
//
//   bulkhead::ManualClock clock;                                   // in manual_clock.h
//   bulkhead::Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
//   clock.advance(50ms);                                           // calls that wait up to 50 ms time out now
//
// Threads: every member may be called from any thread. A clock must outlive the gates that use it.
// Cost: a gate reads the time only for a wait, a deadline or a sampled call.
#pragma once

#include "bulkhead/detail/language.h"

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bulkhead {

using TimePoint = std::chrono::steady_clock::time_point;

inline constexpr TimePoint no_deadline = TimePoint::max();

// `begin + span`, or the last (first) time point if the sum would overflow. Use it for every span that may be
// wait_forever: `begin + wait_forever` overflows into the past.
constexpr TimePoint saturating_add(TimePoint begin, std::chrono::nanoseconds span) noexcept {
  const std::int64_t from = begin.time_since_epoch().count(), by = span.count();
  if (by > 0 && from > TimePoint::max().time_since_epoch().count() - by) return TimePoint::max();
  if (by < 0 && from < TimePoint::min().time_since_epoch().count() - by) return TimePoint::min();
  return begin + span;
}

// An event at a point in time, unless it is disarmed before. It is embedded in the object that waits, so arming allocates
// nothing.
class Alarm {
 public:
  TimePoint at{};

  // The driver calls expire() once, at `at`, if the alarm is still armed. The driver may hold a lock of its own: expire()
  // must return quickly and must not call the driver. If it returns true, the driver calls expired() after releasing its
  // lock, and does not access the alarm afterwards.
  virtual bool expire() noexcept = 0;
  virtual void expired() noexcept = 0;

 protected:
  Alarm() = default;
  Alarm(const Alarm&) = delete;
  Alarm& operator=(const Alarm&) = delete;
  virtual ~Alarm() = default;

 private:
  friend class AlarmHeap;
  Alarm* left_ = nullptr;
  Alarm* right_ = nullptr;
  Alarm* parent_ = nullptr;
  std::uint8_t rank_ =
      0;  // length of the shortest path to a missing child, including this alarm; 0: not in a heap
};

// Fires the alarms of asynchronous waiters. The library has a driver on a thread that starts on demand and does not exist
// in the child of a fork(); an event loop or a simulator provides its own.
class DeadlineDriver {
 public:
  virtual void arm(Alarm& alarm) noexcept = 0;
  // After this returns, expire() is not running and will not run. No effect if the alarm is not armed.
  virtual void disarm(Alarm& alarm) noexcept = 0;

 protected:
  ~DeadlineDriver() = default;
};

class Clock {
 public:
  virtual TimePoint now() const noexcept = 0;
  // For measurements, not for deadlines: now() within some microseconds, if that is cheaper.
  virtual TimePoint glance() const noexcept { return now(); }
  // Parks this thread while `word` holds `value`, until `until` at the latest. May return early.
  virtual void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value,
                    TimePoint until) noexcept = 0;
  virtual DeadlineDriver& deadlines() noexcept = 0;

  static Clock& steady() noexcept;  // std::chrono::steady_clock and the timer thread of the library

 protected:
  ~Clock() = default;
};

}  // namespace bulkhead
