// rate_core.h - the implementation of RateLimiter: a token bucket in one atomic word.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/tally.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/platform.h"
#include "bulkhead/rate_limiter.h"
#include "rate/gcra.h"

namespace bulkhead {

// Invariants:
//  R1 Admission depends on `full_at_` and the terms only. full_at_ changes by compare-exchange from a value that was
//     checked, so no two calls take the same token.
//  R2 It is at most `full` ahead of now after try_take(), and `full + longest_wait` after reserve().
//  R3 The terms are two words, changed under the lock and read one by one. During a change a call may be charged by the
//     old terms, or by one word of each. A charge is at most the `full` it was compared with, so nothing overflows.
class RateLimiterCore {
 public:
  RateLimiterCore(const RateLimiterOptions& o, TimePoint now) : name_(o.name), full_at_(rate::ticks_of(now)) {
    set(o);
  }

  // `wait`: the time until the taken tokens are available.
  RateLimiter::Token take(std::uint32_t cost, std::int64_t max_wait, TimePoint at,
                          std::int64_t& wait) noexcept {
    if (cost == 0) cost = 1;
    const std::uint64_t now = rate::ticks_of(at);
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    for (;;) {
      const rate::Terms terms = this->terms();
      if (cost > 1 && cost > terms.full / terms.one) [[unlikely]] {
        if (cost <= burst_now()) continue;  // the terms have just changed
        return reject(kNever);
      }
      const std::int64_t charge = cost * terms.one;
      if (rate::impossible(full_at, now, terms.full + longest() + rate::kStep)) [[unlikely]] {
        full_at_.compare_exchange_weak(full_at, now + static_cast<std::uint64_t>(terms.full),
                                       std::memory_order_relaxed);
        full_at = full_at_.load(std::memory_order_relaxed);
        continue;
      }
      const std::int64_t used = rate::ahead(full_at, now);
      wait = used + charge - terms.full;
      if (wait > max_wait) return reject(static_cast<std::uint64_t>(wait));
      if (wait > longest()) [[unlikely]]
        raise_longest(wait);
      const std::uint64_t next = now + static_cast<std::uint64_t>(used + charge);
      // Relaxed: a token protects no memory.
      if (full_at_.compare_exchange_weak(full_at, next, std::memory_order_relaxed)) [[likely]] {
        tally_.add(kAdmitted);
        return {.charge = static_cast<std::uint64_t>(charge), .mark = next};
      }
      detail::StdPlatform::pause();
    }
  }

  // Only the last ticket can be cancelled. The waits of later tickets include this one: if newcomers got its tokens, they
  // would run at the same time as those, or use tokens that would have overflowed the bucket meanwhile.
  bool cancel(RateTicket& ticket) noexcept {
    const std::uint64_t charge = std::exchange(ticket.charge, 0);
    std::uint64_t full_at = ticket.mark;
    if (charge == 0) return false;
    if (!full_at_.compare_exchange_strong(full_at, full_at - charge, std::memory_order_relaxed)) {
      // It is the last, but an update has moved `full_at` since: apply the same move to the value before this ticket.
      const detail::MutexLock lock(mutex_);
      std::uint64_t moved = last_move_.to;
      if (ticket.mark != last_move_.from ||
          !full_at_.compare_exchange_strong(moved, last_move_.apply(ticket.mark - charge),
                                            std::memory_order_relaxed))
        return false;
      last_move_ =
          {};  // the next ticket may have the mark last_move_.to, and is not the one the move remembers
    }
    tally_.add(kCancelled);
    return true;
  }

  void update(const RateLimiterOptions& o, TimePoint at) {
    const detail::MutexLock lock(mutex_);
    if (o.rate == rate_ && o.burst == burst_ && o.per == per_) return;
    const rate::Terms old = terms();
    raise_longest(old.full);  // so that a value by the old terms does not look like a clock that stepped back
    set(o);
    const rate::Terms next = terms();
    Move move{.now = rate::ticks_of(at), .old = old, .longest = longest(), .one = next.one, .burst = o.burst};
    move.from = full_at_.load(std::memory_order_relaxed);
    do {
      move.to = move.apply(move.from);
      move.mark = move.from == last_move_.to ? last_move_.mark : move.from;
      // They must differ: cancel() recognises charges of earlier terms by them.
      while (move.to == move.from || move.to == move.mark) ++move.to;
    } while (!full_at_.compare_exchange_weak(move.from, move.to, std::memory_order_relaxed));
    raise_longest(static_cast<std::int64_t>(move.to - move.now) - next.full);
    last_move_ = move;
  }

  // Bounded: if the clock stepped back, the word seems to be further ahead than any taking can put it.
  RateLimiterSnapshot snapshot(TimePoint at) const noexcept {
    RateLimiterSnapshot s;
    {
      const detail::MutexLock lock(mutex_);
      const rate::Terms t = terms();
      const std::int64_t used = std::min(
          rate::ahead(full_at_.load(std::memory_order_relaxed), rate::ticks_of(at)), t.full + longest());
      s.rate = rate_;
      s.burst = burst_;
      s.per = per_;
      s.available = t.tokens(t.full - used);
    }
    s.admitted = tally_.sum(kAdmitted);
    s.rejected = tally_.sum(kRejected);
    s.cancelled = tally_.sum(kCancelled);
    return s;
  }

  const Name& name() const noexcept { return name_; }

  static constexpr std::uint64_t kNever = UINT64_MAX;  // the mark of a rejection that waiting cannot change

 private:
  enum Kind : std::size_t { kAdmitted, kRejected, kCancelled, kKinds };

  // The change of `full_at` by an update: tokens that were available by the old terms are available by the new ones.
  struct Move {
    std::uint64_t from = 0, to = 0, now = 0;
    std::uint64_t mark = 0;  // of the last ticket
    rate::Terms old{};
    std::int64_t longest = 0, one = 1;
    std::uint32_t burst = 0;

    std::uint64_t apply(std::uint64_t full_at) const noexcept {
      const std::int64_t used = std::min(rate::ahead(full_at, now), old.full + longest);
      const double missing = static_cast<double>(burst) - old.tokens(old.full - used);
      const double ticks =
          std::clamp(missing * static_cast<double>(one), 0.0, static_cast<double>(rate::kMostBurst));
      return now + static_cast<std::uint64_t>(ticks);
    }
  };

  rate::Terms terms() const noexcept {
    return {.one = one_.load(std::memory_order_relaxed), .full = full_.load(std::memory_order_relaxed)};
  }
  void set(const RateLimiterOptions& o) noexcept BULKHEAD_REQUIRES(mutex_) {
    const rate::Terms t = rate::Terms::of(o.rate, o.per, o.burst);
    one_.store(t.one, std::memory_order_relaxed);
    full_.store(t.full, std::memory_order_relaxed);
    rate_ = o.rate;
    burst_ = o.burst;
    per_ = o.per;
  }
  std::uint32_t burst_now() const noexcept {
    const detail::MutexLock lock(mutex_);
    return burst_;
  }
  RateLimiter::Token reject(std::uint64_t wait) noexcept {
    tally_.add(kRejected);
    return {.charge = 0, .mark = wait};
  }
  std::int64_t longest() const noexcept { return longest_wait_.load(std::memory_order_relaxed); }
  void raise_longest(std::int64_t wait) noexcept {
    std::int64_t known = longest();
    while (known < wait && !longest_wait_.compare_exchange_weak(known, wait, std::memory_order_relaxed)) {
    }
  }

  const Name name_;
  alignas(64) std::atomic<std::uint64_t> full_at_;
  alignas(64) std::atomic<std::int64_t> one_{1};
  std::atomic<std::int64_t> full_{1};
  std::atomic<std::int64_t> longest_wait_{0};  // the longest wait of any reservation
  mutable detail::Mutex mutex_;
  std::uint32_t rate_ BULKHEAD_GUARDED_BY(mutex_) = 1, burst_ BULKHEAD_GUARDED_BY(mutex_) =
                                                           1;  // as asked for, like per_
  std::chrono::nanoseconds per_ BULKHEAD_GUARDED_BY(mutex_){1};
  Move last_move_ BULKHEAD_GUARDED_BY(mutex_);
  base::Tally<kKinds> tally_;
};

}  // namespace bulkhead
