#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

#include "bulkhead/async_acquire.h"
#include "bulkhead/gate.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

// A timer thread at its quickest: every alarm fires before arm() has returned, whatever its time.
class HastyTimer final : public DeadlineDriver {
 public:
  void arm(Alarm& alarm) noexcept override {
    ++armed;
    if (alarm.expire()) alarm.expired();
  }
  void disarm(Alarm&) noexcept override {}

  int armed = 0;
};

class AsyncTimeout : public testing::Test {
 protected:
  std::optional<Reason> answer(AcquireOptions options) {
    std::optional<Reason> reason;
    bool told = false;
    gate_.async_acquire(std::move(options), [&](Result<Permit> result) {
      told = true;
      if (!result) reason = result.error().reason;
    });
    EXPECT_TRUE(told);
    return reason;
  }

  HastyTimer timer_;
  Gate gate_{{.max_concurrent = 3, .max_queue = 1, .critical_reserve = 0.3, .deadlines = &timer_}};
};

// Its time is up before it has joined the line. That decides whether it waits, not whether it is admitted.
TEST_F(AsyncTimeout, AnAlarmThatComesFirstDoesNotRejectACallThatHasRoom) {
  auto a = gate_.try_acquire();
  auto b = gate_.try_acquire();
  EXPECT_EQ(answer({.priority = Priority::critical, .timeout = 0ns}), std::nullopt);
  EXPECT_EQ(answer({.priority = Priority::critical, .timeout = 1ns}), std::nullopt);
  EXPECT_EQ(gate_.snapshot().rejected(), 0u);
}

TEST_F(AsyncTimeout, AnAlarmThatComesFirstDoesNotChangeTheOrderOfReasons) {
  auto a = gate_.try_acquire();
  auto b = gate_.try_acquire();
  EXPECT_EQ(answer({.cost = 3, .timeout = 1ns}), Reason::concurrency_limit);  // can never fit
  EXPECT_EQ(answer({.cost = 2, .timeout = 1ns}), Reason::timeout);
  gate_.async_acquire({}, [](const Result<Permit>&) {});
  EXPECT_EQ(answer({.cost = 2, .timeout = 1ns}), Reason::queue_limit);
  EXPECT_EQ(answer({.cost = 2, .timeout = 0ns}), Reason::queue_limit);
  // The one in line is of a lower tier, but nobody is evicted for a call that will not wait.
  EXPECT_EQ(answer({.priority = Priority::critical, .cost = 2, .timeout = 1ns}), Reason::timeout);
  EXPECT_EQ(gate_.snapshot().waiting, 1u);
}

TEST_F(AsyncTimeout, ACallThatWillNotWaitSetsNoAlarm) {
  auto a = gate_.try_acquire();
  auto b = gate_.try_acquire();
  EXPECT_EQ(answer({.timeout = 0ns}), Reason::timeout);
  EXPECT_EQ(timer_.armed, 0);
}

TEST_F(AsyncTimeout, AStopThatComesFirstStillCancels) {
  auto a = gate_.try_acquire();
  auto b = gate_.try_acquire();
  const auto source = std::make_unique<std::stop_source>();
  source->request_stop();
  EXPECT_EQ(answer({.timeout = 1ns, .stop = source->get_token()}), Reason::cancelled);
}

// Whatever became of it the first time, the second is a call like any other.
class Again final : public AsyncAcquire {
 public:
  explicit Again(Gate& gate) : AsyncAcquire(gate, &watch_), watch_(AcquireOptions{}) {}
  bool go() { return start(watch_.options()); }
  bool decided = false;

 private:
  void on_decided() noexcept override { decided = true; }
  AcquireWatch watch_;
};

TEST(AsyncAcquire, CanBeStartedAgainAndTakesAPlaceEachTime) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  Again call(gate);
  ASSERT_TRUE(call.go());
  auto first = call.result();
  ASSERT_TRUE(first);
  EXPECT_FALSE(call.go());  // it waits, although it was admitted before
  EXPECT_FALSE(call.decided);
  first->release();
  EXPECT_TRUE(call.decided);
  auto second = call.result();
  ASSERT_TRUE(second);
  EXPECT_TRUE(second->waited());
  second->release();
  ASSERT_TRUE(call.go());
  auto third = call.result();
  ASSERT_TRUE(third);
  EXPECT_FALSE(third->waited());
  third->release();
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.admitted, 3u);
  EXPECT_EQ(s.released, 3u);
  EXPECT_EQ(s.underflows, 0u);
}

TEST(AsyncAcquire, CanBeStartedAgainAfterItWasCancelled) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  Again call(gate);
  ASSERT_FALSE(call.go());
  EXPECT_TRUE(call.cancel());
  EXPECT_EQ(call.result().error().reason, Reason::cancelled);
  holder->release();
  ASSERT_TRUE(call.go());
  EXPECT_TRUE(call.result());
}

// Its owner was told, and goes without having taken the result.
TEST(AsyncAcquire, AResultThatNobodyTakesGivesItsUnitBack) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  {
    auto holder = gate.acquire();
    Again call(gate);
    ASSERT_FALSE(call.go());
    holder->release();
    EXPECT_TRUE(call.decided);
    EXPECT_EQ(gate.in_flight(), 1u);
  }
  EXPECT_EQ(gate.in_flight(), 0u);
  EXPECT_TRUE(gate.try_acquire());
}

}  // namespace
}  // namespace bulkhead
