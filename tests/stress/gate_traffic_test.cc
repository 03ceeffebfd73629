// Every kind of call at once on one gate, with cancels, timeouts, resizes, drains and readers; the cap is
// checked from inside the protected section, and the books at the end.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <iostream>
#include <mutex>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <tuple>

#include "bulkhead/gate.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

// The limits the gate has had. A call that has just been admitted sees no more units than the largest limit
// in force since it began, because the last admission before it looked was its own or a later one.
class Limits {
 public:
  explicit Limits(std::uint32_t first) : limits_(kMost) { limits_[0] = first; }

  template <class Resize>
  bool change(std::uint32_t limit, Resize resize) {  // by one thread only
    const std::size_t next = last_.load() + 1;
    if (next == kMost) return false;
    limits_[next].store(limit, std::memory_order_relaxed);
    last_.store(next);  // from here on it may be in force
    resize(limit);
    in_force_.store(next);  // from here on those before it are not
    return true;
  }
  std::size_t now() const { return in_force_.load(); }
  std::uint32_t largest_since(std::size_t then) const {
    std::uint32_t most = 0;
    for (std::size_t i = then, last = last_.load(); i <= last; ++i)
      most = std::max(most, limits_[i].load(std::memory_order_relaxed));
    return most;
  }

 private:
  static constexpr std::size_t kMost = 200'000;
  std::vector<std::atomic<std::uint32_t>> limits_;
  std::atomic<std::size_t> last_{0}, in_force_{0};
};

enum class Variant : std::uint8_t {
  fixed,    // the shape never changes: every bound is exact
  resized,  // limits change all the time
  watched,  // hooks, holders and sampling are on
  flows,    // the line is fair between flows
};

class Traffic {
 public:
  static constexpr std::uint32_t kLimit = 6, kQueue = 24;

  Traffic(Fairness fairness, Variant variant)
      : variant_(variant),
        reserve_(variant == Variant::fixed ? 2 : 0),
        limits_(kLimit),
        gate_(options(fairness, variant)) {}

  void run(double seconds) {
    const auto end = end_of_test(seconds);
    {
      Threads helpers;
      {
        Threads callers;
        for (std::uint32_t i = 0; i < 6; ++i) callers.add([this, i, end] { call_until(end, i); });
        helpers.add([this] { release_parked(); });
        helpers.add([this] { cancel_some(); });
        helpers.add([this] { drain_at_times(); });
        for (int i = 0; i < 2; ++i) helpers.add([this] { read(); });
        if (variant_ == Variant::resized || variant_ == Variant::flows) helpers.add([this] { resize(); });
      }
      // Nobody calls any more; those in line are served as the parked permits come back.
      const auto patience = steady_clock::now() + 60s;
      while (answers_ != calls_ && steady_clock::now() < patience) std::this_thread::yield();
      EXPECT_EQ(answers_, calls_) << "a call was never answered";
      over_ = true;
    }
    check_the_books();
  }

 private:
  struct Call {
    std::size_t began;  // in limits_
    std::uint32_t cost;
    Priority tier;
  };
  struct Parked {
    Permit permit;
    Call call;
  };

  GateOptions options(Fairness fairness, Variant variant) {
    GateOptions o{.name = "busy",
                  .max_concurrent = kLimit,
                  .max_queue = kQueue,
                  .critical_reserve = reserve_ / double{kLimit},
                  .fairness = fairness,
                  .max_barge = 100us};
    if (variant == Variant::flows) o.flow_queues = 8, o.flow_hand = 2, o.measure_occupancy = true;
    if (variant != Variant::watched) return o;
    o.measure_service = o.track_holders = true;
    o.hooks = {.on_admit = [this](const Event&) { ++hooked_admits_; },
               .on_release =
                   [this](const Event&) {
                     if (++hooked_releases_ % 1000 == 0) throw std::runtime_error("a hook that throws");
                   },
               .on_reject = [this](const Event&, Reason) { ++hooked_rejects_; }};
    return o;
  }

  // ---- the callers ----

  void call_until(steady_clock::time_point end, std::uint32_t seed) {
    Dice dice(seed);
    while (steady_clock::now() < end)
      for (int i = 0; i < 20; ++i) call(dice);
  }

  void call(Dice& dice) {
    AcquireOptions o{.priority = static_cast<Priority>(dice.below(3)),
                     .cost = dice.one_in(4) ? 1 + dice.below(dice.one_in(20) ? 12 : 4) : 1,
                     .flow = dice.one_in(2) ? 1 : dice.below(20)};
    const std::uint32_t patience = dice.below(4);
    if (patience == 0) o.timeout = std::chrono::microseconds(dice.below(200));
    if (patience == 1) o.timeout = std::chrono::milliseconds(dice.below(3));
    if (patience == 2) o.deadline = steady_clock::now() + std::chrono::microseconds(dice.below(2000));
    if (dice.one_in(3)) o.stop = some_token(dice);
    const Call call{limits_.now(), std::max(o.cost, 1u), o.priority};
    ++calls_;
    switch (dice.below(5)) {
      case 0:
        here(gate_.try_acquire(o), call, dice);
        break;
      case 1:
        here(gate_.acquire(o), call, dice);
        break;
      case 2:  // the shortest way in
        if (auto permit = gate_.acquire({.timeout = 1ms})) {
          here(std::move(permit), {call.began, 1, Priority::normal}, dice);
        } else {
          here(std::move(permit), call, dice);
        }
        break;
      case 3:
        gate_.async_acquire(o, [this, call](Result<Permit> result) {
          if (there(std::move(result), call)) throw std::runtime_error("a handler that throws");
        });
        break;
      default:
        coroutine(o, call);
    }
  }

  Detached coroutine(AcquireOptions o, Call call) { there(co_await gate_.co_acquire(std::move(o)), call); }

  // An answer on the caller's own thread: it works and goes.
  void here(Result<Permit> result, const Call& call, Dice& dice) {
    if (!count(result)) return linger(dice);
    enter(call);
    linger(dice);
    leave(call);
    switch (dice.below(4)) {
      case 0:
        ++failures_;
        result->release(Outcome::failure);
        ++double_releases_;
        EXPECT_FALSE(result->release());
        break;
      case 1:
        ++failures_;
        result->fail();
        break;
      case 2:
        EXPECT_TRUE(result->release());
        break;
      default:
        break;  // it dies
    }
  }

  // An answer on any thread, even the timer's: most go on elsewhere. True: the handler shall throw.
  bool there(Result<Permit> result, const Call& call) {
    const auto n = ++told_elsewhere_;
    if (result) {
      enter(call);
      if (n % 3 == 0) {
        leave(call);
        result->release();
      } else {
        std::lock_guard lock(mutex_);
        parked_.push_back({*std::move(result), call});
      }
    }
    count(result);  // last: once all calls are counted, nothing more happens to them but what is parked
    return n % 1000 == 0;
  }

  bool count(const Result<Permit>& result) {
    if (result)
      ++admitted_;
    else
      ++rejected_[static_cast<std::size_t>(result.error().reason)];
    ++answers_;
    return result.has_value();
  }

  // ---- the protected section ----

  void enter(const Call& call) {
    check("units in flight", units_, call, 0);
    if (call.tier != Priority::critical)
      check("units in flight that are not critical", common_units_, call, reserve_);
  }
  void check(const char* what, std::atomic<std::uint32_t>& counter, const Call& call, std::uint32_t reserve) {
    const std::uint32_t seen = counter.fetch_add(call.cost) + call.cost;
    const std::uint32_t allowed = limits_.largest_since(call.began) - reserve;  // after the look, not before
    if (seen > allowed) complain(what, seen, allowed);
  }
  void leave(const Call& call) {
    if (call.tier != Priority::critical) common_units_ -= call.cost;
    units_ -= call.cost;
  }
  void complain(const char* what, std::uint64_t seen, std::uint64_t allowed) {
    if (complaints_++ < 5) ADD_FAILURE() << what << ": " << seen << ", allowed: " << allowed;
  }

  // ---- the helpers ----

  void release_parked() {
    Dice dice(100);
    for (;;) {
      const bool last_round = over_;
      Parked next;
      {
        std::lock_guard lock(mutex_);
        if (!parked_.empty()) {
          std::swap(parked_[dice.below(static_cast<std::uint32_t>(parked_.size()))], parked_.back());
          next = std::move(parked_.back());
          parked_.pop_back();
        }
      }
      if (next.permit) {
        leave(next.call);
        const bool fail = dice.one_in(3);
        failures_ += fail;
        next.permit.release(fail ? Outcome::failure : Outcome::success);
      } else if (last_round) {
        return;
      } else {
        std::this_thread::yield();
      }
    }
  }

  std::stop_token some_token(Dice& dice) {
    std::lock_guard lock(mutex_);
    return sources_[dice.below(kSources)].get_token();
  }
  void cancel_some() {
    Dice dice(101);
    while (!over_) {
      std::stop_source source;
      {
        std::lock_guard lock(mutex_);
        std::swap(source, sources_[dice.below(kSources)]);
      }
      source.request_stop();
      std::this_thread::sleep_for(20us);
    }
  }

  void drain_at_times() {
    Dice dice(102);
    while (!over_) {
      gate_.drain(steady_clock::now() + std::chrono::microseconds(dice.below(300)));
      std::this_thread::sleep_for(1ms);  // while somebody drains, no call takes the short way
    }
  }

  void resize() {
    Dice dice(103);
    while (!over_) {
      if (!limits_.change(1 + dice.below(2 * kLimit), [this](std::uint32_t limit) { gate_.resize(limit); }))
        break;
      if (dice.one_in(3)) gate_.resize_queue(dice.below(kQueue + 1));
      std::this_thread::sleep_for(20us);
    }
    limits_.change(kLimit, [this](std::uint32_t limit) { gate_.resize(limit); });
    gate_.resize_queue(kQueue);
  }

  void read() {
    Snapshot before = gate_.snapshot();
    const auto grows = [&](const char* what, std::uint64_t then, std::uint64_t now) {
      if (now < then) complain(what, now, then);
    };
    while (!over_) {
      const std::size_t began = limits_.now();
      const Snapshot s = gate_.snapshot();
      ++reads_;
      if (s.admitted != s.released + s.permits) complain("admitted", s.admitted, s.released + s.permits);
      if (s.succeeded + s.failed != s.released) complain("outcomes", s.succeeded + s.failed, s.released);
      if (s.permits > s.in_flight) complain("permits", s.permits, s.in_flight);
      if (s.underflows != 0) complain("underflows", s.underflows, 0);
      if (s.waiting > kQueue) complain("waiting", s.waiting, kQueue);
      if (s.max_concurrent > limits_.largest_since(began))
        complain("limit", s.max_concurrent, limits_.largest_since(began));
      if (variant_ == Variant::fixed && s.in_flight > kLimit) complain("in flight", s.in_flight, kLimit);
      grows("admitted went back", before.admitted, s.admitted);
      grows("released went back", before.released, s.released);
      grows("succeeded went back", before.succeeded, s.succeeded);
      grows("failed went back", before.failed, s.failed);
      grows("double_releases went back", before.double_releases, s.double_releases);
      for (std::size_t r = 0; r < kReasons; ++r)
        grows("rejected went back", before.rejected_by_reason[r], s.rejected_by_reason[r]);
      before = s;
      if (variant_ == Variant::watched) {
        // A permit leaves this list after its units are back, so there may be more than the limit.
        for (const Holder& h : gate_.holders())
          if (h.cost == 0 || h.cost > kLimit) complain("cost of a holder", h.cost, kLimit);
      }
      std::this_thread::yield();
    }
  }

  void check_the_books() {
    const Snapshot s = gate_.snapshot();
    EXPECT_EQ(s.in_flight, 0u);
    EXPECT_EQ(s.permits, 0u);
    EXPECT_EQ(s.waiting, 0u);
    EXPECT_EQ(s.admitted, s.released);
    EXPECT_EQ(s.admitted, admitted_);
    EXPECT_EQ(s.failed, failures_);
    EXPECT_EQ(s.double_releases, double_releases_);
    EXPECT_EQ(s.underflows, 0u);
    for (std::size_t r = 0; r < kReasons; ++r)
      EXPECT_EQ(s.rejected_by_reason[r], rejected_[r]) << to_string(static_cast<Reason>(r));
    EXPECT_EQ(s.admitted + s.rejected(), calls_);
    EXPECT_EQ(units_, 0u);
    EXPECT_TRUE(gate_.drain(steady_clock::now()));
    EXPECT_TRUE(gate_.holders().empty());
    if (variant_ == Variant::watched) {
      EXPECT_EQ(hooked_admits_, s.admitted);
      EXPECT_EQ(hooked_releases_, s.released);
      EXPECT_EQ(hooked_rejects_, s.rejected());
    }
    // All units are there to be taken, and not one more.
    std::vector<Permit> all;
    while (auto permit = gate_.try_acquire({.priority = Priority::critical}))
      all.push_back(*std::move(permit));
    EXPECT_EQ(all.size(), kLimit);

    std::cout << calls_ << " calls, " << s.admitted << " admitted, " << reads_ << " snapshots";
    for (std::size_t r = 0; r < kReasons; ++r)
      if (s.rejected_by_reason[r] != 0)
        std::cout << ", " << s.rejected_by_reason[r] << " " << to_string(static_cast<Reason>(r));
    std::cout << "\n";
    EXPECT_GT(s.rejected(Reason::timeout), 0u);
    EXPECT_GT(s.rejected(Reason::cancelled), 0u);
  }

  static constexpr std::uint32_t kSources = 8;

  const Variant variant_;
  const std::uint32_t reserve_;
  Limits limits_;
  std::atomic<std::uint32_t> units_{0}, common_units_{0};
  std::atomic<std::uint64_t> calls_{0}, answers_{0}, admitted_{0}, failures_{0}, double_releases_{0};
  std::atomic<std::uint64_t> told_elsewhere_{0}, reads_{0}, complaints_{0};
  std::atomic<std::uint64_t> hooked_admits_{0}, hooked_releases_{0}, hooked_rejects_{0};
  std::array<std::atomic<std::uint64_t>, kReasons> rejected_{};
  std::atomic<bool> over_{false};
  std::mutex mutex_;  // guards the two below
  std::array<std::stop_source, kSources> sources_;
  std::vector<Parked> parked_;
  Gate gate_;
};

class GateTraffic : public testing::TestWithParam<std::tuple<Fairness, Variant>> {};

TEST_P(GateTraffic, HoldsTheCapAndKeepsTheBooks) {
  const auto [fairness, variant] = GetParam();
  Traffic traffic(fairness, variant);
  traffic.run(1.5);
}

std::string name_of(const testing::TestParamInfo<GateTraffic::ParamType>& test) {
  constexpr std::array<const char*, 4> variants{"Fixed", "Resized", "Watched", "Flows"};
  return mode_name(std::get<0>(test.param)) + variants[static_cast<std::size_t>(std::get<1>(test.param))];
}

INSTANTIATE_TEST_SUITE_P(All, GateTraffic,
                         testing::Combine(kAllModes, testing::Values(Variant::fixed, Variant::resized,
                                                                     Variant::watched, Variant::flows)),
                         name_of);

}  // namespace
}  // namespace bulkhead::stress
