// rate_limiter.h - a token bucket: limits how many calls begin per second, with a burst; a rejection says when to retry.
//
//   bulkhead::RateLimiter mail{{.name = "mail", .rate = 100, .per = 1s, .burst = 20}};
//   if (auto ticket = mail.try_take()) send();
//   else retry_in(ticket.error().retry_after);
//
//   auto ticket = mail.reserve({.max_wait = 50ms});            // takes tokens that will be available within 50 ms
//   if (ticket) call_at(ticket->at, send);                     // the limiter itself never sleeps
//
// The bucket holds up to `burst` tokens and gets `rate` new ones every `per`, evenly; a call takes its cost.
//
// Threads: every member may be called from any thread.
// Promises: over any time t, at most burst + t * rate / per tokens are taken, also with many threads. A rejected call
//   takes none. A cost above the burst is always rejected (RateRejection::never). It stays exact after years without a call. If the
//   clock steps back by more than a minute, calls are admitted again after one refill of the bucket and the longest wait
//   granted; after a smaller step, once the clock has caught up.
// Not promised: order between threads. The interval per call is rounded up to 1/64 ns: of 4'000'000'000 calls a second
//   up to 7 % may be missing, of 1'000'000'000 up to 1.6 %, of a million 0.0016 %.
// Cost: one compare-exchange and a count; a rejection only reads the word. Nothing allocates or sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "bulkhead/clock.h"
#include "bulkhead/result.h"

namespace bulkhead {

namespace detail {
class CallPath;
}

struct RateLimiterOptions {
  std::string name{};
  std::uint32_t rate = 1;                                  // tokens per `per`: 1 or more; at most 5 per ns
  std::chrono::nanoseconds per = std::chrono::seconds(1);  // 1 us to 31 days; at least one token a day
  std::uint32_t burst = 0;                                 // most tokens in the bucket; 0: `rate`
  Clock* clock = nullptr;                                  // default: Clock::steady()
};

struct RateRejection {
  std::chrono::nanoseconds retry_after{};  // until enough tokens are available, unless other calls take them
  bool never = false;                      // the cost is above the burst: a retry is useless
};

// Tokens that were taken. Use them at `at`, or cancel().
struct RateTicket {
  TimePoint at{};
  std::uint64_t charge = 0, mark = 0;  // for cancel()
};

struct ReserveOptions {
  std::uint32_t cost = 1;  // 0 counts as 1
  std::chrono::nanoseconds max_wait{};
};

struct RateLimiterSnapshot {
  std::uint32_t rate = 0, burst = 0;
  std::chrono::nanoseconds per{};
  double available = 0;  // tokens; negative: reserved by calls that have not begun
  std::uint64_t admitted = 0, rejected = 0, cancelled = 0;  // calls
};

class RateLimiter {
 public:
  // std::invalid_argument naming the setting. The bucket starts full.
  explicit RateLimiter(RateLimiterOptions options);  // RateLimiterOptions{...} names a wrong field
  ~RateLimiter();
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  using Taken = Result<RateTicket, RateRejection>;

  Taken try_take(std::uint32_t cost, TimePoint now) noexcept {
    const Token token = take(cost, now);
    if (token.charge == 0) return Taken(unexpect, rejection(token));
    return RateTicket{.at = now, .charge = token.charge, .mark = token.mark};
  }
  Taken try_take(std::uint32_t cost = 1) noexcept { return try_take(cost, clock_.now()); }

  // Takes tokens that will be available within max_wait, at RateTicket::at. Later calls are served after it.
  Taken reserve(const ReserveOptions& options, TimePoint now) noexcept;
  Taken reserve(const ReserveOptions& options) noexcept { return reserve(options, clock_.now()); }

  // Returns the tokens of a call that did not take place. False, without an effect: cancelled before; or another call has
  // taken tokens since, with a time that depends on this one; or two updates have changed the settings since.
  bool cancel(RateTicket& ticket) noexcept;

  // Applies immediately. Available tokens stay, up to the new burst; reserved ones stay too. std::invalid_argument as in
  // the constructor; then nothing has changed. `name` and `clock` do not change.
  void update(const RateLimiterOptions& options, TimePoint now);
  void update(const RateLimiterOptions& options) { update(options, clock_.now()); }

  RateLimiterSnapshot snapshot(TimePoint now) const noexcept;
  RateLimiterSnapshot snapshot() const noexcept { return snapshot(clock_.now()); }
  Rejection rejection(
      const RateRejection& why) const noexcept;  // as a Rejection, with the name of the limiter
  std::string_view name() const noexcept;
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class detail::CallPath;
  friend class RateLimiterCore;
  // `charge` 0: rejected, and `mark` says why. Two words, returned in registers: a Result would be returned in memory,
  // which costs a Bulkhead measurable time.
  struct Token {
    std::uint64_t charge, mark;
  };
  Token take(std::uint32_t cost, TimePoint now) noexcept;
  static RateRejection rejection(Token token) noexcept;

  Clock& clock_;
  std::unique_ptr<class RateLimiterCore> core_;
};

}  // namespace bulkhead
