#include "base/alarm_heap.h"

#include <utility>

#include "base/sync_point.h"

namespace bulkhead {
namespace {

void sync_step() { base::sync_point("alarm_heap.step"); }  // a test counts the steps

}  // namespace

unsigned AlarmHeap::rank(const Alarm* alarm) noexcept { return alarm ? alarm->rank_ : 0U; }

// Swaps the children if needed, so that the right one has the shorter path to a missing child. True: the rank changed.
bool AlarmHeap::lean_left(Alarm& alarm) noexcept {
  sync_step();
  if (rank(alarm.left_) < rank(alarm.right_)) std::swap(alarm.left_, alarm.right_);
  const auto mine = static_cast<std::uint8_t>(rank(alarm.right_) + 1);
  return std::exchange(alarm.rank_, mine) != mine;
}

// Merges the two right spines, then updates the ranks on the way back. A spine has at most 64 alarms.
Alarm* AlarmHeap::meld(Alarm* a, Alarm* b) noexcept {
  Alarm* root = nullptr;
  Alarm* above = nullptr;
  while (a && b) {
    sync_step();
    if (b->at < a->at) std::swap(a, b);
    (above ? above->right_ : root) = a;
    a->parent_ = above;
    above = a;
    a = a->right_;
  }
  Alarm* const rest = a ? a : b;
  (above ? above->right_ : root) = rest;
  if (rest) rest->parent_ = above;
  for (; above; above = above->parent_) lean_left(*above);
  return root;
}

void AlarmHeap::insert(Alarm& alarm) noexcept {
  alarm.left_ = alarm.right_ = alarm.parent_ = nullptr;
  alarm.rank_ = 1;
  root_ = meld(root_, &alarm);
}

bool AlarmHeap::remove(Alarm& alarm) noexcept {
  if (alarm.rank_ == 0) return false;
  alarm.rank_ = 0;
  Alarm* const parent = alarm.parent_;
  Alarm* const rest = meld(alarm.left_, alarm.right_);
  if (rest) rest->parent_ = parent;
  if (!parent)
    root_ = rest;
  else
    (parent->left_ == &alarm ? parent->left_ : parent->right_) = rest;
  // Each step upwards increases the rank by one, so there are few steps.
  for (Alarm* above = parent; above && lean_left(*above);) above = above->parent_;
  alarm.left_ = alarm.right_ = alarm.parent_ = nullptr;
  return true;
}

}  // namespace bulkhead
