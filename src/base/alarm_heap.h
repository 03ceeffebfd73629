// alarm_heap.h - alarms ordered by time: an intrusive pairing heap, so arming and disarming allocate nothing.
//
// Not thread-safe: whoever owns it has a lock. Cost: insert O(1), pop and remove O(log n) amortised.
#pragma once

#include "bulkhead/clock.h"

namespace bulkhead {

class AlarmHeap {
 public:
  Alarm* first() const noexcept { return root_; }
  void insert(Alarm& alarm) noexcept;
  bool remove(Alarm& alarm) noexcept;  // false: it was not in the heap

 private:
  static Alarm* meld(Alarm* a, Alarm* b) noexcept;
  static Alarm* meld_children(Alarm* first) noexcept;

  Alarm* root_ = nullptr;
};

}  // namespace bulkhead
