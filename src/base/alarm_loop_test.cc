#include "base/alarm_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

struct Loop final : AlarmLoop {
  ~Loop() {
    stop();
    if (thread.joinable()) thread.join();
  }
  void start() {
    thread = std::thread([this] { run(); });
  }
  std::thread thread;
};

// Counts, and keeps the lock for `takes` each time.
class Due final : public Alarm {
 public:
  Due(TimePoint when, std::atomic<int>& count, bool ends = true, std::chrono::nanoseconds takes = 0ns)
      : count_(count), ends_(ends), takes_(takes) {
    at = when;
  }
  bool expire() noexcept override {
    ++count_;
    for (const auto end = steady_clock::now() + takes_; steady_clock::now() < end;) {
    }
    return ends_;
  }
  void expired() noexcept override {}

 private:
  std::atomic<int>& count_;
  const bool ends_;
  const std::chrono::nanoseconds takes_;
};

void until(const auto& holds) {
  while (!holds()) std::this_thread::yield();
}

TEST(AlarmLoop, FiresInOrderOfTimeAlsoAnEarlierOneThatComesLater) {
  std::atomic<int> late_fired{0}, early_fired{0};
  Loop loop;
  Due late(no_deadline, late_fired), early(steady_clock::now() + 1ms, early_fired);
  loop.start();
  loop.arm(late);
  loop.arm(early);
  until([&] { return early_fired == 1; });
  EXPECT_EQ(late_fired, 0);
  loop.hurry();
  until([&] { return late_fired == 1; });
}

TEST(AlarmLoop, ADisarmedAlarmDoesNotFire) {
  std::atomic<int> fired{0}, other{0};
  Loop loop;
  const TimePoint soon = steady_clock::now() + 5ms;
  Due disarmed(soon, fired), kept(soon, other);
  loop.start();
  loop.arm(disarmed);
  loop.arm(kept);
  loop.disarm(disarmed);
  until([&] { return other == 1; });
  EXPECT_EQ(fired, 0);
}

// A tenth of a second of alarms that are all due, whether their calls still wait or have their answer.
TEST(AlarmLoop, ACallerWaitsForAFewAlarmsThatAreDueAndNotForAll) {
  constexpr int kAlarms = 5000;
  for (const bool ends : {true, false}) {
    std::atomic<int> fired{0}, none{0};
    std::deque<Due> due;
    Due other(no_deadline, none);
    Loop loop;
    for (int i = 0; i < kAlarms; ++i) loop.arm(due.emplace_back(TimePoint{}, fired, ends, 20us));
    loop.start();
    until([&] { return fired > 0; });
    loop.arm(other);
    loop.disarm(other);
    EXPECT_LT(fired, kAlarms) << ends;
    until([&] { return fired == kAlarms; });
  }
}

}  // namespace
}  // namespace bulkhead
