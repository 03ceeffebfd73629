#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <stop_token>
#include <utility>

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
TEST_F(AsyncTimeout, AnAlarmThatComesFirstDoesNotRefuseACallThatHasRoom) {
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

}  // namespace
}  // namespace bulkhead
