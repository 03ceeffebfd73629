#include "breaker/machine.h"

#include <algorithm>

namespace bulkhead::breaker {

Rules Rules::of(const BreakerOptions& o) {
  const bool by_calls = o.window == BreakerWindow::calls;
  return {.minimum_calls = by_calls ? std::min(o.minimum_calls, o.window_calls) : o.minimum_calls,
          .failure_rate = o.failure_rate,
          .slow_call_rate = o.slow_call_rate,
          .half_open_failure_rate = o.half_open_failure_rate > 0 ? o.half_open_failure_rate : o.failure_rate,
          .open_for = o.open_for,
          .max_open = std::max(o.max_open, o.open_for),
          .probe_lease = o.probe_lease,
          .backoff = o.backoff,
          .jitter = o.jitter,
          .half_open_calls = o.half_open_calls};
}

Machine::Machine(const Rules& rules, BreakerMode mode, TimePoint now)
    : rules_(rules), mode_(mode), since_(now) {
  reserve(rules.half_open_calls);  // so that admit() and the other functions never allocate
}

Machine::Admission Machine::admit(TimePoint now, double dice) {
  if (state_ == BreakerState::half_open) expire(now, dice);
  if (state_ == BreakerState::closed) return {.ordinary = true};  // expire() may have closed it just now
  if (state_ == BreakerState::open) {
    if (now < probe_at_) return {.retry_after = probe_at_ - now};
    enter(BreakerState::half_open, BreakerReason::open_time_over, now);
  }
  if (results_.calls + leases_.size() >= rules_.half_open_calls)
    return {.retry_after = std::max(next_probe() - now, std::chrono::nanoseconds(1))};
  if (++last_probe_ == 0) ++last_probe_;  // 0 is an ordinary call
  leases_.push_back({last_probe_, saturating_add(now, rules_.probe_lease)});
  return {.probe = last_probe_};
}

// False: the probe is late, because its lease has ended or the state has changed. Its result then counts for nothing.
bool Machine::complete_probe(std::uint32_t probe, Outcome outcome, bool slow, TimePoint now, double dice) {
  if (state_ != BreakerState::half_open) return false;
  const auto lease =
      std::find_if(leases_.begin(), leases_.end(), [&](const Lease& l) { return l.probe == probe; });
  if (lease == leases_.end()) return false;
  if (lease->until <= now) {
    expire(now, dice);
    return false;
  }
  leases_.erase(lease);
  if (outcome != Outcome::ignored) {
    ++results_.calls;
    results_.failures += is_failure(outcome);
    results_.slow += slow;
    decide(is_failure(outcome) ? BreakerReason::probes_failed : BreakerReason::probes_slow, now, dice);
  }
  if (state_ == BreakerState::half_open) expire(now, dice);
  return true;
}

void Machine::expire(TimePoint now, double dice) {
  const auto ended = std::erase_if(leases_, [&](const Lease& l) { return l.until <= now; });
  if (ended == 0) return;
  results_.calls += ended;
  results_.failures += ended;
  decide(BreakerReason::probe_expired, now, dice);
}

void Machine::decide(BreakerReason failed, TimePoint now, double dice) {
  const std::uint64_t n = std::max<std::uint64_t>(rules_.half_open_calls, results_.calls);
  const std::uint64_t rest = n - results_.calls;
  const double failure_rate = rules_.half_open_failure_rate;
  if (reaches(results_.failures, n, failure_rate) || reaches(results_.slow, n, rules_.slow_call_rate))
    open(reaches(results_.failures, n, failure_rate) && failed == BreakerReason::probes_slow
             ? BreakerReason::probes_failed
             : failed,
         now, dice);
  else if (!reaches(results_.failures + rest, n, failure_rate) &&
           !reaches(results_.slow + rest, n, rules_.slow_call_rate))
    close(BreakerReason::probes_succeeded, now);
}

std::optional<BreakerReason> Machine::verdict(const Counts& c) const {
  if (c.calls < rules_.minimum_calls || c.calls == 0) return std::nullopt;
  if (reaches(c.failures, c.calls, rules_.failure_rate)) return BreakerReason::failure_rate;
  if (reaches(c.slow, c.calls, rules_.slow_call_rate)) return BreakerReason::slow_call_rate;
  return std::nullopt;
}

bool Machine::judge(const Counts& counts, TimePoint now, double dice) {
  if (state_ != BreakerState::closed || mode_ != BreakerMode::automatic) return false;
  const auto reason = verdict(counts);
  if (reason) open(*reason, now, dice);
  return reason.has_value();
}

void Machine::set_mode(BreakerMode mode, TimePoint now) {
  mode_ = mode;
  close(BreakerReason::mode_changed, now);
}

// Does not count for the backoff: an operator's decision says nothing about the dependency.
void Machine::force_open(std::chrono::nanoseconds how_long, TimePoint now) {
  mode_ = BreakerMode::automatic;
  open_until(BreakerReason::forced, now, std::max(how_long, std::chrono::nanoseconds(0)));
}

void Machine::force_half_open(TimePoint now) {
  mode_ = BreakerMode::automatic;
  enter(BreakerState::half_open, BreakerReason::forced, now);
}

void Machine::renew(TimePoint now) {
  if (state_ == BreakerState::closed) enter(BreakerState::closed, BreakerReason::window_changed, now);
}

void Machine::update(const Rules& rules, TimePoint now, double dice) {
  rules_ = rules;
  if (state_ == BreakerState::half_open && results_.calls > 0)
    decide(BreakerReason::probes_failed, now, dice);
}

TimePoint Machine::next_probe() const {
  if (state_ == BreakerState::open) return probe_at_;
  if (state_ == BreakerState::closed) return no_deadline;
  if (results_.calls + leases_.size() < rules_.half_open_calls) return TimePoint::min();
  TimePoint first = no_deadline;
  for (const Lease& l : leases_) first = std::min(first, l.until);
  return first;
}

void Machine::enter(BreakerState state, BreakerReason reason, TimePoint now) {
  if (state != state_) ++entered_[static_cast<std::size_t>(state)];
  state_ = state;
  reason_ = reason;
  since_ = now;
  ++generation_;
  probe_at_ = no_deadline;
  results_ = {};
  leases_.clear();
}

void Machine::open(BreakerReason reason, TimePoint now, double dice) {
  double ns = static_cast<double>(rules_.open_for.count());
  const double most = static_cast<double>(rules_.max_open.count());
  for (std::uint32_t i = 0; i < in_a_row_ && ns < most && rules_.backoff > 1; ++i) ns *= rules_.backoff;
  ++in_a_row_;
  ns = std::min(ns, most) * (1 + rules_.jitter * (2 * dice - 1));
  constexpr double kLongest = 9e18;  // ns; slightly below the largest int64
  open_until(reason, now, std::chrono::nanoseconds(static_cast<std::int64_t>(std::min(ns, kLongest))));
}

void Machine::open_until(BreakerReason reason, TimePoint now, std::chrono::nanoseconds how_long) {
  enter(BreakerState::open, reason, now);
  ++opens_;
  open_time_ = how_long;
  probe_at_ = saturating_add(now, open_time_);
}

void Machine::close(BreakerReason reason, TimePoint now) {
  enter(BreakerState::closed, reason, now);
  in_a_row_ = 0;
}

}  // namespace bulkhead::breaker
