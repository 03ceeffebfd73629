// asio_clock.h - a clock whose timeouts are those of an Asio timer.
//
//   asio::io_context io;
//   bulkhead::AsioClock clock(io.get_executor());
//   bulkhead::Bulkhead payments{{.name = "payments", ..., .clock = &clock}};   // or of a gate, a pool, a whole registry
//
// The timeouts in line and of execution then ring on the executor, whoever waits, and the library's own timer
// thread is never started: for programs whose every thread is an event loop's. async_acquire() on a plain gate does
// without: each operation brings its own timer.
//
// A timeout that is set is work: io_context::run() does not end before it has come or is no longer needed. While nobody
// runs the executor, none comes.
// Threads: as any clock. It outlives what uses it, and is destroyed before its io_context.
// Cost: one timer for all that wait, touched when a time earlier than all others is set; no allocation but that
//   timer's own.
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
