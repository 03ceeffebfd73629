// core.h - the machine, the windows and what threads see of them: everything behind a Breaker, and what a Bulkhead
// asks in a hurry.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <mutex>
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
//  B1 The machine and the dice are used under the lock only. `word` and `retry_at` are copies of
//     what the machine says, written under the lock; whoever decides anything by them that matters takes
//     the lock and asks the machine.
//  B2 A window begins its generation before the word shows it, and the word is read with acquire before
//     a result is recorded: a result never meets a window of an earlier generation than its own.
//  B3 Hooks run outside the lock.
class BreakerCore {
 public:
  BreakerCore(BreakerOptions o, Breaker& front)
      : front_(front),
        name_(std::move(o.name)),
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
    if (word & Breaker::kForced) return refuse(state, std::chrono::nanoseconds(0));
    const TimePoint retry_at{std::chrono::nanoseconds(retry_at_.load(std::memory_order_relaxed))};
    if (now < retry_at) return refuse(state, retry_at - now);

    breaker::Machine::Admission admission;
    BreakerPass pass;
    BreakerState then{};
    change(now, [&] {
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
    return refuse(then, admission.retry_after);
  }

  // `now` is called only if the time matters.
  template <class Now>
  void complete(BreakerPass pass, CallVerdict verdict, std::chrono::nanoseconds took,
                const Now& now) noexcept {
    const std::uint64_t word = front_.word_.load(std::memory_order_acquire);  // B2
    if (word >> Breaker::kFlags != pass.generation) [[unlikely]] {
      if (verdict != CallVerdict::ignored) tally_.add(kLate);
      return;
    }
    const breaker::CallResult result{.failure = verdict == CallVerdict::failure,
                                     .slow = took.count() > slow_ns_.load(std::memory_order_relaxed)};
    if (pass.is_probe()) [[unlikely]]
      return complete_probe(pass, verdict, result.slow, now());
    if (verdict == CallVerdict::ignored || !(word & Breaker::kCount)) return;
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

  // A good result that finds a window full of good ones, which it leaves as it is: there is nothing to be done.
  // `word` is what its admission has seen.
  [[gnu::always_inline]] bool stays_well(std::uint64_t word, std::chrono::nanoseconds took) const noexcept {
    return front_.word_.load(std::memory_order_acquire) == word &&  // B2
           calls_.totals() == well_.load(std::memory_order_relaxed) &&
           took.count() <= slow_ns_.load(std::memory_order_relaxed);
  }

  void update(const BreakerOptions& o) {
    const TimePoint now = front_.clock_.now();
    change(now, [&] {
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
      if (machine_.mode() != mode) machine_.set_mode(mode, now);
    });
  }

  void reset() noexcept {
    const TimePoint now = front_.clock_.now();
    change(now, [&] { machine_.reset(now); });
  }

  BreakerSnapshot snapshot() const noexcept {
    const TimePoint now = front_.clock_.now();
    BreakerSnapshot s;
    {
      const std::lock_guard lock(mutex_);
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
    s.refused = tally_.sum(kRefused);
    s.late = tally_.sum(kLate);
    s.hook_errors = tally_.sum(kHookErrors);
    return s;
  }

  std::string_view name() const noexcept { return name_; }

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
  enum Kind : std::size_t { kRefused, kLate, kHookErrors, kKinds };

  Breaker::Admission refuse(BreakerState state, std::chrono::nanoseconds retry_after) noexcept {
    tally_.add(kRefused);
    return Breaker::Admission(std::unexpect, BreakerRefusal{state, retry_after});
  }

  void complete_probe(BreakerPass pass, CallVerdict verdict, bool slow, TimePoint now) noexcept {
    bool in_time = false;
    change(now, [&] {
      in_time = machine_.generation() == pass.generation &&
                machine_.complete_probe(pass.probe, verdict, slow, now, roll());
    });
    if (!in_time) tally_.add(kLate);
  }

  bool above() const noexcept { return above_.load(std::memory_order_relaxed); }

  // `hint` may be a moment off. If it says that it should open, the window is counted, under the lock.
  template <class Now>
  void consider(std::uint64_t generation, const breaker::Counts& hint, const Now& now) noexcept {
    if (over(hint) == above()) return;
    const TimePoint at = now();
    change(at, [&] {
      if (machine_.generation() != generation) return;
      const breaker::Counts counts = count(at);
      if (machine_.judge(counts, at, roll()) || machine_.mode() != BreakerMode::metrics_only) return;
      const auto reason = machine_.verdict(counts);
      if (reason && !above()) would_open_ = reason;
      above_.store(reason.has_value(), std::memory_order_relaxed);
    });
  }

  // The thresholds, for a look without the lock; read one by one, because what they say is checked under
  // it.
  bool over(const breaker::Counts& c) const noexcept {
    if (c.calls < minimum_.load(std::memory_order_relaxed)) return false;
    return breaker::reaches(c.failures, c.calls, failure_rate_.load(std::memory_order_relaxed)) ||
           breaker::reaches(c.slow, c.calls, slow_call_rate_.load(std::memory_order_relaxed));
  }

  breaker::Counts count(TimePoint now) const noexcept {
    return by_time_.load(std::memory_order_relaxed)
               ? time_.count(machine_.generation(), now.time_since_epoch().count())
               : calls_.count(machine_.generation());
  }

  double roll() noexcept {  // splitmix64
    std::uint64_t x = dice_ += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return static_cast<double>((x ^ (x >> 31)) >> 11) * 0x1p-53;
  }

  // Under the lock: fn changes the machine, and what follows from that is shown to all; then the hook.
  template <class F>
  void change(TimePoint now, const F& fn) noexcept {
    BreakerTransition event;
    {
      const std::lock_guard lock(mutex_);
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

  void begin_window() noexcept {
    above_.store(false, std::memory_order_relaxed);
    calls_.begin(machine_.generation());
    time_.begin();
  }

  void publish() noexcept {
    const BreakerMode mode = machine_.mode();
    const bool automatic = mode == BreakerMode::automatic;
    // Where it will never open there is nothing to look at.
    const bool looks = automatic || mode == BreakerMode::metrics_only;
    minimum_.store(looks ? std::max<std::uint64_t>(machine_.rules().minimum_calls, 1) : UINT64_MAX,
                   std::memory_order_relaxed);
    failure_rate_.store(machine_.rules().failure_rate, std::memory_order_relaxed);
    slow_call_rate_.store(machine_.rules().slow_call_rate, std::memory_order_relaxed);
    // A window in which calls are not counted is never full.
    well_.store(above() ? 0 : calls_.all_well(machine_.generation()), std::memory_order_relaxed);
    retry_at_.store(machine_.next_probe().time_since_epoch().count(), std::memory_order_relaxed);

    std::uint64_t word = machine_.generation() << Breaker::kFlags;
    if (mode == BreakerMode::forced_open) word |= Breaker::kAsk | Breaker::kForced;
    if (automatic && machine_.state() != BreakerState::closed) word |= Breaker::kAsk;
    if (machine_.state() == BreakerState::half_open) word |= Breaker::kHalfOpen;
    if (mode != BreakerMode::disabled) word |= Breaker::kCount;
    front_.word_.store(word, std::memory_order_release);  // B2, and the time before it
  }

  Breaker& front_;
  const std::string name_;
  const std::function<void(const BreakerTransition&)> on_transition_;

  mutable detail::Mutex mutex_;
  Shape shape_;
  breaker::Machine machine_;
  std::uint64_t dice_;
  std::optional<BreakerReason> would_open_;

  std::atomic<std::int64_t> retry_at_{0};
  std::atomic<std::uint64_t> minimum_{0};
  std::atomic<double> failure_rate_{1}, slow_call_rate_{1};
  std::atomic<std::int64_t> slow_ns_;
  std::atomic<std::uint64_t> well_{
      0};  // the totals of a window full of good results; 0, which they never are
  std::atomic<bool> by_time_;
  std::atomic<bool> above_{false};  // metrics_only: it has been told, and is still so
  breaker::CallWindow calls_;
  breaker::TimeWindow time_;
  base::Tally<kKinds> tally_;
};

}  // namespace bulkhead
