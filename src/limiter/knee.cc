// The default algorithm: finds the knee of goodput over concurrency by comparing two limits, and stays there.
// The idea, and why it neither drifts nor collapses: docs/design/limiter.md.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "limiter/algorithm.h"

namespace bulkhead::limiter {
namespace {

// A probe compares goodput at two limits. `gain` is how much of the step in the limit came back as goodput:
// 1 below the knee, 0 above it.
struct Comparison {
  double step = 0;   // ln(high limit / low limit)
  double gain = 0;   // ln(high goodput / low goodput) / step
  double noise = 0;  // standard error of gain
};

// Invariants
//   K1 floor <= settled_ <= ceiling, and so for every limit returned.
//   K2 Every window after a change of the limit is thrown away: calls in flight at the change distort it.
//   K3 reference_ was measured at settled_, or is empty.
//   K4 settled_ grows only by a comparison in which goodput grew with the limit.
class Knee final : public Algorithm {
 public:
  Knee(const KneeOptions& options, Bounds bounds, std::uint32_t limit)
      : options_(options), bounds_(bounds), settled_(within(limit)), limit_(settled_) {}

  LimitDecision decide(const Window& window) noexcept override {
    round_trip_ = window.round_trip > 0 ? window.round_trip : round_trip_;
    if (settling_) {
      settling_ = false;
      return report(window, probe_ == Probe::none ? LimitVerdict::measured : LimitVerdict::probing, limit_);
    }
    if (window.round_trip > 0) cv2_ = std::clamp(window.cv2, least_cv2, most_cv2);
    if (window.succeeded == 0) return give_up(window, LimitVerdict::no_goodput);
    switch (probe_) {
      case Probe::none:
        return at_rest(window);
      case Probe::down:
        return pressed(window) ? after_dip(window) : give_up(window, LimitVerdict::demand_bound);
      case Probe::up:
        return after_climb(window);
    }
    return report(window, LimitVerdict::steady, limit_);
  }

  Plan plan() const noexcept override {
    const auto limit = static_cast<double>(limit_);
    // A doubling is told apart by a glance, and at a far too low limit time is dear.
    const double turns =
        probe_ == Probe::up && stride_ >= 3 ? 1.2 : 2;  // how often every place was taken anew
    if (settling_) {
      // By then the calls admitted under the old limit have gone, but for the slowest few.
      return {.samples = static_cast<std::uint64_t>(turns * limit),
              .min_time = nanoseconds(static_cast<std::int64_t>(turns * round_trip_)),
              .max_time = options_.max_window};
    }
    const std::uint32_t other = probe_ == Probe::none ? next_probe() : settled_;
    const double step = std::max(0.02, std::abs(std::log(static_cast<double>(other) / limit)));
    const double samples =
        std::max({least_samples, turns * limit, 2 * cv2_ / (step * step * noise_ * noise_)});
    nanoseconds longest = options_.max_window;
    if (reference_)  // goodput much below the known one is news that should not wait for a full window
      longest = std::min(longest, seconds(2.5 * samples / reference_->goodput()));
    return {.samples = static_cast<std::uint64_t>(samples),
            .min_time = options_.min_window,
            .max_time = std::max(longest, options_.min_window)};
  }

  void set_bounds(Bounds bounds) noexcept override {
    bounds_ = bounds;
    settled_ = within(settled_);
    rest();
  }
  void rest() noexcept override {
    reference_.reset();
    rising_ = false;
    probe_ = Probe::none;
    quiet_ = {};
    put(settled_);
  }
  std::uint32_t settled() const noexcept override { return settled_; }
  bool same_limit_only() const noexcept override { return true; }

 private:
  enum class Probe : std::uint8_t { none, down, up };

  static constexpr double least_samples = 50;
  // Calls that queue inside the dependency vary less than its throughput does.
  static constexpr double least_cv2 = 0.25, most_cv2 = 10;
  static constexpr double noise_ = 0.2;        // the standard error of a gain that a window is sized for
  static constexpr double below_knee = 0.75;   // a gain from a dip that calls for more
  static constexpr double still_below = 0.65;  // a gain from a climb that confirms it
  static constexpr double nearly_all = 0.85;   // unless it is surely less than this
  static constexpr double far_below = 0.95;    // one after which the next step is bigger
  static constexpr double above_knee = 0.15;   // a gain that calls for bigger steps down
  // In flight, in limits, from which the limit and not the demand is the bound.
  static constexpr double pressing = 0.75;
  static constexpr double most_timeouts = 0.1, most_bad = 0.5;  // beyond these the limit does not rise
  static constexpr std::array<double, 4> climbs{1.25, 1.5, 2, 3};
  static constexpr std::array<double, 2> deeper_dips{0.7, 0.5};

  static nanoseconds seconds(double s) {
    return nanoseconds(static_cast<std::int64_t>(std::min(s, 1e6) * 1e9));
  }
  std::uint32_t within(double limit) const {
    return static_cast<std::uint32_t>(std::clamp(std::round(limit), static_cast<double>(bounds_.floor),
                                                 static_cast<double>(bounds_.ceiling)));
  }
  static bool pressed(const Window& w) {
    return w.max_in_flight >= w.limit && w.in_flight >= pressing * static_cast<double>(w.limit);
  }
  static bool troubled(const Window& w) {
    return static_cast<double>(w.timed_out) > most_timeouts * static_cast<double>(w.samples()) ||
           w.bad_share() > most_bad;
  }
  static double error2(const Window& w) {  // of the logarithm of its goodput
    return std::clamp(w.cv2, least_cv2, most_cv2) / static_cast<double>(w.succeeded);
  }
  static Comparison compare(const Window& low, const Window& high) {
    const double step = std::log(static_cast<double>(high.limit) / static_cast<double>(low.limit));
    return {.step = step,
            .gain = std::log(high.goodput() / low.goodput()) / step,
            .noise = std::sqrt(error2(low) + error2(high)) / step};
  }

  // More than the limit can have done: the dependency itself has changed between the windows.
  static bool implausible(const Comparison& c) {
    return (c.gain > 1.6 && c.gain > 1 + 3 * c.noise) || (c.gain < -1 && c.gain < -3 * c.noise);
  }
  // Much less goodput and each call much slower, at about the same limit: either there is less capacity or
  // each call takes longer. A deep dip will tell which.
  static bool collapsed(const Window& before, const Window& now) {
    const double limits = static_cast<double>(now.limit) / static_cast<double>(before.limit);
    return limits > 0.7 && limits < 1.4 && now.goodput() < 0.6 * before.goodput() &&
           now.round_trip > 1.6 * before.round_trip;
  }
  static bool differ(const Window& a, const Window& b) {
    const double noise = std::sqrt(error2(a) + error2(b));
    return std::abs(std::log(a.goodput() / b.goodput())) > std::max(0.2, 4 * noise);
  }

  void put(std::uint32_t limit) {
    settling_ = settling_ || limit != limit_;  // K2
    limit_ = limit;
  }

  // The limit the next probe will try; settled_ itself where there is no room for one.
  std::uint32_t next_probe() const {
    const auto settled = static_cast<double>(settled_);
    if (stride_ <= 0 || settled_ == bounds_.ceiling) {
      const double dip = stride_ >= 0 ? options_.dip : deeper_dips[stride_ == -1 ? 0 : 1];
      const auto low = std::max(bounds_.floor, static_cast<std::uint32_t>(settled * dip));
      if (low < settled_) return low;
    }
    const double climb = climbs[static_cast<std::size_t>(std::clamp(stride_, 1, 4) - 1)];
    return std::min(bounds_.ceiling, std::max(settled_ + 1, static_cast<std::uint32_t>(settled * climb)));
  }

  LimitDecision start_probe(const Window& window, LimitVerdict else_verdict) {
    const std::uint32_t limit = next_probe();
    if (limit == settled_) return report(window, else_verdict, limit_);
    probe_ = limit < settled_ ? Probe::down : Probe::up;
    put(limit);
    return report(window, LimitVerdict::probing, limit_);
  }

  // The probe cannot be judged: back, as if it had not been.
  LimitDecision give_up(const Window& window, LimitVerdict verdict) {
    reference_.reset();
    rising_ = false;
    probe_ = Probe::none;
    put(settled_);
    return report(window, verdict, limit_);
  }

  LimitDecision at_rest(const Window& window) {
    if (!pressed(window)) return give_up(window, LimitVerdict::demand_bound);
    const std::optional<Window> before = std::exchange(reference_, window);
    if (before && differ(*before, window)) {
      quiet_until_ = {};
      return report(window, LimitVerdict::unsettled, limit_);  // it may be half old, half new: measure again
    }
    if (usual_ && collapsed(*usual_, window)) {
      quiet_until_ = {};
      stride_ = -2;
    }
    if (before && window.end < quiet_until_) return report(window, LimitVerdict::steady, limit_);
    usual_ = window;
    return start_probe(window, LimitVerdict::steady);
  }

  LimitDecision after_dip(const Window& low) {
    if (!reference_) return give_up(low, LimitVerdict::unsettled);
    const Window high = *reference_;
    const Comparison c = compare(low, high);
    if (implausible(c)) return explain(give_up(low, LimitVerdict::unsettled), low, high, c);
    const bool may_rise = !troubled(low) && !troubled(high);
    if (c.gain >= below_knee && may_rise && settled_ < bounds_.ceiling) {
      stride_ = 1;
      probe_ = Probe::none;
      return explain(start_probe(low, LimitVerdict::kept), low, high, c);
    }
    // Up to the knee goodput is proportional to the limit, so the knee is where the low limit would have to
    // go to give the high goodput.
    double target = low.limit * std::exp(c.step * std::clamp(c.gain, -0.5, 1.0)) * options_.margin;
    // Not even this far down is the knee: the next dip goes deeper.
    const bool far_above = c.gain < above_knee && c.gain * c.step < 0.05;
    if (far_above && target >= settled_) target = low.limit;  // a dip cut short by the floor
    if (!may_rise) target = std::min<double>(target, settled_);
    stride_ = far_above ? std::max(-2, std::min(0, stride_) - 1) : 0;
    return explain(settle(low, target), low, high, c);
  }

  LimitDecision after_climb(const Window& high) {
    if (!reference_) return give_up(high, LimitVerdict::unsettled);
    const Window low = *reference_;
    const Comparison c = compare(low, high);
    if (implausible(c)) return explain(give_up(high, LimitVerdict::unsettled), low, high, c);
    if (troubled(low) || troubled(high)) {
      stride_ = 0;
      return explain(settle(high, settled_), low, high, c);
    }
    const double knee = low.limit * std::exp(c.step * std::clamp(c.gain, 0.0, 1.0)) * options_.margin;
    if (c.gain >= still_below && c.gain + 3 * c.noise >= nearly_all && pressed(high)) {
      settled_ = high.limit;
      reference_ = high;
      probe_ = Probe::none;
      stride_ = c.gain >= far_below ? stride_ + 1 : std::min(stride_ + 1, 3);
      rising_ = true;
      quiet_ = {};
      LimitDecision d = explain(start_probe(high, LimitVerdict::raised), low, high, c);
      d.verdict = LimitVerdict::raised;
      return d;
    }
    const bool some = rising_ || c.gain > 2 * above_knee;
    // In a long climb the knee is near, or noise hid that it is not: look up once more.
    stride_ = some && stride_ >= 2 ? 2 : 0;
    return explain(settle(high, some ? std::min<double>(knee, high.limit) : settled_), low, high, c);
  }

  // A new settled limit, or the old one when the difference is not worth a change.
  LimitDecision settle(const Window& window, double target) {
    const std::uint32_t before = settled_;
    const std::uint32_t after =
        within(std::ceil(target - 0.2));  // a unit too many costs less than one too few
    const bool same = after == before || std::abs(std::log(target / before)) < 0.04;
    if (!same) {
      settled_ = after;
      reference_.reset();  // K3
    }
    quiet_ = same ? std::clamp(quiet_ * 2, nanoseconds(std::chrono::seconds(1)), options_.max_quiet)
                  : nanoseconds(0);
    rising_ = false;
    quiet_until_ = window.end + quiet_;
    probe_ = Probe::none;
    put(settled_);
    return report(window,
                  same             ? LimitVerdict::kept
                  : after > before ? LimitVerdict::raised
                                   : LimitVerdict::lowered,
                  limit_);
  }

  static LimitDecision explain(LimitDecision d, const Window& low, const Window& high, const Comparison& c) {
    d.low = low.limit;
    d.high = high.limit;
    d.low_goodput = low.goodput();
    d.high_goodput = high.goodput();
    d.gain = c.gain;
    d.noise = c.noise;
    return d;
  }

  const KneeOptions options_;
  Bounds bounds_;
  std::uint32_t settled_;
  std::uint32_t limit_;  // in force: settled_, or what the probe tries
  Probe probe_ = Probe::none;
  bool settling_ = true;
  bool rising_ = false;              // the last comparison has shown settled_ to be no higher than the knee
  int stride_ = 3;                   // above 0: probe upwards; below: dip deeper
  std::optional<Window> reference_;  // the last full window at settled_
  std::optional<Window> usual_;      // the window before the last probe; its limit may be another
  double round_trip_ = 0;
  double cv2_ = 0.25;
  nanoseconds quiet_{};
  TimePoint quiet_until_{};
};

}  // namespace

std::unique_ptr<Algorithm> make_knee(const KneeOptions& options, Bounds bounds, std::uint32_t limit) {
  return std::make_unique<Knee>(options, bounds, limit);
}

}  // namespace bulkhead::limiter
