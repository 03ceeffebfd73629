// Injected faults, in every form of call.
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::Detached;
using tests::until;

// One call: "ran", or the reason it did not.
struct Observed {
  std::string text;
  std::atomic<bool> done{false};

  template <class R>
  void end(const Result<R>& result) {
    text = result ? "ran" : std::string(to_string(result.error().reason));
    done = true;
  }
  void end(Result<Call> call) {
    text = call ? "ran" : std::string(to_string(call.error().reason));
    if (call) call->finish(Outcome::success);
    done = true;
  }
};

Detached co_plain(Bulkhead& b, Observed& seen) {
  auto calling = b.co_execute([] { return 1; });
  const Result<int> result = co_await calling;
  seen.end(result);
}
detail::Lazy<int> one() { co_return 1; }
Detached co_awaiting(Bulkhead& b, Observed& seen) {
  auto calling = b.co_execute([] { return one(); });
  const Result<int> result = co_await calling;
  seen.end(result);
}
Detached co_place(Bulkhead& b, Observed& seen) {
  auto acquiring = b.co_acquire();
  Result<Call> call = co_await acquiring;
  seen.end(std::move(call));
}

struct Form {
  const char* name;
  bool blocks;
  void (*call)(Bulkhead&, Observed&);
};
const Form kForms[] = {
    {"Execute", true, [](Bulkhead& b, Observed& seen) { seen.end(b.execute([] { return 1; })); }},
    {"Acquire", true, [](Bulkhead& b, Observed& seen) { seen.end(b.acquire()); }},
    {"AsyncExecute", false,
     [](Bulkhead& b, Observed& seen) {
       b.async_execute([] { return 1; }, {}, [&](Ended<int> ended) { seen.end(std::move(ended).get()); });
     }},
    {"AsyncAcquire", false,
     [](Bulkhead& b, Observed& seen) {
       b.async_acquire({}, [&](Result<Call> call) { seen.end(std::move(call)); });
     }},
    {"BeginAcquire", false,
     [](Bulkhead& b, Observed& seen) {
       Call begun;
       if (auto answer = b.begin_acquire({}, begun)) return seen.end(*std::move(answer));
       b.async_acquire(std::move(begun), {}, [&](Result<Call> call) { seen.end(std::move(call)); });
     }},
    {"CoExecute", false, [](Bulkhead& b, Observed& seen) { co_plain(b, seen); }},
    {"CoExecuteAwaiting", false, [](Bulkhead& b, Observed& seen) { co_awaiting(b, seen); }},
    {"CoAcquire", false, [](Bulkhead& b, Observed& seen) { co_place(b, seen); }},
};

class BulkheadFault : public testing::TestWithParam<std::tuple<Form, Isolation>> {
 protected:
  const Form& form() const { return std::get<0>(GetParam()); }
  BulkheadOptions options() {
    return {.name = "db",
            .isolation = std::get<1>(GetParam()),
            .max_concurrent = 1,
            .max_queue = 4,
            .breaker = BreakerOptions{},
            .clock = &clock};
  }
  std::string outcome(Bulkhead& b) {  // of a call that need not wait
    Observed seen;
    form().call(b, seen);
    until([&] { return seen.done.load(); });
    return seen.text;
  }
  ManualClock clock;
};

INSTANTIATE_TEST_SUITE_P(, BulkheadFault,
                         testing::Combine(testing::ValuesIn(kForms),
                                          testing::Values(Isolation::semaphore, Isolation::threads)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  (std::get<1>(test.param) == Isolation::threads ? "Threads" : "");
                         });

TEST_P(BulkheadFault, HoldsThePlaceForItsLatencyThenLetsTheCallRun) {
  Bulkhead b{options()};
  b.inject({.latency = 2s});
  Observed first, second;
  std::vector<std::jthread> threads;
  const auto start = [&](Observed& seen) {
    if (form().blocks)
      threads.emplace_back([&] { form().call(b, seen); });
    else
      form().call(b, seen);
  };
  start(first);
  until([&] { return b.gate().in_flight() == 1; });
  start(second);
  until([&] { return b.gate().snapshot().waiting == 1; });
  clock.advance(1s);
  EXPECT_FALSE(first.done);
  // The second call gets its place when the first has ended, and its own latency begins then.
  for (int i = 0; i < 400 && !second.done; ++i) {
    clock.advance(100ms);
    std::this_thread::sleep_for(first.done ? 2ms : 1ms);
  }
  until([&] {
    clock.advance(100ms);
    return first.done && second.done;
  });
  EXPECT_EQ(first.text + ' ' + second.text, "ran ran");
  threads.clear();
  until([&] { return b.idle(); });
  const HistogramCounts service = b.snapshot().service;
  EXPECT_GE(service.quantile(0.01), 1.9);
}

TEST_P(BulkheadFault, FailsItsShareOfTheCallsWhichTheBreakerSees) {
  Bulkhead b{options()};
  b.inject({.error = 0.25});
  std::string all;
  for (int i = 0; i < 8; ++i) all += outcome(b) == "ran" ? '.' : 'x';
  EXPECT_EQ(all, "...x...x");
  until([&] { return b.idle(); });
  EXPECT_EQ(b.snapshot().breaker->failures, 2U);
  EXPECT_EQ(b.snapshot().gate.rejected(), 0U) << "they were admitted";
  b.inject({.error = 1});
  EXPECT_EQ(outcome(b), "injected_fault");
  b.end_fault();
  EXPECT_EQ(outcome(b), "ran");
}

TEST_P(BulkheadFault, EndsByItself) {
  Bulkhead b{options()};
  b.inject({.error = 1, .until = clock.now() + 1min});
  EXPECT_EQ(b.fault()->until, clock.now() + 1min);
  EXPECT_EQ(outcome(b), "injected_fault");
  clock.advance(1min);
  EXPECT_FALSE(b.fault());
  EXPECT_EQ(outcome(b), "ran");
}

TEST_P(BulkheadFault, SurvivesAnUpdateAndLeavesShadowAndDisabledBulkheadsAlone) {
  BulkheadOptions o = options();
  Bulkhead b{o};
  b.inject({.error = 1});
  o.max_queue = 3;
  b.update(o);
  EXPECT_EQ(outcome(b), "injected_fault");
  o.shadow = true;
  b.update(o);
  EXPECT_EQ(outcome(b), "ran");
  o.shadow = false;
  o.enabled = false;
  b.update(o);
  EXPECT_EQ(outcome(b), "ran");
}

TEST(Fault, TheTimeLimitOfACallCutsItsLatency) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .execution_timeout = 1s, .clock = &clock}};
  b.inject({.latency = 30s});
  std::optional<Result<int>> result;
  bool ran = false;
  b.async_execute(
      [&] {
        ran = true;
        return 1;
      },
      {}, [&](Ended<int> ended) { result = std::move(ended).get(); });
  clock.advance(1s);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->error().reason, Reason::execution_timeout);
  EXPECT_FALSE(ran);
}

TEST(Fault, UsesTheFallbackOfFailures) {
  Bulkhead b{{.name = "db"}};
  b.inject({.error = 1});
  std::string why;
  const auto result = b.execute([] { return 1; }, {.fallback = [&](const Cause& cause) {
                                  EXPECT_EQ(cause.kind, Cause::Kind::failed);
                                  why = cause.message();
                                  return 2;
                                }});
  EXPECT_EQ(*result, 2);
  EXPECT_NE(why.find("injected_fault"), std::string::npos) << why;
}

TEST(Fault, CostsNothingOnceItHasEndedByItself) {
  class CountingClock final : public Clock {
   public:
    TimePoint now() const noexcept override { return ++looks, time.now(); }
    void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value,
              TimePoint until_then) noexcept override {
      time.wait(word, value, until_then);
    }
    DeadlineDriver& deadlines() noexcept override { return time; }
    ManualClock time;
    mutable int looks = 0;
  } clock;
  Bulkhead b{{.name = "db", .clock = &clock}};
  const auto looks_of_a_call = [&] {
    clock.looks = 0;
    EXPECT_TRUE(b.try_acquire());
    return clock.looks;
  };
  const int before = looks_of_a_call();
  b.inject({.error = 1, .until = clock.now() + 1min});
  EXPECT_FALSE(b.try_acquire());
  clock.time.advance(1min);
  EXPECT_GT(looks_of_a_call(), before) << "the first call sees that it is over";
  EXPECT_EQ(looks_of_a_call(), before);
  b.inject({.error = 1});
  EXPECT_FALSE(b.try_acquire());
}

TEST(Fault, TryAcquireNeverWaits) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .clock = &clock}};
  b.inject({.latency = 30s});
  EXPECT_TRUE(b.try_acquire());
}

TEST(Fault, ACoroutineThatIsDestroyedInItsLatencyGivesItsPlaceBack) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .clock = &clock}};
  b.inject({.latency = 30s});
  {
    auto call = std::make_unique<detail::Lazy<Result<int>>>(b.co_execute([] { return 1; }));
    call->await_suspend(std::noop_coroutine()).resume();
    EXPECT_EQ(b.gate().in_flight(), 1U);
  }
  EXPECT_EQ(b.gate().in_flight(), 0U);
  clock.advance(1min);
}

TEST(Fault, NamesWhatIsWrong) {
  Bulkhead b{{.name = "db"}};
  const auto said = [&](const Fault& fault) {
    try {
      b.inject(fault);
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_EQ(said({.latency = 2h}), "bulkhead \"db\": fault.latency is not from 0 to 1 minute");
  EXPECT_EQ(said({.error = 1.5}), "bulkhead \"db\": fault.error is not a share from 0 to 1");
  EXPECT_NE(said({}).find("end_fault()"), std::string::npos);
  EXPECT_FALSE(b.fault());
}

}  // namespace
}  // namespace bulkhead
