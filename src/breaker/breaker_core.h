// breaker_core.h - the implementation of Breaker: the state machine and its windows under one lock.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/tally.h"
#include "breaker/machine.h"
#include "breaker/windows.h"
#include "bulkhead/breaker.h"
#include "bulkhead/detail/mutex.h"

namespace bulkhead {

// Invariants:
//  B1 The machine and the random numbers are used under the lock only. `word` and `retry_at` are copies of the machine's
//     state, written under the lock; a decision that changes the state takes the lock and asks the machine.
//  B2 A window begins its generation before the word shows it, and the word is read with acquire before a result is
//     recorded: a result never reaches a window of an earlier generation.
//  B3 Hooks run without the lock.
class BreakerCore {
 public:
  BreakerCore(BreakerOptions o, Breaker& front)
      : front_(front),
        name_(o.name),
        on_transition_(std::move(o.on_transition)),
        shape_{o.window, o.window_calls, o.window_time},
        machine_(breaker::Rules::of(o), o.mode, front.clock_.now()),
        dice_(o.seed),
        slow_ns_(o.slow_call.count()),
        by_time_(o.window == BreakerWindow::time),
        calls_(o.window_calls) {
    time_.set_width(o.window_time.count());
    begin_window();
    publish();
  }

  Breaker::Admission ask(TimePoint now) noexcept {
    const std::uint64_t word = front_.word_.load(std::memory_order_acquire);  // pairs with publish()
    if (!(word & Breaker::kAsk)) return BreakerPass{.generation = word >> Breaker::kFlags};
    const auto state = word & Breaker::kHalfOpen ? BreakerState::half_open : BreakerState::open;
    if (word & Breaker::kForced) return reject(state, std::chrono::nanoseconds(0));
    const TimePoint retry_at{std::chrono::nanoseconds(retry_at_.load(std::memory_order_relaxed))};
    if (now < retry_at) return reject(state, retry_at - now);

    breaker::Machine::Admission admission;
    BreakerPass pass;
    BreakerState then{};
    change(now, [&] {
      mutex_.assert_held();
      const BreakerMode mode = machine_.mode();
      if (mode == BreakerMode::automatic)
        admission = machine_.admit(now, roll());
      else
        admission.ordinary = mode != BreakerMode::forced_open;
      if (admission.ordinary || admission.probe != 0)
        pass = {.generation = machine_.generation(), .probe = admission.probe};
      then = machine_.state();
    });
    if (pass.generation != 0) return pass;
    return reject(then, admission.retry_after);
  }

  // `now` is called only if the time is needed.
  template <class Now>
  void complete(BreakerPass pass, Outcome outcome, std::chrono::nanoseconds took, const Now& now) noexcept {
    const std::uint64_t word = front_.word_.load(std::memory_order_acquire);  // B2
    if (word >> Breaker::kFlags != pass.generation) [[unlikely]] {
      if (outcome != Outcome::ignored) tally_.add(kLate);
      return;
    }
    const breaker::CallResult result{.failure = is_failure(outcome),
                                     .slow = took.count() > slow_ns_.load(std::memory_order_relaxed)};
    if (pass.is_probe()) [[unlikely]]
      return complete_probe(pass, outcome, result.slow, now());
    if (outcome == Outcome::ignored || !(word & Breaker::kCount)) return;
    if (by_time_.load(std::memory_order_relaxed)) {
      const TimePoint at = now();
      if (time_.record(pass.generation, result, at.time_since_epoch().count()) || above())
        consider(pass.generation, time_.count(pass.generation, at.time_since_epoch().count()),
                 [at] { return at; });
    } else {
      const breaker::Counts counts = calls_.record(pass.generation, result);
      if (counts.failures != 0 || counts.slow != 0 || above()) consider(pass.generation, counts, now);
    }
  }

  void update(const BreakerOptions& o) {
    {  // allocate first: if it throws, nothing has changed
      const detail::MutexLock lock(mutex_);
      calls_.reserve(o.window_calls);
      machine_.reserve(o.half_open_calls);
    }
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
      mutex_.assert_held();
      const Shape shape{o.window, o.window_calls, o.window_time};
      const bool reshaped = shape.differs(shape_);
      if (shape.calls != shape_.calls) calls_.resize(shape.calls);
      if (shape.time != shape_.time) time_.set_width(shape.time.count());
      shape_ = shape;
      by_time_.store(o.window == BreakerWindow::time, std::memory_order_relaxed);
      slow_ns_.store(o.slow_call.count(), std::memory_order_relaxed);
      machine_.update(breaker::Rules::of(o), now, roll());
      if (reshaped)
        machine_.renew(now);
      else
        machine_.judge(count(now), now, roll());
    });
  }

  void set_mode(BreakerMode mode) noexcept {
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
      mutex_.assert_held();
      if (machine_.mode() != mode) machine_.set_mode(mode, now);
    });
  }

  void reset() noexcept {
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
      mutex_.assert_held();
      machine_.reset(now);
    });
  }

  void force_open(std::chrono::nanoseconds how_long) noexcept {
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
      mutex_.assert_held();
      machine_.force_open(how_long, now);
    });
  }

  void force_half_open() noexcept {
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
      mutex_.assert_held();
      machine_.force_half_open(now);
    });
  }

  // Half open, the counts are those of the probes; a forced breaker shows as open, because it rejects.
  BreakerSnapshot snapshot() const noexcept {
    const TimePoint now = front_.clock_.now();
    BreakerSnapshot s;
    {
      const detail::MutexLock lock(mutex_);
      const breaker::Counts c =
          machine_.state() == BreakerState::half_open ? machine_.probe_results() : count(now);
      s.state = machine_.mode() == BreakerMode::forced_open ? BreakerState::open : machine_.state();
      s.mode = machine_.mode();
      s.reason = machine_.reason();
      s.since = machine_.since();
      s.generation = machine_.generation();
      s.calls = c.calls;
      s.failures = c.failures;
      s.slow = c.slow;
      s.above_threshold = machine_.state() == BreakerState::closed && machine_.verdict(c).has_value();
      s.probes_in_flight = machine_.probes_in_flight();
      s.next_probe = machine_.next_probe();
      s.opens = machine_.opens();
      s.entered = machine_.entered();
      s.opens_in_a_row = machine_.opens_in_a_row();
    }
    s.rejected = tally_.sum(kRejected);
    s.late = tally_.sum(kLate);
    s.hook_errors = tally_.sum(kHookErrors);
    return s;
  }

  const Name& name() const noexcept { return name_; }

 private:
  struct Shape {
    BreakerWindow window;
    std::uint32_t calls;
    std::chrono::nanoseconds time;
    bool differs(const Shape& o) const {
      if (window != o.window) return true;
      return window == BreakerWindow::calls ? calls != o.calls : time != o.time;
    }
  };
  enum Kind : std::size_t { kRejected, kLate, kHookErrors, kKinds };

  Breaker::Admission reject(BreakerState state, std::chrono::nanoseconds retry_after) noexcept {
    tally_.add(kRejected);
    return Breaker::Admission(unexpect, BreakerRejection{state, retry_after});
  }

  void complete_probe(BreakerPass pass, Outcome outcome, bool slow, TimePoint now) noexcept {
    bool in_time = false;
    change(now, [&] {
      mutex_.assert_held();
      in_time = machine_.generation() == pass.generation &&
                machine_.complete_probe(pass.probe, outcome, slow, now, roll());
    });
    if (!in_time) tally_.add(kLate);
  }

  bool above() const noexcept { return above_.load(std::memory_order_relaxed); }

  // `hint` may be slightly old. If it is above a threshold, the window is counted exactly under the lock.
  template <class Now>
  void consider(std::uint64_t generation, const breaker::Counts& hint, const Now& now) noexcept {
    if (over(hint) == above()) return;
    const TimePoint at = now();
    change(at, [&] {
      mutex_.assert_held();
      if (machine_.generation() != generation) return;
      const breaker::Counts counts = count(at);
      if (machine_.judge(counts, at, roll()) || machine_.mode() != BreakerMode::metrics_only) return;
      const auto reason = machine_.verdict(counts);
      if (reason && !above()) would_open_ = reason;
      above_.store(reason.has_value(), std::memory_order_relaxed);
    });
  }

  // Compares with the thresholds without the lock. They are read one by one, because the result is checked under the lock.
  bool over(const breaker::Counts& c) const noexcept {
    if (c.calls < minimum_.load(std::memory_order_relaxed)) return false;
    return breaker::reaches(c.failures, c.calls, failure_rate_.load(std::memory_order_relaxed)) ||
           breaker::reaches(c.slow, c.calls, slow_call_rate_.load(std::memory_order_relaxed));
  }

  breaker::Counts count(TimePoint now) const noexcept BULKHEAD_REQUIRES(mutex_) {
    return by_time_.load(std::memory_order_relaxed)
               ? time_.count(machine_.generation(), now.time_since_epoch().count())
               : calls_.count(machine_.generation());
  }

  double roll() noexcept BULKHEAD_REQUIRES(mutex_) {  // splitmix64
    std::uint64_t x = dice_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  }

  // Runs fn, which changes the machine, under the lock and publishes the new state; then calls the hook without it.
  template <class F>
  void change(TimePoint now, const F& fn) noexcept {
    BreakerTransition event;
    {
      const detail::MutexLock lock(mutex_);
      const std::uint64_t before = machine_.generation();
      event.from = machine_.state();
      fn();
      if (machine_.generation() != before) {
        begin_window();
        event.reason = machine_.reason();
      } else if (would_open_) {
        event.would_open = true;
        event.reason = *would_open_;
      }
      const bool tell = machine_.generation() != before || would_open_;
      would_open_.reset();
      publish();
      if (!tell || !on_transition_) return;
      event.name = name_;
      event.to = machine_.state();
      event.generation = machine_.generation();
      event.at = now;
      if (event.to == BreakerState::open) event.open_for = machine_.open_time();
    }
#if defined(__cpp_exceptions)
    try {
      on_transition_(event);
    } catch (...) {
      tally_.add(kHookErrors);
    }
#else
    on_transition_(event);
#endif
  }

  void begin_window() noexcept BULKHEAD_REQUIRES(mutex_) {
    above_.store(false, std::memory_order_relaxed);
    calls_.begin(machine_.generation());
    time_.begin(machine_.generation());
  }

  void publish() noexcept BULKHEAD_REQUIRES(mutex_) {
    const BreakerMode mode = machine_.mode();
    const bool automatic = mode == BreakerMode::automatic;
    // If it can never open, results need not be checked.
    const bool looks = automatic || mode == BreakerMode::metrics_only;
    minimum_.store(looks ? std::max<std::uint64_t>(machine_.rules().minimum_calls, 1) : UINT64_MAX,
                   std::memory_order_relaxed);
    failure_rate_.store(machine_.rules().failure_rate, std::memory_order_relaxed);
    slow_call_rate_.store(machine_.rules().slow_call_rate, std::memory_order_relaxed);
    retry_at_.store(machine_.next_probe().time_since_epoch().count(), std::memory_order_relaxed);

    std::uint64_t word = machine_.generation() << Breaker::kFlags;
    if (mode == BreakerMode::forced_open) word |= Breaker::kAsk | Breaker::kForced;
    if (automatic && machine_.state() != BreakerState::closed) word |= Breaker::kAsk;
    if (machine_.state() == BreakerState::half_open) word |= Breaker::kHalfOpen;
    if (mode != BreakerMode::disabled) word |= Breaker::kCount;
    front_.word_.store(word, std::memory_order_release);  // B2; also publishes retry_at
  }

  Breaker& front_;
  const Name name_;
  const std::function<void(const BreakerTransition&)> on_transition_;

  mutable detail::Mutex mutex_;
  Shape shape_ BULKHEAD_GUARDED_BY(mutex_);
  breaker::Machine machine_ BULKHEAD_GUARDED_BY(mutex_);
  std::uint64_t dice_ BULKHEAD_GUARDED_BY(mutex_);
  std::optional<BreakerReason> would_open_ BULKHEAD_GUARDED_BY(mutex_);

  std::atomic<std::int64_t> retry_at_{0};
  std::atomic<std::uint64_t> minimum_{0};
  std::atomic<double> failure_rate_{1}, slow_call_rate_{1};
  std::atomic<std::int64_t> slow_ns_;
  std::atomic<bool> by_time_;
  std::atomic<bool> above_{
      false};  // metrics_only: the hook was called, and the rate is still above the threshold
  breaker::CallWindow calls_;
  breaker::TimeWindow time_;
  base::Tally<kKinds> tally_;
};

}  // namespace bulkhead
