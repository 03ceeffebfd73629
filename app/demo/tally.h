// tally.h - what happened to the calls of a route, counted as it happens.
//
// A Tally is written by the event loop and may be read at any time; a Count is a copy that can be added,
// subtracted and asked. Every call ends up as served, as rejected for one reason, or as failed, so when a run is
// over calls == served + rejected() + failed.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>

#include "bulkhead/histogram.h"
#include "bulkhead/rejection.h"

namespace bulkhead::demo {

struct Count {
  std::uint64_t calls = 0, served = 0, failed = 0;
  std::array<std::uint64_t, kReasons> rejected_by_reason{};
  HistogramCounts wait;      // from the intended arrival to the connection
  HistogramCounts response;  // from the intended arrival to the answer, of served calls

  std::uint64_t rejected() const noexcept;
  std::uint64_t rejected(Reason reason) const noexcept {
    return rejected_by_reason[static_cast<std::size_t>(reason)];
  }
  std::uint64_t decided() const noexcept { return served + rejected() + failed; }
  double served_share() const noexcept;  // of the decided ones; 1 when there are none
  Count& operator+=(const Count& other) noexcept;
  Count& operator-=(const Count& earlier) noexcept;
};

class Tally {
 public:
  void call() noexcept { add(calls_); }
  void admit(std::uint64_t waited_ns) noexcept { wait_.record(waited_ns); }
  void serve(std::uint64_t response_ns) noexcept {
    response_.record(response_ns);
    add(served_);
  }
  void fail() noexcept { add(failed_); }
  void reject(Reason reason) noexcept { add(rejected_[static_cast<std::size_t>(reason)]); }
  Count read() const noexcept;

 private:
  // Relaxed: counters for reports and displays, nothing is published through them.
  static void add(std::atomic<std::uint64_t>& n) noexcept { n.fetch_add(1, std::memory_order_relaxed); }

  std::atomic<std::uint64_t> calls_{0}, served_{0}, failed_{0};
  std::array<std::atomic<std::uint64_t>, kReasons> rejected_{};
  Histogram wait_, response_;
};

}  // namespace bulkhead::demo
