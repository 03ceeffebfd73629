// algorithm.h - the deterministic core of a limiter: windows of samples in, the next limit out.
//
// An algorithm knows no threads, no gate and no clock. Whoever drives it (limiter.cc, a test) gathers calls
// into a window until plan() is satisfied, gives it to decide(), puts the limit it returns in force, and goes
// on with an empty window.
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
  double round_trip = 0;  // mean of successes and timeouts, in ns; failures say nothing about time
  double cv2 = 0;         // their variance over their squared mean
  double in_flight = 0;   // mean at admission, of all calls
  std::uint32_t max_in_flight = 0;

  std::uint64_t samples() const { return succeeded + failed + timed_out; }
  double seconds() const { return std::chrono::duration<double>(end - begin).count(); }
  double goodput() const { return seconds() > 0 ? static_cast<double>(succeeded) / seconds() : 0; }
  double bad_share() const {
    return samples() ? static_cast<double>(failed + timed_out) / static_cast<double>(samples()) : 0;
  }
};

// When a window ends: with enough calls after min_time, or at max_time with at least one.
struct Plan {
  std::uint64_t samples = 10;
  nanoseconds min_time = std::chrono::seconds(1), max_time = std::chrono::seconds(1);
};

class Algorithm {
 public:
  virtual ~Algorithm() = default;
  // The next limit is the decision's `to`, within the bounds.
  virtual LimitDecision decide(const Window& window) noexcept = 0;
  virtual Plan plan() const noexcept = 0;
  virtual void set_bounds(Bounds bounds) noexcept = 0;  // takes the settled limit along
  virtual std::uint32_t settled() const noexcept = 0;   // the limit without the probe that may be running
  // Ends a probe and forgets its measures; the limit is settled() then.
  virtual void rest() noexcept {}
  virtual bool same_limit_only() const noexcept { return false; }
};

// The parts of a decision that only report the window.
LimitDecision report(const Window& window, LimitVerdict verdict, std::uint32_t to) noexcept;

std::unique_ptr<Algorithm> make_knee(const KneeOptions& options, Bounds bounds, std::uint32_t limit);
std::unique_ptr<Algorithm> make_aimd(const AimdOptions& options, Bounds bounds, std::uint32_t limit);
std::unique_ptr<Algorithm> make_vegas(const VegasOptions& options, Bounds bounds, std::uint32_t limit);
std::unique_ptr<Algorithm> make_gradient2(const Gradient2Options& options, Bounds bounds,
                                          std::uint32_t limit);
std::unique_ptr<Algorithm> make_algorithm(const LimiterOptions& options, std::uint32_t limit);

}  // namespace bulkhead::limiter
