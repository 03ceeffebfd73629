// limiter.h - moves a gate's limit to where the dependency's capacity is, between a floor and a ceiling.
//
//   bulkhead::Gate search{{.name = "search", .max_concurrent = 20}};
//   bulkhead::AdaptiveLimiter limiter{search, {.floor = 2, .ceiling = 500}};
//
//   if (auto permit = search.acquire()) {
//     const auto call = limiter.admitted(now(), search.snapshot().in_flight);
//     const bool ok = query();
//     limiter.completed(call, now(), ok ? bulkhead::CallEnd::success : bulkhead::CallEnd::failure);
//   }
//   log(limiter.snapshot().why.text());
//   // limit 55 -> 61 (raised): goodput 502/s at 46, 597/s at 55, gain 0.96 of 1, noise 0.11, ...
//
// Threads: every member may be called from any thread, also from the gate's hooks and handlers. The gate and
//   the limiter's clock outlive the limiter, and nobody else resizes the gate meanwhile.
// Promises: the limit stays within floor and ceiling. It moves only while the calls in flight press against
//   it, and up only when more concurrency gave more successes per second. Calls admitted under another limit
//   decide nothing. The gate ends up with the last limit decided or asked for, never with an older one.
// Not promised: a good limit where calls are too few (a window needs some hundreds of them) or where others
//   load the same dependency as much as this gate does.
// Cost: admitted() is one relaxed load; completed() four relaxed additions on a cache line that few threads
//   share, no lock; about 33 ns of processor time together. One call in some hundreds ends a window: it
//   takes a lock nobody waits for, folds the counts, and may resize the gate, which can run handlers of
//   calls in line.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>

#include "bulkhead/clock.h"
#include "bulkhead/gate.h"

namespace bulkhead {

enum class LimitAlgorithm : std::uint8_t {
  knee,       // ours: goodput compared at two limits; see docs/design/limiter.md
  aimd,       // the known ones, for comparison and for those who trust them
  vegas,      //
  gradient2,  //
};

constexpr std::string_view to_string(LimitAlgorithm algorithm) noexcept {
  constexpr std::string_view names[] = {"knee", "aimd", "vegas", "gradient2"};
  const auto i = static_cast<std::size_t>(algorithm);
  return i < std::size(names) ? names[i] : "unknown";
}

// How a call ended, for the limiter.
enum class CallEnd : std::uint8_t {
  success,
  failure,  // the dependency said no; it is no success, however fast it came
  timeout,  // given up by its execution timeout
  ignored,  // says nothing about the dependency: cancelled by its caller, refused locally
};

// The settings of LimitAlgorithm::knee. The defaults suit calls of 1 ms to 1 s.
struct KneeOptions {
  double margin = 1.1;  // the limit aimed at, in capacities: above 1 to 1.5
  double dip = 0.85;    // how low a probe goes, in limits: 0.5 to below 1 / margin
  std::chrono::nanoseconds min_window = std::chrono::milliseconds(200);
  std::chrono::nanoseconds max_window = std::chrono::seconds(10);
  std::chrono::nanoseconds max_quiet = std::chrono::seconds(5);  // between probes when nothing changes
};

struct AimdOptions {
  double backoff = 0.9;  // 0.5 to below 1
  std::chrono::nanoseconds timeout = std::chrono::seconds(5);
};

struct VegasOptions {
  double smoothing = 1;  // above 0 to 1
  std::uint32_t probe_multiplier = 30;
  std::uint32_t seed = 1;  // of the jitter between probes
};

struct Gradient2Options {
  double smoothing = 0.2;      // above 0 to 1
  double rtt_tolerance = 1.5;  // at least 1
  std::uint32_t queue_size = 4;
  std::uint32_t long_window = 600;
};

struct LimiterOptions {
  LimitAlgorithm algorithm = LimitAlgorithm::knee;
  std::uint32_t floor = 1;
  std::uint32_t ceiling = 1000;
  std::uint32_t initial = 0;  // 0: the gate's limit, brought between floor and ceiling
  KneeOptions knee{};
  AimdOptions aimd{};
  VegasOptions vegas{};
  Gradient2Options gradient2{};
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

// Why this limit: the last window and what was made of it.
struct LimitDecision {
  LimitVerdict verdict = LimitVerdict::started;
  TimePoint at{};
  std::uint32_t from = 0, to = 0;  // the limit in force before and after
  // What was compared; 0 if nothing was. Goodput is successes per second.
  std::uint32_t low = 0, high = 0;
  double low_goodput = 0, high_goodput = 0;
  // 1: goodput grew as the limit did. 0: not at all. `noise` is its standard error.
  double gain = 0, noise = 0;
  // The window.
  double goodput = 0;
  double in_flight = 0;  // mean at admission
  std::chrono::nanoseconds round_trip{};
  std::uint64_t samples = 0;
  double bad_share = 0;  // failures and timeouts

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

// What a call remembers of its admission.
struct LimiterCall {
  TimePoint start{};
  std::uint32_t epoch = 0;
  std::uint32_t in_flight = 0;
};

class AdaptiveLimiter {
 public:
  // std::invalid_argument naming the setting. Resizes the gate at once if its limit is not `initial`.
  AdaptiveLimiter(Gate& gate, const LimiterOptions& options);
  ~AdaptiveLimiter();
  AdaptiveLimiter(const AdaptiveLimiter&) = delete;
  AdaptiveLimiter& operator=(const AdaptiveLimiter&) = delete;

  // When the call is admitted. `in_flight` counts it too.
  LimiterCall admitted(TimePoint now, std::uint32_t in_flight) const noexcept;
  // When it has ended, after its permit was released or before.
  void completed(const LimiterCall& call, TimePoint now, CallEnd end) noexcept;

  // At once: the limit is brought between the new floor and ceiling; another algorithm, or other settings of
  // the same, start afresh from there. std::invalid_argument: nothing has changed.
  void update(const LimiterOptions& options);
  void hold(bool on);  // true: the settled limit stays as it is, and nothing is learnt
  void reset();        // forgets what was learnt and starts from the initial limit

  std::uint32_t limit() const noexcept;
  LimiterSnapshot snapshot() const;
  LimiterOptions options() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead
