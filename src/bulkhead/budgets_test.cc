// The budgets of a bulkhead, in every form of call.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <exception>
#include <functional>
#include <optional>
#include <random>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

BulkheadOptions model() {
  return {.name = "model",
          .max_concurrent = 4,
          .max_queue = 8,
          .budgets = {{.name = "tokens", .max = 1000, .per_call_max = 600}}};
}
BulkheadOptions two_budgets() {
  BulkheadOptions o = model();
  o.budgets.push_back({.name = "bytes", .max = 100});
  return o;
}

std::uint32_t in_use(const Bulkhead& b, std::size_t budget = 0) {
  return b.snapshot().budgets.at(budget).in_use;
}

struct Started {
  struct promise_type {
    Started get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// ---- what a call takes ----

TEST(Budgets, ACallHoldsWhatItNamesUntilItEnds) {
  Bulkhead b{two_budgets()};
  Call call = *b.acquire({.costs = {{"tokens", 600}, {"bytes", 7}}});
  EXPECT_EQ(in_use(b, 0), 600u);
  EXPECT_EQ(in_use(b, 1), 7u);
  EXPECT_EQ(call.held("tokens"), 600u);
  EXPECT_EQ(b.snapshot().gate.in_flight, 1u) << "and one place";
  call.finish(Outcome::success);
  EXPECT_EQ(in_use(b, 0), 0u);
  EXPECT_EQ(in_use(b, 1), 0u);
  EXPECT_EQ(call.held("tokens"), 0u);
  EXPECT_TRUE(b.idle());
}

TEST(Budgets, ACallThatNamesNoCostTakesNothingAndWaitsForNothing) {
  Bulkhead b{model()};
  const Call one = *b.try_acquire({.costs = {{"tokens", 600}}});
  const Call two = *b.try_acquire({.costs = {{"tokens", 400}}});
  Call free = *b.try_acquire();
  const Call nothing = *b.try_acquire({.costs = {{"tokens", 0}}});
  EXPECT_EQ(in_use(b), 1000u);
  EXPECT_FALSE(free.settle("tokens", 0));
  EXPECT_FALSE(free.try_grow("tokens", 1));
}

TEST(Budgets, CostsOfTheSameBudgetAddUp) {
  Bulkhead b{model()};
  const Call call = *b.acquire({.costs = {{"tokens", 100}, {"tokens", 200}}});
  EXPECT_EQ(in_use(b), 300u);
  EXPECT_FALSE(b.try_acquire({.costs = {{"tokens", 500}, {"tokens", 200}}})) << "above per_call_max together";
}

TEST(Budgets, TheRejectionNamesTheBudgetAndTheNumbers) {
  BulkheadOptions o = model();
  o.max_queue = 0;
  Bulkhead b{o};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  const Call two = *b.acquire({.costs = {{"tokens", 300}}});
  const auto no = b.acquire({.costs = {{"tokens", 200}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::budget_limit);
  EXPECT_EQ(no.error().message(),
            "bulkhead \"model\" rejected (budget_limit): budget \"tokens\": 900/1000 in use, 200 asked, 0/0 "
            "waiting");
  EXPECT_EQ(b.snapshot().gate.rejected(Reason::budget_limit), 1u);
  EXPECT_EQ(b.snapshot().budgets[0].rejected, 1u);
  EXPECT_EQ(b.snapshot().gate.in_flight, 2u) << "it took no place";
}

TEST(Budgets, MoreThanPerCallMaxIsRejectedAtOnce) {
  Bulkhead b{model()};
  const auto no = b.acquire({.costs = {{"tokens", 601}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::budget_limit);
  EXPECT_EQ(no.error().message(),
            "bulkhead \"model\" rejected (budget_limit): budget \"tokens\": 0/1000 in use, 601 asked, at "
            "most 600 per "
            "call");
}

TEST(Budgets, AnUnknownNameIsRejected) {
  Bulkhead b{model()};
  const auto no = b.acquire({.costs = {{"tokenz", 5}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().message(),
            "bulkhead \"model\" rejected (budget_limit): it has no budget \"tokenz\", 5 asked");
  EXPECT_TRUE(b.idle());
  EXPECT_EQ(b.snapshot().gate.rejected(Reason::budget_limit), 1u);
}

TEST(Budgets, UnitsOfABudgetWithoutANameAreRejected) {
  Bulkhead b{model()};
  const auto no = b.acquire({.costs = {{"tokens", 5}, {"", 7}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::budget_limit);
  EXPECT_EQ(no.error().asked, 7u);
  EXPECT_EQ(no.error().message(),
            "bulkhead \"model\" rejected (budget_limit): it has no budget \"\", 7 asked");
  EXPECT_TRUE(b.idle());
  EXPECT_TRUE(b.acquire({.costs = {{"", 0}}})) << "as if it were not named";
}

// An operator lowers max, and leaves per_call_max as it is.
TEST(Budgets, AMaximumBelowPerCallMaxIsTheMostPerCall) {
  BulkheadOptions o = model();
  Bulkhead b{o};
  o.budgets[0].max = 200;
  b.update(o);
  EXPECT_EQ(b.snapshot().budgets[0].per_call_max, 200u);
  const auto no = b.acquire({.costs = {{"tokens", 201}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(
      no.error().message(),
      "bulkhead \"model\" rejected (budget_limit): budget \"tokens\": 0/200 in use, 201 asked, at most 200 "
      "per call");
  Call call = *b.acquire({.costs = {{"tokens", 150}}});
  EXPECT_FALSE(call.try_grow("tokens", 51));
  o.budgets[0].max = 1000;
  b.update(o);
  EXPECT_EQ(b.snapshot().budgets[0].per_call_max, 600u);
}

TEST(Budgets, ARejectedCallGivesBackWhatEarlierStagesGave) {
  BulkheadOptions o = two_budgets();
  o.max_queue = 0;
  o.rate_limit = RateLimiterOptions{.rate = 10, .per = 1h};
  o.breaker = BreakerOptions{.window_calls = 10, .minimum_calls = 1};
  Bulkhead b{o};
  const Call full = *b.acquire({.costs = {{"bytes", 100}}});
  const double available = b.snapshot().rate_limit->available;
  EXPECT_FALSE(b.acquire({.costs = {{"tokens", 500}, {"bytes", 1}}}));
  EXPECT_FALSE(b.acquire({.costs = {{"wrong", 1}}}));
  EXPECT_EQ(in_use(b, 0), 0u) << "the budget that it had";
  EXPECT_NEAR(b.snapshot().rate_limit->available, available, 0.1);
  EXPECT_EQ(b.snapshot().breaker->calls, 0u);
  EXPECT_EQ(b.snapshot().gate.in_flight, 1u);
}

TEST(Budgets, NoPlaceGivesTheUnitsBack) {
  BulkheadOptions o = model();
  o.max_concurrent = 1;
  o.max_queue = 0;
  Bulkhead b{o};
  const Call busy = *b.acquire();
  const auto no = b.acquire({.costs = {{"tokens", 100}}});
  ASSERT_FALSE(no);
  EXPECT_EQ(no.error().reason, Reason::concurrency_limit);
  EXPECT_EQ(in_use(b), 0u);
}

// ---- waiting, in every form ----

// A call that waits for "tokens" while `hold` has them all; each form tells `got` when it has its call.
using Form = void (*)(Bulkhead&, AcquireOptions, std::function<void(Result<void>)>);

Started co_acquire_form(Bulkhead& b, AcquireOptions options, std::function<void(Result<void>)> got) {
  auto acquiring = b.co_acquire(std::move(options));
  auto call = co_await acquiring;
  got(call ? Result<void>() : Result<void>(unexpect, call.error()));
}
CallOptions<int> as_call(const AcquireOptions& o) {
  CallOptions<int> c;
  c.priority = o.priority;
  c.timeout = o.timeout;
  c.deadline = o.deadline;
  c.stop = o.stop;
  c.costs = o.costs;
  return c;
}
Started co_execute_form(Bulkhead& b, AcquireOptions options, std::function<void(Result<void>)> got) {
  auto executing = b.co_execute([&] { return 1; }, as_call(options));
  auto done = co_await executing;
  got(done ? Result<void>() : Result<void>(unexpect, done.error()));
}

struct NamedForm {
  const char* name;
  Form run;
};
const NamedForm kForms[] = {
    {"AsyncAcquire",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       b.async_acquire(std::move(o), [got = std::move(got)](Result<Call> call) {
         got(call ? Result<void>() : Result<void>(unexpect, call.error()));
       });
     }},
    {"BeginAcquire",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       const auto tell = [got = std::move(got)](const Result<Call>& call) {
         got(call ? Result<void>() : Result<void>(unexpect, call.error()));
       };
       AcquireOptions first = o;
       first.stop = std::stop_token();  // as adapters do: only a call that waits gets one
       Call begun;
       if (auto answer = b.begin_acquire(first, begun)) return tell(*answer);
       b.async_acquire(std::move(begun), std::move(o), tell);
     }},
    {"AsyncExecute",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       b.async_execute([] { return 1; }, as_call(o),
                       [got = std::move(got)](Ended<int> ended) {
                         const Result<int> done = std::move(ended).get();
                         got(done ? Result<void>() : Result<void>(unexpect, done.error()));
                       });
     }},
    {"CoAcquire",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       co_acquire_form(b, std::move(o), std::move(got));
     }},
    {"CoExecute",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       co_execute_form(b, std::move(o), std::move(got));
     }},
    {"Blocking",
     [](Bulkhead& b, AcquireOptions o, std::function<void(Result<void>)> got) {
       std::thread([&b, o = std::move(o), got = std::move(got)] {
         const auto done = b.execute([] { return 1; }, as_call(o));
         got(done ? Result<void>() : Result<void>(unexpect, done.error()));
       }).detach();
     }},
};

struct Answer {
  std::atomic<int> told{0};
  Result<void> result{unexpect};
  std::function<void(Result<void>)> taker() {
    return [this](Result<void> r) {
      result = std::move(r);
      ++told;
      told.notify_all();
    };
  }
  void wait() {
    while (told.load() == 0) told.wait(0);
  }
};

class BudgetForms : public testing::TestWithParam<std::tuple<NamedForm, Isolation>> {
 protected:
  Form form() const { return std::get<0>(GetParam()).run; }
  BulkheadOptions options() const {
    BulkheadOptions o = model();
    o.isolation = std::get<1>(GetParam());
    return o;
  }
  static void until_waiting(const Bulkhead& b, std::uint32_t calls) {
    while (b.snapshot().budgets.at(0).waiting != calls) std::this_thread::yield();
  }
};

TEST_P(BudgetForms, ACallWaitsForUnitsAndGetsThem) {
  Bulkhead b{options()};
  Call one = *b.acquire({.costs = {{"tokens", 600}}});
  const Call two = *b.acquire({.costs = {{"tokens", 400}}});
  Answer answer;
  form()(b, {.costs = {{"tokens", 300}}}, answer.taker());
  until_waiting(b, 1);
  EXPECT_EQ(b.snapshot().gate.in_flight, 2u) << "it waits without a place";
  EXPECT_FALSE(b.idle());
  one.settle("tokens", 301);
  EXPECT_EQ(answer.told, 0);
  one.settle("tokens", 300);
  answer.wait();
  EXPECT_TRUE(answer.result) << answer.result.error().message();
  while (in_use(b) != 700) std::this_thread::yield();  // it ends on another thread
}

TEST_P(BudgetForms, OneTimeoutForAllWaits) {
  ManualClock clock;
  BulkheadOptions o = options();
  o.clock = &clock;
  o.max_wait = 10ms;
  o.max_concurrent = 2;
  Bulkhead b{o};
  Call one = *b.acquire({.costs = {{"tokens", 600}}});
  const Call two = *b.acquire({.costs = {{"tokens", 400}}});
  Answer answer;
  form()(b, {.costs = {{"tokens", 300}}}, answer.taker());
  until_waiting(b, 1);
  clock.advance(6ms);
  one.settle("tokens", 300);  // now it waits for its place
  while (b.snapshot().gate.waiting != 1) std::this_thread::yield();
  EXPECT_EQ(answer.told, 0);
  clock.advance(4ms);
  answer.wait();
  ASSERT_FALSE(answer.result);
  EXPECT_EQ(answer.result.error().reason, Reason::timeout);
  while (in_use(b) != 700) std::this_thread::yield();
}

TEST_P(BudgetForms, ATimeoutInTheLineOfTheBudgetIsItsReason) {
  ManualClock clock;
  BulkheadOptions o = options();
  o.clock = &clock;
  Bulkhead b{o};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  Answer answer;
  form()(b, {.timeout = 5ms, .costs = {{"tokens", 500}}}, answer.taker());
  until_waiting(b, 1);
  clock.advance(5ms);
  answer.wait();
  ASSERT_FALSE(answer.result);
  EXPECT_EQ(answer.result.error().reason, Reason::budget_limit);
  EXPECT_EQ(answer.result.error().asked, 500u);
  while (!(b.snapshot().gate.rejected(Reason::budget_limit) == 1)) std::this_thread::yield();
}

TEST_P(BudgetForms, ACallThatIsCancelledLeavesTheLine) {
  Bulkhead b{options()};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  std::stop_source stop;
  Answer answer;
  form()(b, {.stop = stop.get_token(), .costs = {{"tokens", 500}}}, answer.taker());
  until_waiting(b, 1);
  stop.request_stop();
  answer.wait();
  ASSERT_FALSE(answer.result);
  EXPECT_EQ(answer.result.error().reason, Reason::cancelled);
  EXPECT_EQ(b.snapshot().budgets[0].waiting, 0u);
}

TEST_P(BudgetForms, ADeadlineEndsTheWait) {
  ManualClock clock;
  BulkheadOptions o = options();
  o.clock = &clock;
  Bulkhead b{o};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  Answer answer;
  form()(b, {.deadline = clock.now() + 3ms, .costs = {{"tokens", 500}}}, answer.taker());
  until_waiting(b, 1);
  clock.advance(3ms);
  answer.wait();
  ASSERT_FALSE(answer.result);
  EXPECT_EQ(answer.result.error().reason, Reason::budget_limit);
}

TEST_P(BudgetForms, ACriticalCallIsFirstInTheLineOfTheBudget) {
  Bulkhead b{options()};
  Call one = *b.acquire({.costs = {{"tokens", 600}}});
  Call two = *b.acquire({.costs = {{"tokens", 400}}});
  Answer normal, critical;
  form()(b, {.costs = {{"tokens", 600}}}, normal.taker());
  until_waiting(b, 1);
  form()(b, {.priority = Priority::critical, .costs = {{"tokens", 400}}}, critical.taker());
  until_waiting(b, 2);
  two.finish(Outcome::success);
  critical.wait();
  EXPECT_TRUE(critical.result);
  one.finish(Outcome::success);
  normal.wait();
  EXPECT_TRUE(normal.result);
}

TEST_P(BudgetForms, ClosingRejectsThoseThatWaitForABudget) {
  Answer answer;
  {
    Bulkhead b{options()};
    std::optional<Call> one(*b.acquire({.costs = {{"tokens", 600}}}));
    form()(b, {.costs = {{"tokens", 500}}}, answer.taker());
    until_waiting(b, 1);
    b.close();
    answer.wait();
    EXPECT_FALSE(b.drain(b.clock().now()));
    one.reset();
    EXPECT_TRUE(b.drain(b.clock().now() + 10s));
  }
  EXPECT_EQ(answer.result.error().reason, Reason::shutdown);
}

INSTANTIATE_TEST_SUITE_P(All, BudgetForms,
                         testing::Combine(testing::ValuesIn(kForms),
                                          testing::Values(Isolation::semaphore, Isolation::threads)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) == Isolation::threads ? "InAPool" : "");
                         });

TEST(Budgets, ADestroyedCoroutineLeavesTheLineAndHoldsNothing) {
  Bulkhead b{two_budgets()};
  const Call most = *b.acquire({.costs = {{"tokens", 600}}});
  {
    auto acquiring = b.co_acquire({.costs = {{"tokens", 500}, {"bytes", 20}}});
    struct Held {
      struct promise_type {
        Held get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
        std::suspend_never initial_suspend() noexcept { return {}; }
        std::suspend_always final_suspend() noexcept { return {}; }
        void return_void() {}
        void unhandled_exception() { std::terminate(); }
      };
      std::coroutine_handle<> handle;
    };
    const auto body = [](auto& op) -> Held {
      const auto call = co_await op;
      ADD_FAILURE() << static_cast<bool>(call);
    };
    const Held held = body(acquiring);
    EXPECT_EQ(in_use(b, 1), 20u) << "it has the first budget by name and waits for the second";
    EXPECT_EQ(b.snapshot().budgets[0].waiting, 1u);
    held.handle.destroy();
  }
  EXPECT_EQ(in_use(b, 1), 0u);
  EXPECT_EQ(b.snapshot().budgets[0].waiting, 0u);
}

// ---- while it runs ----

TEST(RunningCall, SettlesWhileItRuns) {
  for (const Isolation isolation : {Isolation::semaphore, Isolation::threads}) {
    BulkheadOptions o = model();
    o.isolation = isolation;
    Bulkhead b{o};
    const auto done = b.execute(
        [&](RunningCall& call) {
          EXPECT_EQ(call.held("tokens"), 600u);
          EXPECT_TRUE(call.settle("tokens", 200));
          EXPECT_EQ(in_use(b), 200u);
          EXPECT_TRUE(call.try_grow("tokens", 400));
          EXPECT_FALSE(call.try_grow("tokens", 1)) << "above per_call_max";
          EXPECT_FALSE(call.settle("bytes", 0)) << "it has none";
          EXPECT_EQ(b.gate().in_flight(), 3u);
          EXPECT_TRUE(call.settle(1));
          EXPECT_EQ(b.gate().in_flight(), 1u);
          EXPECT_FALSE(call.stop_token().stop_requested());
          return 7;
        },
        {.cost = 3, .costs = {{"tokens", 600}}});
    ASSERT_TRUE(done);
    EXPECT_EQ(*done, 7);
    EXPECT_EQ(in_use(b), 0u);
    EXPECT_EQ(b.snapshot().gate.released, 1u);
  }
}

TEST(RunningCall, HasTheStopTokenOfTheCall) {
  for (const Isolation isolation : {Isolation::semaphore, Isolation::threads}) {
    BulkheadOptions o = model();
    o.isolation = isolation;
    std::stop_source stop;  // outlives the work
    Bulkhead b{o};
    const auto done = b.execute(
        [&](RunningCall& call) {
          const std::stop_token token = call.stop_token();
          stop.request_stop();
          while (!token.stop_requested()) std::this_thread::yield();
          return call.stop_token().stop_requested();
        },
        {.stop = stop.get_token()});
    EXPECT_TRUE(!done || *done);  // in a pool the caller does not wait for the work
  }
}

TEST(RunningCall, InAHandlerAndInACoroutine) {
  Bulkhead b{model()};
  int told = 0;
  b.async_execute([&](RunningCall& call) { return call.settle("tokens", 1); }, {.costs = {{"tokens", 5}}},
                  [&](Ended<bool> ended) { told += *std::move(ended).get(); });
  [](Bulkhead& bulkhead, int& to) -> Started {
    auto executing = bulkhead.co_execute([&](RunningCall& call) { return call.settle("tokens", 1); },
                                         {.costs = {{"tokens", 5}}});
    const auto done = co_await executing;
    to += *done;
  }(b, told);
  EXPECT_EQ(told, 2);
}

TEST(RunningCall, WorkWhoseCallerHasGivenUpKeepsItsUnits) {
  ManualClock clock;
  BulkheadOptions o = model();
  o.clock = &clock;
  o.isolation = Isolation::threads;
  o.execution_timeout = 1ms;
  Bulkhead b{o};
  std::atomic<bool> go{false};
  const auto done = b.execute(
      [&](RunningCall& call) {
        clock.advance(1ms);  // by the work itself: on the real clock the time may end before the work starts
        go.wait(false);
        call.settle("tokens", 10);
      },
      {.costs = {{"tokens", 600}}});
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().reason, Reason::execution_timeout);
  EXPECT_EQ(in_use(b), 600u) << "the work still runs";
  go = true;
  go.notify_all();
  while (in_use(b) != 0) std::this_thread::yield();
}

// ---- modes and changes ----

TEST(Budgets, ShadowModeCountsAndRejectsNothing) {
  BulkheadOptions o = model();
  o.shadow = true;
  o.max_queue = 0;
  Bulkhead b{o};
  Call one = *b.acquire({.costs = {{"tokens", 600}}});
  Call two = *b.acquire({.costs = {{"tokens", 600}}});
  const Call three = *b.acquire({.costs = {{"tokens", 601}}});
  EXPECT_EQ(in_use(b), 600u);
  EXPECT_EQ(b.snapshot().would_reject[static_cast<std::size_t>(Reason::budget_limit)], 2u);
  EXPECT_TRUE(one.settle("tokens", 5));
  EXPECT_EQ(in_use(b), 5u);
  EXPECT_TRUE(two.settle("tokens", 5)) << "it has none, and that is no mistake of its caller";
  one.finish(Outcome::success);
  EXPECT_EQ(in_use(b), 0u);
}

TEST(Budgets, ABulkheadThatIsNotEnabledTakesNothing) {
  BulkheadOptions o = model();
  o.enabled = false;
  Bulkhead b{o};
  Call one = *b.acquire({.costs = {{"tokens", 601}}});
  EXPECT_EQ(in_use(b), 0u);
  EXPECT_TRUE(one.settle("tokens", 5));
}

TEST(Budgets, DrainingRejectsBeforeABudgetIsAsked) {
  Bulkhead b{model()};
  b.set_draining(true);
  EXPECT_EQ(b.acquire({.costs = {{"tokens", 1}}}).error().reason, Reason::draining);
  EXPECT_EQ(b.snapshot().budgets[0].rejected, 0u);
}

TEST(Budgets, TheMaximumChangesWhileCallsRun) {
  Bulkhead b{model()};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  std::optional<Call> got;
  b.async_acquire({.costs = {{"tokens", 600}}}, [&](Result<Call> call) { got = *std::move(call); });
  EXPECT_FALSE(got);
  BulkheadOptions o = model();
  o.budgets[0].max = 1200;
  o.budgets[0].per_call_max = 0;
  b.update(o);
  EXPECT_TRUE(got);
  EXPECT_EQ(b.snapshot().budgets[0].max, 1200u);
  EXPECT_EQ(b.snapshot().budgets[0].per_call_max, 1200u);
}

TEST(Budgets, ABudgetCanBeAddedAndTakenAway) {
  Bulkhead b{model()};
  b.update(two_budgets());
  Call call = *b.acquire({.costs = {{"bytes", 100}}});
  b.update(model());
  EXPECT_EQ(b.snapshot().budgets.size(), 1u);
  EXPECT_FALSE(b.try_acquire({.costs = {{"bytes", 1}}}));
  EXPECT_TRUE(call.settle("bytes", 60));
  b.update(two_budgets());
  EXPECT_EQ(in_use(b, 1), 60u) << "what was held counts again";
}

TEST(Budgets, WrongOptionsChangeNothing) {
  const auto wrong = [](std::vector<BudgetOptions> budgets, const std::string& says) {
    BulkheadOptions o = model();
    o.budgets = std::move(budgets);
    Bulkhead b{model()};
    const auto expect = [&](auto&& change) {
      try {
        change();
        ADD_FAILURE() << says;
      } catch (const std::invalid_argument& e) {
        EXPECT_EQ(std::string(e.what()), "bulkhead \"model\": " + says);
      }
    };
    expect([&] { Bulkhead never{o}; });
    expect([&] { b.update(o); });
    EXPECT_EQ(b.snapshot().budgets.at(0).max, 1000u);
  };
  wrong({{.name = "a b", .max = 1}},
        "budgets.\"a b\" is not a name: give 1 to 23 letters, digits, '_' and '-'");
  wrong({{.name = "a", .max = 1}, {.name = "a", .max = 2}}, "budgets.a is given twice: keep one of them");
  wrong({{.name = "a", .max = 0}}, "budgets.a max = 0 is out of range: give 1 to 268435455");
  wrong({{.name = "a"}, {.name = "b"}, {.name = "c"}, {.name = "d"}, {.name = "e"}},
        "budgets has more than 4 entries: leave some out");
  wrong({{.name = "a", .scope = Scope::host}},
        "budgets.a scope = host is not available here: give RegistryOptions::sources or "
        "BulkheadOptions::sources, "
        "such as a shm::Host");
}

TEST(Budgets, CriticalReserveIsAShareOfTheBudgetToo) {
  BulkheadOptions o = model();
  o.critical_reserve = 0.25;
  Bulkhead b{o};
  const Call one = *b.acquire({.costs = {{"tokens", 600}}});
  EXPECT_FALSE(b.try_acquire({.costs = {{"tokens", 151}}}));
  const Call two = *b.try_acquire({.costs = {{"tokens", 150}}});
  EXPECT_TRUE(b.try_acquire({.priority = Priority::critical, .costs = {{"tokens", 250}}}));
}

// Flows share a budget by cost: a flow of heavy calls gets as many units as one of light calls.
TEST(Budgets, FlowsShareABudgetByCost) {
  BulkheadOptions o = model();
  o.max_concurrent = 1000;
  o.max_queue = 1000;
  o.flow_queues = 64;
  o.budgets[0].per_call_max = 0;
  Bulkhead b{o};
  std::optional<Call> all(*b.acquire({.costs = {{"tokens", 1000}}}));
  std::uint32_t heavy = 0, light = 0;
  std::vector<Call> calls;
  for (int i = 0; i < 50; ++i)
    b.async_acquire({.flow = 1, .costs = {{"tokens", 100}}}, [&](Result<Call> call) {
      if (!call) return;
      heavy += 100;
      calls.push_back(*std::move(call));
    });
  for (int i = 0; i < 500; ++i)
    b.async_acquire({.flow = 2, .costs = {{"tokens", 10}}}, [&](Result<Call> call) {
      if (!call) return;
      light += 10;
      calls.push_back(*std::move(call));
    });
  all.reset();
  EXPECT_EQ(heavy + light, 1000u);
  EXPECT_NEAR(heavy, 500, 100);
  EXPECT_NEAR(light, 500, 100);
  b.close();
}

// ---- proof ----

// Threads that reserve, settle, grow and end in all ways. The units that they believe to hold, which are never more than
// what the budget has given, are never above its maximum, and none is left.
TEST(BudgetsStress, UnitsAreNeverAboveTheMaximumAndAllComeBack) {
  BulkheadOptions o{
      .name = "model",
      .max_concurrent = 3,
      .max_queue = 64,
      .budgets = {{.name = "tokens", .max = 100, .per_call_max = 60}, {.name = "bytes", .max = 40}}};
  Bulkhead b{o};
  std::atomic<std::int64_t> tokens{0}, bytes{0}, above{0}, calls{0}, rejected{0};
  const auto add = [&](std::atomic<std::int64_t>& sum, std::int64_t units, std::int64_t max) {
    if (sum.fetch_add(units) + units > max) ++above;
  };
  std::vector<std::thread> threads;
  for (unsigned seed = 1; seed <= 4; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      for (int i = 0; i < 8'000; ++i) {
        const auto t = static_cast<std::uint32_t>(random() % 61),
                   y = static_cast<std::uint32_t>(random() % 41);
        AcquireOptions asked{.priority = static_cast<Priority>(random() % 3),
                             .timeout = 1ms,
                             .costs = {{"bytes", y}, {"tokens", t}}};
        if (random() % 3 == 0) asked.costs = Costs{{"tokens", t}};
        const bool both = asked.costs.end() - asked.costs.begin() == 2;
        auto call = b.acquire(asked);
        if (!call) {
          ++rejected;
          continue;
        }
        ++calls;
        add(tokens, t, 100);
        if (both) add(bytes, y, 40);
        if (t > 0) {
          const std::uint32_t used = static_cast<std::uint32_t>(random() % (t + 1));
          add(tokens, std::int64_t{used} - t, 100);
          EXPECT_TRUE(call->settle("tokens", used));
          if (call->try_grow("tokens", 3)) add(tokens, 3, 100);
        }
        add(tokens, -std::int64_t{call->held("tokens")}, 100);
        if (both) add(bytes, -std::int64_t{call->held("bytes")}, 40);
        call->finish(random() % 2 == 0 ? Outcome::success : Outcome::failure);
      }
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(above, 0);
  EXPECT_EQ(tokens, 0);
  EXPECT_EQ(bytes, 0);
  EXPECT_GT(calls, 0);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.in_flight, 0u);
  EXPECT_EQ(s.gate.admitted, static_cast<std::uint64_t>(calls));
  EXPECT_EQ(s.gate.rejected(), static_cast<std::uint64_t>(rejected));
  for (const BudgetSnapshot& budget : s.budgets) {
    EXPECT_EQ(budget.in_use, 0u);
    EXPECT_EQ(budget.calls, 0u);
    EXPECT_EQ(budget.waiting, 0u);
  }
  EXPECT_TRUE(b.idle());
}

TEST(BudgetsStress, AMillionEstimatesLeaveNothing) {
  BulkheadOptions o{.name = "model",
                    .max_concurrent = 64,
                    .budgets = {{.name = "tokens", .max = 200'000, .per_call_max = 32'000}},
                    .histograms = false};
  Bulkhead b{o};
  std::mt19937 random(11);
  std::vector<Call> held(16);
  for (int i = 0; i < 1'000'000; ++i) {
    Call& call = held[random() % held.size()];
    call = Call();
    auto estimate = b.try_acquire({.costs = {{"tokens", 1 + static_cast<std::uint32_t>(random() % 32'000)}}});
    if (!estimate) continue;
    call = *std::move(estimate);
    const std::uint32_t used = static_cast<std::uint32_t>(random() % 32'000);
    if (!call.settle("tokens", used)) static_cast<void>(call.try_grow("tokens", used - call.held("tokens")));
  }
  held.clear();
  const BudgetSnapshot s = b.snapshot().budgets[0];
  EXPECT_EQ(s.in_use, 0u);
  EXPECT_EQ(s.calls, 0u);
  EXPECT_TRUE(b.idle());
}

}  // namespace
}  // namespace bulkhead
