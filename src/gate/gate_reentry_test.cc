// Random commands given from inside: every handler, coroutine and hook that the gate calls goes on with the
// next commands of the same script. Nobody knows what must come out, but everybody must be answered once and
// the books must balance.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <deque>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "gate/gate_commands_test.h"
#include "gate/property_test.h"

namespace bulkhead {
namespace {

using namespace model;
using std::chrono::nanoseconds;

class FromInside {
 public:
  FromInside(Fairness fairness, const Shape& shape, const std::vector<Command>& script)
      : script_(script), largest_(shape.limit), gate_(options(fairness, shape)) {}
  ~FromInside() {
    ended_ = true;
    gate_.close();
    for (Call& call : calls_) call.permit.reset();
  }
  FromInside(const FromInside&) = delete;
  FromInside& operator=(const FromInside&) = delete;

  void run() {
    while (next_ < script_.size()) {
      step();
      check();
    }
    ended_ = true;
    gate_.close();
    for (Call& call : calls_) call.permit.reset();
    check();
    const Snapshot s = gate_.snapshot();
    RC_ASSERT(s.in_flight == 0u);
    RC_ASSERT(s.waiting == 0u);
    RC_ASSERT(s.admitted == s.released);
    RC_ASSERT(gate_.drain(clock_.now()));
    std::uint64_t admitted = 0, rejected = 0;
    for (const Call& call : calls_) {
      RC_ASSERT(call.answers == (call.abandoned ? 0 : 1));
      (call.abandoned || call.rejected ? rejected : admitted) += 1;
    }
    RC_ASSERT(s.admitted >= admitted);  // who was abandoned may have been admitted a moment before
    RC_ASSERT(s.admitted + s.rejected() == calls_.size());
  }

 private:
  struct Call {
    std::stop_source stop{std::nostopstate};
    std::optional<Permit> permit{};
    int answers = 0;
    bool rejected = false, abandoned = false, started = false;
    Task task{};
  };

  GateOptions options(Fairness fairness, const Shape& shape) {
    GateOptions o{.max_concurrent = shape.limit,
                  .max_queue = shape.max_queue,
                  .max_wait = shape.max_wait == kForever ? wait_forever : nanoseconds(shape.max_wait * kStep),
                  .critical_reserve = shape.reserve_percent / 100.0,
                  .fairness = fairness,
                  .max_barge = nanoseconds(shape.max_barge * kStep),
                  .track_holders = shape.holders,
                  .clock = &clock_};
    if (!shape.hooks) return o;
    const auto go_on = [this](const Event&) { from_hook(); };
    o.hooks = {.on_admit = go_on,
               .on_release = go_on,
               .on_resize = go_on,
               .on_close = go_on,
               .on_reject = [this](const Event&, Reason) { from_hook(); }};
    return o;
  }

  void check() {
    const Snapshot s = gate_.snapshot();
    RC_ASSERT(s.in_flight <= largest_);
    RC_ASSERT(s.admitted == s.released + s.permits);
    RC_ASSERT(s.succeeded + s.failed == s.released);
    RC_ASSERT(s.underflows == 0u);
    RC_ASSERT(s.hook_errors == 0u);
  }

  void from_hook() {
    if (++inside_ % 3 != 0) return;
    const bool nested = std::exchange(in_hook_, true);
    step();
    in_hook_ = nested;
  }
  void from_handler() {
    if (++inside_ % 2 == 0) step();
    if (inside_ % 5 == 0) step();
  }

  template <class Wanted>
  Call* nth(std::uint32_t n, Wanted wanted) {
    std::vector<Call*> eligible;
    for (Call& call : calls_)
      if (wanted(call)) eligible.push_back(&call);
    return eligible.empty() ? nullptr : eligible[n % eligible.size()];
  }

  void step() {
    if (ended_ || next_ >= script_.size()) return;
    const Command& c = script_[next_++];
    switch (c.what) {
      case Do::try_acquire:
      case Do::acquire:
      case Do::async_acquire:
      case Do::co_acquire:
        return call(c);
      case Do::release:
        if (Call* call = nth(c.n, [](const Call& x) { return x.permit.has_value(); }))
          call->permit->release(c.outcome);
        return;
      case Do::fail_and_drop:
        if (Call* call = nth(c.n, [](const Call& x) { return x.permit.has_value(); })) call->permit.reset();
        return;
      case Do::settle:
        if (Call* call = nth(c.n, [](const Call& x) { return x.permit.has_value(); }))
          call->permit->settle(c.cost);
        return;
      case Do::grow:
        if (Call* call = nth(c.n, [](const Call& x) { return x.permit.has_value(); }))
          static_cast<void>(call->permit->try_grow(c.cost));
        return;
      case Do::cancel:
        if (Call* call = nth(c.n, [](const Call& x) { return x.stop.stop_possible(); }))
          call->stop.request_stop();
        return;
      case Do::abandon:
        if (in_hook_) return;  // hooks are asked not to
        if (Call* call =
                nth(c.n, [](const Call& x) { return x.started && x.answers == 0 && !x.abandoned; })) {
          call->abandoned = true;
          call->task.destroy();
        }
        return;
      case Do::resize:
        largest_ = std::max(largest_, c.n);
        return gate_.resize(c.n);
      case Do::resize_queue:
        return gate_.resize_queue(c.n);
      case Do::advance:
        return clock_.advance(nanoseconds(c.n * kStep));
      case Do::drain:
        gate_.drain(clock_.now());
        return;
      case Do::close:
        return gate_.close();
    }
  }

  void call(const Command& c) {
    Call& call = calls_.emplace_back();
    if (c.stop != Stop::none) call.stop = std::stop_source();
    if (c.stop == Stop::requested) call.stop.request_stop();
    AcquireOptions o{.priority = c.tier, .cost = c.cost, .stop = call.stop.get_token()};
    if (c.timeout != kDefault)
      o.timeout = c.timeout == kForever ? wait_forever : nanoseconds(c.timeout * kStep);
    if (c.deadline != kNone) o.deadline = clock_.now() + nanoseconds(c.deadline * kStep);
    if (c.what == Do::try_acquire) return told(call, gate_.try_acquire(o));
    if (c.what == Do::acquire) return told(call, gate_.acquire(o));
    if (c.what == Do::async_acquire)
      return gate_.async_acquire(o, [this, &call](Result<Permit> result) { told(call, std::move(result)); });
    Task task = wait_in_coroutine(o, call);
    call.task = std::move(task);
    call.started = true;
  }

  Task wait_in_coroutine(AcquireOptions options, Call& call) {
    told(call, co_await gate_.co_acquire(std::move(options)));
  }

  void told(Call& call, Result<Permit> result) {
    ++call.answers;
    call.rejected = !result;
    if (result) call.permit = *std::move(result);
    from_handler();
  }

  const std::vector<Command>& script_;
  std::size_t next_ = 0;
  std::uint32_t inside_ = 0;
  std::uint32_t largest_;
  bool ended_ = false, in_hook_ = false;
  ManualClock clock_;
  std::deque<Call> calls_;
  Gate gate_;
};

// One release admits both. The handler of the first destroys the second before it was told.
TEST(Gate, AHandlerMayDestroyACoroutineThatWasDecidedWithIt) {
  Gate gate{{.max_concurrent = 2, .max_queue = 2}};
  Permit both = *gate.acquire({.cost = 2});
  Task second;
  bool told = false;
  gate.async_acquire({}, [&](const Result<Permit>&) { second.destroy(); });
  second = [](Gate& g, bool& resumed) -> Task {
    auto permit = co_await g.co_acquire();
    resumed = true;
  }(gate, told);
  both.release();
  EXPECT_FALSE(told);
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 0u);
  EXPECT_EQ(s.admitted, 3u);
  EXPECT_EQ(s.released, 3u);
}

class GateReentry : public testing::TestWithParam<Fairness> {};

TEST_P(GateReentry, CommandsFromHandlersAndHooksLoseNothing) {
  for (const Kind& kind : kKinds) {
    check_property([&] {
      const Shape how = *shape(kind).as("gate");
      const auto commands = *script(kind).as("commands");
      FromInside(GetParam(), how, commands).run();
    });
    if (HasFatalFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(All, GateReentry,
                         testing::Values(Fairness::fifo, Fairness::barging, Fairness::adaptive),
                         [](const auto& test) { return mode_name(test.param); });

}  // namespace
}  // namespace bulkhead
