// core.h - the token bucket that threads share: everything behind a RateLimiter, and the way that a Bulkhead takes
// to it in a hurry.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>
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
//  R1 Everything that admission depends on beside the terms is `full_at_`; it changes by
//     compare-exchange from a value that was checked, so no two calls take the same token.
//  R2 It is at most `full` ahead of now after try_take(), and `full + longest_wait` after reserve().
//  R3 The terms are two words, changed under the lock and read one by one. A call that meets a change
//     may be charged by the old terms, or by one word of each, once; a charge is at most the `full` it
//     was compared with, so nothing overflows even then.
class RateLimiterCore {
 public:
  RateLimiterCore(RateLimiterOptions o, TimePoint now)
      : name_(std::move(o.name)), full_at_(rate::ticks_of(now)) {
    set(o);
  }

  // `wait`: until the tokens are there, for what was taken.
  RateLimiter::Token take(std::uint32_t cost, std::int64_t max_wait, TimePoint at,
                          std::int64_t& wait) noexcept {
    if (cost == 0) cost = 1;
    const std::uint64_t now = rate::ticks_of(at);
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    for (;;) {
      const rate::Terms terms = this->terms();
      if (cost > 1 && cost > terms.full / terms.one) [[unlikely]] {
        if (cost <= burst_now()) continue;  // the terms were about to change
        return refuse(kNever);
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
      if (wait > max_wait) return refuse(static_cast<std::uint64_t>(wait));
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

  // The usual case of take(), without a call: one token, and it is there. It is not counted yet, see
  // count_one(). A charge of 0: there is more to it, and nothing has happened.
  [[gnu::always_inline]] RateLimiter::Token take_one(TimePoint at) noexcept {
    const rate::Terms terms = this->terms();
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    const std::uint64_t now = rate::ticks_of(at);
    for (;;) {
      const std::int64_t used = rate::ahead(full_at, now);
      if (used > terms.full - terms.one) [[unlikely]]
        return {.charge = 0, .mark = 0};
      const std::uint64_t next = now + static_cast<std::uint64_t>(used + terms.one);
      // Relaxed: as in take().
      if (full_at_.compare_exchange_weak(full_at, next, std::memory_order_relaxed)) [[likely]]
        return {.charge = static_cast<std::uint64_t>(terms.one), .mark = next};
      detail::StdPlatform::pause();
    }
  }
  void count_one(base::ThreadNumber me) noexcept { tally_.add(me, kAdmitted); }

  // Only the last: others were told what they were told because of this one. Giving its tokens to newcomers
  // would let them go together with those who come after it, or use what would have run over meanwhile.
  bool cancel(RateTicket& ticket) noexcept {
    const std::uint64_t charge = std::exchange(ticket.charge, 0);
    std::uint64_t full_at = ticket.mark;
    if (charge == 0 ||
        !full_at_.compare_exchange_strong(full_at, full_at - charge, std::memory_order_relaxed))
      return false;
    tally_.add(kCancelled);
    return true;
  }

  void update(const RateLimiterOptions& o, TimePoint at) {
    const std::lock_guard lock(mutex_);
    const rate::Terms old = terms();
    raise_longest(old.full);  // what is ahead by the old terms is no sign of a clock that stepped back
    set(o);
    const rate::Terms next = terms();
    const std::uint64_t now = rate::ticks_of(at);
    std::uint64_t full_at = full_at_.load(std::memory_order_relaxed);
    std::uint64_t moved = 0;
    do {
      const std::int64_t used = std::min(rate::ahead(full_at, now), old.full + longest());
      const double missing = static_cast<double>(o.burst) - old.tokens(old.full - used);
      const double ticks =
          std::clamp(missing * static_cast<double>(next.one), 0.0, static_cast<double>(rate::kMostBurst));
      moved = now + static_cast<std::uint64_t>(ticks);
    } while (!full_at_.compare_exchange_weak(full_at, moved, std::memory_order_relaxed));
    raise_longest(static_cast<std::int64_t>(moved - now) - next.full);
  }

  RateLimiterSnapshot snapshot(TimePoint at) const noexcept {
    RateLimiterSnapshot s;
    {
      const std::lock_guard lock(mutex_);
      const rate::Terms t = terms();
      const std::int64_t used = std::min(
          rate::ahead(full_at_.load(std::memory_order_relaxed), rate::ticks_of(at)), t.full + longest());
      s.rate = rate_;
      s.burst = burst_;
      s.per = per_;
      s.available = t.tokens(t.full - used);
    }
    s.admitted = tally_.sum(kAdmitted);
    s.refused = tally_.sum(kRefused);
    s.cancelled = tally_.sum(kCancelled);
    return s;
  }

  std::string_view name() const noexcept { return name_; }

  static constexpr std::uint64_t kNever = UINT64_MAX;  // the mark of a refusal that no wait can change

 private:
  enum Kind : std::size_t { kAdmitted, kRefused, kCancelled, kKinds };

  rate::Terms terms() const noexcept {
    return {.one = one_.load(std::memory_order_relaxed), .full = full_.load(std::memory_order_relaxed)};
  }
  void set(const RateLimiterOptions& o) noexcept {
    const rate::Terms t = rate::Terms::of(o.rate, o.per, o.burst);
    one_.store(t.one, std::memory_order_relaxed);
    full_.store(t.full, std::memory_order_relaxed);
    rate_ = o.rate;
    burst_ = o.burst;
    per_ = o.per;
  }
  std::uint32_t burst_now() const noexcept {
    const std::lock_guard lock(mutex_);
    return burst_;
  }
  RateLimiter::Token refuse(std::uint64_t wait) noexcept {
    tally_.add(kRefused);
    return {.charge = 0, .mark = wait};
  }
  std::int64_t longest() const noexcept { return longest_wait_.load(std::memory_order_relaxed); }
  void raise_longest(std::int64_t wait) noexcept {
    std::int64_t known = longest();
    while (known < wait && !longest_wait_.compare_exchange_weak(known, wait, std::memory_order_relaxed)) {
    }
  }

  const std::string name_;
  alignas(64) std::atomic<std::uint64_t> full_at_;
  alignas(64) std::atomic<std::int64_t> one_{1};
  std::atomic<std::int64_t> full_{1};
  std::atomic<std::int64_t> longest_wait_{0};  // that any reservation was ever granted
  mutable detail::Mutex mutex_;
  std::uint32_t rate_ = 1, burst_ = 1;  // as asked for; under the lock, like per_
  std::chrono::nanoseconds per_{1};
  base::Tally<kKinds> tally_;
};

}  // namespace bulkhead
