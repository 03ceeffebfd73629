#include "app/sim/world.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <utility>

#include "bulkhead/gate.h"

namespace bulkhead::sim {
namespace {

using Nanos = std::int64_t;
constexpr double second = 1e9;
constexpr Nanos never = std::numeric_limits<Nanos>::max();
constexpr Nanos fail_fast_after = 5'000'000, hang_timeout = 1'000'000'000;

Nanos nanos(double seconds) { return static_cast<Nanos>(seconds * second); }
TimePoint point(Nanos t) { return TimePoint(std::chrono::hours(1)) + std::chrono::nanoseconds(t); }

// Log-normal times of a given mean, drawn beforehand: a draw in the loop is a look into a table.
class ServiceTimes {
 public:
  ServiceTimes(double mean_ms, double sigma, std::uint32_t seed) : random_(seed) {
    std::lognormal_distribution<> draw(std::log(mean_ms * 1e6) - sigma * sigma / 2, sigma);
    double sum = 0;
    for (double& t : table_) sum += t = draw(random_);
    for (double& t : table_) t *= mean_ms * 1e6 * static_cast<double>(table_.size()) / sum;
  }
  Nanos next() { return 1 + static_cast<Nanos>(table_[random_() % table_.size()]); }

 private:
  std::mt19937 random_;
  std::vector<double> table_ = std::vector<double>(1 << 16);
};

class World {
 public:
  World(const Scenario& scenario, Contender contender, std::uint32_t seed)
      : scenario_(scenario),
        service_(scenario.service_ms, scenario.sigma, seed * 7919 + 1),
        random_(seed * 104729 + 3),
        gate_(
            {.name = "dependency", .max_concurrent = contender.fixed ? contender.fixed : scenario.initial}) {
    if (scenario_.phases.empty()) scenario_.phases = {{.capacity = scenario.capacity, .load = scenario.load}};
    if (!contender.fixed)
      limiter_.emplace(gate_, LimiterOptions{.algorithm = contender.algorithm,
                                             .floor = scenario.floor,
                                             .ceiling = scenario.ceiling,
                                             .vegas = {.seed = seed}});
    fixed_ = contender.fixed;
  }

  Run run() {
    const Nanos end = nanos(scenario_.seconds);
    Nanos tick = 0;
    Run run;
    run.ticks.reserve(static_cast<std::size_t>(scenario_.seconds / Run::tick) + 2);
    enter_phase();
    for (;;) {
      const Nanos ended = events_.empty() ? never : events_.top().at;
      const Nanos next = std::min({ended, next_arrival_, next_phase_, tick});
      if (next > end) break;
      now_ = next;
      if (next == tick) {
        run.ticks.push_back(
            {limit(), limiter_ ? limiter_->snapshot().settled : fixed_, capacity_, good_, time_});
        tick += nanos(Run::tick);
      } else if (next == next_phase_) {
        enter_phase();
      } else if (next == ended) {
        const std::uint32_t call = events_.top().call;
        events_.pop();
        finish(call);
      } else {
        arrive();
        next_arrival_ = now_ + gap();
      }
      if (scenario_.arrival == Arrival::closed)
        while (gate_is_open()) arrive();
    }
    if (limiter_) run.last_change = limiter_->snapshot().change.text();
    return run;
  }

 private:
  struct Call {
    LimiterCall admission;
    Permit permit;
    CallEnd end = CallEnd::success;
    bool in_slot = false;
  };
  struct Event {
    Nanos at;
    std::uint32_t call;
    bool operator<(const Event& other) const { return at > other.at; }
  };

  std::uint32_t limit() const { return limiter_ ? limiter_->limit() : fixed_; }
  bool gate_is_open() const { return in_flight_ < limit(); }
  Nanos gap() { return 1 + static_cast<Nanos>(gaps_(random_) * mean_gap_); }

  void enter_phase() {
    const Phase& phase = scenario_.phases[phase_++];
    capacity_ = phase.capacity;
    health_ = phase.health;
    next_phase_ = phase_ < scenario_.phases.size() ? nanos(scenario_.phases[phase_].from) : never;
    mean_gap_ = scenario_.service_ms * 1e6 / (phase.load * scenario_.capacity);
    next_arrival_ = scenario_.arrival == Arrival::open ? now_ + gap() : never;
    serve();
  }

  void arrive() {
    auto permit = gate_.try_acquire();
    if (!permit) return;
    ++in_flight_;
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
    if (limiter_) call.admission = limiter_->admitted(point(now_), in_flight_);
    call.admission.start = point(now_);
    call.end = CallEnd::success;
    call.in_slot = false;
    if (health_ == Health::works) {
      line_.push_back(id);
      serve();
    } else {
      break_off(id);
    }
  }

  // The dependency fails it, or says nothing until its caller gives up.
  void break_off(std::uint32_t id) {
    const bool fails = health_ == Health::fails_fast;
    calls_[id].end = fails ? CallEnd::failure : CallEnd::timeout;
    events_.push({now_ + (fails ? fail_fast_after : hang_timeout), id});
  }

  void serve() {
    while (!line_.empty() && (busy_ < capacity_ || health_ != Health::works)) {
      const std::uint32_t id = line_.front();
      line_.pop_front();
      if (health_ != Health::works) {
        break_off(id);
        continue;
      }
      ++busy_;
      calls_[id].in_slot = true;
      events_.push({now_ + service_.next(), id});
    }
  }

  void finish(std::uint32_t id) {
    Call& call = calls_[id];
    if (call.in_slot) {
      --busy_;
      serve();
    }
    if (call.end == CallEnd::success) {
      ++good_;
      time_ += std::chrono::duration<double>(point(now_) - call.admission.start).count();
    }
    call.permit.release(call.end == CallEnd::success ? Outcome::success : Outcome::failure);
    --in_flight_;
    if (limiter_) limiter_->completed(call.admission, point(now_), call.end);
    free_.push_back(id);
  }

  Scenario scenario_;
  ServiceTimes service_;
  std::mt19937 random_;
  std::exponential_distribution<> gaps_{1.0};
  Gate gate_;
  std::optional<AdaptiveLimiter> limiter_;
  std::uint32_t fixed_ = 0;

  Nanos now_ = 0;
  std::priority_queue<Event> events_;
  Nanos next_arrival_ = never, next_phase_ = never;
  double mean_gap_ = 0;
  std::size_t phase_ = 0;
  std::uint32_t capacity_ = 0, busy_ = 0, in_flight_ = 0;
  Health health_ = Health::works;
  std::deque<std::uint32_t> line_;  // inside the dependency
  std::deque<Call> calls_;          // stays where it is as it grows; dies before the gate
  std::vector<std::uint32_t> free_;
  std::uint64_t good_ = 0;
  double time_ = 0;
};

bool in_band(const Tick& t) { return t.limit >= 0.8 * t.capacity && t.limit <= 1.5 * t.capacity; }

}  // namespace

std::size_t Run::index(double at) const {
  return std::min(ticks.size() - 1, static_cast<std::size_t>(std::lround(at / tick)));
}

double Run::in_band(double from, double to) const {
  const std::size_t a = index(from), b = index(to);
  std::size_t inside = 0;
  for (std::size_t i = a; i < b; ++i) inside += sim::in_band(ticks[i]);
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
    if (sim::in_band(ticks[i])) return static_cast<double>(i) * tick - from;
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

Run simulate(const Scenario& scenario, Contender contender, std::uint32_t seed) {
  return World(scenario, contender, seed).run();
}

}  // namespace bulkhead::sim
