// asio_clock.h - a clock that fires timeouts with an Asio timer.
//
//   asio::io_context io;
//   bulkhead::AsioClock clock(io.get_executor());
//   bulkhead::Bulkhead payments{{.name = "payments", .clock = &clock}};   // or of a gate, a pool, a whole registry
//
// max_wait and execution_timeout then fire on the executor, and the timer thread of the library is never started: for programs
// in which every thread runs an event loop. async_acquire() on a plain gate needs no AsioClock: each operation has its own
// timer.
//
// A timeout that is set counts as work: io_context::run() does not return before it has fired or is no longer needed. While
// no thread runs the executor, no timeout fires.
// Threads: as any clock. It must outlive its users, and must be destroyed before its io_context.
// Cost: one timer for all waiting calls, updated when an earlier time is set; no allocation except that of the timer.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <memory>

#include "bulkhead/clock.h"

namespace bulkhead {

class AsioClock final : public Clock {
 public:
  explicit AsioClock(boost::asio::any_io_executor executor);
  ~AsioClock();
  AsioClock(const AsioClock&) = delete;
  AsioClock& operator=(const AsioClock&) = delete;

  TimePoint now() const noexcept override;
  TimePoint glance() const noexcept override;
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override;
  DeadlineDriver& deadlines() noexcept override;

 private:
  struct Timer;
  std::shared_ptr<Timer> timer_;  // shared with the handler, which may come when this is gone
};

}  // namespace bulkhead
