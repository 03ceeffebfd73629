// seeker.h - a call that has its permit and waits for a resource.
//
// It stands in the pool's list until it is decided: a resource or a vacant slot, a reason, or the failure of the factory. A
// thread sleeps on `signal`. An asynchronous call (AsyncSeeker) is put among this thread's deliveries, which run one after the
// other and outside all locks, so that a handler that returns its lease, and thereby serves the next call, does not nest.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <stop_token>

#include "resource/idle_stack.h"

namespace bulkhead::detail {

class AsyncSeeker;

struct Seeker {
  enum class Decision : std::uint8_t { pending, served, rejected, failing };

  Seeker* prev = nullptr;
  Seeker* next = nullptr;
  // Under the pool's lock, until it is decided.
  bool listed = false;
  bool claim = false;           // takes a vacant slot, or one that has to be validated, as it is
  std::optional<Reason> early;  // it was withdrawn before it was listed
  Decision decision = Decision::pending;
  Reason reason{};               // of a rejection
  ResourceSlot* slot = nullptr;  // of one that is served
  AsyncSeeker* async = nullptr;  // null: a thread, which sleeps on:
  std::atomic<std::uint32_t> signal{0};
};

class SeekerList {
 public:
  bool empty() const noexcept { return !first_; }
  std::uint32_t size() const noexcept { return size_; }
  Seeker* front() const noexcept { return first_; }
  Seeker* back() const noexcept { return last_; }
  void push_back(Seeker& s) noexcept {
    s.prev = last_;
    s.next = nullptr;
    (last_ ? last_->next : first_) = &s;
    last_ = &s;
    ++size_;
  }
  void remove(Seeker& s) noexcept {
    (s.prev ? s.prev->next : first_) = s.next;
    (s.next ? s.next->prev : last_) = s.prev;
    --size_;
  }
  Seeker* pop_front() noexcept {
    Seeker* const s = first_;
    if (s) remove(*s);
    return s;
  }

 private:
  Seeker *first_ = nullptr, *last_ = nullptr;
  std::uint32_t size_ = 0;
};

// What is to be done once the lock is released: first wake(), which may touch the pool, then deliver(), which may not, because
// a handler may be the last to need it.
struct Aftermath {
  SeekerList decided{};
  std::uint32_t jobs = 0;  // for helpers
  bool reclaim = false;    // the budget is used up: neighbours are to close what they do not use
  bool refill = false;     // maintenance has something to do
};

// The asynchronous calls that were decided on this thread.
class Deliveries {
 public:
  static void run(
      SeekerList& decided) noexcept;  // those of them that are asynchronous; leaves the list empty
  // Before this thread blocks: those that wait for their turn have theirs now.
  static void flush() noexcept;
};

}  // namespace bulkhead::detail
