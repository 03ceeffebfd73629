// The scenario table of Polly (test/Polly.Specs/Bulkhead/BulkheadScenarios.cs): a load on a number of slots
// and places in line; some of the waiting and of the running calls are cancelled; the numbers are checked
// after every step.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <string>
#include <tuple>

#include "bulkhead/gate.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace tests;

struct Scenario {
  std::uint32_t parallel, queue, load;
  bool cancel_queuing, cancel_executing;
};
void PrintTo(const Scenario& s, std::ostream* out) {
  *out << "Parallel" << s.parallel << "Queue" << s.queue << "Load" << s.load
       << (s.cancel_queuing ? "CancelQueuing" : "") << (s.cancel_executing ? "CancelExecuting" : "");
}

class Polly : public ::testing::TestWithParam<std::tuple<Scenario, Kind>> {};

INSTANTIATE_TEST_SUITE_P(
    Scenarios, Polly,
    ::testing::Combine(::testing::Values(Scenario{5, 0, 3, false, false}, Scenario{20, 0, 3, false, true},
                                         Scenario{3, 0, 4, false, false}, Scenario{3, 1, 5, false, false},
                                         Scenario{6, 3, 9, true, true}, Scenario{5, 3, 8, false, false},
                                         Scenario{1, 6, 5, true, true}),
                       ::testing::ValuesIn(kinds)),
    [](const auto& p) {
      return ::testing::PrintToString(std::get<0>(p.param)) + "_" +
             ::testing::PrintToString(std::get<1>(p.param));
    });

TEST_P(Polly, ControlsExecutionsPerSpecification) {
  const auto [scenario, kind] = GetParam();
  Gate gate{{.max_concurrent = scenario.parallel, .max_queue = scenario.queue}};

  struct Action {
    std::stop_source stop;
    std::optional<Caller> caller;
    bool over = false;
  };
  std::deque<Action> actions;
  std::uint32_t executing = 0, queuing = 0, rejected = 0, cancelled = 0, completed = 0;
  const auto check = [&] {
    until([&] { return numbers(gate) == Numbers(executing, queuing); });
    const Snapshot s = gate.snapshot();
    EXPECT_EQ(s.admitted, executing + completed);
    EXPECT_EQ(s.released, completed);
    EXPECT_EQ(s.rejected(Reason::cancelled), cancelled);
    EXPECT_EQ(s.rejected(), cancelled + rejected);
    EXPECT_EQ(executing + queuing + rejected + cancelled + completed, actions.size());
  };

  for (std::uint32_t i = 0; i < scenario.load; ++i) {
    Action& action = actions.emplace_back();
    action.caller.emplace(gate, AcquireOptions{.stop = action.stop.get_token()}, kind);
    if (executing < scenario.parallel)
      ++executing;
    else if (queuing < scenario.queue)
      ++queuing;
    else
      action.over = ++rejected > 0;
    if (action.over) {
      EXPECT_EQ(action.caller->reason(),
                scenario.queue == 0 ? Reason::concurrency_limit : Reason::queue_limit);
    }
    check();
  }

  const auto complete = [&](Action& action) {
    EXPECT_TRUE(action.caller->admitted());
    EXPECT_TRUE(action.caller->release());
    action.over = true;
    ++completed;
    if (queuing > 0)
      --queuing;  // the next in line takes over the slot
    else
      --executing;
    check();
  };
  const auto next = [&](bool admitted) {
    return std::find_if(actions.begin(), actions.end(), [&](const Action& action) {
      return !action.over && action.caller->pending() != admitted;
    });
  };

  if (scenario.cancel_queuing && queuing > 0) {
    const auto action = next(false);
    ASSERT_NE(action, actions.end());
    action->stop.request_stop();
    EXPECT_EQ(action->caller->reason(), Reason::cancelled);
    action->over = true;
    --queuing;
    ++cancelled;
    check();
  }
  if (scenario.cancel_executing) {
    // Cancelling does not take the slot away; the call ends when it has noticed.
    until([&] { return next(true) != actions.end(); });
    const auto action = next(true);
    action->stop.request_stop();
    check();
    complete(*action);
  }
  while (executing > 0) {
    until([&] { return next(true) != actions.end(); });
    complete(*next(true));
  }
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
