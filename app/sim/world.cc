#include "app/sim/world.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <utility>

#include "app/sim/dependency.h"
#include "bulkhead/gate.h"

namespace bulkhead::sim {
namespace {

constexpr Nanos kNever = Dependency::kNever;
constexpr Nanos kFailFastAfter = 5'000'000, kHangTimeout = 1'000'000'000;
constexpr double kSwingStep = 0.05;  // seconds between two steps of a capacity that swings

Nanos nanos(double seconds) { return static_cast<Nanos>(seconds * 1e9); }

struct Instance {
  std::unique_ptr<Gate> gate;
  std::unique_ptr<AdaptiveLimiter> limiter;
  std::uint32_t in_flight = 0, fixed = 0;
  std::uint64_t good = 0, windows = 0;
  Nanos skew = 0;

  bool runs() const { return gate != nullptr; }
  std::uint32_t limit() const { return limiter ? limiter->limit() : fixed; }
  std::uint32_t settled() const { return limiter ? limiter->snapshot().settled : fixed; }
  TimePoint point(Nanos t) const {
    return TimePoint(std::chrono::hours(1)) + std::chrono::nanoseconds(t + skew);
  }
};

class World {
 public:
  World(const Scenario& scenario, const Contender& contender, std::uint32_t seed)
      : scenario_(scenario),
        contender_(contender),
        seed_(seed),
        random_(seed * 104729 + 3),
        dependency_(scenario_, seed * 7919 + 1),
        instances_(scenario.instances) {
    if (scenario_.phases.empty()) scenario_.phases = {{.capacity = scenario.capacity, .load = scenario.load}};
    std::uniform_real_distribution<> skews(0, scenario.skew_ms * 1e6);
    double sum = 0;
    for (std::uint32_t i = 0; i < scenario.instances; ++i) {
      if (scenario.skew_ms > 0) instances_[i].skew = static_cast<Nanos>(skews(random_));
      sum += std::pow(i + 1, -scenario.zipf);
      up_to_.push_back(sum);
    }
    for (double& u : up_to_) u /= sum;
    for (std::uint32_t i = 0; i < scenario.instances; ++i) {
      // An instance whose first deployment is a start is not there in the beginning.
      const auto first = std::find_if(scenario.deployments.begin(), scenario.deployments.end(),
                                      [&](const Deployment& d) { return d.instance == i; });
      if (first == scenario.deployments.end() || first->stops) start(i);
    }
  }

  // Jumps from event to event on virtual time; the real gates and limiters run in between.
  Run run() {
    const Nanos end = nanos(scenario_.seconds);
    Run run;
    run.ticks.reserve(static_cast<std::size_t>(scenario_.seconds / Run::kTick) + 2);
    for (std::size_t i = 0; i < up_to_.size(); ++i)
      run.share_of.push_back(i == 0 ? up_to_[0] : up_to_[i] - up_to_[i - 1]);
    Nanos tick = 0, next_swing = scenario_.swing > 0 ? 0 : kNever;
    enter_phase();
    for (;;) {
      const Nanos next = std::min({dependency_.next(), broken_off(), next_timeout(), next_arrival_,
                                   next_phase_, next_swing, next_deployment(), next_return(), tick});
      if (next > end) break;
      now_ = next;
      if (next == tick) {
        take(run);
        tick += nanos(Run::kTick);
      } else if (next == next_phase_) {
        enter_phase();
      } else if (next == next_swing) {
        set_capacity();
        next_swing += nanos(kSwingStep);
      } else if (next == next_deployment()) {
        deploy();
      } else if (next == next_arrival_) {
        arrivals();
      } else if (next == next_return()) {
        retries_.push_back(returning_.front().second);
        returning_.pop_front();
      } else if (next == next_timeout()) {
        time_out();
      } else if (next == broken_off()) {
        const std::uint32_t call = breaking_off_.front().second;
        breaking_off_.pop_front();
        end_for_client(call, calls_[call].end);
        free_.push_back(call);
      } else {
        dependency_.advance(now_, done_, gone_);
      }
      settle();
    }
    if (instances_[0].limiter) run.last_change = instances_[0].limiter->snapshot().change.text();
    run.calls = arrived_;
    run.rejected = rejected_;
    run.timed_out = timed_out_;
    return run;
  }

 private:
  struct Call {
    LimiterCall admission;
    Permit permit;
    std::uint32_t instance = 0, generation = 0, attempt = 0;
    Outcome end = Outcome::success;
    bool has_client = false;
    Nanos begun = 0;
  };
  struct Timeout {
    Nanos at;
    std::uint32_t call, generation;
  };

  // The calls that have left the dependency, and what they lead to. Calls that come instead of them may
  // leave at once too.
  void settle() {
    for (;;) {
      while (!left_.empty()) {
        const std::uint32_t id = left_.front();
        left_.pop_front();
        if (calls_[id].has_client) end_for_client(id, Outcome::success);
        free_.push_back(id);
      }
      while (!retries_.empty()) {
        const auto [instance, attempt] = retries_.front();
        retries_.pop_front();
        arrive(instance, attempt);
      }
      if (scenario_.arrival == Arrival::closed && is_on())
        for (const std::uint32_t i : freed_)
          while (instances_[i].runs() && instances_[i].in_flight < instances_[i].limit())
            if (!arrive(i, 0)) break;
      freed_.clear();
      if (left_.empty() && retries_.empty()) return;
    }
  }

  bool is_on() const {
    if (scenario_.off_ms <= 0) return true;
    return now_ % nanos((scenario_.on_ms + scenario_.off_ms) / 1e3) < nanos(scenario_.on_ms / 1e3);
  }

  void start(std::uint32_t i) {
    Instance& instance = instances_[i];
    freed_.push_back(i);
    std::uint32_t limit = scenario_.initial;
    if (contender_.fixed > 0)
      limit = instance.fixed = std::max(
          1u, contender_.fixed / scenario_.instances + (i < contender_.fixed % scenario_.instances ? 1 : 0));
    instance.gate = std::make_unique<Gate>(GateOptions{.name = "dependency", .max_concurrent = limit});
    if (contender_.fixed == 0) {
      LimiterOptions options{.algorithm = contender_.algorithm,
                             .floor = scenario_.floor,
                             .ceiling = scenario_.ceiling,
                             .vegas = {.seed = seed_ + i}};
      options.target_latency = contender_.target_latency;
      instance.limiter = std::make_unique<AdaptiveLimiter>(*instance.gate, options);
    }
  }

  // Its calls are lost; what the dependency does for them is not.
  void stop(std::uint32_t i) {
    for (Call& call : calls_)
      if (call.has_client && call.instance == i) {
        call.permit.release(Outcome::failure);
        call.has_client = false;
      }
    Instance& instance = instances_[i];
    instance.limiter.reset();
    instance.gate.reset();
    instance.in_flight = 0;
  }

  Nanos next_deployment() const {
    return deployment_ < scenario_.deployments.size() ? nanos(scenario_.deployments[deployment_].at) : kNever;
  }
  void deploy() {
    const Deployment& d = scenario_.deployments[deployment_++];
    if (d.stops && instances_[d.instance].runs()) stop(d.instance);
    if (d.starts && !instances_[d.instance].runs()) start(d.instance);
  }

  void enter_phase() {
    const Phase& phase = scenario_.phases[phase_++];
    health_ = phase.health;
    next_phase_ = phase_ < scenario_.phases.size() ? nanos(scenario_.phases[phase_].from) : kNever;
    mean_gap_ = scenario_.service_ms * 1e6 / (phase.load * scenario_.capacity);
    next_arrival_ = scenario_.arrival == Arrival::closed ? (scenario_.off_ms > 0 ? now_ : kNever)
                    : scenario_.pulse > 0                ? now_
                                                         : now_ + gap();
    set_capacity();
  }
  void set_capacity() {
    const Phase& phase = scenario_.phases[phase_ - 1];
    double capacity = phase.capacity;
    if (scenario_.swing > 0)
      capacity *= 1 + scenario_.swing * std::sin(2 * 3.14159265358979 * static_cast<double>(now_) / 1e9 /
                                                 scenario_.swing_period);
    capacity_ = static_cast<std::uint32_t>(std::lround(capacity));
    dependency_.set(now_, capacity_, phase.slowdown, done_, gone_);
  }

  Nanos gap() { return 1 + static_cast<Nanos>(gaps_(random_) * mean_gap_); }
  std::uint32_t some_instance() {
    if (instances_.size() == 1) return 0;
    const double u = std::uniform_real_distribution<>(0, 1)(random_);
    return static_cast<std::uint32_t>(
        std::min<std::ptrdiff_t>(std::upper_bound(up_to_.begin(), up_to_.end(), u) - up_to_.begin(),
                                 static_cast<std::ptrdiff_t>(instances_.size()) - 1));
  }

  void arrivals() {
    if (scenario_.arrival == Arrival::closed) {  // the next time clients are on
      next_arrival_ = now_ + nanos((scenario_.on_ms + scenario_.off_ms) / 1e3);
      for (std::uint32_t i = 0; i < instances_.size(); ++i) freed_.push_back(i);
      return;
    }
    const std::uint32_t n = std::max(1u, scenario_.pulse);
    if (is_on())
      for (std::uint32_t i = 0; i < n; ++i) arrive(some_instance(), 0);
    next_arrival_ = now_ + (scenario_.pulse > 0 ? nanos(scenario_.pulse_ms / 1e3) : gap());
  }

  bool arrive(std::uint32_t i, std::uint32_t attempt) {
    Instance& instance = instances_[i];
    ++arrived_;
    if (!instance.runs()) return false;
    const bool closed = scenario_.arrival == Arrival::closed;
    auto permit = instance.gate->try_acquire();
    if (!permit) {
      ++rejected_;
      // With closed arrival somebody waits anyway, and takes the next place.
      if (!closed && attempt < scenario_.retries)
        returning_.push_back({now_ + nanos(scenario_.service_ms / 1e3), {i, attempt + 1}});
      return false;
    }
    ++instance.in_flight;
    std::uint32_t id = 0;
    if (free_.empty()) {
      id = static_cast<std::uint32_t>(calls_.size());
      calls_.emplace_back();
    } else {
      id = free_.back();
      free_.pop_back();
    }
    Call& call = calls_[id];
    call.permit = std::move(*permit);
    call.instance = i;
    call.attempt = attempt;
    call.begun = now_;
    ++call.generation;
    call.has_client = true;
    if (instance.limiter)
      call.admission = instance.limiter->admitted(instance.point(now_), instance.in_flight);
    if (health_ == Health::works) {
      if (scenario_.timeout_ms > 0)
        timeouts_.push_back({now_ + nanos(scenario_.timeout_ms / 1e3), id, call.generation});
      dependency_.enter(now_, id, done_, gone_);
    } else {
      // The dependency fails it, or says nothing until its caller gives up.
      const bool fails = health_ == Health::fails_fast;
      call.end = fails ? Outcome::failure : Outcome::timeout;
      const Nanos hang = scenario_.timeout_ms > 0 ? nanos(scenario_.timeout_ms / 1e3) : kHangTimeout;
      breaking_off_.emplace_back(now_ + (fails ? kFailFastAfter : hang), id);
    }
    return true;
  }

  Nanos next_return() const { return returning_.empty() ? kNever : returning_.front().first; }
  Nanos broken_off() const { return breaking_off_.empty() ? kNever : breaking_off_.front().first; }
  Nanos next_timeout() {
    while (!timeouts_.empty()) {
      const Timeout& t = timeouts_.front();
      if (calls_[t.call].generation == t.generation && calls_[t.call].has_client) return t.at;
      timeouts_.pop_front();
    }
    return kNever;
  }
  void time_out() {
    const std::uint32_t id = timeouts_.front().call;
    timeouts_.pop_front();
    ++timed_out_;
    end_for_client(id, Outcome::timeout);
  }

  // The dependency may still be at work for it.
  void end_for_client(std::uint32_t id, Outcome end) {
    Call& call = calls_[id];
    if (!call.has_client) return;
    call.has_client = false;
    Instance& instance = instances_[call.instance];
    const bool good = end == Outcome::success;
    if (good) {
      ++good_;
      ++instance.good;
      time_ += static_cast<double>(now_ - call.begun) / 1e9;
    } else if (call.attempt < scenario_.retries) {
      retries_.emplace_back(call.instance, call.attempt + 1);
    }
    call.permit.release(good ? Outcome::success : Outcome::failure);
    --instance.in_flight;
    freed_.push_back(call.instance);
    if (!instance.limiter) return;
    instance.limiter->completed(call.admission, instance.point(now_),
                                end == Outcome::timeout ? scenario_.given_up : end);
    if (contender_.on_decision && call.instance == 0) {
      const LimiterSnapshot s = instance.limiter->snapshot();
      if (s.windows != instance.windows) contender_.on_decision(static_cast<double>(now_) / 1e9, s.why);
      instance.windows = s.windows;
    }
  }

  void take(Run& run) {
    Tick t{.capacity = capacity_, .good = good_, .time_in_calls = time_};
    for (const Instance& i : instances_)
      if (i.runs()) {
        t.limit += i.limit();
        t.settled += i.settled();
      }
    run.ticks.push_back(t);
    const auto each = static_cast<std::size_t>(std::lround(Run::kLongTick / Run::kTick));
    if ((run.ticks.size() - 1) % each != 0) return;
    std::vector<std::uint64_t> good;
    std::vector<bool> runs;
    for (const Instance& i : instances_) {
      good.push_back(i.good);
      runs.push_back(i.runs());
    }
    run.good_of.push_back(std::move(good));
    run.running.push_back(std::move(runs));
  }

  Scenario scenario_;
  const Contender& contender_;
  std::uint32_t seed_;
  std::mt19937 random_;
  std::exponential_distribution<> gaps_{1.0};
  Dependency dependency_;
  std::vector<Instance> instances_;
  std::vector<double> up_to_;  // shares of the demand, summed

  Nanos now_ = 0;
  Nanos next_arrival_ = kNever, next_phase_ = kNever;
  double mean_gap_ = 0;
  std::size_t phase_ = 0, deployment_ = 0;
  std::uint32_t capacity_ = 0;
  Health health_ = Health::works;
  std::deque<Call> calls_;  // stays where it is as it grows; dies before the gates
  std::vector<std::uint32_t> free_;
  std::vector<std::uint32_t> freed_;  // instances that may have free places for closed arrival
  std::deque<std::uint32_t> left_;    // the dependency, a moment ago
  using Retry = std::pair<std::uint32_t, std::uint32_t>;  // instance, attempt
  std::deque<Retry> retries_;
  std::deque<std::pair<Nanos, Retry>> returning_;             // rejected calls, which try again then
  std::deque<std::pair<Nanos, std::uint32_t>> breaking_off_;  // calls that never reach the dependency
  std::deque<Timeout> timeouts_;
  std::uint64_t good_ = 0, arrived_ = 0, rejected_ = 0, timed_out_ = 0;
  double time_ = 0;

  struct Done {
    std::deque<std::uint32_t>& left;
    void operator()(std::uint32_t call) const { left.push_back(call); }
  };
  struct Gone {
    const World& world;
    bool operator()(std::uint32_t call) const {
      return world.scenario_.cancels && !world.calls_[call].has_client;
    }
  };
  const Done done_{left_};
  const Gone gone_{*this};
};

bool within(const Tick& t, double low, double high) {
  return t.limit >= low * t.capacity && t.limit <= high * t.capacity;
}

}  // namespace

std::size_t Run::index(double at) const {
  return std::min(ticks.size() - 1, static_cast<std::size_t>(std::lround(at / kTick)));
}

double Run::length() const { return static_cast<double>(ticks.size() - 1) * kTick; }

double Run::in_band(double from, double to, double low, double high) const {
  const std::size_t a = index(from), b = index(to);
  std::size_t inside = 0;
  for (std::size_t i = a; i < b; ++i) inside += within(ticks[i], low, high);
  return static_cast<double>(inside) / static_cast<double>(b - a);
}

double Run::goodput(double from, double to) const {
  return static_cast<double>(ticks[index(to)].good - ticks[index(from)].good) / (to - from);
}

double Run::round_trip(double from, double to) const {
  const Tick &a = ticks[index(from)], &b = ticks[index(to)];
  return 1e3 * (b.time_in_calls - a.time_in_calls) /
         static_cast<double>(std::max<std::uint64_t>(1, b.good - a.good));
}

double Run::first_in_band(double from, double to) const {
  for (std::size_t i = index(from) + 1; i < index(to); ++i)
    if (within(ticks[i], 0.8, 1.5)) return static_cast<double>(i) * kTick - from;
  return std::numeric_limits<double>::infinity();
}

std::uint32_t Run::highest(double from, double to) const {
  std::uint32_t most = 0;
  for (std::size_t i = index(from); i < index(to); ++i) most = std::max(most, ticks[i].limit);
  return most;
}

std::uint32_t Run::lowest(double from, double to) const {
  std::uint32_t least = std::numeric_limits<std::uint32_t>::max();
  for (std::size_t i = index(from); i < index(to); ++i) least = std::min(least, ticks[i].limit);
  return least;
}

double Run::mean_limit(double from, double to) const {
  double sum = 0;
  const std::size_t a = index(from), b = index(to);
  for (std::size_t i = a; i < b; ++i)
    sum += static_cast<double>(ticks[i].limit) / std::max(1u, ticks[i].capacity);
  return sum / static_cast<double>(b - a);
}

double Run::highest_minute(double from, double to) const {
  constexpr double kMinute = 60;
  double most = 0;
  for (double t = from; t + kMinute <= to; t += kLongTick) most = std::max(most, mean_limit(t, t + kMinute));
  return most;
}

double Run::least_share(double from, double to) const {
  constexpr std::size_t kMinute = 6;  // in long ticks
  double least = 1e9;
  const auto a = static_cast<std::size_t>(from / kLongTick), b = static_cast<std::size_t>(to / kLongTick);
  for (std::size_t t = a; t + kMinute <= b && t + kMinute < good_of.size(); ++t) {
    double sum = 0, instances = 0, demand = 0;
    // Only those that run throughout the minute.
    const auto runs = [&](std::size_t i) {
      for (std::size_t at = t; at <= t + kMinute; ++at)
        if (!running[at][i]) return false;
      return true;
    };
    for (std::size_t i = 0; i < good_of[t].size(); ++i) {
      if (!runs(i)) continue;
      ++instances;
      demand += share_of[i];
      sum += static_cast<double>(good_of[t + kMinute][i] - good_of[t][i]);
    }
    const double equal = sum / std::max(1.0, instances);
    for (std::size_t i = 0; i < good_of[t].size(); ++i) {
      if (!runs(i)) continue;
      // An instance with little demand can have no more than that.
      const double fair = std::min(equal, sum * share_of[i] / demand);
      least = std::min(least, static_cast<double>(good_of[t + kMinute][i] - good_of[t][i]) / fair);
    }
  }
  return least;
}

Run simulate(const Scenario& scenario, const Contender& contender, std::uint32_t seed) {
  return World(scenario, contender, seed).run();
}

}  // namespace bulkhead::sim
