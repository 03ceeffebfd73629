// watched_clock.h - virtual time that knows how often a thread has parked on it, so that a test can wait
// until a thread has gone to sleep, or has looked at the time again, without sleeping itself.
#pragma once

#include <atomic>
#include <cstdint>

#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead::tests {

class WatchedClock final : public Clock {
 public:
  TimePoint now() const noexcept override { return manual_.now(); }
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override {
    ++parked_;
    manual_.wait(word, value, until);
  }
  DeadlineDriver& deadlines() noexcept override { return manual_; }

  void advance(std::chrono::nanoseconds by) { manual_.advance(by); }
  int parked() const { return parked_; }
  // Until a thread that waits with a time limit has looked at the clock since this call.
  void until_looked_at() {
    until([this, before = parked()] { return parked() >= before + 2; });
  }

 private:
  ManualClock manual_;
  std::atomic<int> parked_ = 0;
};

}  // namespace bulkhead::tests
