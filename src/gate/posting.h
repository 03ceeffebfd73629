// posting.h - the turnstile as the queue of a pool: arrivals and servers mostly use different locks.
//
// Arrivals join an inbox under its own lock while it has places. A server that finds the line empty moves the whole inbox
// to the end of the line. So each side mostly writes its own cache lines. The invariant Q1 is in
// bulkhead/detail/turnstile.h. Except post(), every function runs under the turnstile's lock.
#pragma once

#include <utility>

#include "gate/slow_path.h"

namespace bulkhead::detail {

// Written by arrivals. If both locks are needed, the turnstile is locked first.
template <class P>
struct alignas(64) Inbox {
  mutable typename P::Mutex mutex;
  typename P::template Atomic<std::uint32_t> places{0};  // free places; a hint without the lock
  std::uint32_t count = 0;
  Waiter<P>* first = nullptr;
  Waiter<P>* last = nullptr;
};

// The places are read without the lock first, so that a call which finds the inbox closed does not wait for it.
template <class P>
bool Turnstile<P>::post(Waiter& w) noexcept {
  if (!inbox_ || inbox_->places.load(std::memory_order_relaxed) == 0) return false;
  P::point("post.before_lock");
  Inbox<P>& inbox = *inbox_;
  MutexLock hold(inbox.mutex);
  const std::uint32_t places = inbox.places.load(std::memory_order_relaxed);
  if (places == 0) return false;
  inbox.places.store(places - 1, std::memory_order_relaxed);
  ++inbox.count;
  w.next = nullptr;
  w.prev = inbox.last;
  (w.prev ? w.prev->next : inbox.first) = &w;
  inbox.last = &w;
  w.queued = true;
  return true;
}

// The next waiter in line. Posted calls come before the lowest tier only.
template <class P>
Waiter<P>* Turnstile<P>::next() noexcept {
  if (inbox_open_ && !tiers_[0].first && !tiers_[1].first &&
      (!tiers_[2].first || inbox_->places.load(std::memory_order_relaxed) != granted_))
    take_posts();
  return head();
}

// Moves the inbox to the end of the line, and closes it.
template <class P>
void Turnstile<P>::take_posts() noexcept {
  if (!inbox_open_) return;
  inbox_open_ = false;
  List posted;
  std::uint32_t count = 0;
  {
    MutexLock hold(inbox_->mutex);
    inbox_->places.store(0, std::memory_order_relaxed);
    posted = {std::exchange(inbox_->first, nullptr), std::exchange(inbox_->last, nullptr)};
    count = std::exchange(inbox_->count, 0);
  }
  if (count == 0) return;
  if (heaviest_ == 0) heaviest_ = 1;
  List& list = tiers_[static_cast<std::size_t>(Priority::normal)];
  posted.first->prev = list.last;
  (list.last ? list.last->next : list.first) = posted.first;
  list.last = posted.last;
  line_.store(line_.load(std::memory_order_relaxed) + count * line::one(Priority::normal),
              std::memory_order_release);
}

// Opens the inbox if a call waits, with as many places as the line has left.
template <class P>
void Turnstile<P>::allow_posts() noexcept {
  if (!inbox_ || inbox_open_ || !head() || closed_.load(std::memory_order_relaxed)) return;
  const std::uint64_t taken = std::uint64_t{line::total(line_.load(std::memory_order_relaxed))} +
                              queue_reserve_.load(std::memory_order_relaxed);
  const std::uint32_t max = max_queue_.load(std::memory_order_relaxed);
  if (taken >= max) return;
  inbox_open_ = true;
  granted_ = static_cast<std::uint32_t>(max - taken);
  MutexLock hold(inbox_->mutex);
  inbox_->places.store(granted_, std::memory_order_relaxed);
}

template <class P>
std::uint64_t Turnstile<P>::in_line() const noexcept {
  if (!inbox_) return line_.load(std::memory_order_acquire);
  MutexLock hold(mutex_);
  MutexLock posted(inbox_->mutex);
  return line_.load(std::memory_order_relaxed) + inbox_->count * line::one(Priority::normal);
}

// `room` does not change: the word only counts one more release.
template <class P>
Waiter<P>* Turnstile<P>::hand_on(void (*complete)(Waiter&) noexcept) noexcept {
  if (word_.load(std::memory_order_relaxed) & word::kQuiet) return nullptr;  // no call waits
  P::point("hand_on.before_lock");
  MutexLock hold(mutex_);
  Waiter* const w = next();
  if (!w || w->complete != complete || w->cost != 1 || quiet_ || closed_.load(std::memory_order_relaxed))
    return nullptr;
  const std::int64_t reserve = w->tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  if (word::room(word_.load(std::memory_order_relaxed)) + reserve < 0) return nullptr;  // after a shrink
  // relaxed: the lock orders the two calls
  note(word_.fetch_add(word::kReleasedOne, std::memory_order_relaxed));
  --slow_releases_;  // see D1
  line_.store(line_.load(std::memory_order_relaxed) - line::one(w->tier), std::memory_order_release);
  unlink(*w, true);
  w->verdict = Verdict::admitted;
  allow_posts();
  return w;
}

}  // namespace bulkhead::detail
