#include "bulkhead/manual_clock.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>
#include <utility>
#include <vector>

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

struct TestAlarm final : Alarm {
  TestAlarm(TimePoint when, std::function<void()> what) : act(std::move(what)) { at = when; }
  bool expire() noexcept override {
    ++expires;
    return wanted;
  }
  void expired() noexcept override { act(); }

  std::function<void()> act;
  bool wanted = true;
  int expires = 0;
};

TEST(ManualClock, StandsStillUntilTold) {
  ManualClock clock(TimePoint(5s));
  EXPECT_EQ(clock.now(), TimePoint(5s));
  EXPECT_EQ(clock.now(), TimePoint(5s));
  clock.advance(3ns);
  EXPECT_EQ(clock.now(), TimePoint(5s) + 3ns);
}

TEST(ManualClock, DoesNotGoBack) {
  ManualClock clock(TimePoint(5s));
  clock.advance_to(TimePoint(1s));
  EXPECT_EQ(clock.now(), TimePoint(5s));
}

TEST(ManualClock, FiresInOrderEachAtItsOwnTime) {
  ManualClock clock(TimePoint(0s));
  std::vector<TimePoint> fired;
  const auto note = [&] { fired.push_back(clock.now()); };
  TestAlarm a(TimePoint(3s), note), b(TimePoint(1s), note), c(TimePoint(2s), note), d(TimePoint(9s), note);
  for (TestAlarm* alarm : {&a, &b, &c, &d}) clock.arm(*alarm);
  EXPECT_EQ(clock.next_alarm(), TimePoint(1s));
  clock.advance(5s);
  EXPECT_EQ(fired, (std::vector{TimePoint(1s), TimePoint(2s), TimePoint(3s)}));
  EXPECT_EQ(clock.now(), TimePoint(5s));
  EXPECT_EQ(clock.next_alarm(), TimePoint(9s));
  clock.disarm(d);
  EXPECT_EQ(clock.next_alarm(), no_deadline);
}

TEST(ManualClock, FiresAtTheVeryInstantAndNotBefore) {
  ManualClock clock(TimePoint(0s));
  int fired = 0;
  TestAlarm alarm(TimePoint(1s), [&] { ++fired; });
  clock.arm(alarm);
  clock.advance_to(TimePoint(1s) - 1ns);
  EXPECT_EQ(fired, 0);
  clock.advance(1ns);
  EXPECT_EQ(fired, 1);
  clock.advance(1h);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(alarm.expires, 1);
}

TEST(ManualClock, AnAlarmThatDeclinesIsNotTold) {
  ManualClock clock(TimePoint(0s));
  TestAlarm alarm(TimePoint(1s), [] { ADD_FAILURE() << "told"; });
  alarm.wanted = false;
  clock.arm(alarm);
  clock.advance(2s);
  EXPECT_EQ(alarm.expires, 1);
}

TEST(ManualClock, AnAlarmMayArmAndDisarmOthersAndThoseDueFireInTheSameAdvance) {
  ManualClock clock(TimePoint(0s));
  std::vector<int> fired;
  TestAlarm third(TimePoint(3s), [&] { fired.push_back(3); });
  TestAlarm never(TimePoint(4s), [&] { fired.push_back(4); });
  TestAlarm first(TimePoint(1s), [&] {
    fired.push_back(1);
    clock.arm(third);
    clock.disarm(never);
  });
  clock.arm(first);
  clock.arm(never);
  clock.advance(10s);
  EXPECT_EQ(fired, (std::vector{1, 3}));
}

TEST(ManualClock, AnAlarmInThePastFiresAtTheNextAdvance) {
  ManualClock clock(TimePoint(5s));
  int fired = 0;
  TestAlarm alarm(TimePoint(1s), [&] { ++fired; });
  clock.arm(alarm);
  EXPECT_EQ(fired, 0);
  clock.advance(0s);
  EXPECT_EQ(fired, 1);
  EXPECT_EQ(clock.now(), TimePoint(5s));
}

TEST(ManualClock, AParkedThreadSeesTheAdvance) {
  ManualClock clock(TimePoint(0s));
  std::atomic<std::uint32_t> word{0};
  std::thread waiter([&] {
    while (clock.now() < TimePoint(1s)) clock.wait(word, 0, TimePoint(1s));
  });
  clock.advance(1s);
  waiter.join();
}

TEST(ManualClock, GoesNoFurtherThanTimeDoes) {
  ManualClock clock;
  clock.advance(std::chrono::nanoseconds::max());
  EXPECT_EQ(clock.now(), TimePoint::max());
}

}  // namespace
}  // namespace bulkhead
