// algorithm.h - the deterministic core of a limiter: windows of samples in, the next limit out.
//
// An algorithm uses no threads, no gate and no clock. Its driver (limiter.cc or a test) collects calls into a window until
// plan() is satisfied, passes it to decide(), applies the limit that it returns, and continues with an empty window.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "bulkhead/limiter.h"

namespace bulkhead::limiter {

using std::chrono::nanoseconds;

struct Bounds {
  std::uint32_t floor = 1, ceiling = 1000;
};

// Calls that completed in [begin, end). With Algorithm::same_limit_only() they were all admitted under `limit`.
struct Window {
  TimePoint begin{}, end{};
  std::uint32_t limit = 0;
  std::uint64_t succeeded = 0, failed = 0, timed_out = 0;
  std::uint64_t filled = 0;     // of these, calls that took the last place
  std::uint64_t held_back = 0;  // rejected before they asked the gate, because it was nearly full
  double round_trip = 0;        // mean of successes and timeouts, in ns; failures are left out
  double cv2 = 0;               // their variance over their squared mean
  double in_flight = 0;         // mean at admission, of all calls
  std::uint32_t max_in_flight = 0;
  std::uint64_t rejected = 0;  // rejected because the gate was full, with held_back
  std::uint64_t given_up = 0;  // by their callers, too early to say anything; no samples

  std::uint64_t samples() const { return succeeded + failed + timed_out; }
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  double goodput() const { return seconds() > 0 ? static_cast<double>(succeeded) / seconds() : 0; }
  double bad_share() const {
    return samples() ? static_cast<double>(failed + timed_out) / static_cast<double>(samples()) : 0;
  }
};

// When a window ends: with enough calls after min_time, or at max_time with at least one.
struct WindowPlan {
  std::uint64_t samples = 10;
  nanoseconds min_time = std::chrono::seconds(1), max_time = std::chrono::seconds(1);
  bool any_end = false;  // calls that were given up early end the window, too
  // Calls that fail or are given up after more than this count as timed out: see Sampler::peek().
  nanoseconds slow = nanoseconds::max();
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The next limit is the decision's `to`, within the bounds.
  virtual LimitDecision decide(const Window& window) noexcept = 0;
  virtual WindowPlan plan(TimePoint now) const noexcept = 0;  // for a window that begins now
  virtual void set_bounds(Bounds bounds) noexcept = 0;        // also moves the settled limit
  virtual std::uint32_t settled() const noexcept = 0;         // the limit without a probe in progress
  // Ends a probe and drops its measures; the limit is then settled().
  virtual void rest() noexcept {}
  // The difference between the clock that all instances share and a TimePoint.
  virtual void align(nanoseconds /*offset*/) noexcept {}
  virtual bool same_limit_only() const noexcept { return false; }
};

// The parts of a decision that only report the window.
LimitDecision report(const Window& window, LimitVerdict verdict, std::uint32_t to) noexcept;

std::unique_ptr<Algorithm> make_knee(const KneeOptions& options, nanoseconds target, Bounds bounds,
                                     std::uint32_t limit);
std::unique_ptr<Algorithm> make_aimd(const AimdOptions& options, Bounds bounds, std::uint32_t limit);
std::unique_ptr<Algorithm> make_vegas(const VegasOptions& options, Bounds bounds, std::uint32_t limit);
std::unique_ptr<Algorithm> make_gradient2(const Gradient2Options& options, Bounds bounds,
                                          std::uint32_t limit);
std::unique_ptr<Algorithm> make_algorithm(const LimiterOptions& options, std::uint32_t limit);

}  // namespace bulkhead::limiter
