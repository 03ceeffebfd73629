// posting.h - the turnstile as the queue of a pool: most calls join and leave it without meeting.
//
// Those who come stand in an inbox under a lock of their own, as long as it has places; those who serve take it
// over as a whole, at its end of the line, when they have nobody else to serve. So the lines of memory that the
// one side writes stay with it. The invariant Q1 is in bulkhead/detail/turnstile.h. Except post(), every
// function runs under the turnstile's lock.
#pragma once

#include <utility>

#include "gate/slow_path.h"

namespace bulkhead::detail {

// Written by those who come. Locked after the turnstile, if both are.
template <class P>
struct alignas(64) Inbox {
  mutable typename P::Mutex mutex;
  typename P::template Atomic<std::uint32_t> places{0};  // for so many more; a hint without the lock
  std::uint32_t count = 0;
  Waiter<P>* first = nullptr;
  Waiter<P>* last = nullptr;
};

template <class P>
bool Turnstile<P>::post(Waiter& w) noexcept {
  if (!inbox_ || inbox_->places.load(std::memory_order_relaxed) == 0) return false;
  P::point("post.before_lock");
  Inbox<P>& inbox = *inbox_;
  Hold hold(inbox.mutex);
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

// Who is next in line. Somebody who was posted comes before those of the lowest tier only.
template <class P>
Waiter<P>* Turnstile<P>::next() noexcept {
  const auto posted = [this] { return inbox_->places.load(std::memory_order_relaxed) != granted_; };
  if (inbox_open_ && !tiers_[0].first && !tiers_[1].first && (!tiers_[2].first || posted())) take_posts();
  return head();
}

// Puts those in the inbox where the others stand, and closes it.
template <class P>
void Turnstile<P>::take_posts() noexcept {
  if (!inbox_open_) return;
  inbox_open_ = false;
  List posted;
  std::uint32_t count = 0;
  {
    Hold hold(inbox_->mutex);
    inbox_->places.store(0, std::memory_order_relaxed);
    posted = {std::exchange(inbox_->first, nullptr), std::exchange(inbox_->last, nullptr)};
    count = std::exchange(inbox_->count, 0);
  }
  if (count == 0) return;
  List& list = tiers_[static_cast<std::size_t>(Priority::normal)];
  posted.first->prev = list.last;
  (list.last ? list.last->next : list.first) = posted.first;
  list.last = posted.last;
  line_.store(line_.load(std::memory_order_relaxed) + count * line::one(Priority::normal),
              std::memory_order_release);
}

// Opens it again if somebody waits, for as many as the line has places for.
template <class P>
void Turnstile<P>::allow_posts() noexcept {
  if (!inbox_ || inbox_open_ || !head() || closed_.load(std::memory_order_relaxed)) return;
  const std::uint64_t taken = std::uint64_t{line::total(line_.load(std::memory_order_relaxed))} +
                              queue_reserve_.load(std::memory_order_relaxed);
  const std::uint32_t max = max_queue_.load(std::memory_order_relaxed);
  if (taken >= max) return;
  inbox_open_ = true;
  granted_ = static_cast<std::uint32_t>(max - taken);
  Hold hold(inbox_->mutex);
  inbox_->places.store(granted_, std::memory_order_relaxed);
}

template <class P>
std::uint64_t Turnstile<P>::in_line() const noexcept {
  if (!inbox_) return line_.load(std::memory_order_acquire);
  Hold hold(mutex_);
  Hold posted(inbox_->mutex);
  return line_.load(std::memory_order_relaxed) + inbox_->count * line::one(Priority::normal);
}

// The unit does not pass through the word: room stays as it is, and only one more is released and admitted.
template <class P>
Waiter<P>* Turnstile<P>::hand_on(void (*complete)(Waiter&) noexcept) noexcept {
  if (word_.load(std::memory_order_relaxed) & word::quiet) return nullptr;  // nobody waits
  P::point("hand_on.before_lock");
  Hold hold(mutex_);
  Waiter* const w = next();
  if (!w || w->complete != complete || w->cost != 1 || quiet_) return nullptr;
  const std::int64_t reserve = w->tier == Priority::critical ? reserve_.load(std::memory_order_relaxed) : 0;
  if (word::room(word_.load(std::memory_order_relaxed)) + reserve < 0) return nullptr;  // it was shrunk
  // relaxed: the lock orders what the two calls do
  note(word_.fetch_add(word::released_one, std::memory_order_relaxed));
  --slow_releases_;  // see D1
  line_.store(line_.load(std::memory_order_relaxed) - line::one(w->tier), std::memory_order_release);
  unlink(*w, true);
  w->verdict = Verdict::admitted;
  allow_posts();
  return w;
}

}  // namespace bulkhead::detail
