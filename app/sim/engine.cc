#include "app/sim/engine.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace bulkhead::sim {
namespace {

constexpr Nanos kSecond = 1'000'000'000;
constexpr Nanos kFailFast = 5'000'000;     // until a dependency that is down says so
constexpr Nanos kPatience = 60 * kSecond;  // after the end, for calls that still run
constexpr Nanos kLookAgain = kSecond;  // a rate that changes all the time is taken as constant for so long

TimePoint point(Nanos t) { return TimePoint(std::chrono::hours(1)) + std::chrono::nanoseconds(t); }

double uniform(std::mt19937_64& random) { return static_cast<double>(random() >> 11) * 0x1p-53; }

double factor_at(const std::vector<Period>& periods, Nanos now) {
  double factor = 1;
  for (const Period& p : periods)
    if (now >= p.from && now < p.to) factor *= p.factor;
  return factor;
}

const Period* period_at(const std::vector<Period>& periods, Nanos now) {
  for (const Period& p : periods)
    if (now >= p.from && now < p.to) return &p;
  return nullptr;
}

}  // namespace

std::uint64_t Tally::rejected() const noexcept {
  std::uint64_t sum = 0;
  for (const std::uint64_t n : rejected_by_reason) sum += n;
  return sum;
}

double Tally::served_share() const noexcept {
  return calls > 0 ? static_cast<double>(served) / static_cast<double>(calls) : 0;
}

double Tally::rejected_share() const noexcept {
  return calls > 0 ? static_cast<double>(rejected()) / static_cast<double>(calls) : 0;
}

Tally& Tally::operator+=(const Tally& other) noexcept {
  calls += other.calls;
  served += other.served;
  failed += other.failed;
  timed_out += other.timed_out;
  gave_up += other.gave_up;
  unfinished += other.unfinished;
  retries += other.retries;
  for (std::size_t i = 0; i < kReasons; ++i) rejected_by_reason[i] += other.rejected_by_reason[i];
  wait += other.wait;
  total += other.total;
  return *this;
}

Tally TargetOutcome::all() const noexcept {
  Tally sum;
  for (const Tally& tally : by_priority) sum += tally;
  return sum;
}

Engine::Engine(const Plan& plan, std::uint64_t seed)
    : plan_(plan), random_(seed * 104729 + 3), current_(plan.targets) {
  for (std::size_t i = 0; i < plan_.streams.size(); ++i) {
    const Stream& stream = plan_.streams[i];
    Source& source = sources_.emplace_back();
    source.arrivals.seed(seed * 1000003 + 2 * i + 1);
    source.services.seed(seed * 1000003 + 2 * i + 2);
    if (!stream.service.exponential)
      source.times.emplace(stream.service.sigma, static_cast<std::uint32_t>(seed * 7919 + i));
    double sum = 0;
    for (std::uint32_t t = 0; t < stream.tenants; ++t)
      source.tenants.push_back(sum += std::pow(t + 1, -stream.zipf));
    for (double& share : source.tenants) share /= sum;
    for (const Period& p : stream.load) source.changes.insert(source.changes.end(), {p.from, p.to});
    std::sort(source.changes.begin(), source.changes.end());
  }
  for (std::size_t i = 0; i < plan_.dependencies.size(); ++i)
    dependencies_.push_back(std::make_unique<Dependency>(
        plan_.dependencies[i].shape, static_cast<std::uint32_t>(seed * 7919 + 1000 + i),
        [this](Nanos now, std::uint32_t call, double factor) { return ends(now, call, factor); }));
  for (const auto& d : dependencies_)
    d->measure(plan_.measure_from, std::min(plan_.measure_to, plan_.duration));
  outcomes_.targets.resize(plan_.targets);
}

Engine::~Engine() {
  ending_ = true;
  for (Call& call : calls_) call.place = {};
  replicas_.clear();
}

void Engine::push(Nanos at, Kind kind, std::uint32_t id, std::uint32_t generation) {
  events_.push({at, ++order_, kind, id, generation});
}

void Engine::at(Nanos when, std::function<void()> what) {
  std::uint32_t id = 0;
  if (free_others_.empty()) {
    id = static_cast<std::uint32_t>(others_.size());
    others_.push_back(std::move(what));
  } else {
    id = free_others_.back();
    free_others_.pop_back();
    others_[id] = std::move(what);
  }
  push(std::max(when, now_), Kind::other, id);
}

Outcomes Engine::run(const MakeReplica& make, const std::function<bool(double)>& progress) {
  make_ = make;
  replicas_.resize(plan_.replicas);
  for (std::uint32_t i = 0; i < plan_.replicas; ++i) {
    // A replica whose first deployment is a start is not there in the beginning.
    const auto first = std::find_if(plan_.deployments.begin(), plan_.deployments.end(),
                                    [&](const Deployment& d) { return d.instance == i; });
    if (first == plan_.deployments.end() || first->stops) start(i);
  }
  for (std::uint32_t i = 0; i < plan_.deployments.size(); ++i)
    push(static_cast<Nanos>(plan_.deployments[i].at * 1e9), Kind::deployment, i);
  for (std::uint32_t d = 0; d < plan_.dependencies.size(); ++d)
    for (const Period& p : plan_.dependencies[d].slots) {
      push(p.from, Kind::slots, d);
      push(p.to, Kind::slots, d);
    }
  const Nanos interval = std::max<Nanos>(1, plan_.duration / plan_.points);
  outcomes_.interval = static_cast<double>(interval) / 1e9;
  push(interval, Kind::point, 0);
  for (std::uint32_t s = 0; s < plan_.streams.size(); ++s) {
    if (plan_.streams[s].arrivals.shape == Arrivals::Shape::closed)
      gather(s);
    else
      schedule(s);
  }

  for (;;) {
    Nanos next = events_.empty() ? Dependency::kNever : events_.top().at;
    for (const auto& d : dependencies_) next = std::min(next, d->next());
    if (const TimePoint alarm = clock_.next_alarm(); alarm != no_deadline)
      next = std::min<Nanos>(next, (alarm - point(0)).count());
    if (next > plan_.duration && (open_ == 0 || next > plan_.duration + kPatience)) break;
    now_ = std::max(now_, next);
    ++events_done_;
    clock_.advance_to(point(now_));  // waits in line that have been too long end here
    if (!events_.empty() && events_.top().at <= now_) {
      const Event event = events_.top();
      events_.pop();
      if (event.kind == Kind::point && progress &&
          !progress(std::min(1.0, static_cast<double>(now_) / static_cast<double>(plan_.duration))))
        break;
      handle(event);
    } else {
      advance_dependencies();
    }
    settle();
  }

  for (Call& call : calls_)
    if (call.used && call.has_client && call.counted) ++tally(call).unfinished;
  const Nanos measured_to = std::min(plan_.measure_to, plan_.duration);
  const auto measured = static_cast<double>(measured_to - plan_.measure_from);
  for (std::uint32_t t = 0; t < plan_.targets; ++t) {
    TargetOutcome& outcome = outcomes_.targets[t];
    occupied(t, 0);
    outcome.in_flight = current_[t].occupied / measured;
    // Of the points in the measured time, or of the last before its end.
    double limits = 0, points = 0;
    for (std::size_t i = outcome.series.size(); i-- > 0;) {
      const auto at = static_cast<Nanos>(static_cast<double>(i + 1) * outcomes_.interval * 1e9);
      if (at > measured_to + 1 || (at <= plan_.measure_from && points > 0)) continue;
      limits += outcome.series[i].limit;
      ++points;
    }
    if (points > 0) outcome.limit = limits / points;
  }
  for (std::size_t d = 0; d < dependencies_.size(); ++d) {
    const double slots = slots_over_time(plan_.dependencies[d]);
    outcomes_.dependency_use.push_back(slots > 0 ? dependencies_[d]->worked() / slots : 0);
  }
  outcomes_.seconds = static_cast<double>(plan_.duration) / 1e9;
  outcomes_.measured = measured / 1e9;
  outcomes_.calls = arrived_;
  outcomes_.events = events_done_;
  return std::move(outcomes_);
}

void Engine::handle(const Event& event) {
  const auto is_of = [&](std::uint32_t id) {
    return calls_[id].used && calls_[id].generation == event.generation;
  };
  switch (event.kind) {
    case Kind::arrival:
      return arrival(event.id);
    case Kind::look_again:
      return plan_.streams[event.id].arrivals.shape == Arrivals::Shape::closed ? gather(event.id)
                                                                               : schedule(event.id);
    case Kind::point:
      return take_point();
    case Kind::client_timeout:
      if (is_of(event.id) && calls_[event.id].has_client) {
        Call& call = calls_[event.id];
        end_for_client(event.id, End::gave_up);
        if (!plan_.streams[call.ask.stream].client_cancels) return;
        if (call.in_line && call.stop)
          call.stop->request_stop();
        else if (call.place)
          give_back(event.id, Outcome::ignored);
        release(event.id);
      }
      return;
    case Kind::execution_timeout:
      if (is_of(event.id) && calls_[event.id].place) {
        Call& call = calls_[event.id];
        call.late = true;
        if (call.has_client) end_for_client(event.id, End::timed_out);
        if (plan_.streams[call.ask.stream].runs_on && call.in_dependency) return;
        give_back(event.id, Outcome::timeout);
        release(event.id);
      }
      return;
    case Kind::retry: {
      const Ask ask = retries_[event.id];
      free_retries_.push_back(event.id);
      return arrive(ask);
    }
    case Kind::think:
      if (sources_[event.id].clients > wanted_clients(plan_.streams[event.id])) {
        --sources_[event.id].clients;
      } else if (now_ <= plan_.duration) {
        Ask asked = ask(event.id, sources_[event.id].services);
        asked.closed = true;
        arrive(asked);
      }
      return;
    case Kind::reset:  // a dependency that is down, or that hung, ends the call
      if (is_of(event.id) && calls_[event.id].place) {
        give_back(event.id, Outcome::failure);
        if (calls_[event.id].has_client) end_for_client(event.id, End::failed);
        release(event.id);
      }
      return;
    case Kind::slots: {
      const DependencyPlan& plan = plan_.dependencies[event.id];
      const Period* const p = period_at(plan.slots, now_);
      const auto gone = [&](std::uint32_t id) { return plan.shape.cancels && !calls_[id].place; };
      dependencies_[event.id]->set(
          now_, p ? static_cast<std::uint32_t>(p->factor) : plan.shape.capacity, 1,
          [&](std::uint32_t id) { left_.push_back(id); }, gone);
      return;
    }
    case Kind::deployment:
      return deploy(plan_.deployments[event.id]);
    case Kind::other: {
      const auto what = std::move(others_[event.id]);
      others_[event.id] = nullptr;
      free_others_.push_back(event.id);
      return what();
    }
  }
}

void Engine::advance_dependencies() {
  for (std::size_t d = 0; d < dependencies_.size(); ++d) {
    if (dependencies_[d]->next() > now_) continue;
    const bool cancels = plan_.dependencies[d].shape.cancels;
    dependencies_[d]->advance(
        now_, [&](std::uint32_t id) { left_.push_back(id); },
        [&](std::uint32_t id) { return cancels && !calls_[id].place; });
  }
}

// Answers of bulkheads and calls that have left their dependency. Each may lead to more of both.
void Engine::settle() {
  while (!left_.empty() || !answers_.empty()) {
    if (!left_.empty()) {
      const std::uint32_t id = left_.front();
      left_.pop_front();
      Call& call = calls_[id];
      call.in_dependency = false;
      if (call.place)
        give_back(id, call.late ? Outcome::timeout : call.ask.fails ? Outcome::failure : Outcome::success);
      if (call.has_client) end_for_client(id, call.ask.fails ? End::failed : End::served);
      release(id);
    } else {
      Answer answer = std::move(answers_.front());
      answers_.pop_front();
      --current_[plan_.streams[calls_[answer.id].ask.stream].target].waiting;
      calls_[answer.id].in_line = false;
      answered(answer.id, std::move(answer.result));
    }
  }
}

void Engine::deploy(const Deployment& d) {
  if (d.stops && replicas_[d.instance]) stop(d.instance);
  if (d.starts && !replicas_[d.instance]) start(d.instance);
}

void Engine::start(std::uint32_t replica) {
  replicas_[replica] = make_(replica);
  running_.push_back(replica);
}

// Its calls are lost; what the dependency does for them is not.
void Engine::stop(std::uint32_t replica) {
  std::erase(running_, replica);
  for (std::uint32_t id = 0; id < calls_.size(); ++id) {
    Call& call = calls_[id];
    if (!call.used || call.replica != replica || !call.place) continue;
    give_back(id, Outcome::ignored);
    if (call.has_client) end_for_client(id, End::failed);
    release(id);
  }
  settle();  // its line may have moved up
  for (std::uint32_t id = 0; id < calls_.size(); ++id)
    if (calls_[id].used && calls_[id].replica == replica && calls_[id].place) {
      give_back(id, Outcome::ignored);
      if (calls_[id].has_client) end_for_client(id, End::failed);
      release(id);
    }
  replicas_[replica].reset();
}

double Engine::rate(const Stream& stream) const {
  const Arrivals& a = stream.arrivals;
  double rate = a.rate * factor_at(stream.load, now_);
  if (a.curve.empty()) return rate;
  const Nanos t = now_ % a.period;
  // The point after t; the curve wraps around.
  const auto after = std::upper_bound(a.curve.begin(), a.curve.end(), t,
                                      [](Nanos x, const std::pair<Nanos, double>& p) { return x < p.first; });
  const auto next = after == a.curve.end()
                        ? std::pair<Nanos, double>{a.curve.front().first + a.period, a.curve.front().second}
                        : *after;
  const auto last = after == a.curve.begin()
                        ? std::pair<Nanos, double>{a.curve.back().first - a.period, a.curve.back().second}
                        : *std::prev(after);
  const double along = next.first == last.first ? 0
                                                : static_cast<double>(t - last.first) /
                                                      static_cast<double>(next.first - last.first);
  return rate * (last.second + along * (next.second - last.second));
}

void Engine::schedule(std::uint32_t s) {
  const Stream& stream = plan_.streams[s];
  const Arrivals& a = stream.arrivals;
  Source& source = sources_[s];
  if (a.shape == Arrivals::Shape::recorded) {
    if (source.next < stream.recorded.size())
      push(std::max(now_, stream.recorded[source.next].at), Kind::arrival, s);
    return;
  }
  if (now_ >= plan_.duration) return;
  if (a.shape == Arrivals::Shape::bursts) return push(now_ + a.every, Kind::arrival, s);
  // As far as the rate stays what it is now. A Poisson process has no memory: beyond that it is drawn again.
  Nanos until = a.curve.empty() ? Dependency::kNever : now_ + kLookAgain;
  const auto change = std::upper_bound(source.changes.begin(), source.changes.end(), now_);
  if (change != source.changes.end()) until = std::min(until, *change);
  const double rate = this->rate(stream);
  if (rate > 0) {
    const double unit = a.shape == Arrivals::Shape::constant ? 1 : -std::log1p(-uniform(source.arrivals));
    const double gap = unit / rate * 1e9;
    if (gap < static_cast<double>(plan_.duration) && now_ + 1 + static_cast<Nanos>(gap) <= until)
      return push(now_ + 1 + static_cast<Nanos>(gap), Kind::arrival, s);
  }
  if (until <= plan_.duration) push(until, Kind::look_again, s);
}

// Nanoseconds of slots in the measured time.
double Engine::slots_over_time(const DependencyPlan& plan) const {
  if (plan.shape.capacity == UINT32_MAX) return 0;
  const Nanos end = std::min(plan_.measure_to, plan_.duration);
  double sum = 0;
  for (Nanos at = plan_.measure_from; at < end;) {
    Nanos until = end;
    for (const Period& p : plan.slots) {
      if (p.from > at) until = std::min(until, p.from);
      if (p.to > at) until = std::min(until, p.to);
    }
    const Period* const p = period_at(plan.slots, at);
    sum += (p ? p->factor : plan.shape.capacity) * static_cast<double>(until - at);
    at = until;
  }
  return sum;
}

std::uint32_t Engine::wanted_clients(const Stream& stream) const {
  return static_cast<std::uint32_t>(std::lround(stream.arrivals.clients * factor_at(stream.load, now_)));
}

// Clients of a closed stream that come now. One too many leaves when it would call again.
void Engine::gather(std::uint32_t s) {
  const Stream& stream = plan_.streams[s];
  Source& source = sources_[s];
  for (; source.clients < wanted_clients(stream); ++source.clients)
    push(now_ + static_cast<Nanos>(uniform(source.arrivals) * static_cast<double>(stream.arrivals.think)),
         Kind::think, s);
  const auto change = std::upper_bound(source.changes.begin(), source.changes.end(), now_);
  if (change != source.changes.end() && *change <= plan_.duration) push(*change, Kind::look_again, s);
}

void Engine::arrival(std::uint32_t s) {
  const Stream& stream = plan_.streams[s];
  Source& source = sources_[s];
  if (now_ <= plan_.duration) {
    if (stream.arrivals.shape == Arrivals::Shape::recorded) {
      const RecordedCall& call = stream.recorded[source.next++];
      arrive({.stream = s,
              .tenant = call.tenant,
              .work = call.work,
              .priority = call.priority,
              .fails = call.fails});
    } else if (stream.arrivals.shape == Arrivals::Shape::bursts) {
      const double n = stream.arrivals.burst * factor_at(stream.load, now_);
      for (double i = 0.5; i < n; ++i) arrive(ask(s, source.services));
    } else {
      arrive(ask(s, source.services));
    }
  }
  schedule(s);
}

Engine::Ask Engine::ask(std::uint32_t s, std::mt19937_64& random) {
  const Stream& stream = plan_.streams[s];
  Source& source = sources_[s];
  Ask ask{.stream = s};
  const double unit = source.times ? source.times->next() : -std::log1p(-uniform(random));
  ask.work = static_cast<Nanos>(unit * stream.service.mean);
  // Always the same number of draws, so that one setting of the load does not change the other calls.
  const double p = uniform(random), t = uniform(random), f = uniform(random);
  ask.priority = p < stream.mix[0]                   ? Priority::critical
                 : p < stream.mix[0] + stream.mix[1] ? Priority::normal
                                                     : Priority::best_effort;
  if (!source.tenants.empty())
    ask.tenant = static_cast<std::uint32_t>(std::min<std::ptrdiff_t>(
        std::upper_bound(source.tenants.begin(), source.tenants.end(), t) - source.tenants.begin(),
        static_cast<std::ptrdiff_t>(source.tenants.size()) - 1));
  ask.fails = f < stream.failures;
  return ask;
}

// Calls are numbered and their places reused, so that a simulation of millions of calls does not grow.
void Engine::arrive(const Ask& ask) {
  const Stream& stream = plan_.streams[ask.stream];
  std::uint32_t id = 0;
  if (free_.empty()) {
    id = static_cast<std::uint32_t>(calls_.size());
    calls_.emplace_back();
  } else {
    id = free_.back();
    free_.pop_back();
  }
  Call& call = calls_[id];
  call.ask = ask;
  call.arrived = now_;
  call.used = call.has_client = true;
  call.late = false;
  call.counted = now_ >= plan_.measure_from && now_ < plan_.measure_to;
  ++open_;
  ++arrived_;
  ++current_[stream.target].arrived;
  if (call.counted) {
    ++tally(call).calls;
    tally(call).retries += ask.attempt > 0;
  }
  if (running_.empty()) {
    end_for_client(id, End::failed);
    return release(id);
  }
  call.replica = running_.size() == 1 ? running_[0] : running_[random_() % running_.size()];
  const Result<Bulkhead*> bulkhead = replicas_[call.replica]->bulkhead(stream.target, ask.tenant);
  if (!bulkhead) {
    end_for_client(id, End::rejected, bulkhead.error().reason);
    return release(id);
  }
  AcquireOptions options{.priority = ask.priority, .cost = stream.cost};
  if (ask.tenant != kNobody) options.flow = ask.tenant + 1;
  if (stream.client_timeout > 0) {
    push(now_ + stream.client_timeout, Kind::client_timeout, id, call.generation);
    if (stream.sends_deadline) options.deadline = point(now_ + stream.client_timeout);
  }
  bulkhead::Call begun;
  if (auto answer = (*bulkhead)->begin_acquire(options, begun)) return answered(id, std::move(*answer));
  call.in_line = true;
  ++current_[stream.target].waiting;
  if (stream.client_timeout > 0 && stream.client_cancels) options.stop = call.stop.emplace().get_token();
  (*bulkhead)->async_acquire(std::move(begun), options, [this, id](Result<bulkhead::Call> result) {
    if (!ending_) answers_.push_back({id, std::move(result)});
  });
}

void Engine::answered(std::uint32_t id, Result<bulkhead::Call> result) {
  Call& call = calls_[id];
  const Stream& stream = plan_.streams[call.ask.stream];
  if (!result) {
    if (call.has_client) end_for_client(id, End::rejected, result.error().reason);
    return release(id);
  }
  call.place = std::move(*result);
  call.admitted = now_;
  occupied(stream.target, static_cast<int>(stream.cost));
  if (call.counted) {
    ++tally(call).wait.buckets[Histogram::bucket_of(static_cast<std::uint64_t>(now_ - call.arrived))];
    tally(call).wait.sum += static_cast<std::uint64_t>(now_ - call.arrived);
  }
  if (!call.has_client && stream.client_cancels) {
    give_back(id, Outcome::ignored);
    return release(id);
  }
  begin(id);
}

void Engine::begin(std::uint32_t id) {
  Call& call = calls_[id];
  const Stream& stream = plan_.streams[call.ask.stream];
  if (const auto longest = call.place.execution_timeout(); longest != wait_forever)
    push(now_ + longest.count(), Kind::execution_timeout, id, call.generation);
  if (const Period* hang = period_at(stream.hangs, now_))
    return hang->to < plan_.duration ? push(hang->to, Kind::reset, id, call.generation) : void();
  if (period_at(stream.fails, now_)) return push(now_ + kFailFast, Kind::reset, id, call.generation);
  call.in_dependency = true;
  const bool cancels = plan_.dependencies[stream.dependency].shape.cancels;
  dependencies_[stream.dependency]->enter(
      now_, id, [&](std::uint32_t left) { left_.push_back(left); },
      [&](std::uint32_t waiting) { return cancels && !calls_[waiting].place; });
}

// Work goes on at 1 / factor of its usual speed in each period.
Nanos Engine::ends(Nanos now, std::uint32_t id, double factor) const {
  const Call& call = calls_[id];
  const std::vector<Period>& slower = plan_.streams[call.ask.stream].slower;
  double left = static_cast<double>(call.ask.work) * factor;
  Nanos at = now;
  for (;;) {
    Nanos until = Dependency::kNever;
    for (const Period& p : slower) {
      if (p.from > at) until = std::min(until, p.from);
      if (p.to > at) until = std::min(until, p.to);
    }
    const double slow = factor_at(slower, at);
    if (until == Dependency::kNever || left * slow <= static_cast<double>(until - at))
      return at + 1 + static_cast<Nanos>(left * slow);
    left -= static_cast<double>(until - at) / slow;
    at = until;
  }
}

void Engine::give_back(std::uint32_t id, Outcome outcome) {
  Call& call = calls_[id];
  const Stream& stream = plan_.streams[call.ask.stream];
  occupied(stream.target, -static_cast<int>(stream.cost));
  call.place.finish(outcome);
}

// The end as the client sees it. The call itself may still run, if its client has given up.
void Engine::end_for_client(std::uint32_t id, End end, Reason reason) {
  Call& call = calls_[id];
  const Ask ask = call.ask;
  const Stream& stream = plan_.streams[ask.stream];
  Current& current = current_[stream.target];
  call.has_client = false;
  if (call.counted) {
    Tally& t = tally(call);
    switch (end) {
      case End::served:
        ++t.served;
        ++t.total.buckets[Histogram::bucket_of(static_cast<std::uint64_t>(now_ - call.arrived))];
        t.total.sum += static_cast<std::uint64_t>(now_ - call.arrived);
        outcomes_.targets[stream.target].served_in_time += now_ <= plan_.duration;
        break;
      case End::rejected:
        ++t.rejected_by_reason[static_cast<std::size_t>(reason)];
        break;
      case End::failed:
        ++t.failed;
        break;
      case End::timed_out:
        ++t.timed_out;
        break;
      case End::gave_up:
        ++t.gave_up;
        break;
    }
  }
  if (end == End::served) {
    ++current.served;
    ++current.total.buckets[Histogram::bucket_of(static_cast<std::uint64_t>(now_ - call.arrived))];
  } else if (end == End::rejected) {
    ++current.rejected;
  } else {
    ++current.failed;
  }
  if (end != End::served && ask.attempt < stream.retries && now_ < plan_.duration) {
    Ask again = ask;
    ++again.attempt;
    std::uint32_t slot = 0;
    if (free_retries_.empty()) {
      slot = static_cast<std::uint32_t>(retries_.size());
      retries_.push_back(again);
    } else {
      slot = free_retries_.back();
      free_retries_.pop_back();
      retries_[slot] = again;
    }
    push(now_ + (stream.backoff << std::min(ask.attempt, 20u)), Kind::retry, slot);
  } else if (ask.closed) {
    push(now_ + 1 + stream.arrivals.think, Kind::think, ask.stream);
  }
}

// The record of a call is free when nothing refers to it any more.
void Engine::release(std::uint32_t id) {
  Call& call = calls_[id];
  if (!call.used || call.in_line || call.in_dependency || call.place) return;
  call.used = false;
  call.stop.reset();
  ++call.generation;
  --open_;
  free_.push_back(id);
}

void Engine::occupied(std::uint32_t target, int by) {
  Current& current = current_[target];
  const Nanos now = std::clamp(now_, plan_.measure_from, std::min(plan_.measure_to, plan_.duration));
  current.occupied +=
      static_cast<double>(now - std::max(current.since, plan_.measure_from)) * current.in_flight;
  current.since = now;
  current.in_flight = static_cast<std::uint32_t>(static_cast<int>(current.in_flight) + by);
}

// One point of the charts: rates and quantiles of the interval that ends now.
void Engine::take_point() {
  const double per = 1 / outcomes_.interval;
  for (std::uint32_t t = 0; t < plan_.targets; ++t) {
    Current& current = current_[t];
    occupied(t, 0);
    Point p{.arrived = static_cast<double>(current.arrived) * per,
            .served = static_cast<double>(current.served) * per,
            .rejected = static_cast<double>(current.rejected) * per,
            .failed = static_cast<double>(current.failed) * per,
            .p50 = static_cast<double>(current.total.quantile(0.5)) / 1e6,
            .p99 = static_cast<double>(current.total.quantile(0.99)) / 1e6,
            .in_flight = static_cast<double>(current.in_flight),
            .waiting = static_cast<double>(current.waiting)};
    for (const std::uint32_t r : running_) p.limit += replicas_[r]->limit(t);
    outcomes_.targets[t].series.push_back(p);
    current.arrived = current.served = current.rejected = current.failed = 0;
    current.total = {};
  }
  const Nanos next = now_ + std::max<Nanos>(1, plan_.duration / plan_.points);
  if (next <= plan_.duration) push(next, Kind::point, 0);
}

Tally& Engine::tally(const Call& call) {
  return outcomes_.targets[plan_.streams[call.ask.stream].target]
      .by_priority[static_cast<std::size_t>(call.ask.priority)];
}

}  // namespace bulkhead::sim
