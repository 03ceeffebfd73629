// The default algorithm: compares two limits in slots of a clock that all instances share, and settles where more
// concurrency brings no more goodput. docs/design/limiter.md explains it, and why it works with several instances.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "limiter/algorithm.h"
#include "limiter/gain.h"
#include "limiter/measure.h"

namespace bulkhead::limiter {
namespace {

using std::chrono::seconds;

// Invariants
//   K1 floor <= ideal_ <= ceiling; the same for every returned limit.
//   K2 The first window after a change of the limit, and the first one of every slot, decides nothing: calls in flight at
//      the change distort it.
//   K3 Within a pair of slots, ideal_ and the length of the slot do not change.
//   K4 ideal_ grows only by a comparison of two limits, by a round trip shorter than the target, or on the way back to its
//      value before an outage.
class Knee final : public Algorithm {
 public:
  Knee(const KneeOptions& options, nanoseconds target, Bounds bounds, std::uint32_t limit)
      : options_(options),
        target_(static_cast<double>(target.count())),
        bounds_(bounds),
        ideal_(bounded(limit)),
        limit_(whole(ideal_)),
        dip_(options.dip) {}

  LimitDecision decide(const Window& window) noexcept override {
    if (window.round_trip > 0) round_trip_ = window.round_trip;
    if (window.succeeded > 0) {
      timeouts_in_a_row_ = 0;
      shortest_ = shortest_ > 0 ? std::min(shortest_, window.round_trip) : window.round_trip;
    }
    if (window.succeeded == 0 && window.timed_out > 0) {
      timeouts_in_a_row_ += window.timed_out;
      if (timeouts_in_a_row_ >= kLeastTimeouts || mode_ == Mode::outage) return halve(window);
      return say(window, LimitVerdict::no_goodput, "too few calls timed out to act on it");
    }
    if (settling_) {
      settling_ = false;
      return say(window, mode_ == Mode::cruise ? LimitVerdict::measured : LimitVerdict::probing,
                 "calls from before the change are still in flight");
    }
    if (window.succeeded == 0)
      return mode_ == Mode::outage ? say(window, LimitVerdict::no_goodput, "no call succeeded")
                                   : resume(window, LimitVerdict::no_goodput, "no call succeeded");
    const Measure measure(window);
    switch (mode_) {
      case Mode::outage:
        if (troubled(window)) return say(window, LimitVerdict::measured, "many calls still time out");
        [[fallthrough]];
      case Mode::start:
        if (!pressed(measure)) {
          // After an outage there is no risk: too few calls are admitted to overload the dependency.
          const double before = std::exchange(ideal_, std::max(ideal_, bounded(restore_)));
          restore_ = 0;
          return resume(window, moved(before, ideal_, LimitVerdict::demand_bound), kNotPressed);
        }
        return start_climb(window, measure, 3);
      case Mode::climb:
        return after_climb(window, measure);
      case Mode::descent:
        return after_descent(window, measure);
      case Mode::cruise:
        break;
    }
    return cruise(window, measure);
  }

  WindowPlan plan(TimePoint now) const noexcept override {
    WindowPlan plan = length(now);
    // Before the first success no time is known to be long.
    if (const double usual = unloaded_ > 0 ? unloaded_ : shortest_; usual > 0) plan.slow = ns(usual);
    return plan;
  }

  void set_bounds(Bounds bounds) noexcept override {
    bounds_ = bounds;
    ideal_ = bounded(ideal_);
    rest();
  }
  void rest() noexcept override {
    // A limiter that has not measured its first limit yet still needs the climb that follows: cruising gets nowhere soon.
    if (mode_ == Mode::start)
      settling_ = true;
    else
      reset_cruise();
    put(whole(ideal_));
  }
  void align(nanoseconds offset) noexcept override { offset_ = offset; }
  std::uint32_t settled() const noexcept override { return whole(ideal_); }
  bool same_limit_only() const noexcept override { return true; }

 private:
  enum class Mode : std::uint8_t {
    start,    // measures the initial limit
    climb,    // multiplies the limit while goodput grows as much
    descent,  // halves the limit while goodput does not fall
    outage,   // no call succeeds: halves the limit down to the floor, and waits for a success
    cruise,   // compares slots
  };

  // ---- Constants. Shares and ratios; only the least numbers of samples are numbers of calls. Times are multiples of the
  // round trip, or the slot of at least a second.
  static constexpr double kLeastSamples = 50;
  static constexpr std::uint64_t kLeastTimeouts = 5;
  static constexpr double kLeastCv2 = 0.25, kMostCv2 = 10;
  static constexpr double kPressing =
      0.75;  // mean in flight over the limit, above which the limit is the bottleneck
  static constexpr double kRejecting = 0.04;  // share of rejected calls, above which it is the bottleneck
  static constexpr double kFilling = 0.1;     // the same for calls that took the last place
  static constexpr double kMostTimeouts = 0.1, kMostBad = 0.5;  // above these shares the limit does not rise
  static constexpr double kClean = 0.02;  // share of failures up to which round trips are used
  // The gain that makes more concurrency worth a longer wait: see worth().
  static constexpr double kWorth = 0.1, kWorthOfFew = 0.3;
  // With fewer places, a larger share of calls may wait: see aim().
  static constexpr double kSlack = 0.55, kSlackOfFew = 1.2, kMostSlack = 0.6;
  static constexpr double kTrust = 0.07;  // the noise of a comparison at which half of the result is applied
  static constexpr double kTrustOfOne = 0.12, kFew = 8;  // the same for a single round trip, with few places
  static constexpr double kMostDown = 0.25, kMostUp = 0.15;  // in one pair of slots
  static constexpr double kLeastDip = 0.72;
  static constexpr double kTurnsInASlot = 6;
  static constexpr double kSoft = 0.3;  // how far a gain beyond worth() moves the limit, above a sharp knee
  // A test by halves that costs this gain shows no queue, unless calls took less than this share of the time in memory.
  static constexpr double kNoQueue = 0.65, kFar = 0.75;
  static constexpr double kSlowly = 0.2;  // how fast the memory follows a difference within the noise
  // Unused places are given up while calls take this much longer than without load, down to this share of the limit at once.
  static constexpr double kLongWait = 1.2, kMostGivenUp = 0.75;
  static constexpr std::int64_t kLeastQuiet = 32;  // slots between two tests, however long a slot is
  static constexpr std::array<double, 4> kClimbs{1.25, 1.5, 2, 3};
  static constexpr std::string_view kNotPressed = "calls do not press against the limit";

  static nanoseconds ns(double n) { return nanoseconds(static_cast<std::int64_t>(n)); }
  double bounded(double limit) const {
    return std::clamp(limit, static_cast<double>(bounds_.floor), static_cast<double>(bounds_.ceiling));
  }
  std::uint32_t whole(double limit) const { return static_cast<std::uint32_t>(std::lround(bounded(limit))); }
  // Instances with the same ideal limit of 1.25 have 1 or 2 places at different times.
  std::uint32_t dithered(double limit) const {
    return static_cast<std::uint32_t>(bounded(std::floor(limit + dither_)));
  }
  void put(std::uint32_t limit) {
    settling_ = settling_ || limit != limit_;  // K2
    limit_ = limit;
  }

  // ---- Slots of the clock. Even slots are low, odd slots high, for every instance with the same slot length.
  nanoseconds wanted_slot() const {
    const double least = kTurnsInASlot * (unloaded_ > 0 ? unloaded_ : round_trip_);
    nanoseconds slot = seconds(1);
    while (static_cast<double>(slot.count()) < least && slot < std::chrono::hours(1)) slot *= 2;
    return slot;
  }
  std::int64_t slot_index(TimePoint t) const { return (t.time_since_epoch() + offset_) / slot_; }
  TimePoint slot_begin(TimePoint t) const { return TimePoint(slot_ * slot_index(t) - offset_); }
  TimePoint slot_end(TimePoint t) const { return slot_begin(t) + slot_; }
  // The number of slots between two tests by a descent, while there is no sign of a queue.
  std::int64_t quiet_slots() const { return std::max(kLeastQuiet, options_.max_quiet / slot_ / 8 * 8); }

  // How long the next window is.
  WindowPlan length(TimePoint now) const noexcept {
    const auto limit = static_cast<std::uint64_t>(limit_);
    // By then nearly all calls that were admitted under another limit have ended.
    const nanoseconds turn = ns(1.2 * round_trip_);
    if (mode_ == Mode::cruise) {
      const nanoseconds left = slot_end(now) - now;
      if (settling_)
        return {.samples = limit,
                .min_time = std::min(turn, left / 2),
                .max_time = std::max(left / 2, nanoseconds(1))};
      // A slot is measured in parts, so that a collapse or an outage is noticed before its end.
      const nanoseconds part = std::max(options_.min_window, 2 * turn);
      const nanoseconds time = left < part * 3 / 2 ? left : part;
      return {.samples = 1, .min_time = time, .max_time = time};
    }
    if (settling_)
      return {.samples = limit, .min_time = turn, .max_time = options_.max_window, .any_end = true};
    if (mode_ == Mode::outage)
      return {.samples = 2, .min_time = options_.min_window, .max_time = options_.max_window};
    double samples = kLeastSamples;
    if (mode_ == Mode::descent) samples *= 0.5;  // the limit is far from the knee, or costs goodput
    samples = std::max(samples * clump(), 1.2 * static_cast<double>(limit_));
    const nanoseconds time = std::max(bursty_ ? slot_ : options_.min_window, turn);
    return {.samples = static_cast<std::uint64_t>(samples),
            .min_time = time,
            .max_time = std::max({time, 2 * slot_, 5 * turn})};
  }

  // ---- The evaluation of a measure.
  static bool occupied(const Measure& m) { return m.in_flight() >= kPressing * m.limit(); }
  // The places are taken all the time, so the round trip shows the effect of the limit. Random arrivals leave some of a few
  // places free, too: that is no burst.
  static bool steady(const Measure& m) { return occupied(m) || usually(m, 2) >= m.limit(); }
  // The calls in flight that random arrivals with this mean exceed only by `sigmas`.
  static double usually(const Measure& m, double sigmas) {
    return m.in_flight() + sigmas * std::sqrt(m.in_flight());
  }

  // Whether the limit is the bottleneck: it is reached, and either most places are taken all the time or calls are
  // rejected. Also learns whether calls come in bursts, between which places are free.
  bool pressed(const Measure& m) {
    const double rejected = m.rejected_share(), filled = m.filled_share();
    rejected_ += (rejected - rejected_) / 8;
    filled_ += (filled - filled_) / 8;
    const bool demand = (rejected_ >= kRejecting && rejected >= kRejecting / 2) ||
                        (filled_ >= kFilling && filled >= kFilling / 2);
    bursty_ = !steady(m) && demand;
    // A long queue that does not grow to the limit because of timeouts or the number of callers.
    const bool queued = unloaded_ > 0 && m.w.round_trip > 1.5 * unloaded_ && m.in_flight() >= 0.4 * m.limit();
    // Holdback keeps the last places free for higher priorities, so lower ones alone never fill the gate.
    const bool reached = m.w.max_in_flight >= m.w.limit || m.w.held_back > 0;
    return queued || (reached && (occupied(m) || demand));
  }
  static bool troubled_by_time(const Window& w) {
    return static_cast<double>(w.timed_out) > kMostTimeouts * static_cast<double>(w.samples());
  }
  static bool troubled(const Window& w) { return troubled_by_time(w) || w.bad_share() > kMostBad; }

  double clump() const { return bursty_ ? clump_of_rate_ : clump_of_time_; }
  void learn_clumps(const Measure& m) {
    if (m.parts < 3) return;
    const auto learn = [&](double& clump, double sum) {
      clump += (std::clamp(sum / (m.parts - 1), 1.0, 4 * clump) - clump) / 8;
    };
    learn(clump_of_time_, m.clumps_of_time);
    learn(clump_of_rate_, m.clumps_of_rate);
  }
  // The variance of the logarithm of the mean round trip, or of the goodput.
  double variance(const Window& w) const {
    return std::clamp(w.cv2, kLeastCv2, kMostCv2) * clump() /
           static_cast<double>(std::max<std::uint64_t>(1, w.succeeded));
  }

  // The logarithm of the ratio of the round trips at the high and the low limit. With bursts or failures it is computed
  // from the successes per second by Little's law, as if all places had been taken.
  static double stretch(const Measure& low, const Measure& high) {
    const bool by_time = steady(low) && steady(high) && low.w.bad_share() < kClean &&
                         high.w.bad_share() < kClean && low.w.round_trip > 0;
    if (by_time) return std::log(high.w.round_trip / low.w.round_trip);
    return std::log(high.limit() / low.limit()) - std::log(high.goodput() / low.goodput());
  }

  Comparison compare(const Measure& low, const Measure& high, double step) const {
    return {.gain = 1 - stretch(low, high) / step,
            .noise = std::sqrt(variance(low.w) + variance(high.w)) / step};
  }

  // ---- The round trip without load, as observed so far.
  void remember(const Window& w) {
    // The smallest of many samples is too low.
    const double round_trip = w.round_trip * std::exp(1.3 * std::sqrt(variance(w)));
    if (round_trip > 0 && (unloaded_ == 0 || round_trip < unloaded_)) unloaded_ = round_trip;
  }
  // A difference within the noise moves the memory slowly: instances whose memories differ by a few percent have limits that
  // differ by far more.
  double haste(const Window& w) const {
    return std::abs(std::log(w.round_trip / unloaded_)) > 2 * std::sqrt(variance(w)) ? 1 : kSlowly;
  }
  void follow_down(const Window& w, double share) {
    if (w.round_trip < unloaded_) unloaded_ += (w.round_trip - unloaded_) * share * haste(w);
  }
  // If a dip of all instances does not shorten the round trip, there is no queue: the dependency has become slower.
  void follow_up(const Window& low, double share) {
    if (low.round_trip <= unloaded_ || gain_.value() <= 0.3) return;
    const double most =
        gain_.value() - gain_.doubt() > 0.6 ? 1.5 : 1 + std::max(share, 0.3) * 0.2 * (gain_.value() - 0.3);
    unloaded_ += (std::min(low.round_trip, unloaded_ * most) - unloaded_) * haste(low);
  }
  double waiting(const Measure& m) const { return unloaded_ > 0 ? m.w.round_trip / unloaded_ : 1; }

  void learn_gain(const Comparison& c) {
    if (!gain_.learn(c)) cleared_ = false;
  }

  // ---- Decisions.
  LimitDecision say(const Window& window, LimitVerdict verdict, std::string_view because) const {
    LimitDecision d = report(window, verdict, limit_);
    d.unloaded = ns(unloaded_);
    d.because = because;
    return d;
  }
  LimitDecision say(const Window& window, LimitVerdict verdict, std::string_view because, const Measure& low,
                    const Measure& high, const Comparison& c) const {
    LimitDecision d = say(window, verdict, because);
    d.low = low.w.limit;
    d.high = high.w.limit;
    d.low_goodput = low.goodput();
    d.high_goodput = high.goodput();
    d.gain = c.gain;
    d.noise = c.noise;
    return d;
  }
  static LimitVerdict moved(double before, double after, LimitVerdict otherwise = LimitVerdict::kept) {
    return after > before ? LimitVerdict::raised : after < before ? LimitVerdict::lowered : otherwise;
  }

  void reset_cruise() {
    mode_ = Mode::cruise;
    low_ = {};
    slot_sum_ = {};
    lower_ = false;
    gain_.clear();
    slot_ = wanted_slot();
  }
  void resume() {
    reset_cruise();
    put(whole(ideal_));
  }
  LimitDecision resume(const Window& window, LimitVerdict verdict, std::string_view because) {
    resume();
    return say(window, verdict, because);
  }

  LimitDecision halve(const Window& window) {
    const double before = ideal_;
    if (mode_ != Mode::outage) restore_ = std::max(restore_, ideal_);
    mode_ = Mode::outage;
    ideal_ = bounded(std::min(ideal_, static_cast<double>(window.limit)) / 2);
    put(whole(ideal_));
    settling_ = false;
    return say(window, moved(before, ideal_, LimitVerdict::no_goodput),
               "every call timed out: the limit is halved, down to the floor");
  }

  // ---- Climbing, at the start and after an outage. Only this instance's limit changes, so it ends as soon as calls take
  // longer: at a shared dependency its own goodput would still grow.
  LimitDecision start_climb(const Window& window, const Measure& here, int stride) {
    stride_ = stride;
    base_ = here;
    first_ = here.w.round_trip * std::exp(std::sqrt(variance(here.w)));
    if (unloaded_ > 0) remember(here.w);
    return climb_on() ? say(window, LimitVerdict::probing, "a higher limit is tried")
                      : resume(window, LimitVerdict::kept, "the limit is at its ceiling");
  }
  bool climb_on() {
    const double factor = kClimbs[static_cast<std::size_t>(std::clamp(stride_, 1, 4) - 1)];
    double aim = std::max(base_.limit() + 1, base_.limit() * factor);
    if (base_.limit() < restore_) aim = std::min(aim, restore_);
    const std::uint32_t next = whole(aim);
    if (next <= base_.w.limit) return false;
    mode_ = Mode::climb;
    put(next);
    return true;
  }
  LimitDecision after_climb(const Window& window, const Measure& high) {
    const Measure low = base_;
    const double step = std::log(high.limit() / low.limit());
    const Comparison c = compare(low, high, step);
    const bool may_rise = !troubled(high.w) && !troubled(low.w);
    const bool slower = first_ > 0 && (high.w.round_trip > 1.3 * first_ || waiting(high) > 1.6);
    const bool too_slow = target_ > 0 ? high.w.round_trip > target_ : !bursty_ && slower;
    // A limit that was in force before an outage needs less proof than a new one.
    const bool restores = may_rise && !too_slow && high.limit() <= restore_;
    if (!restores) restore_ = 0;
    const bool brings_all = c.gain + std::min(c.noise, 0.3) >= 0.65 && c.gain + 3 * c.noise >= 0.85;
    if (restores || (may_rise && brings_all && pressed(high) && !too_slow)) {
      ideal_ = high.limit();
      remember(low.w);
      stride_ = c.gain >= 0.95 ? stride_ + 1 : std::min(stride_ + 1, 3);
      base_ = high;
      if (!climb_on()) resume();
      return say(window, LimitVerdict::raised, "more concurrency brought more goodput", low, high, c);
    }
    const double before = ideal_;
    const bool part = may_rise && c.gain > 0.1 && !(too_slow && c.gain >= 0.65);
    // Up to the knee goodput is proportional to the limit.
    const double knee = low.limit() * std::exp(step * std::clamp(c.gain, 0.0, 1.0)) * options_.margin;
    ideal_ = bounded(part ? std::min(knee, high.limit()) : low.limit());
    const bool far_above = c.gain < 0.15 && stride_ >= 3 && !climbed_;
    climbed_ = true;
    if (far_above && start_descent(low, false))
      return say(window, LimitVerdict::probing, "more concurrency brought nothing: less is tried", low, high,
                 c);
    resume();
    return say(
        window, moved(before, ideal_),
        too_slow ? "calls took longer at the higher limit" : "more concurrency brought less than its part",
        low, high, c);
  }

  // ---- Descending: tests whether there is a queue, and shortens a long one quickly.
  bool start_descent(const Measure& here, bool collapse) {
    base_ = here;
    collapse_ = collapse;
    blind_ = unloaded_ == 0;
    return descend_on();
  }
  bool descend_on() {
    const std::uint32_t next = whole(std::floor(base_.limit() / 2));
    if (next >= base_.w.limit) {
      remember(base_.w);
      return false;
    }
    mode_ = Mode::descent;
    put(next);
    return true;
  }
  LimitDecision after_descent(const Window& window, const Measure& low) {
    const Measure high = base_;
    const double step = std::log(high.limit() / low.limit());
    const Comparison c = compare(low, high, step);
    // If the unloaded round trip is unknown, too small an estimate is better than too large a one.
    const double missed = blind_ ? 0.3 + std::min(c.noise, 0.3) : std::max(0.05, 0.25 - 0.5 * c.noise);
    if (c.gain < missed) {
      ideal_ = low.limit();
      base_ = low;
      again_ = true;
      gain_.clear();
      if (!descend_on()) resume();
      return say(window, LimitVerdict::lowered, "half the concurrency brought as much goodput", low, high, c);
    }
    const bool only_slower = collapse_ && c.gain > 0.6;
    if (only_slower) unloaded_ = low.w.round_trip;
    if (c.gain > 0.3) unloaded_ = std::min(std::max(unloaded_, low.w.round_trip), 1.1 * unloaded_);
    // The short window of a test misses the longest calls. Without a queue the low slots are the better measure.
    if (blind_ || c.gain < kNoQueue || low.w.round_trip < kFar * unloaded_) remember(low.w);
    if (only_slower && !troubled(low.w)) {
      limit_ = high.w.limit;
      LimitDecision d = start_climb(window, high, 2);
      d.because = "calls take longer, but do not wait: more of them are needed at once";
      return d;
    }
    const double before = ideal_;
    if (collapse_) {
      const double knee = low.limit() * std::exp(step * std::clamp(c.gain, 0.0, 1.0)) * options_.margin;
      ideal_ = bounded(std::min(1.2 * knee, high.limit()));
    }
    const Gain gain = gain_;
    resume();
    if (ideal_ == before) {  // what is known of the gain is still right
      gain_ = gain;
      cleared_ = true;
      again_ = false;
    }
    return say(window, moved(before, ideal_), "half the concurrency costs goodput", low, high, c);
  }

  // ---- Cruising.
  static bool collapsed(const Measure& before, const Measure& now) {
    const double limits = now.limit() / before.limit();
    return limits > 0.7 && now.goodput() < 0.6 * before.goodput() &&
           now.w.round_trip > 1.6 * std::max(1.0, limits) * before.w.round_trip;
  }

  LimitDecision cruise(const Window& window, const Measure& part) {
    slot_sum_.add(window);
    if (troubled_by_time(window) && window.samples() >= 10 && window.end >= next_test_) {
      next_test_ = window.end + 8 * slot_;
      if (start_descent(part, false))
        return say(window, LimitVerdict::probing, "many calls time out: less concurrency is tried");
    }
    const bool collapse = usual_ && window.succeeded >= 10 && occupied(part) && collapsed(*usual_, part);
    if (collapse && collapsing_) {  // only after two parts: the first one may mix two limits
      usual_.reset();
      collapsing_ = false;
      if (start_descent(part, true))
        return say(window, LimitVerdict::probing, "goodput collapsed: a queue, or slower calls?");
    }
    collapsing_ = collapse;
    if (window.end < slot_begin_ + slot_)
      return say(window, lower_ ? LimitVerdict::probing : LimitVerdict::steady, "the slot is not over");
    const Measure slot = slot_sum_;
    slot_sum_ = {};
    learn_clumps(slot);
    LimitDecision d;
    if (lower_) {
      low_ = slot;
      lower_ = false;
      d = say(window, press_ ? LimitVerdict::probing : LimitVerdict::demand_bound, "the low slot is over");
      put(press_ ? dithered(ideal_) : whole(ideal_));
    } else {
      d = after_high(window, slot);
      if (mode_ != Mode::cruise) return d;
      low_ = {};
    }
    begin_slot(window.end);
    d.to = limit_;
    return d;
  }

  void begin_slot(TimePoint t) {
    if (low_.empty()) {  // a new pair may begin
      slot_ = wanted_slot();
      lower_ = target_ == 0 && slot_index(t) % 2 == 0;
      put(!press_ ? whole(ideal_) : lower_ ? dithered(std::min(ideal_, level_) * dip_) : dithered(ideal_));
    }
    slot_begin_ = slot_begin(t);
    settling_ = settling_ || press_;  // K2: the others change their limits now
  }

  LimitDecision after_high(const Window& window, const Measure& high) {
    if (high.seconds < std::chrono::duration<double>(slot_).count() / 3)
      return say(window, LimitVerdict::measured, "the slot was cut short");
    if (const bool pressing = pressed(high); pressing != press_) {
      press_ = pressing;
      gain_.clear();  // what others' dips show is another gain than that of a step of one's own
      cleared_ = false;
    }
    usual_ = high;
    if (!press_) return after_idle(window, high);
    if (target_ > 0) return toward_target(window, high);
    // If the limit is hardly reached, lowering it slightly would have no effect.
    const bool loose = unloaded_ > 0 && waiting(high) > 1.5 && steady(high) && !occupied(high);
    level_ = loose ? std::max(1.1 * high.in_flight(), ideal_ / 2) : std::numeric_limits<double>::infinity();
    if (low_.empty()) return say(window, LimitVerdict::steady, "the next low slot is awaited");
    return after_pair(window, low_, high);
  }

  // A limit that calls do not reach is kept, unless a queue shows that other instances load the dependency.
  LimitDecision after_idle(const Window& window, const Measure& high) {
    if (unloaded_ == 0 && steady(high)) {
      // The first measure of this dependency may already include a queue.
      Measure here = high;
      here.w.limit = std::max(1u, static_cast<std::uint32_t>(std::lround(high.in_flight())));
      ideal_ = bounded(here.limit());
      if (start_descent(here, false))
        return say(window, LimitVerdict::probing, "the round trip without load is not known yet");
    }
    if (unloaded_ == 0) remember(high.w);
    follow_down(high.w, 0.2);
    if (!low_.empty()) {
      const double step = std::log(1 / options_.dip);
      learn_gain({.gain = 1 - std::log(high.w.round_trip / low_.w.round_trip) / step,
                  .noise = std::sqrt(variance(low_.w) + variance(high.w)) / step});
    }
    // Calls wait if the others' dips shorten the round trip, if it is long, or if calls time out.
    const double used = std::min(static_cast<double>(high.w.max_in_flight), usually(high, 1));
    const bool queue = (gain_.pairs() >= 4 && gain_.value() + gain_.doubt() < 0.6) ||
                       waiting(high) > kLongWait + std::sqrt(variance(high.w)) || troubled_by_time(high.w);
    const double before = ideal_;
    if (queue && used < ideal_) ideal_ = bounded(std::max(used, kMostGivenUp * ideal_));
    return say(window, moved(whole(before), whole(ideal_), LimitVerdict::demand_bound),
               ideal_ < before ? "others load the dependency: unused places are given up" : kNotPressed);
  }

  // With a target nothing has to be compared: the limit follows the target round trip.
  LimitDecision toward_target(const Window& window, const Measure& high) {
    const double noise = std::sqrt(variance(high.w));
    const double share = kTrust / (kTrust + noise);
    const double f = std::log(target_ * (1 - 0.1 * (1 - 1 / std::sqrt(ideal_))) / high.w.round_trip);
    const double before = ideal_;
    const double up = troubled(high.w) ? 0 : kMostUp;
    ideal_ = bounded(ideal_ * std::exp(share * std::clamp(f, -kMostDown, up)));
    draw(high.w);
    return say(window, moved(whole(before), whole(ideal_)),
               f > 0 ? "calls take less time than the target" : "calls take more time than the target");
  }

  // The target round trip, relative to the unloaded one. The fewer places an instance has, the longer its calls may wait. So
  // instances of one dependency, which all see the same round trip, converge to equal limits, and random arrivals keep a
  // small number of places busy.
  double aim() const {
    const double slack = std::max(kSlack / std::sqrt(ideal_), kSlackOfFew / ideal_);
    return options_.margin * (1 + std::min(slack, kMostSlack));
  }
  // With few places randomness alone makes a soft knee: goodput that is bought by waiting.
  double worth() const { return kWorth + kWorthOfFew / std::sqrt(ideal_); }

  LimitDecision after_pair(const Window& window, const Measure& low, const Measure& high) {
    const double step = std::log(1 / dip_);
    Comparison c = compare(low, high, step);
    c.gain = std::clamp(c.gain, -1.0, 2.0);
    learn_gain(c);
    c.gain = gain_.value();  // what the decision reports
    const double sure = gain_.value() - gain_.doubt();
    // A noisier comparison has less effect. A limit of few places is also coarse.
    const double noise2 = variance(low.w) + variance(high.w) + 0.02 / (ideal_ * ideal_);
    double share = kTrust * kTrust / (kTrust * kTrust + noise2);
    // No step brings back more than itself: the capacity has changed meanwhile, and that the low slot was slower says nothing.
    const bool drifts = sure > 1.05;
    follow_down(low.w, share);
    if (!drifts) follow_up(low.w, share);

    // A sharp knee between the two limits explains a part of the gain. Where calls wait, only more than that asks for a higher
    // limit, and else the round trip decides, which all instances share: otherwise those with the most calls, which see the
    // gain best, would take the places of the others.
    const double queue = waiting(high);
    const double explained = queue > aim() ? 1 - std::log(queue / std::max(1.0, queue * dip_)) / step : 0;
    const double by_gain = (sure - std::max(worth(), explained)) * (explained > 0 ? step : kSoft);
    const double by_time = std::log(aim() / waiting(high));
    double f = by_gain > 0 ? std::max(by_gain, by_time) : by_time;
    if (bursty_) f = (gain_.value() - worth()) * step;  // calls of a burst wait, but more of them succeed
    if (troubled(low.w) || troubled(high.w)) f = std::min(f, 0.0);

    // One round trip is less noisy than the comparison of two. An instance with few places and few calls would come to its
    // share only after minutes.
    if (ideal_ < kFew && f == by_time) {
      const double noise_of_one = variance(high.w) + 0.02 / (ideal_ * ideal_);
      share = std::max(share, kTrustOfOne * kTrustOfOne / (kTrustOfOne * kTrustOfOne + noise_of_one));
    }

    const double before = ideal_;
    if (f < 0) ideal_ = std::min(ideal_, std::max(level_, 0.9 * ideal_));
    ideal_ = bounded(ideal_ * std::exp(share * std::clamp(f, -kMostDown, kMostUp)));
    gain_.move(std::log(ideal_ / before) / step);
    draw(high.w);
    dip_ =
        std::clamp(std::exp(-1.5 * std::sqrt(variance(low.w) + variance(high.w))), kLeastDip, options_.dip);

    // The whole step came back as goodput: take a bigger one. Near the knee small steps suffice: a big step of one of
    // several instances would move away from equal shares.
    if (f > 0 && (bursty_ ? sure > 0.55 : sure > 0.8 && waiting(high) < 1.4)) {
      ideal_ = bounded(before * kClimbs[static_cast<std::size_t>(std::min(rises_ + 1, 3))]);
      ++rises_;
      gain_.clear();
    } else {
      rises_ = 0;
    }
    const std::int64_t index = slot_index(window.end);
    const bool suspicious =
        (gain_.pairs() >= 3 && gain_.value() + gain_.doubt() < 0.5 && waiting(high) > 1.5) ||
        (gain_.pairs() >= 4 && gain_.value() < 0.2);
    // Instances also test at the same time.
    if (unloaded_ == 0 || (((suspicious && !cleared_) || again_) && index % 8 == 0) ||
        index % quiet_slots() == 0)
      if (start_descent(high, false))
        return say(window, LimitVerdict::probing, "half the limit is tried, to see calls without a queue",
                   low, high, c);
    return say(window, moved(whole(before), whole(ideal_)),
               f > 0 ? (by_time > 0 ? "calls hardly wait" : "more concurrency brings more goodput")
                     : "calls wait at the dependency",
               low, high, c);
  }

  // A fraction of a place that differs between instances, derived from their round trips.
  void draw(const Window& w) {
    std::uint64_t h = std::bit_cast<std::uint64_t>(w.round_trip) ^ (w.succeeded * 0x9E3779B97F4A7C15ULL);
    h = (h ^ (h >> 31)) * 0xBF58476D1CE4E5B9ULL;
    h = (h ^ (h >> 29)) * 0x94D049BB133111EBULL;
    dither_ = static_cast<double>(h >> 11) * 0x1.0p-53;
  }

  const KneeOptions options_;
  const double target_;  // ns; 0: none
  Bounds bounds_;
  double ideal_;         // the settled limit, with its fraction
  std::uint32_t limit_;  // in force
  Mode mode_ = Mode::start;
  bool settling_ = true;
  nanoseconds offset_{};  // of the shared clock

  // Demand.
  bool press_ = false, bursty_ = false;
  double rejected_ = 0, filled_ = 0;  // shares, averaged
  // Times.
  double round_trip_ = 0;  // of the last window
  double unloaded_ = 0;    // 0: not known
  double shortest_ = 0;    // of all windows with successes
  double clump_of_time_ = 1, clump_of_rate_ = 1;
  // A climb or a descent.
  Measure base_;  // at the limit before this step
  int stride_ = 3;
  double first_ = 0;  // the round trip before the climb
  bool climbed_ = false;
  double restore_ = 0;  // the limit before an outage
  std::uint64_t timeouts_in_a_row_ = 0;
  bool collapse_ = false, blind_ = false;
  // Cruising.
  nanoseconds slot_ = seconds(1);
  TimePoint slot_begin_{};
  bool lower_ = false;  // this slot is a low one
  Measure slot_sum_, low_;
  std::optional<Measure> usual_;  // the last high slot
  bool collapsing_ = false;
  TimePoint next_test_{};
  double dip_;
  double level_ = std::numeric_limits<double>::infinity();  // the start of a dip, if below ideal_
  Gain gain_;
  int rises_ = 0;
  bool again_ = false;    // the last test by halves found a queue
  bool cleared_ = false;  // half the limit was tried in this state, and cost goodput
  double dither_ = 0.5;
};

}  // namespace

std::unique_ptr<Algorithm> make_knee(const KneeOptions& options, nanoseconds target, Bounds bounds,
                                     std::uint32_t limit) {
  return std::make_unique<Knee>(options, target, bounds, limit);
}

}  // namespace bulkhead::limiter
