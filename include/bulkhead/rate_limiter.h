// rate_limiter.h - lets so many calls begin per second, with a burst; a refusal says when to come back.
//
//   bulkhead::RateLimiter mail{{.name = "mail", .rate = 100, .per = 1s, .burst = 20}};
//   if (auto ticket = mail.try_take()) send();
//   else retry_in(ticket.error().retry_after);
//
//   auto ticket = mail.reserve({.max_wait = 50ms});            // takes its turn now, to be used then
//   if (ticket) timer.at(ticket->at, send);                    // nobody sleeps in here
//
// A token bucket: it holds `burst` tokens, gets `rate` new ones every `per`, evenly; a call takes its cost.
//
// Threads: every member may be called from any thread.
// Promises: over any time t, at most burst + t * rate / per tokens are taken, whatever the threads do. A
//   call that is refused takes nothing. A cost above the burst is refused for ever, and told so. A clock
//   may idle for years. If it steps back by more than a minute, calls go through again after one refill
//   of the bucket and the longest wait granted; a smaller step is waited out.
// Not promised: order between threads. The rate is kept to 1/64 ns per call, always on the slow side: of
//   1'000'000'000 calls a second up to 1.6 % may be missing, of a million a second nothing to speak of.
// Cost: one compare-exchange and a count; a refusal only reads the word. Nothing allocates or sleeps.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <expected>
#include <memory>
#include <string>
#include <string_view>

#include "bulkhead/clock.h"
#include "bulkhead/rejection.h"

namespace bulkhead {

struct RateLimiterOptions {
  std::string name{};
  std::uint32_t rate = 1;                                  // tokens per `per`: 1 to 4'294'967'295
  std::chrono::nanoseconds per = std::chrono::seconds(1);  // 1 us to 31 days; a token a day is the slowest
  std::uint32_t burst = 0;                                 // tokens that can be saved up; 0: as `rate`
  Clock* clock = nullptr;                                  // default: Clock::steady()
};

struct RateRefusal {
  std::chrono::nanoseconds retry_after{};  // enough tokens will be there then, if nobody else takes them
  bool never = false;                      // the cost is above the burst; retry_after means nothing
};

// Tokens taken. Use them at `at`, or give them back.
struct RateTicket {
  TimePoint at{};
  std::uint64_t charge = 0, mark = 0;  // what cancel() needs
};

struct ReserveOptions {
  std::uint32_t cost = 1;  // 0 counts as 1
  std::chrono::nanoseconds max_wait{};
};

struct RateLimiterSnapshot {
  std::uint32_t rate = 0, burst = 0;
  std::chrono::nanoseconds per{};
  double available = 0;  // tokens now; negative: that many are promised to calls that wait
  std::uint64_t admitted = 0, refused = 0, cancelled = 0;  // calls
};

class RateLimiter {
 public:
  explicit RateLimiter(RateLimiterOptions options);  // std::invalid_argument naming the setting; starts full
  ~RateLimiter();
  RateLimiter(const RateLimiter&) = delete;
  RateLimiter& operator=(const RateLimiter&) = delete;

  using Taken = std::expected<RateTicket, RateRefusal>;

  Taken try_take(std::uint32_t cost, TimePoint now) noexcept {
    const Token token = take(cost, now);
    if (token.charge == 0) return Taken(std::unexpect, refusal(token));
    return RateTicket{.at = now, .charge = token.charge, .mark = token.mark};
  }
  Taken try_take(std::uint32_t cost = 1) noexcept { return try_take(cost, clock_.now()); }

  // Takes tokens that will be there within max_wait, and says when. Later calls come after it.
  Taken reserve(const ReserveOptions& options, TimePoint now) noexcept;
  Taken reserve(const ReserveOptions& options) noexcept { return reserve(options, clock_.now()); }

  // Gives back the tokens of a call that did not take place, as if it had never come. False, and no effect:
  // cancelled before, or somebody has taken tokens since, and was told when because of this one.
  bool cancel(RateTicket& ticket) noexcept;

  // In force at once. Tokens that are there stay, up to the new burst; so do promised ones.
  // std::invalid_argument as in the constructor, and then nothing has changed. `name` and `clock` stay.
  void update(const RateLimiterOptions& options, TimePoint now);
  void update(const RateLimiterOptions& options) { update(options, clock_.now()); }

  RateLimiterSnapshot snapshot(TimePoint now) const noexcept;
  RateLimiterSnapshot snapshot() const noexcept { return snapshot(clock_.now()); }
  // For those who answer a caller.
  Rejection rejection(const RateRefusal& refusal) const noexcept;
  std::string_view name() const noexcept;
  Clock& clock() const noexcept { return clock_; }

 private:
  friend class Bulkhead;
  friend class RateLimiterCore;
  // What was taken, or `charge` 0 and why not. Two words, which come back in registers: a Bulkhead has no time to
  // unpack an std::expected in memory.
  struct Token {
    std::uint64_t charge, mark;
  };
  Token take(std::uint32_t cost, TimePoint now) noexcept;
  static RateRefusal refusal(Token token) noexcept;

  Clock& clock_;
  std::unique_ptr<class RateLimiterCore> core_;
};

}  // namespace bulkhead
