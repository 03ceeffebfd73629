// Random command sequences on the real gate and on the model beside it, compared after every command: what
// each call was told, what the snapshot says, what the hooks reported and in which order.
//
// A failure prints the shortest sequence found that still fails, and RC_PARAMS to run it again.
// RC_PARAMS="max_success=100000" looks longer.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <deque>
#include <iostream>
#include <optional>
#include <ostream>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "gate/gate_commands_test.h"
#include "gate/model_gate.h"
#include "gate/property_test.h"

namespace bulkhead {

namespace model {

std::string_view to_string(Fact fact) {
  constexpr std::array<std::string_view, 5> names{"admit", "reject", "release", "resize", "close"};
  return names[static_cast<std::size_t>(fact)];
}
std::ostream& operator<<(std::ostream& out, const LoggedEvent& e) {
  out << "on_" << to_string(e.fact) << "(" << bulkhead::to_string(e.tier);
  if (e.fact == Fact::reject) out << ", " << bulkhead::to_string(e.reason);
  return out << ": " << e.in_flight << "/" << e.limit << " running, " << e.waiting << "/" << e.max_queue
             << " waiting)";
}
std::ostream& operator<<(std::ostream& out, const Answer& a) {
  out << "call " << a.id << (a.admitted ? " admitted" : " rejected: ");
  if (a.admitted) return out;
  return out << bulkhead::to_string(a.reason) << ", " << a.in_flight << "/" << a.limit << " running, "
             << a.waiting << "/" << a.max_queue << " waiting";
}

}  // namespace model

namespace {

using namespace model;
using std::chrono::nanoseconds;

// ---- the gate and the model side by side ----

// What the sequences of one test have reached, so that a test that checks nothing fails too.
struct Coverage {
  std::uint64_t sequences = 0, commands = 0, admitted = 0, handed_over = 0, double_releases = 0, settled = 0,
                grown = 0;
  std::set<Reason> reasons;
};

class SideBySide {
 public:
  SideBySide(Fairness fairness, const Shape& shape, Coverage& coverage)
      : shape_(shape),
        coverage_(coverage),
        model_{.fairness = fairness,
               .limit = shape.limit,
               .max_queue = shape.max_queue,
               .reserve_percent = shape.reserve_percent,
               .max_barge = max_barge(),
               .flow_queues = shape.flow_queues,
               .flow_hand = shape.flow_hand,
               .now = clock_.now().time_since_epoch().count()},
        gate_(options(fairness)) {}

  ~SideBySide() { wind_up(); }
  SideBySide(const SideBySide&) = delete;
  SideBySide& operator=(const SideBySide&) = delete;

  void run(const Command& c) {
    switch (c.what) {
      case Do::try_acquire:
      case Do::acquire:
      case Do::async_acquire:
      case Do::co_acquire:
        call(c);
        break;
      case Do::release:
        if (Real* call = nth(c.n, [](const Real& r) { return r.permit.has_value(); })) {
          const bool first = call->permit->release(c.outcome);
          RC_ASSERT(first == running(call->id));
          model_.release(call->id, c.outcome);
        }
        break;
      case Do::fail_and_drop:
        if (Real* call = nth(c.n, [this](const Real& r) { return running(r.id); })) {
          call->permit->fail();
          call->permit.reset();
          model_.release(call->id, Outcome::failure);
        }
        break;
      case Do::settle:
        if (Real* call = nth(c.n, [this](const Real& r) { return running(r.id); })) {
          const bool settled = call->permit->settle(c.cost);
          coverage_.settled += settled;
          RC_ASSERT(settled == model_.settle(call->id, c.cost));
        }
        break;
      case Do::grow:
        if (Real* call = nth(c.n, [this](const Real& r) { return running(r.id); })) {
          const bool grown = call->permit->try_grow(c.cost);
          coverage_.grown += grown;
          RC_ASSERT(grown == model_.grow(call->id, c.cost));
        }
        break;
      case Do::cancel:  // also of calls that were decided long ago
        if (Real* call = nth(c.n, [](const Real& r) { return r.stop.stop_possible(); })) {
          call->stop.request_stop();
          model_.cancel(call->id);
        }
        break;
      case Do::abandon:
        if (Real* call = nth(c.n, [this](const Real& r) { return r.coroutine && waits(r.id); })) {
          call->task.destroy();
          const std::size_t told = model_.answers.size();
          model_.cancel(call->id);
          model_.answers.erase(model_.answers.begin() + static_cast<std::ptrdiff_t>(told));  // nobody is left
        }
        break;
      case Do::resize:
        gate_.resize(c.n);
        model_.resize(c.n);
        break;
      case Do::resize_queue:
        gate_.resize_queue(c.n);
        model_.resize_queue(c.n);
        break;
      case Do::advance:
        advance(c.n * kStep);
        break;
      case Do::drain:
        RC_ASSERT(gate_.drain(clock_.now()) == model_.idle());
        break;
      case Do::close:
        gate_.close();
        model_.close();
        break;
    }
    compare();
  }

  // Whatever came before, the gate ends empty and with nobody in line.
  void finish() {
    run({.what = Do::close});
    while (!model_.running.empty()) {
      const int id = model_.running.front().id;
      calls_[static_cast<std::size_t>(id)].permit->release();
      model_.release(id, Outcome::success);
      compare();
    }
    RC_ASSERT(model_.idle());
    RC_ASSERT(gate_.drain(clock_.now()));
    const Snapshot s = gate_.snapshot();
    RC_ASSERT(s.admitted == s.released);
    ++coverage_.sequences;
    coverage_.double_releases += s.double_releases;
    for (const auto& [reason, n] : model_.rejected) coverage_.reasons.insert(reason);
  }

 private:
  struct Real {
    int id;
    std::stop_source stop{std::nostopstate};
    std::optional<Permit> permit{};
    bool coroutine = false;
    Task task{};
  };

  // A few nanoseconds more, so that a call may come exactly when it is over.
  std::int64_t max_barge() const { return shape_.max_barge * (kStep + 1) + 1; }

  GateOptions options(Fairness fairness) {
    GateOptions o{
        .name = "model",
        .max_concurrent = shape_.limit,
        .max_queue = shape_.max_queue,
        .max_wait = shape_.max_wait == kForever ? wait_forever : nanoseconds(shape_.max_wait * kStep),
        .critical_reserve = shape_.reserve_percent / 100.0,
        .fairness = fairness,
        .max_barge = nanoseconds(max_barge()),
        .flow_queues = shape_.flow_queues,
        .flow_hand = shape_.flow_hand,
        .measure_service = shape_.measure,
        .track_holders = shape_.holders,
        .measure_occupancy = shape_.occupancy,
        .clock = &clock_};
    if (!shape_.hooks) return o;
    const auto hook = [this](Fact fact) { return [this, fact](const Event& e) { note(fact, e, {}); }; };
    o.hooks = {.on_admit = hook(Fact::admit),
               .on_release = hook(Fact::release),
               .on_resize = hook(Fact::resize),
               .on_close = hook(Fact::close),
               .on_reject = [this](const Event& e, Reason reason) { note(Fact::reject, e, reason); }};
    return o;
  }

  void note(Fact fact, const Event& e, Reason reason) {
    log_.push_back({fact, e.priority, reason, e.in_flight, e.waiting, e.max_concurrent, e.max_queue});
    if (e.name != "model") wrong_ = "a hook was told of another gate";
    may_throw();
  }
  void may_throw() {
    if (!shape_.throwing) return;
    ++thrown_;
    throw std::runtime_error("a hook or handler that throws");
  }

  bool running(int id) const {
    return std::ranges::find(model_.running, id, &model::Call::id) != model_.running.end();
  }
  bool waits(int id) const {
    return std::ranges::find(model_.line, id, &model::Call::id) != model_.line.end();
  }
  template <class Wanted>
  Real* nth(std::uint32_t n, Wanted wanted) {
    const auto count = static_cast<std::uint32_t>(std::ranges::count_if(calls_, wanted));
    if (count == 0) return nullptr;
    n %= count;
    for (Real& call : calls_)
      if (wanted(call) && n-- == 0) return &call;
    return nullptr;
  }

  void advance(std::int64_t by) {
    clock_.advance(nanoseconds(by));
    model_.advance(by);
  }

  void call(const Command& c) {
    advance(1);
    const int id = static_cast<int>(calls_.size());
    Real& real = calls_.emplace_back(Real{.id = id});
    if (c.stop != Stop::none) real.stop = std::stop_source();
    if (c.stop == Stop::requested) real.stop.request_stop();

    AcquireOptions o{.priority = c.tier, .cost = c.cost, .stop = real.stop.get_token(), .flow = c.flow};
    if (c.timeout != kDefault)
      o.timeout = c.timeout == kForever ? wait_forever : nanoseconds(c.timeout * kStep);
    if (c.deadline != kNone) o.deadline = clock_.now() + nanoseconds(c.deadline * kStep);
    const int timeout = c.timeout == kDefault ? shape_.max_wait : c.timeout;
    const model::Call in_model{
        .id = id,
        .tier = c.tier,
        .cost = std::max(c.cost, 1u),
        .queues = c.what != Do::try_acquire,
        .stopped = c.stop == Stop::requested,
        .timeout = timeout == kForever ? ModelGate::forever : timeout * kStep,
        .deadline = c.deadline == kNone ? ModelGate::forever : model_.now + c.deadline * kStep,
        .mean_hold = gate_.snapshot().mean_hold.count(),
        .flow = c.flow};

    switch (c.what) {
      case Do::try_acquire:  // the call without options is a path of its own
        if (c.tier == Priority::normal && c.cost == 1 && c.deadline == kNone && c.stop == Stop::none)
          told(id, gate_.try_acquire());
        else
          told(id, gate_.try_acquire(o));
        break;
      case Do::acquire:
        told(id, gate_.acquire(o));
        break;
      case Do::async_acquire:
        gate_.async_acquire(o, [this, id](Result<Permit> result) {
          told(id, std::move(result));
          may_throw();
        });
        break;
      default:
        real.coroutine = true;
        real.task = wait_in_coroutine(o, id);
        break;
    }
    model_.acquire(in_model);
  }

  Task wait_in_coroutine(AcquireOptions options, int id) {
    told(id, co_await gate_.co_acquire(std::move(options)));
  }

  void told(int id, Result<Permit> result) {
    Real& call = calls_[static_cast<std::size_t>(id)];
    if (result) {
      answers_.push_back({.id = id, .admitted = true});
      call.permit = *std::move(result);
      return;
    }
    const Rejection& r = result.error();
    answers_.push_back({id, false, r.reason, r.in_flight, r.waiting, r.max_concurrent, r.max_queue});
    if (r.name != "model") wrong_ = "a rejection names another gate";
  }

  void compare() {
    ++coverage_.commands;
    coverage_.handed_over += model_.answers.size() > 1;
    RC_ASSERT(answers_ == model_.answers);
    if (shape_.hooks) RC_ASSERT(log_ == model_.log);
    RC_ASSERT(wrong_ == "");
    answers_.clear();
    model_.answers.clear();
    log_.clear();
    model_.log.clear();

    const Snapshot s = gate_.snapshot();
    RC_ASSERT(s.in_flight == model_.in_flight());
    RC_ASSERT(s.permits == model_.running.size());
    RC_ASSERT(s.waiting == model_.waiting());
    for (const Priority tier : {Priority::critical, Priority::normal, Priority::best_effort})
      RC_ASSERT(s.waiting_by_priority[static_cast<std::size_t>(tier)] == model_.waiting(tier));
    RC_ASSERT(s.max_concurrent == model_.limit);
    RC_ASSERT(s.max_queue == model_.max_queue);
    RC_ASSERT(s.closed == model_.closed);
    RC_ASSERT(s.released == model_.released);
    RC_ASSERT(s.admitted == model_.released + model_.running.size());
    RC_ASSERT(s.failed == model_.failed);
    RC_ASSERT(s.succeeded == model_.released - model_.failed);
    for (std::size_t r = 0; r < kReasons; ++r)
      RC_ASSERT(s.rejected_by_reason[r] == model_.rejected[static_cast<Reason>(r)]);
    RC_ASSERT(s.double_releases == model_.double_releases);
    RC_ASSERT(s.hook_errors == thrown_);
    RC_ASSERT(s.underflows == 0u);
    RC_ASSERT(s.occupancy.count() == (shape_.occupancy ? model_.occupancy : 0));
    RC_ASSERT(s.saturated.count() == (shape_.occupancy ? model_.saturated : 0));
    if (shape_.holders) {
      std::uint32_t units = 0;
      const std::vector<Holder> holders = gate_.holders();
      for (const Holder& h : holders) units += h.cost;
      RC_ASSERT(holders.size() == model_.running.size());
      RC_ASSERT(units == model_.in_flight());
    }
  }

  // Also after a failed comparison: everybody leaves before the gate does.
  void wind_up() {
    gate_.close();
    for (Real& call : calls_) call.permit.reset();
  }

  const Shape shape_;
  Coverage& coverage_;
  ManualClock clock_;
  ModelGate model_;
  std::vector<LoggedEvent> log_;
  std::vector<Answer> answers_;
  std::string wrong_;
  std::uint64_t thrown_ = 0;
  std::deque<Real> calls_;
  Gate gate_;
};

// ---- the property ----

class GateProperty : public testing::TestWithParam<std::tuple<Fairness, const Kind*>> {};

TEST_P(GateProperty, TheGateDoesWhatTheModelDoes) {
  const Fairness fairness = std::get<0>(GetParam());
  const Kind* kind = std::get<1>(GetParam());
  Coverage coverage;
  check_property([&] {
    const Shape how = *shape(*kind).as("gate");
    const auto commands = *script(*kind).as("commands");
    SideBySide both(fairness, how, coverage);
    for (const Command& c : commands) both.run(c);
    both.finish();
  });
  if (HasFatalFailure()) return;

  std::cout << coverage.sequences << " sequences, " << coverage.commands << " commands\n";
  EXPECT_GT(coverage.handed_over, coverage.sequences / 40);
  EXPECT_GT(coverage.double_releases, coverage.sequences / 20);
  EXPECT_GT(coverage.settled, coverage.sequences / 2);
  EXPECT_GT(coverage.grown, coverage.sequences / 20);
  for (const Reason reason : {Reason::concurrency_limit, Reason::queue_limit, Reason::timeout,
                              Reason::cancelled, Reason::shutdown, Reason::evicted, Reason::deadline})
    EXPECT_TRUE(coverage.reasons.contains(reason)) << to_string(reason) << " was never the answer";
}

std::string name_of(const testing::TestParamInfo<GateProperty::ParamType>& test) {
  return mode_name(std::get<0>(test.param)) + std::get<1>(test.param)->name;
}

INSTANTIATE_TEST_SUITE_P(All, GateProperty,
                         testing::Combine(testing::Values(Fairness::fifo, Fairness::barging,
                                                          Fairness::adaptive),
                                          testing::Values(&kKinds[0], &kKinds[1], &kKinds[2], &kKinds[3],
                                                          &kKinds[4], &kKinds[5], &kKinds[6])),
                         name_of);

}  // namespace
}  // namespace bulkhead
