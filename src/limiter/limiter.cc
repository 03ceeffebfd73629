#include "bulkhead/limiter.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <string>

#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/std_mutex.h"
#include "limiter/algorithm.h"
#include "limiter/sampler.h"

namespace bulkhead {
namespace {

using limiter::Algorithm;
using limiter::Sampler;
using limiter::Window;
using limiter::WindowPlan;
using std::chrono::nanoseconds;
using namespace std::chrono_literals;

constexpr std::uint32_t kMostLimit = 268'435'455;  // the maximum of a gate

// The settings of every algorithm are checked, also of those that are not chosen.
void check(std::string_view what, const LimiterOptions& o) {
  const auto require = [&](bool good, std::string_view setting, const std::string& value,
                           std::string_view fix) {
    if (!good)
      base::throw_invalid(
          base::join({what, ": limiter.", setting, " = ", value, " is out of range: give ", fix}));
  };
  const auto whole = [](std::uint64_t n) { return std::to_string(n); };
  const auto real = [](double d) { return std::to_string(d); };
  const auto time = [](nanoseconds t) { return std::to_string(t.count()) + " ns"; };
  require(static_cast<std::size_t>(o.algorithm) < 4, "algorithm",
          whole(static_cast<std::size_t>(o.algorithm)), "knee, aimd, vegas or gradient2");
  require(o.floor >= 1 && o.floor <= kMostLimit, "floor", whole(o.floor), "1 to 268435455");
  require(o.ceiling >= o.floor && o.ceiling <= kMostLimit, "ceiling", whole(o.ceiling), "floor to 268435455");
  require(o.initial == 0 || (o.initial >= o.floor && o.initial <= o.ceiling), "initial", whole(o.initial),
          "floor to ceiling, or 0 for the limit in force");
  require(o.target_latency >= nanoseconds(0), "target_latency", time(o.target_latency),
          "0 for none, or more");
  const KneeOptions& k = o.knee;
  require(k.margin > 1 && k.margin <= 1.5, "knee.margin", real(k.margin), "above 1 to 1.5, such as 1.1");
  require(k.dip >= 0.5 && k.dip * k.margin < 1, "knee.dip", real(k.dip),
          "0.5 to below 1 / margin, such as 0.85");
  require(k.min_window > nanoseconds(0), "knee.min_window", time(k.min_window),
          "more than 0, such as 200 ms");
  require(k.max_window >= k.min_window, "knee.max_window", time(k.max_window), "at least min_window");
  require(k.max_quiet >= std::chrono::seconds(1), "knee.max_quiet", time(k.max_quiet), "at least 1 s");
  require(o.aimd.backoff >= 0.5 && o.aimd.backoff < 1, "aimd.backoff", real(o.aimd.backoff),
          "0.5 to below 1");
  require(o.aimd.timeout > nanoseconds(0), "aimd.timeout", time(o.aimd.timeout), "more than 0");
  require(o.vegas.smoothing > 0 && o.vegas.smoothing <= 1, "vegas.smoothing", real(o.vegas.smoothing),
          "above 0 to 1");
  require(o.vegas.probe_multiplier >= 1, "vegas.probe_multiplier", whole(o.vegas.probe_multiplier),
          "1 or more");
  const Gradient2Options& g = o.gradient2;
  require(g.smoothing > 0 && g.smoothing <= 1, "gradient2.smoothing", real(g.smoothing), "above 0 to 1");
  require(g.rtt_tolerance >= 1, "gradient2.rtt_tolerance", real(g.rtt_tolerance), "1 or more");
  require(g.long_window >= 1, "gradient2.long_window", whole(g.long_window), "1 or more");
}

std::uint32_t first_limit(const Adaptable& target, const LimiterOptions& o) {
  return std::clamp(o.initial ? o.initial : target.limit(), o.floor, o.ceiling);
}

// A gate of its own.
class GateLimit final : public Adaptable {
 public:
  explicit GateLimit(Gate& gate) noexcept : gate_(gate) {}
  std::string label() const override { return base::join({"bulkhead \"", gate_.name(), "\""}); }
  Clock& clock() const noexcept override { return gate_.clock(); }
  std::uint32_t limit() const noexcept override { return gate_.snapshot().max_concurrent; }
  std::uint64_t rejected() const noexcept override {
    const Snapshot s = gate_.snapshot();
    return s.rejected(Reason::concurrency_limit) + s.rejected(Reason::queue_limit) +
           s.rejected(Reason::timeout) + s.rejected(Reason::evicted);
  }
  std::uint32_t in_flight(const Gate& gate) const noexcept override { return gate.snapshot().in_flight; }
  bool adapt(std::uint32_t limit) noexcept override {
    gate_.resize(limit);
    return true;
  }

 private:
  Gate& gate_;
};

}  // namespace

namespace limiter {

std::unique_ptr<Algorithm> make_algorithm(const LimiterOptions& o, std::uint32_t limit) {
  const Bounds bounds{o.floor, o.ceiling};
  switch (o.algorithm) {
    case LimitAlgorithm::aimd:
      return make_aimd(o.aimd, bounds, limit);
    case LimitAlgorithm::vegas:
      return make_vegas(o.vegas, bounds, limit);
    case LimitAlgorithm::gradient2:
      return make_gradient2(o.gradient2, bounds, limit);
    case LimitAlgorithm::knee:
      break;
  }
  return make_knee(o.knee, o.target_latency, bounds, limit);
}

}  // namespace limiter

// Invariants
//   L1 No function of the gate or group that moves a limit is called under the mutex.
//   L2 At most one thread moves the limit (applying); it continues until the gate has the newest limit. So no older limit
//      overwrites a newer one, and a handler that runs inside may call the limiter. A group without memory keeps the older
//      limit until the end of the next window.
//   L3 epoch changes with every limit, and a window counts only calls of epoch >= oldest (for algorithms that compare
//      limits: the epoch of the current limit).
struct AdaptiveLimiter::State {
  State(const std::optional<GateLimit>& gate, Adaptable* group, const LimiterOptions& o)
      : own(gate),
        target(own ? *own : *group),
        options(o),
        initial(first_limit(target, options)),
        limit(initial),
        algorithm(limiter::make_algorithm(options, initial)),
        in_force(target.limit()) {
    why.from = why.to = initial;
    change = why;
    oldest = algorithm->same_limit_only() ? 1 : 0;
  }

  std::optional<GateLimit> own;  // empty: the limit of a group
  Adaptable& target;
  Sampler sampler;
  alignas(64) std::atomic<std::uint32_t> epoch{1};
  std::atomic<std::uint32_t> oldest{0};
  std::atomic<std::int64_t> next_look{0};  // when a window may be complete, in ns; 0: no window has begun

  alignas(64) std::atomic<std::uint64_t> stale{0};
  mutable detail::Mutex mutex;
  std::atomic<bool> looking{false};
  LimiterOptions options BULKHEAD_GUARDED_BY(mutex);
  std::uint32_t initial BULKHEAD_GUARDED_BY(mutex);
  std::atomic<std::uint32_t> limit;  // wanted; also read without the mutex
  std::unique_ptr<Algorithm> algorithm BULKHEAD_GUARDED_BY(mutex) BULKHEAD_PT_GUARDED_BY(mutex);
  std::uint32_t in_force BULKHEAD_GUARDED_BY(mutex);
  bool applying BULKHEAD_GUARDED_BY(mutex) = false;
  bool held BULKHEAD_GUARDED_BY(mutex) = false;
  bool aligned BULKHEAD_GUARDED_BY(mutex) = false, real_time BULKHEAD_GUARDED_BY(mutex) = false;
  TimePoint begin BULKHEAD_GUARDED_BY(mutex){};
  WindowPlan plan BULKHEAD_GUARDED_BY(mutex){};
  std::uint64_t rejected BULKHEAD_GUARDED_BY(mutex) = 0;  // when the window began
  std::uint64_t windows BULKHEAD_GUARDED_BY(mutex) = 0, raised BULKHEAD_GUARDED_BY(mutex) = 0,
                        lowered BULKHEAD_GUARDED_BY(mutex) = 0;
  LimitDecision why BULKHEAD_GUARDED_BY(mutex), change BULKHEAD_GUARDED_BY(mutex);

  void want(std::uint32_t to) BULKHEAD_REQUIRES(mutex) {
    if (to == limit.load(std::memory_order_relaxed)) return;  // relaxed: written under this mutex
    limit.store(to, std::memory_order_relaxed);               // relaxed: a number to show
    // Relaxed: a call that reads the old epoch is counted as stale; a call that reads the new one too early falls into a
    // window that is dropped.
    const std::uint32_t now = epoch.load(std::memory_order_relaxed) + 1;
    epoch.store(now, std::memory_order_relaxed);
    oldest.store(algorithm->same_limit_only() ? now : 0, std::memory_order_relaxed);
  }

  // L2. Called without the mutex, after want().
  void apply() noexcept BULKHEAD_EXCLUDES(mutex) {
    detail::UniqueLock lock(mutex);
    if (applying) return;
    applying = true;
    while (in_force != limit.load(std::memory_order_relaxed)) {  // relaxed: written under this mutex
      const std::uint32_t to = limit.load(std::memory_order_relaxed);
      lock.unlock();
      const bool done = target.adapt(to);
      lock.lock();
      if (!done) break;
      in_force = to;
    }
    applying = false;
  }

  // Begins an empty window at the next completion.
  void start_over() BULKHEAD_REQUIRES(mutex) {
    sampler.take(sampler.peek());
    next_look.store(0, std::memory_order_relaxed);  // relaxed: a hint; decisions are made under the mutex
  }

  // Instances compare limits in the same slots of the wall clock. A clock other than the steady one, as in a simulation, is
  // used unchanged.
  void align(TimePoint now) BULKHEAD_REQUIRES(mutex) {
    using std::chrono::steady_clock;
    const auto distance = steady_clock::now() - now;
    if (!aligned) real_time = &target.clock() == &Clock::steady() && distance < 1s && distance > -1s;
    aligned = true;
    if (real_time)
      algorithm->align(std::chrono::system_clock::now().time_since_epoch() -
                       steady_clock::now().time_since_epoch());
  }

  void begin_window(TimePoint now) BULKHEAD_REQUIRES(mutex) {
    align(now);
    begin = now;
    plan = algorithm->plan(now);
    rejected = target.rejected();
    look_again(now + plan.min_time);
  }
  void look_again(TimePoint at) {
    // Relaxed: a thread that reads an older value checks too early, and finds the window incomplete.
    next_look.store(std::max<std::int64_t>(1, at.time_since_epoch().count()), std::memory_order_relaxed);
  }

  // True: the limit has changed, or the last change is not in force yet.
  bool look(TimePoint now) noexcept {
    const detail::MutexLock lock(mutex);
    if (next_look.load(std::memory_order_relaxed) == 0) {  // relaxed: written under this mutex
      sampler.take(sampler.peek());
      begin_window(now);
      return false;
    }
    const nanoseconds elapsed = now - begin;
    Window window = sampler.peek(plan.slow);
    const std::uint64_t samples = window.samples() + (plan.any_end ? window.given_up : 0);
    const bool enough = samples >= plan.samples && elapsed >= plan.min_time;
    if (!enough && (elapsed < plan.max_time || samples == 0)) {
      // The estimated time at the current pace; the first calls of a window say little about the pace.
      const auto missing = samples < plan.samples ? plan.samples - samples : 0;
      const double pace = static_cast<double>(missing) / static_cast<double>(samples + 1);
      const auto ns = static_cast<double>(elapsed.count()) * std::min(pace, 0.125);
      const nanoseconds wait = std::max(
          {plan.min_time - elapsed, nanoseconds(static_cast<std::int64_t>(ns)), plan.max_time / 1024});
      const TimePoint last = elapsed < plan.max_time ? begin + plan.max_time : TimePoint::max();
      look_again(std::min(now + wait, last));
      return false;
    }
    window.begin = begin;
    window.end = now;
    window.rejected = target.rejected() - rejected + window.held_back;
    window.limit = limit.load(std::memory_order_relaxed);  // relaxed: written under this mutex
    conclude(window);
    sampler.take(window);
    begin_window(now);
    return in_force != limit.load(std::memory_order_relaxed);  // relaxed: as above
  }

  void conclude(const Window& window) BULKHEAD_REQUIRES(mutex) {
    ++windows;
    if (held) {
      why = limiter::report(window, LimitVerdict::held, window.limit);
      return;
    }
    const std::uint32_t before = algorithm->settled();
    why = algorithm->decide(window);
    const std::uint32_t after = algorithm->settled();
    raised += after > before;
    lowered += after < before;
    if (after != before) change = why;
    want(why.to);
  }

  // Applies the settled limit because the owner asked for it.
  void set(LimitVerdict verdict) BULKHEAD_REQUIRES(mutex) {
    const std::uint32_t before = limit.load(std::memory_order_relaxed);  // relaxed: written under this mutex
    want(algorithm->settled());
    why = {.verdict = verdict, .at = target.clock().now(), .from = before, .to = algorithm->settled()};
    if (why.from != why.to) change = why;
    start_over();
  }
};

AdaptiveLimiter::AdaptiveLimiter(Gate& gate, const LimiterOptions& options) {
  const GateLimit limit(gate);
  check(limit.label(), options);
  state_ = std::make_unique<State>(limit, nullptr, options);
  state_->apply();
}

AdaptiveLimiter::AdaptiveLimiter(Adaptable& group, const LimiterOptions& options) {
  check(group.label(), options);
  state_ = std::make_unique<State>(std::nullopt, &group, options);
  state_->apply();
}

AdaptiveLimiter::~AdaptiveLimiter() = default;

LimiterCall AdaptiveLimiter::admitted(TimePoint now, std::uint32_t in_flight) const noexcept {
  // Relaxed: see State::want().
  return {.start = now, .epoch = state_->epoch.load(std::memory_order_relaxed), .in_flight = in_flight};
}

LimiterCall AdaptiveLimiter::admitted(TimePoint now, const Gate& gate) const noexcept {
  return admitted(now, state_->target.in_flight(gate));
}

void AdaptiveLimiter::completed(const LimiterCall& call, TimePoint now, Outcome outcome) noexcept {
  State& s = *state_;
  // Relaxed: see State::want(). Epochs are compared by their difference, so they may wrap.
  if (static_cast<std::int32_t>(call.epoch - s.oldest.load(std::memory_order_relaxed)) < 0)
    s.stale.fetch_add(1, std::memory_order_relaxed);
  else
    s.sampler.add(outcome, (now - call.start).count(), call.in_flight,
                  call.in_flight >= s.limit.load(std::memory_order_relaxed));  // relaxed: as above
  // Relaxed: a hint, see look_again().
  if (now.time_since_epoch().count() < s.next_look.load(std::memory_order_relaxed)) return;
  // One thread looks, the others continue. Acquire and release are not needed, because look() takes the mutex.
  if (s.looking.exchange(true, std::memory_order_relaxed)) return;
  const bool changed = s.look(now);
  s.looking.store(false, std::memory_order_relaxed);
  if (changed) s.apply();
}

void AdaptiveLimiter::held_back() noexcept { state_->sampler.held_back(); }

void AdaptiveLimiter::update(const LimiterOptions& options) {
  State& s = *state_;
  check(s.target.label(), options);
  {
    const detail::MutexLock lock(s.mutex);
    if (options == s.options) return;  // a reload repeats the settings of every bulkhead
    LimiterOptions old_bounds = options;
    old_bounds.floor = s.options.floor;
    old_bounds.ceiling = s.options.ceiling;
    old_bounds.initial = s.options.initial;
    if (old_bounds == s.options) {
      s.algorithm->set_bounds({options.floor, options.ceiling});
    } else {
      const std::uint32_t settled = std::clamp(s.algorithm->settled(), options.floor, options.ceiling);
      s.algorithm = limiter::make_algorithm(options, settled);
    }
    s.options = options;
    s.initial = std::clamp(options.initial ? options.initial : s.initial, options.floor, options.ceiling);
    s.oldest = s.algorithm->same_limit_only() ? s.epoch.load() : 0;
    s.set(LimitVerdict::set);
  }
  s.apply();
}

void AdaptiveLimiter::hold(bool on) {
  State& s = *state_;
  {
    const detail::MutexLock lock(s.mutex);
    if (s.held == on) return;
    s.held = on;
    s.algorithm->rest();
    s.set(on ? LimitVerdict::held : LimitVerdict::set);
  }
  s.apply();
}

void AdaptiveLimiter::reset() {
  State& s = *state_;
  {
    const detail::MutexLock lock(s.mutex);
    s.algorithm = limiter::make_algorithm(s.options, s.initial);
    s.windows = s.raised = s.lowered = 0;
    s.stale.store(0, std::memory_order_relaxed);  // relaxed: a statistic
    s.set(LimitVerdict::set);
  }
  s.apply();
}

std::uint32_t AdaptiveLimiter::limit() const noexcept {
  return state_->limit.load(std::memory_order_relaxed);  // relaxed: a number to show
}

LimiterOptions AdaptiveLimiter::options() const {
  const detail::MutexLock lock(state_->mutex);
  return state_->options;
}

LimiterSnapshot AdaptiveLimiter::snapshot() const {
  const State& s = *state_;
  const detail::MutexLock lock(s.mutex);
  constexpr auto kRelaxed = std::memory_order_relaxed;  // statistics, or written under this mutex
  return {.algorithm = s.options.algorithm,
          .limit = s.limit.load(kRelaxed),
          .settled = s.algorithm->settled(),
          .floor = s.options.floor,
          .ceiling = s.options.ceiling,
          .held = s.held,
          .epoch = s.epoch.load(kRelaxed),
          .windows = s.windows,
          .raised = s.raised,
          .lowered = s.lowered,
          .stale = s.stale.load(kRelaxed),
          .why = s.why,
          .change = s.change};
}

}  // namespace bulkhead
