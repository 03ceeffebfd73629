#include "base/alarm_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string_view>
#include <vector>

#include "base/sync_point.h"

namespace bulkhead {
namespace {

using std::chrono::nanoseconds;

struct TestAlarm final : Alarm {
  explicit TestAlarm(int when = 0) { at = TimePoint(nanoseconds(when)); }
  bool expire() noexcept override { return false; }
  void expired() noexcept override {}
};

// Commands: insert at a time; remove the n-th of those inside; pop the first.
RC_GTEST_PROP(AlarmHeap, KeepsTheOrderOfAMultimap, ()) {
  const auto commands =
      *rc::gen::scale(5.0, rc::gen::container<std::vector<std::pair<int, int>>>(rc::gen::pair(
                               rc::gen::inRange(0, 4), rc::gen::resize(100, rc::gen::inRange(0, 50)))));
  std::deque<TestAlarm> alarms;
  AlarmHeap heap;
  std::multimap<TimePoint, TestAlarm*> model;
  const auto erase = [&](Alarm& alarm) {
    for (auto i = model.begin(); i != model.end(); ++i)
      if (i->second == &alarm) return void(model.erase(i));
    RC_FAIL("an alarm that was not in the heap");
  };
  for (const auto& [what, n] : commands) {
    if (what <= 1) {
      TestAlarm& alarm = alarms.emplace_back(n);
      heap.insert(alarm);
      model.emplace(alarm.at, &alarm);
    } else if (what == 2 && !model.empty()) {
      TestAlarm& alarm = *std::next(model.begin(), n % static_cast<int>(model.size()))->second;
      RC_ASSERT(heap.remove(alarm));
      RC_ASSERT(!heap.remove(alarm));
      erase(alarm);
    } else if (what == 3 && !model.empty()) {
      Alarm& first = *heap.first();
      RC_ASSERT(heap.remove(first));
      erase(first);
    }
    RC_ASSERT((heap.first() == nullptr) == model.empty());
    if (!model.empty()) RC_ASSERT(heap.first()->at == model.begin()->first);
  }
  while (!model.empty()) {
    Alarm* first = heap.first();
    RC_ASSERT(first != nullptr);
    RC_ASSERT(first->at == model.begin()->first);
    heap.remove(*first);
    erase(*first);
  }
  RC_ASSERT(heap.first() == nullptr);
}

TEST(AlarmHeap, AnAlarmCanComeBackAfterItWasRemoved) {
  AlarmHeap heap;
  TestAlarm early(1), late(9);
  heap.insert(late);
  heap.insert(early);
  EXPECT_TRUE(heap.remove(early));
  early.at = TimePoint(nanoseconds(20));
  heap.insert(early);
  EXPECT_EQ(heap.first(), &late);
  EXPECT_TRUE(heap.remove(late));
  EXPECT_EQ(heap.first(), &early);
}

TEST(AlarmHeap, RemovingOneThatIsNotInsideChangesNothing) {
  AlarmHeap heap;
  TestAlarm in(1), out(0);
  heap.insert(in);
  EXPECT_FALSE(heap.remove(out));
  EXPECT_EQ(heap.first(), &in);
}

#if defined(BULKHEAD_SYNC_POINTS)
std::uint64_t steps = 0;

// Also the single operation: the timer's lock is held for it, and callers wait for that.
TEST(AlarmHeap, NoOperationLooksAtMoreThanALogarithmOfTheAlarms) {
  constexpr int kAlarms = 200'000;
  base::sync_point_handler = [](const char* name) { steps += std::string_view(name) == "alarm_heap.step"; };
  std::deque<TestAlarm> alarms;
  AlarmHeap heap;
  std::uint64_t most = 0;
  const auto measure = [&](auto&& operation) {
    steps = 0;
    operation();
    most = std::max(most, steps);
  };
  for (int i = 0; i < kAlarms; ++i) alarms.emplace_back(i);
  for (TestAlarm& alarm : alarms) measure([&] { heap.insert(alarm); });  // in order: the worst for many heaps
  measure([&] { heap.remove(*heap.first()); });
  for (int i = kAlarms - 1; i > 0; i -= 2)
    measure([&] { EXPECT_TRUE(heap.remove(alarms[static_cast<std::size_t>(i)])); });
  for (int i = kAlarms - 1; i > 0; i -= 2) measure([&] { heap.insert(alarms[static_cast<std::size_t>(i)]); });
  TimePoint last{};
  int left = 0;
  while (Alarm* alarm = heap.first()) {
    ASSERT_LE(last, alarm->at);
    last = alarm->at;
    measure([&] { heap.remove(*alarm); });
    ++left;
  }
  base::sync_point_handler = nullptr;
  EXPECT_EQ(left, kAlarms - 1);
  EXPECT_GT(most, 0u);
  EXPECT_LE(most, 4u * 18);  // 2^18 alarms; two spines down and up
}
#endif

}  // namespace
}  // namespace bulkhead
