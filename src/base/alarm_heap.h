// alarm_heap.h - alarms ordered by time: an intrusive leftist heap, so arming and disarming allocate nothing.
//
// Not thread-safe: the owner has a lock. Cost: first is O(1), insert and remove are O(log n) in the worst case. A pairing
// heap is as fast on average, but its first remove after two million inserts takes a fifth of a second, under the lock of
// the timer.
#pragma once

#include "bulkhead/clock.h"

namespace bulkhead {

class AlarmHeap {
 public:
  Alarm* first() const noexcept { return root_; }
  void insert(Alarm& alarm) noexcept;
  bool remove(Alarm& alarm) noexcept;  // false: it was not in the heap

 private:
  static unsigned rank(const Alarm* alarm) noexcept;
  static bool lean_left(Alarm& alarm) noexcept;
  static Alarm* meld(Alarm* a, Alarm* b) noexcept;

  Alarm* root_ = nullptr;
};

}  // namespace bulkhead
