#include "bulkhead/rate_limiter.h"

#include <utility>

#include "base/text.h"
#include "rate/rate_core.h"

namespace bulkhead {
namespace {

// The bounds keep every product of ticks and tokens within 63 bits, see Terms.
RateLimiterOptions checked(RateLimiterOptions o) {
  const auto reject = [&](std::string_view setting, std::string_view problem) {
    base::throw_invalid(base::join({"bulkhead \"", o.name, "\": rate limit ", setting, " ", problem}));
  };
  if (o.rate < 1) reject("rate", "= 0 is out of range: give 1 or more");
  if (o.per < std::chrono::microseconds(1) || o.per > std::chrono::hours(24 * 31))
    reject("per",
           base::join({"= ", std::to_string(o.per.count()), " ns is out of range: give 1 us to 31 days"}));
  if (o.per / o.rate > std::chrono::hours(24))
    reject("rate", base::join({"= ", std::to_string(o.rate), " is less than one a day: give a shorter per"}));
  if (o.rate / 5 > o.per.count())
    reject("rate", base::join({"= ", std::to_string(o.rate), " in ", std::to_string(o.per.count()),
                               " ns is too fast: give at most 5 per nanosecond"}));
  if (o.burst == 0) o.burst = o.rate;
  const double days = static_cast<double>(o.burst) * static_cast<double>(o.per.count()) / o.rate / 86.4e12;
  if (days > 365)
    reject("burst",
           base::join({"= ", std::to_string(o.burst), " would take ", std::to_string(static_cast<long>(days)),
                       " days to fill: give what fills within 365"}));
  return o;
}

}  // namespace

RateLimiter::RateLimiter(RateLimiterOptions options)
    : clock_(options.clock ? *options.clock : Clock::steady()),
      core_(std::make_unique<RateLimiterCore>(checked(std::move(options)), clock_.now())) {}
RateLimiter::~RateLimiter() = default;

RateLimiter::Token RateLimiter::take(std::uint32_t cost, TimePoint now) noexcept {
  std::int64_t wait = 0;
  return core_->take(cost, 0, now, wait);
}
RateRejection RateLimiter::rejection(Token token) noexcept {
  if (token.mark == RateLimiterCore::kNever) return {.never = true};
  return {.retry_after = rate::ns_of(static_cast<std::int64_t>(token.mark))};
}
RateLimiter::Taken RateLimiter::reserve(const ReserveOptions& options, TimePoint now) noexcept {
  std::int64_t wait = 0;
  const Token token = core_->take(options.cost, rate::ticks_of(options.max_wait), now, wait);
  if (token.charge == 0) return Taken(unexpect, rejection(token));
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

Rejection RateLimiter::rejection(const RateRejection& why) const noexcept {
  return {.reason = Reason::rate_limit, .name = core_->name(), .retry_after = why.retry_after};
}
std::string_view RateLimiter::name() const noexcept { return core_->name(); }

}  // namespace bulkhead
