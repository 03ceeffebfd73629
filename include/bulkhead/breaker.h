// breaker.h - stops calling what mostly fails or is too slow, and finds out when to call it again.
//
//   bulkhead::Breaker payments{{.name = "payments", .window_calls = 50, .open_for = 5s}};
//   auto receipt = payments.run([&] { return pay(); });      // Result<Receipt>; a throw is a failure
//   if (!receipt) reply(503, receipt.error().retry_after);   // breaker_open
//
// In parts, for those who compose it:
//
//   if (auto pass = payments.admit()) payments.complete(*pass, CallVerdict::failure, took);
//
// Closed: calls go through and are counted. When at least `minimum_calls` are in the window and the share
// of failures, or of slow calls, reaches its threshold, it opens: calls are refused for `open_for`. Then
// it is half open: at most `half_open_calls` probes go through, and as soon as their results cannot but
// end above or below the threshold, it opens again (for longer, with `backoff`) or closes.
//
// Threads: every member may be called from any thread, also from the hook.
// Promises: a result counts only in the generation it was admitted in, so what was started before a
//   change of state decides nothing after it. No more probes at once than `half_open_calls`, and each
//   counts once. An ignored probe gives its place back. A probe that does not come back within
//   `probe_lease` counts as failed, so a hung one cannot keep the breaker half open.
// Not promised: that no call slips through while it trips; that a probe has really ended when its lease
//   has. docs/design/breaker.md says how exact the windows are when threads race.
// Cost: closed, admit() is one relaxed load, complete() takes no lock: a few loads while the window is full of
//   successes, else an atomic addition and an exchange. A refusal is two loads and a count. Probes and changes of state take a lock.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <expected>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "bulkhead/clock.h"
#include "bulkhead/judge.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

enum class BreakerState : std::uint8_t { closed, open, half_open };

enum class BreakerMode : std::uint8_t {
  automatic,
  forced_open,    // refuses everything
  forced_closed,  // admits everything; counts, so that the rates can be seen
  metrics_only,   // the same, and the hook is told when it would have opened
  disabled,       // admits everything, counts nothing
};

enum class BreakerWindow : std::uint8_t {
  calls,  // the last `window_calls`
  time,   // those that ended within the last `window_time`
};

// Why it is in the state it is in.
enum class BreakerReason : std::uint8_t {
  created,
  failure_rate,
  slow_call_rate,
  open_time_over,
  probes_succeeded,
  probes_failed,
  probes_slow,
  probe_expired,  // the probe that decided never came back
  mode_changed,
  reset,
  window_changed,
};

constexpr std::string_view to_string(BreakerState state) noexcept {
  constexpr std::string_view names[] = {"closed", "open", "half_open"};
  const auto i = static_cast<std::size_t>(state);
  return i < std::size(names) ? names[i] : "unknown";
}
constexpr std::string_view to_string(BreakerMode mode) noexcept {
  constexpr std::string_view names[] = {"automatic", "forced_open", "forced_closed", "metrics_only",
                                        "disabled"};
  const auto i = static_cast<std::size_t>(mode);
  return i < std::size(names) ? names[i] : "unknown";
}
constexpr std::string_view to_string(BreakerReason reason) noexcept {
  constexpr std::string_view names[] = {
      "created",     "failure_rate",  "slow_call_rate", "open_time_over", "probes_succeeded", "probes_failed",
      "probes_slow", "probe_expired", "mode_changed",   "reset",          "window_changed"};
  const auto i = static_cast<std::size_t>(reason);
  return i < std::size(names) ? names[i] : "unknown";
}

struct BreakerTransition {
  std::string_view name;
  BreakerState from{}, to{};
  BreakerReason reason{};
  std::uint64_t generation = 0;  // grows with every change; tells the order of events of different threads
  TimePoint at{};
  std::chrono::nanoseconds open_for{};  // when it opened: until the first probe
  bool would_open = false;              // nothing changed: BreakerMode::metrics_only crossed a threshold
};

struct BreakerOptions {
  std::string name{};
  BreakerWindow window = BreakerWindow::calls;
  std::uint32_t window_calls = 100;                                  // 1 to 32'768
  std::chrono::nanoseconds window_time = std::chrono::seconds(100);  // 10 ms or more; kept in tenths
  std::uint32_t minimum_calls = 100;  // before this many nothing is decided; at most the window_calls
  double failure_rate = 0.5;          // share at which it opens: above 0, to 1
  double slow_call_rate = 1;          // the same for slow calls, whatever their result
  std::chrono::nanoseconds slow_call = std::chrono::seconds(60);  // longer is slow

  std::chrono::nanoseconds open_for = std::chrono::seconds(60);
  double backoff = 1;  // each opening that follows a failed half-open lasts this many times longer
  std::chrono::nanoseconds max_open =
      std::chrono::minutes(10);  // backoff ends here; open_for if that is more
  double jitter = 0;             // share by which that time varies up and down at random: 0 to 1

  std::uint32_t half_open_calls = 10;  // probes whose results decide, and in flight at most: 1 to 1000
  double half_open_failure_rate = 0;   // share of them that opens it again; 0: as failure_rate
  std::chrono::nanoseconds probe_lease = std::chrono::seconds(60);

  BreakerMode mode = BreakerMode::automatic;
  // Called outside every lock, after the change. What it throws is swallowed and counted.
  std::function<void(const BreakerTransition&)> on_transition{};
  Clock* clock = nullptr;  // default: Clock::steady()
  std::uint64_t seed = 0;  // of the jitter; 0: another one for each breaker
};

// What complete() needs to know about an admitted call.
struct BreakerPass {
  std::uint64_t generation = 0;
  std::uint32_t probe = 0;  // its number; 0: an ordinary call
  bool is_probe() const noexcept { return probe != 0; }
};

struct BreakerRefusal {
  BreakerState state = BreakerState::open;
  std::chrono::nanoseconds retry_after{};  // 0: nobody knows (forced open)
};

struct BreakerSnapshot {
  BreakerState state{};
  BreakerMode mode{};
  BreakerReason reason{};  // of the last change of state
  TimePoint since{};
  std::uint64_t generation = 0;
  // The window; while half open, the probes that have a result.
  std::uint64_t calls = 0, failures = 0, slow = 0;
  bool above_threshold = false;  // the window is such that it would open
  std::uint32_t probes_in_flight = 0;
  TimePoint next_probe = no_deadline;      // when the next call may go through, while it is not closed
  std::uint64_t opens = 0;                 // since it was made
  std::array<std::uint64_t, 3> entered{};  // changes into each BreakerState, since it was made
  std::uint32_t opens_in_a_row = 0;        // without closing in between
  std::uint64_t refused = 0;
  std::uint64_t late = 0;  // results of an earlier generation, and of probes whose lease had ended
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
  explicit Breaker(BreakerOptions options);  // std::invalid_argument naming the setting
  ~Breaker();
  Breaker(const Breaker&) = delete;
  Breaker& operator=(const Breaker&) = delete;

  using Admission = std::expected<BreakerPass, BreakerRefusal>;

  // Every pass must be completed, once, with CallVerdict::ignored if the call did not take place or was
  // cancelled.
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
  // Without `now` the clock is read only if the result may matter at a certain time: probes, time
  // windows, opening.
  void complete(BreakerPass pass, CallVerdict verdict, std::chrono::nanoseconds took) noexcept;
  void complete(BreakerPass pass, CallVerdict verdict, std::chrono::nanoseconds took, TimePoint now) noexcept;

  // Admits, calls fn(), judges what it returns or throws, completes. Result<what fn returns>.
  template <class F, class J = std::remove_const_t<decltype(no_opinion)>>
  auto run(F&& fn, const J& judge = no_opinion);

  // Settings in force from the next call on. What is counted stays, unless the shape of the window
  // changes; a probe out keeps its lease. `name`, `clock`, `seed`, `on_transition` and `mode` stay as
  // they are. std::invalid_argument as in the constructor, and then nothing has changed.
  void update(const BreakerOptions& options);
  void set_mode(BreakerMode mode) noexcept;  // back to automatic: closed, with an empty window
  void reset() noexcept;                     // closed, with an empty window; the mode stays

  BreakerSnapshot snapshot() const noexcept;  // changes nothing; takes the lock for a moment
  std::string_view name() const noexcept;
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class Bulkhead;
  friend class BreakerCore;
  // The word: the generation, and flags that say what admit() and complete() have to do.
  static constexpr unsigned kFlags = 4;
  static constexpr std::uint64_t kAsk = 1, kCount = 2, kHalfOpen = 4, kForced = 8;

  // Relaxed: a thread that sees the change a moment later admits a call that is late when it ends.
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
  if (!pass)
    return Result<R>(
        std::unexpect,
        Rejection{.reason = Reason::breaker_open, .name = name(), .retry_after = pass.error().retry_after});
  // Completes whatever happens: what neither returns nor throws anything judged was not a call.
  struct Completion {
    Breaker& breaker;
    BreakerPass pass;
    TimePoint start;
    CallVerdict verdict = CallVerdict::ignored;
    ~Completion() {
      const TimePoint now = breaker.clock().now();
      breaker.complete(pass, verdict, now - start, now);
    }
  } completion{*this, *pass, clock_.now()};
  const auto call = [&]() -> Result<R> {
    if constexpr (std::is_void_v<R>) {
      std::forward<F>(fn)();
      completion.verdict = CallVerdict::success;
      return {};
    } else {
      Result<R> result(std::in_place, std::forward<F>(fn)());
      completion.verdict = judge_result(judge, *result);
      return result;
    }
  };
#if defined(__cpp_exceptions)
  try {
    return call();
  } catch (...) {
    completion.verdict = judge_exception(judge, std::current_exception());
    throw;
  }
#else
  return call();
#endif
}

}  // namespace bulkhead
