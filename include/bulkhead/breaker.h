// breaker.h - a circuit breaker: rejects calls while a dependency mostly fails or is slow, and probes when to resume.
//
//   bulkhead::Breaker payments{{.name = "payments", .window_calls = 50, .open_for = 5s}};
//   auto receipt = payments.run([&] { return pay(); });      // Result<Receipt>; a throw is a failure
//   if (!receipt) reply(503, receipt.error().retry_after);   // breaker_open
//
// In two steps, for code that composes it:
//
//   if (auto pass = payments.admit()) payments.complete(*pass, bulkhead::Outcome::failure, took);
//
// Closed: calls are admitted and counted. When at least `minimum_calls` are in the window and the share of failures, or
// of slow calls, reaches its threshold, the breaker opens: it rejects calls for `open_for`. Then it is half open: it
// admits at most `half_open_calls` probes. As soon as their results decide, it opens again (for longer, with `backoff`)
// or closes.
//
// Threads: every member may be called from any thread, also from the hook.
// Promises: a result counts only in the generation in which its call was admitted, so a call that began before a change
//   of state decides nothing after it. There are never more than `half_open_calls` concurrent probes, and each counts
//   once. An ignored probe is replaced by another. A probe that has not ended within `probe_lease` counts as failed, so
//   a hanging probe cannot keep the breaker half open.
// Not promised: that no call is admitted while the breaker opens; that a probe has ended when its lease has.
//   docs/design/breaker.md says how exact the windows are when threads race.
// Cost: closed, admit() is one relaxed load. complete() takes no lock: a few loads while the window contains only
//   successes, else an atomic addition and an exchange. A rejection is two loads and a count. Probes and changes of
//   state take a lock; so does the first result of each tenth of a time window, for a few dozen instructions.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bulkhead/clock.h"
#include "bulkhead/judge.h"
#include "bulkhead/result.h"

namespace bulkhead {

namespace detail {
class CallPath;
}

enum class BreakerState : std::uint8_t { closed, open, half_open };

enum class BreakerMode : std::uint8_t {
  automatic,
  forced_open,    // rejects every call
  forced_closed,  // admits every call, and counts
  metrics_only,   // as forced_closed; calls the hook when it would have opened
  disabled,       // admits every call, counts nothing
};

enum class BreakerWindow : std::uint8_t {
  calls,  // the last `window_calls` calls
  time,   // the calls that ended within the last `window_time`
};

// The reason for the last change of state.
enum class BreakerReason : std::uint8_t {
  created,
  failure_rate,
  slow_call_rate,
  open_time_over,
  probes_succeeded,
  probes_failed,
  probes_slow,
  probe_expired,  // the deciding probe did not end within its lease
  mode_changed,
  reset,
  window_changed,
  forced,  // force_open() or force_half_open()
};

constexpr std::string_view to_string(BreakerState state) noexcept {
  constexpr std::string_view kNames[] = {"closed", "open", "half_open"};
  const auto i = static_cast<std::size_t>(state);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}
constexpr std::string_view to_string(BreakerMode mode) noexcept {
  constexpr std::string_view kNames[] = {"automatic", "forced_open", "forced_closed", "metrics_only",
                                         "disabled"};
  const auto i = static_cast<std::size_t>(mode);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}
constexpr std::string_view to_string(BreakerReason reason) noexcept {
  constexpr std::string_view kNames[] = {
      "created",     "failure_rate",  "slow_call_rate", "open_time_over", "probes_succeeded", "probes_failed",
      "probes_slow", "probe_expired", "mode_changed",   "reset",          "window_changed",   "forced"};
  const auto i = static_cast<std::size_t>(reason);
  return i < std::size(kNames) ? kNames[i] : "unknown";
}

struct BreakerTransition {
  std::string_view name;
  BreakerState from{}, to{};
  BreakerReason reason{};
  std::uint64_t generation = 0;  // increases with every change; orders the events of different threads
  TimePoint at{};
  std::chrono::nanoseconds open_for{};  // after opening: the time until the first probe
  bool would_open = false;              // no change: a threshold was reached with BreakerMode::metrics_only
};

struct BreakerOptions {
  std::string name{};
  BreakerWindow window = BreakerWindow::calls;
  std::uint32_t window_calls = 100;                                  // 1 to 32'768
  std::chrono::nanoseconds window_time = std::chrono::seconds(100);  // 10 ms or more; kept in tenths
  std::uint32_t minimum_calls = 100;  // nothing is decided before; at most window_calls
  double failure_rate = 0.5;          // share at which it opens: above 0, to 1
  double slow_call_rate = 1;          // the share of slow calls, whether they failed or not
  std::chrono::nanoseconds slow_call = std::chrono::seconds(60);  // a longer call is slow

  std::chrono::nanoseconds open_for = std::chrono::seconds(60);
  double backoff = 1;  // factor of the open time each time the probes fail
  std::chrono::nanoseconds max_open =
      std::chrono::minutes(10);  // the longest open time of backoff; at least open_for
  double jitter = 0;             // share by which the open time varies at random: 0 to 1

  std::uint32_t half_open_calls = 10;  // number of probes that decide, and maximum in flight: 1 to 1000
  double half_open_failure_rate = 0;   // share of failed probes that opens it again; 0: failure_rate
  std::chrono::nanoseconds probe_lease = std::chrono::seconds(60);

  BreakerMode mode = BreakerMode::automatic;
  // Called without a lock, after the change. Exceptions are caught and counted.
  std::function<void(const BreakerTransition&)> on_transition{};
  Clock* clock = nullptr;  // default: Clock::steady()
  std::uint64_t seed = 0;  // of the jitter; 0: a different one for each breaker
};

// What complete() needs to know about an admitted call.
struct BreakerPass {
  std::uint64_t generation = 0;
  std::uint32_t probe = 0;  // number of the probe; 0: an ordinary call
  bool is_probe() const noexcept { return probe != 0; }
};

struct BreakerRejection {
  BreakerState state = BreakerState::open;
  std::chrono::nanoseconds retry_after{};  // 0: not known (forced open)
};

struct BreakerSnapshot {
  BreakerState state{};
  BreakerMode mode{};
  BreakerReason reason{};  // of the last change of state
  TimePoint since{};
  std::uint64_t generation = 0;
  // Of the window; while half open, of the probes that have ended.
  std::uint64_t calls = 0, failures = 0, slow = 0;
  bool above_threshold = false;  // the rates of the window have reached a threshold
  std::uint32_t probes_in_flight = 0;
  TimePoint next_probe = no_deadline;      // when the next call may be admitted, unless closed
  std::uint64_t opens = 0;                 // since construction
  std::array<std::uint64_t, 3> entered{};  // changes into each BreakerState, since construction
  std::uint32_t opens_in_a_row = 0;        // without closing in between
  std::uint64_t rejected = 0;
  std::uint64_t late = 0;  // results of an earlier generation, and of probes after their lease
  std::uint64_t hook_errors = 0;

  double failure_rate() const { return rate(failures); }
  double slow_call_rate() const { return rate(slow); }

 private:
  double rate(std::uint64_t n) const {
    return calls == 0 ? 0 : static_cast<double>(n) / static_cast<double>(calls);
  }
};

class Breaker {
 public:
  explicit Breaker(BreakerOptions options);  // std::invalid_argument; BreakerOptions{...} names a wrong field
  ~Breaker();
  Breaker(const Breaker&) = delete;
  Breaker& operator=(const Breaker&) = delete;

  using Admission = Result<BreakerPass, BreakerRejection>;

  // Every pass must be completed, once, with Outcome::ignored if the call did not take place or was cancelled.
  Admission admit() noexcept {
    const std::uint64_t word = look();
    if (!(word & kAsk)) [[likely]]
      return BreakerPass{.generation = word >> kFlags};
    return ask(clock_.now());
  }
  Admission admit(TimePoint now) noexcept {
    const std::uint64_t word = look();
    if (!(word & kAsk)) [[likely]]
      return BreakerPass{.generation = word >> kFlags};
    return ask(now);
  }
  // Without `now` the clock is read only where the time matters: probes, time windows, opening.
  void complete(BreakerPass pass, Outcome outcome, std::chrono::nanoseconds took) noexcept;
  void complete(BreakerPass pass, Outcome outcome, std::chrono::nanoseconds took, TimePoint now) noexcept;

  // Admits, calls fn(), judges its result or exception, and completes. Returns Result<return type of fn>.
  template <class F, class J = std::remove_const_t<decltype(no_opinion)>>
  auto run(F&& fn, const J& judge = no_opinion);

  // Applies to the next call. Counts are kept, unless the kind or size of the window changes; a probe in flight keeps its
  // lease. `name`, `clock`, `seed`, `on_transition` and `mode` do not change. std::invalid_argument as in the
  // constructor; then nothing has changed.
  void update(const BreakerOptions& options);
  void set_mode(BreakerMode mode) noexcept;  // to automatic: closed, with an empty window
  void reset() noexcept;                     // closed, with an empty window; keeps the mode
  // Opens and rejects calls for this long, instead of `open_for` with backoff and jitter; 0 or less: until the next
  // call. Then it is half open, as after any opening. The mode becomes automatic.
  void force_open(std::chrono::nanoseconds how_long) noexcept;
  void force_half_open() noexcept;  // the next calls are probes; the mode becomes automatic

  BreakerSnapshot snapshot() const noexcept;  // takes the lock for a moment
  std::string_view name() const noexcept;
  Rejection rejection(
      const BreakerRejection& why) const noexcept;  // as a Rejection, with the name of the breaker
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class detail::CallPath;
  friend class BreakerCore;
  // The word: the generation, and flags for the fast paths of admit() and complete().
  static constexpr unsigned kFlags = 4;
  static constexpr std::uint64_t kAsk = 1, kCount = 2, kHalfOpen = 4, kForced = 8;

  // Relaxed: a thread that sees a change late admits a call whose result then counts as late.
  std::uint64_t look() const noexcept { return word_.load(std::memory_order_relaxed); }
  Admission ask(TimePoint now) noexcept;

  std::atomic<std::uint64_t> word_{0};
  Clock& clock_;
  std::unique_ptr<class BreakerCore> core_;
};

template <class F, class J>
auto Breaker::run(F&& fn, const J& judge) {
  using R = std::invoke_result_t<F&>;
  const Admission pass = admit();
  if (!pass) return Result<R>(unexpect, rejection(pass.error()));
  // Completes on every path; without a result or an exception of fn the outcome is `ignored`.
  struct Completion {
    Breaker& breaker;
    BreakerPass pass;
    TimePoint start;
    Outcome outcome = Outcome::ignored;
    ~Completion() {
      const TimePoint now = breaker.clock().now();
      breaker.complete(pass, outcome, now - start, now);
    }
  } completion{*this, *pass, clock_.now()};
  const auto call = [&]() -> Result<R> {
    if constexpr (std::is_void_v<R>) {
      std::forward<F>(fn)();
      completion.outcome = Outcome::success;
      return {};
    } else {
      Result<R> result(std::in_place, std::forward<F>(fn)());
      completion.outcome = judge_result(judge, *result);
      return result;
    }
  };
#if defined(__cpp_exceptions)
  try {
    return call();
  } catch (...) {
    completion.outcome = judge_exception(judge, std::current_exception());
    throw;
  }
#else
  return call();
#endif
}

}  // namespace bulkhead
