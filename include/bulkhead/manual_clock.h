// manual_clock.h - time that advances only by advance(): for tests and simulations with the real gate.
//
//   bulkhead::ManualClock clock;
//   bulkhead::Gate gate{{.max_concurrent = 1, .max_queue = 8, .max_wait = 1s, .clock = &clock}};
//   clock.advance(1s);                // every timeout up to that time fires, in order
//
// Threads: any. Alarms (asynchronous waiters) fire on the thread that advances; a parked thread reads this clock every
// millisecond of real time. The clock must outlive its gates.
#pragma once

#include <chrono>
#include <memory>

#include "bulkhead/clock.h"

namespace bulkhead {

class ManualClock final : public Clock, public DeadlineDriver {
 public:
  explicit ManualClock(TimePoint start = TimePoint(std::chrono::hours(1)));
  ~ManualClock();
  ManualClock(const ManualClock&) = delete;
  ManualClock& operator=(const ManualClock&) = delete;

  void advance(std::chrono::nanoseconds by);
  void advance_to(TimePoint then);  // a time in the past changes nothing
  // The time of the next alarm (no_deadline: none), so that a simulator can jump from event to event.
  TimePoint next_alarm() const noexcept;

  TimePoint now() const noexcept override;
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override;
  DeadlineDriver& deadlines() noexcept override { return *this; }
  void arm(Alarm& alarm) noexcept override;
  void disarm(Alarm& alarm) noexcept override;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
