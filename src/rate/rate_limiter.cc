#include "bulkhead/rate_limiter.h"

#include <algorithm>
#include <mutex>
#include <utility>

#include "base/tally.h"
#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/platform.h"
#include "rate/gcra.h"

namespace bulkhead {

using rate::Terms;

namespace {

RateLimiterOptions checked(RateLimiterOptions o) {
  const auto refuse = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": rate limit ", setting, " ", problem}));
  };
  if (o.rate < 1) refuse("rate", "= 0 is out of range: give 1 or more");
  if (o.per < std::chrono::microseconds(1) || o.per > std::chrono::hours(24 * 31))
    refuse("per",
           base::join({"= ", std::to_string(o.per.count()), " ns is out of range: give 1 us to 31 days"}));
  if (o.per / o.rate > std::chrono::hours(24))
    refuse("rate", base::join({"= ", std::to_string(o.rate), " is less than one a day: give a shorter per"}));
  if (o.per.count() < static_cast<std::int64_t>(o.rate / 2))
    refuse("rate", base::join({"= ", std::to_string(o.rate), " in ", std::to_string(o.per.count()),
                               " ns is too fast: give at most 2 per nanosecond"}));
  if (o.burst == 0) o.burst = o.rate;
  const double days = static_cast<double>(o.burst) * static_cast<double>(o.per.count()) / o.rate / 86.4e12;
  if (days > 365)
    refuse("burst",
           base::join({"= ", std::to_string(o.burst), " would take ", std::to_string(static_cast<long>(days)),
                       " days to fill: give what fills within 365"}));
  return o;
}

}  // namespace

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
      const Terms terms = this->terms();
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
    const Terms old = terms();
    raise_longest(old.full);  // what is ahead by the old terms is no sign of a clock that stepped back
    set(o);
    const Terms next = terms();
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
      const Terms t = terms();
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

  Terms terms() const noexcept {
    return {.one = one_.load(std::memory_order_relaxed), .full = full_.load(std::memory_order_relaxed)};
  }
  void set(const RateLimiterOptions& o) noexcept {
    const Terms t = Terms::of(o.rate, o.per, o.burst);
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

RateLimiter::RateLimiter(RateLimiterOptions options)
    : clock_(options.clock ? *options.clock : Clock::steady()),
      core_(std::make_unique<RateLimiterCore>(checked(std::move(options)), clock_.now())) {}
RateLimiter::~RateLimiter() = default;

RateLimiter::Token RateLimiter::take(std::uint32_t cost, TimePoint now) noexcept {
  std::int64_t wait = 0;
  return core_->take(cost, 0, now, wait);
}
RateRefusal RateLimiter::refusal(Token token) noexcept {
  if (token.mark == RateLimiterCore::kNever) return {.never = true};
  return {.retry_after = rate::ns_of(static_cast<std::int64_t>(token.mark))};
}
RateLimiter::Taken RateLimiter::reserve(const ReserveOptions& options, TimePoint now) noexcept {
  std::int64_t wait = 0;
  const Token token = core_->take(options.cost, rate::ticks_of(options.max_wait), now, wait);
  if (token.charge == 0) return Taken(std::unexpect, refusal(token));
  return RateTicket{
      .at = wait > 0 ? now + rate::ns_of(wait) : now, .charge = token.charge, .mark = token.mark};
}
bool RateLimiter::cancel(RateTicket& ticket) noexcept { return core_->cancel(ticket); }

void RateLimiter::update(const RateLimiterOptions& options, TimePoint now) {
  RateLimiterOptions next = options;
  next.name = name();
  core_->update(checked(std::move(next)), now);
}
RateLimiterSnapshot RateLimiter::snapshot(TimePoint now) const noexcept { return core_->snapshot(now); }

Rejection RateLimiter::rejection(const RateRefusal& refusal) const noexcept {
  return {.reason = Reason::rate_limit, .name = name(), .retry_after = refusal.retry_after};
}
std::string_view RateLimiter::name() const noexcept { return core_->name(); }

}  // namespace bulkhead
