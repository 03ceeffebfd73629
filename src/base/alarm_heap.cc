#include "base/alarm_heap.h"

#include <utility>

namespace bulkhead {

Alarm* AlarmHeap::meld(Alarm* a, Alarm* b) noexcept {
  if (!a) return b;
  if (!b) return a;
  if (b->at < a->at) std::swap(a, b);
  b->prev_ = a;
  b->next_ = a->child_;
  if (a->child_) a->child_->prev_ = b;
  a->child_ = b;
  return a;
}

// Pairs the siblings from left to right, then melds the pairs from right to left. A loop, not a recursion: a
// heap that only ever grew is one long list of siblings.
Alarm* AlarmHeap::meld_children(Alarm* first) noexcept {
  Alarm* pairs = nullptr;
  while (first) {
    Alarm* a = first;
    Alarm* b = a->next_;
    first = b ? b->next_ : nullptr;
    a->next_ = a->prev_ = nullptr;
    if (b) b->next_ = b->prev_ = nullptr;
    Alarm* pair = meld(a, b);
    pair->next_ = pairs;
    pairs = pair;
  }
  Alarm* root = nullptr;
  while (pairs) {
    Alarm* next = std::exchange(pairs->next_, nullptr);
    root = meld(root, pairs);
    pairs = next;
  }
  return root;
}

void AlarmHeap::insert(Alarm& alarm) noexcept {
  alarm.child_ = alarm.next_ = alarm.prev_ = nullptr;
  alarm.armed_ = true;
  root_ = meld(root_, &alarm);
}

bool AlarmHeap::remove(Alarm& alarm) noexcept {
  if (!alarm.armed_) return false;
  alarm.armed_ = false;
  Alarm* rest = meld_children(alarm.child_);
  if (&alarm == root_) {
    root_ = rest;
  } else {
    (alarm.prev_->child_ == &alarm ? alarm.prev_->child_ : alarm.prev_->next_) = alarm.next_;
    if (alarm.next_) alarm.next_->prev_ = alarm.prev_;
    root_ = meld(root_, rest);
  }
  alarm.child_ = alarm.next_ = alarm.prev_ = nullptr;
  return true;
}

}  // namespace bulkhead
