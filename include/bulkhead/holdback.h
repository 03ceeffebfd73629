// holdback.h - as saturation nears, lower priorities lose admission gradually, before higher ones lose any.
//
//   bulkhead::Bulkhead db{{.name = "db", .max_concurrent = 100, .holdback = bulkhead::HoldbackOptions{}}};
//   auto cached = db.execute(refresh_cache, {.priority = bulkhead::Priority::best_effort});  // rejected first, from 80 % on
//   auto placed = db.execute(place_order, {.priority = bulkhead::Priority::critical});       // never held back
//
// Saturation is the number of calls in flight and in line over the room for them (max_concurrent + max_queue). Up to
// best_effort_from every call is admitted. From there to normal_from a growing share of the best_effort calls is rejected with
// Reason::holdback, above normal_from all of them; from normal_from to 100 % the same happens to normal calls. Critical
// calls are never held back.
//
// Other gauges can raise the saturation: the age of the line, the pressure of the host (/proc/pressure), and a function of
// your own, such as the lag of an event loop. The highest of them counts:
//
//   bulkhead::HoldbackOptions holdback{.max_queue_age = 200ms, .max_cpu_pressure = 0.4, .gauge = [] { return loop_lag(); }};
//
// Headroom: when a critical call finds hardly a free place (2 % of the room, at least one), the thresholds of the other
// priorities move down for a while. So hardly more critical calls are rejected than without the others, also if there is
// no line.
//
// Threads: every member may be called from any thread.
// Promises: critical is always admitted. Of n calls of a tier at a constant saturation, the share given above is rejected,
//   to within one call. Without further gauges nothing reads a clock.
// Not promised: an exact share while the saturation changes, and no loss of critical calls beyond the capacity.
// Cost: with BulkheadOptions::holdback unset, nothing. Otherwise a few atomic operations per call, no lock and no
//   allocation. With further gauges, one call in 100 ms also reads them, on its own thread.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bulkhead/clock.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

struct HoldbackOptions {
  // Saturation from which calls of this tier lose admission: above 0 to 1. best_effort_from is at most normal_from.
  double best_effort_from = 0.80;
  double normal_from = 0.95;
  // How far saturation must fall before lower tiers regain admission: 0 to 0.5.
  double hysteresis = 0.05;
  bool shadow = false;  // counts the calls that it would hold back, and admits them
  // Further gauges, each as the reading that counts as a saturation of 100 %; 0: not used.
  std::chrono::nanoseconds max_queue_age{};  // how long the first call in line has waited so far
  double max_cpu_pressure = 0, max_memory_pressure = 0, max_io_pressure = 0;  // `some avg10` / 100: 0 to 1
  // Where the pressure files are: `cpu`, or `cpu.pressure` as in the directory of a cgroup; `memory` and `io` likewise.
  std::string pressure_directory = "/proc/pressure";
  // Returns a saturation; 1 is 100 %. Called at most ten times a second by one thread at a time. It must not block or call
  // the bulkhead. What it throws counts as 0, and so does a value that is not a number.
  std::function<double()> gauge{};
};

// The calls in flight and in line, and the room for them.
struct HoldbackLoad {
  std::uint64_t used = 0, room = 1;
  bool in_line = false;  // calls wait
};

struct HoldbackSnapshot {
  double saturation = 0;  // that the last decision used, with hysteresis and headroom
  double gauges = 0;      // the highest of the further gauges
  double headroom = 0;    // by which the thresholds were lowered for critical calls
  bool shadow = false;
  std::array<double, kPriorities> share{};        // of calls held back at this saturation
  std::array<std::uint64_t, kPriorities> held{};  // calls, also in shadow mode
};

class Holdback {
 public:
  explicit Holdback(const HoldbackOptions& options);  // std::invalid_argument naming the setting
  ~Holdback();
  Holdback(const Holdback&) = delete;
  Holdback& operator=(const Holdback&) = delete;

  // False: hold the call back. `now` is used only if reads_gauges().
  bool admits(Priority priority, const HoldbackLoad& load, TimePoint now) noexcept;
  // Whether a gauge, not the load, decides now.
  bool gauges_lead(const HoldbackLoad& load) const noexcept;
  bool reads_gauges() const noexcept { return reads_gauges_.load(std::memory_order_relaxed); }
  // A call has left the line, with a place or without, which it joined then. Waiting calls are assumed to be in order.
  void left_line(TimePoint joined) noexcept;

  void update(const HoldbackOptions& options);  // std::invalid_argument: nothing has changed
  HoldbackSnapshot snapshot() const;

 private:
  struct Gauges;
  void read_gauges(TimePoint now, const HoldbackLoad& load) noexcept;
  std::uint32_t share(Priority priority, std::uint32_t saturation) const noexcept;
  bool takes_share(std::size_t tier, std::uint32_t share) noexcept;

  // Shares and saturations are in units of 2^-24.
  std::atomic<std::uint32_t> best_effort_from_{0}, normal_from_{0}, hysteresis_{0};
  std::atomic<bool> shadow_{false}, reads_gauges_{false};
  std::atomic<bool> others_came_{false};  // calls of lower tiers were admitted since the headroom rose
  std::atomic<std::uint32_t> level_{0}, headroom_{0}, gauge_{0};
  std::atomic<std::int64_t> read_next_{0};
  std::atomic<std::int64_t> head_joined_{0};  // not before, in ns; 0: no call waited when the last one came
  // The sum of shares, modulo 2^32 units of 2^-32: a call is held back when it wraps.
  std::array<std::atomic<std::uint32_t>, kPriorities> owed_{};
  std::array<std::atomic<std::uint64_t>, kPriorities> held_{};
  std::unique_ptr<Gauges> gauges_;
};

}  // namespace bulkhead
