// limiter.h - adapts the max_concurrent of a gate, or the total of a group, to the capacity of its dependency, between a floor
// and a ceiling.
//
//   bulkhead::Gate search{{.name = "search", .max_concurrent = 20}};
//   bulkhead::AdaptiveLimiter limiter{search, {.floor = 2, .ceiling = 500}};
//
//   if (auto permit = search.acquire()) {
//     const auto call = limiter.admitted(now(), search.snapshot().in_flight);
//     const bool ok = succeeds();
//     limiter.completed(call, now(), ok ? bulkhead::Outcome::success : bulkhead::Outcome::failure);
//   }
//   log(limiter.snapshot().why.text());
//   // limit 57 -> 49 (raised): goodput 1163/s at 48, 1236/s at 57, gain 0.35 of 1, noise 0.19; 134 calls,
//   // 1211/s good, 57.0 in flight, 46 ms each (42 ms without load), 0.0 % bad, 31 rejected: calls hardly wait
//
// A group has one limiter for all members, see group.h: AdaptiveLimiter limiter{group, {.floor = 4}}. A Bulkhead reports its
// calls by itself: to a limiter of its own with BulkheadOptions::adaptive, to that of its group with `limiter`.
//
// Threads: every member may be called from any thread, also from the gate's hooks and handlers. The gate and
//   the limiter's clock must outlive the limiter, and only the limiter may resize the gate.
// Promises: the limit stays within floor and ceiling. It changes only while it is the bottleneck: most of it is in use, or
//   calls are rejected. It rises where more concurrency brings more successes per second or where calls do not wait at the
//   dependency, and falls where they wait. When every call times out it is halved, down to the floor, and recovers when
//   calls succeed. Calls that fail late or are given up late count as timed out: once a call has succeeded, late is longer
//   than a call takes without load, and 1.5 times as long while others succeed. Calls admitted under another limit decide
//   nothing. The gate gets the last limit decided or requested, never an older one.
// Several instances may call one dependency, each with its own limiter: they compare limits in the same slots of the wall
//   clock, so their clocks should agree within some tenths of a second. With clocks that differ more, calls wait longer
//   at the dependency, bounded by timeouts.
// Not promised: a good limit where calls are too few (a comparison needs some dozens of them), or where most of
//   the load of the dependency comes from callers without a limiter.
// Cost: admitted() is one relaxed load; completed() is four relaxed additions on a cache line that few threads share,
//   without a lock (docs/benchmarks.md). One call in some hundreds ends a window: it takes a lock, which other
//   calls do not wait for, adds up the counts, reads two clocks, and may resize the gate, which can run handlers of
//   waiting calls.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "bulkhead/adaptable.h"
#include "bulkhead/clock.h"
#include "bulkhead/gate.h"

namespace bulkhead {

enum class LimitAlgorithm : std::uint8_t {
  knee,       // the default: compares two limits in slots of the clock; see docs/design/limiter.md
  aimd,       // published algorithms, for comparison
  vegas,      //
  gradient2,  //
};

constexpr std::string_view to_string(LimitAlgorithm algorithm) noexcept {
  constexpr std::string_view kNames[] = {"knee", "aimd", "vegas", "gradient2"};
  const auto i = static_cast<std::size_t>(algorithm);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

// The settings of LimitAlgorithm::knee. The defaults suit calls of 1 ms to 1 s.
struct KneeOptions {
  // The target round trip as a multiple of the round trip without load: above 1 to 1.5. A low limit has a longer target:
  // about 1.3 times the round trip without load at a limit of 4, 1.1 times at 50.
  double margin = 1.02;
  double dip = 0.85;  // how far a probe lowers the limit, as a factor: 0.5 to below 1 / margin
  std::chrono::nanoseconds min_window = std::chrono::milliseconds(200);
  std::chrono::nanoseconds max_window = std::chrono::seconds(10);
  // The longest time between two tests at half the limit in steady operation.
  std::chrono::nanoseconds max_quiet = std::chrono::seconds(64);

  friend bool operator==(const KneeOptions&, const KneeOptions&) = default;
};

struct AimdOptions {
  double backoff = 0.9;  // 0.5 to below 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);

  friend bool operator==(const AimdOptions&, const AimdOptions&) = default;
};

struct VegasOptions {
  double smoothing = 1;  // above 0 to 1
  std::uint32_t probe_multiplier = 30;
  std::uint32_t seed = 1;  // of the jitter between probes

  friend bool operator==(const VegasOptions&, const VegasOptions&) = default;
};

struct Gradient2Options {
  double smoothing = 0.2;      // above 0 to 1
  double rtt_tolerance = 1.5;  // at least 1
  std::uint32_t queue_size = 4;
  std::uint32_t long_window = 600;

  friend bool operator==(const Gradient2Options&, const Gradient2Options&) = default;
};

struct LimiterOptions {
  LimitAlgorithm algorithm = LimitAlgorithm::knee;
  std::uint32_t floor = 1;
  std::uint32_t ceiling = 1000;
  std::uint32_t initial =
      0;  // 0: the max_concurrent of the gate or the total of the group, within floor and ceiling
  // knee: the highest limit whose mean round trip stays below this, instead of the knee; 0: none.
  std::chrono::nanoseconds target_latency{};
  KneeOptions knee{};
  AimdOptions aimd{};
  VegasOptions vegas{};
  Gradient2Options gradient2{};

  friend bool operator==(const LimiterOptions&, const LimiterOptions&) = default;
};

enum class LimitVerdict : std::uint8_t {
  started,       // nothing measured yet
  measured,      // a first measure of this limit, or a window between two limits
  steady,        // nothing has changed since the last probe
  probing,       // another limit is being tried
  kept,          // the probe confirmed the limit
  raised,        // more concurrency gave more goodput
  lowered,       // less concurrency gave as much goodput
  demand_bound,  // the calls in flight do not press against the limit
  no_goodput,    // no call succeeded
  unsettled,     // what was measured fits no limit: the dependency changed meanwhile
  held,          // hold() is in force
  set,           // update() or reset() asked for it
};
inline constexpr std::size_t kLimitVerdicts = 12;
std::string_view to_string(LimitVerdict verdict) noexcept;

// The last window and the decision made from it.
struct LimitDecision {
  LimitVerdict verdict = LimitVerdict::started;
  TimePoint at{};
  std::uint32_t from = 0, to = 0;  // the limit in force before and after
  // The compared limits; 0 without a comparison. Goodput is successes per second.
  std::uint32_t low = 0, high = 0;
  double low_goodput = 0, high_goodput = 0;
  // 1: goodput grew as the limit did. 0: not at all. `noise` is its standard error.
  double gain = 0, noise = 0;
  // The window.
  double goodput = 0;
  double in_flight = 0;  // mean at admission
  std::chrono::nanoseconds round_trip{};
  std::chrono::nanoseconds unloaded{};  // the round trip without load, as far as it is known; else 0
  std::uint64_t samples = 0;
  double bad_share = 0;        // failures and timeouts
  std::uint64_t rejected = 0;  // by the gate, because it was full
  std::string_view because{};  // one clause of plain text; a string literal

  std::string text() const;  // one line
};

struct LimiterSnapshot {
  LimitAlgorithm algorithm = LimitAlgorithm::knee;
  std::uint32_t limit = 0;    // in force
  std::uint32_t settled = 0;  // what it is when no probe runs
  std::uint32_t floor = 0, ceiling = 0;
  bool held = false;
  std::uint32_t epoch = 0;  // the number of limits so far
  std::uint64_t windows = 0, raised = 0, lowered = 0;
  std::uint64_t stale = 0;  // calls that were admitted under another limit
  LimitDecision why{};      // the last window
  LimitDecision change{};   // the last one that moved the settled limit
};

// Data of an admission that completed() needs.
struct LimiterCall {
  TimePoint start{};
  std::uint32_t epoch = 0;
  std::uint32_t in_flight = 0;
};

class AdaptiveLimiter {
 public:
  // std::invalid_argument naming the setting. Resizes the gate at once if its limit is not `initial`.
  AdaptiveLimiter(Gate& gate, const LimiterOptions& options);
  AdaptiveLimiter(Adaptable& group, const LimiterOptions& options);  // of a Group: its total
  ~AdaptiveLimiter();
  AdaptiveLimiter(const AdaptiveLimiter&) = delete;
  AdaptiveLimiter& operator=(const AdaptiveLimiter&) = delete;

  // Call it when a call is admitted. `in_flight` includes the call.
  LimiterCall admitted(TimePoint now, std::uint32_t in_flight) const noexcept;
  // The same for the limiter of a group: `gate` is the member that has admitted the call.
  LimiterCall admitted(TimePoint now, const Gate& gate) const noexcept;
  // Call it when the call has ended, before or after the release of its permit.
  void completed(const LimiterCall& call, TimePoint now, Outcome outcome) noexcept;

  // Call it when a call is rejected before it asks the gate, because lower priorities get no place in a gate that is
  // nearly full (holdback). It counts as demand, like a rejection of the full gate.
  void held_back() noexcept;

  // Applies immediately: the limit is moved within the new floor and ceiling; another algorithm, or other settings of it,
  // start there without history. The options in force change nothing. std::invalid_argument: nothing has changed.
  void update(const LimiterOptions& options);
  void hold(bool on);  // true: keeps the settled limit and stops learning
  void reset();        // discards what was learnt and starts from the initial limit

  std::uint32_t limit() const noexcept;
  LimiterSnapshot snapshot() const;
  LimiterOptions options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
