#include "base/alarm_heap.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <deque>
#include <map>
#include <vector>

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

// A heap that only ever grew is one long list of siblings: taking the first must not recurse along it.
TEST(AlarmHeap, AMillionInOrderDoNotOverflowTheStack) {
  AlarmHeap heap;
  std::deque<TestAlarm> alarms;
  for (int i = 0; i < 1'000'000; ++i) heap.insert(alarms.emplace_back(i));
  for (int i = 0; i < 1'000'000; i += 1) {
    ASSERT_EQ(heap.first(), &alarms[static_cast<std::size_t>(i)]);
    heap.remove(*heap.first());
  }
  EXPECT_EQ(heap.first(), nullptr);
}

}  // namespace
}  // namespace bulkhead
