// The way of a call: through rate limit and breaker to a place, and out again. Those that need nothing special go a shorter
// one, in simple_call.cc.
#include "base/tally.h"
#include "bulkhead/bulkhead.h"
#include "bulkhead/core.h"

namespace bulkhead {
namespace {

std::int64_t ns(TimePoint t) { return t.time_since_epoch().count(); }

std::uint64_t nonnegative(std::chrono::nanoseconds span) {
  return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0;
}

}  // namespace

AcquireOptions Bulkhead::with_defaults(AcquireOptions o) const noexcept {
  if (o.timeout == gate_default && !shared_) o.timeout = max_wait_.load(std::memory_order_relaxed);
  return o;
}

std::chrono::nanoseconds Bulkhead::time_limit(std::chrono::nanoseconds own) const noexcept {
  return own == gate_default ? execution_timeout_.load(std::memory_order_relaxed) : own;
}

Result<Call> Bulkhead::try_acquire(const AcquireOptions& options) noexcept {
  Result<Call> call(std::in_place);
  Rejection why;
  Waiting waiting;
  if (!enter(*call, options, false, why, waiting)) return Result<Call>(std::unexpect, why);
  return call;
}

Result<Call> Bulkhead::acquire(const AcquireOptions& options) noexcept {
  Result<Call> call(std::in_place);
  Rejection why;
  Waiting waiting;
  if (!enter(*call, options, true, why, waiting)) return Result<Call>(std::unexpect, why);
  return call;
}

std::optional<Result<Call>> Bulkhead::begin_acquire(const AcquireOptions& options, Call& begun) noexcept {
  std::optional<Result<Call>> answer(std::in_place);
  Call& call = **answer;
  Rejection why;
  const auto refused = [&] { return std::optional<Result<Call>>(std::in_place, std::unexpect, why); };
  if (!prepare(call, options.priority, options.cost, why)) return refused();
  if (call.free()) return answer;
  const bool plain = options.cost == 1 && options.deadline == no_deadline && !options.stop.stop_possible();
  if (plain && !shared_) {
    const auto passed = pass(call, options.priority);
    if (passed == Gate::Turnstile::Pass::yes) return answer;
    if (passed != Gate::Turnstile::Pass::no) {
      if (!place(call, gate_->noted(options), why)) return refused();
      return answer;
    }
  }
  if (shared_) pin(call);
  if (auto decided = gate_->at_once(options, ns(call.began_))) {
    if (!place(call, *std::move(decided), why)) return refused();
    return answer;
  }
  if (!shared_) pin(call);
  begun = std::move(call);
  return std::nullopt;
}

bool Bulkhead::prepare(Call& call, Priority priority, std::uint32_t cost, Rejection& why) noexcept {
  const std::uint8_t mode = mode_.load(std::memory_order_relaxed);
  if (mode & (bypassed | shadowed | draining)) [[unlikely]] {
    if (mode & draining) {
      why = gate_->refuse(priority, Reason::shutdown);
      return false;
    }
    enter_free(call, priority, cost, mode);
    return true;
  }
  RateLimiter* const rate = rate_.load(std::memory_order_acquire);
  Breaker* const breaker = breaker_.load(std::memory_order_acquire);
  // `mode` may be older or newer than the policies, which must not see a time that never was.
  if ((mode & timed) || rate || breaker) call.began_ = glance();
  if (rate) {
    const RateLimiter::Token token = rate->take(cost, call.began_);
    if (token.charge == 0) [[unlikely]] {
      why = gate_->refuse(priority, Reason::rate_limit);
      why.retry_after = RateLimiter::refusal(token).retry_after;
      return false;
    }
    call.rate_ = rate;
    call.ticket_.charge = token.charge;
    call.ticket_.mark = token.mark;
  }
  if (breaker) {
    const auto pass = breaker->admit(call.began_);
    if (!pass) [[unlikely]] {
      take_back(call);
      why = gate_->refuse(priority, Reason::breaker_open);
      why.retry_after = pass.error().retry_after;
      return false;
    }
    call.breaker_ = breaker;
    call.pass_ = *pass;
  }
  return true;
}

bool Bulkhead::enter(Call& call, const AcquireOptions& options, bool may_wait, Rejection& why,
                     Waiting& waiting) noexcept {
  if (!prepare(call, options.priority, options.cost, why)) return false;
  if (call.free()) return true;
  if (shared_) pin(call);
  return enter_line(call, options, may_wait, why, waiting);
}

bool Bulkhead::enter_on(Call& call, const SimpleCall& begun, Entry entry, std::source_location where,
                        Rejection& why, Waiting& waiting) noexcept {
  if (entry == Entry::almost) {
    call.began_ = begun.began();
    call.rate_ = begun.rate;
    if (call.rate_) {
      call.ticket_.charge = begun.charge;
      call.ticket_.mark = begun.mark;
    }
    call.breaker_ = begun.breaker;
    if (call.breaker_) call.pass_.generation = begun.breaker_word >> Breaker::kFlags;
    return enter_line(call, {.where = where}, true, why, waiting);
  }
  static_cast<void>(base::this_thread());  // now it has a number, without which no call is simple
  if (!prepare(call, Priority::normal, 1, why)) return false;
  if (call.free()) return true;
  const auto passed = pass(call, Priority::normal);
  if (passed == Gate::Turnstile::Pass::yes) return true;
  return enter_otherwise(call, passed, {.where = where}, why, waiting);
}

// What pass() could not do, or not all of it.
bool Bulkhead::enter_otherwise(Call& call, Gate::Turnstile::Pass passed, const AcquireOptions& options,
                               Rejection& why, Waiting& waiting) noexcept {
  return passed == Gate::Turnstile::Pass::no ? enter_line(call, options, true, why, waiting)
                                             : place(call, gate_->noted(options), why);
}

// A plain call that need not wait.
Gate::Turnstile::Pass Bulkhead::pass(Call& call, Priority priority) noexcept {
  using Pass = Gate::Turnstile::Pass;
  const Pass passed = gate_->turnstile_.try_pass(1);
  if (passed == Pass::no) return passed;
  if (passed != Pass::yes) {
    gate_->measure(1, passed, ns(call.began_));
    if (!gate_->only_measured()) return passed;  // there is more to do
    gate_->turnstile_.note_pass();
  }
  call.permit_.hold(gate_, priority);
  if (passed != Pass::yes) call.permit_.observe();
  call.bulkhead_ = this;
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire))
    call.sample_ = limiter->admitted(call.began_, gate_->in_flight());
  return Pass::yes;
}

bool Bulkhead::enter_line(Call& call, const AcquireOptions& options, bool may_wait, Rejection& why,
                          Waiting& waiting) noexcept {
  const std::int64_t seen = ns(call.began_);
  if (!may_wait) return place(call, gate_->try_acquire_slow(options, seen), why);
  if (auto decided = gate_->at_once(options, seen)) return place(call, *std::move(decided), why);
  waiting.emplace(*this);
  return place(call, gate_->acquire(with_defaults(options)), why);
}

bool Bulkhead::place(Call& call, Result<Permit> permit, Rejection& why) noexcept {
  call.bulkhead_ = this;
  if (!permit) {
    why = permit.error();
    call.finish(CallVerdict::ignored);
    return false;
  }
  call.permit_ = *std::move(permit);
  if (call.began_ == TimePoint{}) return true;
  const bool keeps = mode_.load(std::memory_order_relaxed) & with_histograms;
  if (call.permit_.waited()) {
    const TimePoint now = glance();
    if (keeps) core_->wait.record(nonnegative(now - call.began_));
    call.began_ = now;
  }
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire))
    call.sample_ = limiter->admitted(call.began_, gate_->in_flight());
  return true;
}

Call::Call(Call&& other) noexcept
    : bulkhead_(std::exchange(other.bulkhead_, nullptr)),
      breaker_(std::exchange(other.breaker_, nullptr)),
      rate_(std::exchange(other.rate_, nullptr)),
      ticket_(other.ticket_),
      permit_(std::move(other.permit_)),
      pass_(other.pass_),
      sample_(other.sample_),
      began_(other.began_),
      flags_(std::exchange(other.flags_, std::uint8_t{0})) {}

Call& Call::operator=(Call&& other) noexcept {
  if (this != &other) {
    finish(CallVerdict::ignored);
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

// flatten: leave() in place, for which nothing else has to be called on the way out of most calls.
[[gnu::flatten]] bool Call::finish(CallVerdict verdict) noexcept {
  if (!bulkhead_) return false;
  const TimePoint now = began_ == TimePoint{} ? began_ : bulkhead_->glance();
  bulkhead_->leave(*this, verdict, false, now - began_, now);
  return true;
}

bool Call::time_out() noexcept {
  if (!bulkhead_) return false;
  const TimePoint now = began_ == TimePoint{} ? began_ : bulkhead_->glance();
  bulkhead_->count_timeout(*this);
  bulkhead_->leave(*this, CallVerdict::failure, true, now - began_, now);
  return true;
}

std::chrono::nanoseconds Call::execution_timeout() const noexcept {
  return bulkhead_ && !free() ? bulkhead_->time_limit(gate_default) : wait_forever;
}

// The place last: whoever gets it finds everything counted, and it keeps the bulkhead from being destroyed.
// Nothing before it can throw or wait.
void Bulkhead::leave(Call& call, CallVerdict verdict, bool timed_out, std::chrono::nanoseconds took,
                     TimePoint now) noexcept {
  call.bulkhead_ = nullptr;
  const bool placed{call.permit_};
  if (!placed) take_back(call);
  if (placed && call.began_ != TimePoint{} && mode_.load(std::memory_order_relaxed) & with_histograms)
    core_->service.add(nonnegative(took));
  if (Breaker* const breaker = std::exchange(call.breaker_, nullptr))
    breaker->complete(call.pass_, verdict, took, now);
  if (call.sample_.start != TimePoint{}) {
    AdaptiveLimiter* const limiter = limiter_.load(std::memory_order_acquire);
    const CallEnd end = timed_out                         ? CallEnd::timeout
                        : verdict == CallVerdict::success ? CallEnd::success
                        : verdict == CallVerdict::failure ? CallEnd::failure
                                                          : CallEnd::ignored;
    if (limiter) limiter->completed(call.sample_, now, end);
  }
  const std::uint8_t flags = std::exchange(call.flags_, std::uint8_t{0});
  if (flags & Call::is_beyond) core_->beyond.fetch_sub(1, std::memory_order_relaxed);
  if (placed) {
    if (verdict == CallVerdict::failure) call.permit_.fail();
    call.permit_.drop(ns(now));
  }
  if (flags & Call::is_pinned) unpin();
}

// Counts what the stages would have said, and lets the call go on whatever that is.
void Bulkhead::enter_free(Call& call, Priority priority, std::uint32_t cost, std::uint8_t mode) noexcept {
  Core& core = *core_;
  call.flags_ = Call::is_free;
  pin(call);
  if (mode & bypassed) {
    call.flags_ |= Call::is_bypassed;
    core.bypassed.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  // One that a stage would refuse never comes to the next, and so takes nothing from those that would.
  RateLimiter* const rate = rate_.load(std::memory_order_acquire);
  Breaker* const breaker = breaker_.load(std::memory_order_acquire);
  if ((mode & timed) || rate || breaker) call.began_ = glance();
  if (rate) {
    const auto taken = rate->try_take(cost, call.began_);
    if (!taken) return would_reject(Reason::rate_limit);
    call.rate_ = rate;
    call.ticket_ = *taken;
  }
  if (breaker) {
    const auto pass = breaker->admit(call.began_);
    if (!pass) {
      take_back(call);
      return would_reject(Reason::breaker_open);
    }
    call.breaker_ = breaker;
    call.pass_ = *pass;
  }
  call.rate_ = nullptr;  // it is made, with or without a place
  if (Result<Permit> permit = gate_->peek({.priority = priority, .cost = cost})) {
    call.permit_ = *std::move(permit);
    return;
  }
  // Those without a place are those that would wait, up to the length of the line.
  call.flags_ |= Call::is_beyond;
  const Snapshot s = gate_->snapshot();
  if (core.beyond.fetch_add(1, std::memory_order_relaxed) < s.max_queue)
    core.would_wait.fetch_add(1, std::memory_order_relaxed);
  else
    would_reject(s.max_queue == 0 ? Reason::concurrency_limit : Reason::queue_limit);
}

void Bulkhead::would_reject(Reason reason) noexcept {
  core_->would_reject[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

Opinion Bulkhead::judge(const std::exception_ptr& thrown) const {
  const auto& own = core_->judge;
  return own ? own(thrown) : std::nullopt;
}

void Bulkhead::count_timeout(const Call& call) noexcept {
  if (call.free())
    would_reject(Reason::timeout);
  else
    core_->timed_out.fetch_add(1, std::memory_order_relaxed);
}

Rejection Bulkhead::late() noexcept {
  core_->timed_out.fetch_add(1, std::memory_order_relaxed);
  const Snapshot s = gate_->snapshot();
  return {Reason::timeout, name(), s.in_flight, s.max_concurrent, s.waiting, s.max_queue};
}

void Bulkhead::count_fallback(Cause::Kind kind, bool threw) noexcept {
  core_->fallbacks[static_cast<std::size_t>(kind)].fetch_add(1, std::memory_order_relaxed);
  if (threw) core_->fallback_failures.fetch_add(1, std::memory_order_relaxed);
}

void Bulkhead::count_handler_error() noexcept {
  core_->handler_errors.fetch_add(1, std::memory_order_relaxed);
}

TimePoint Bulkhead::begin_pooled(detail::PooledTimes& times, TimePoint submitted) noexcept {
  const TimePoint now = clock_.now();
  if (mode_.load(std::memory_order_relaxed) & with_histograms)
    core_->wait.record(nonnegative(now - submitted));
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire))
    times.sample = limiter->admitted(now, gate_->in_flight());
  times.began.store(now.time_since_epoch().count(), std::memory_order_release);  // with the sample
  return now;
}

void Bulkhead::end_pooled(detail::PooledTimes& times, TimePoint began) noexcept {
  const TimePoint now = clock_.now();
  if (mode_.load(std::memory_order_relaxed) & with_histograms) core_->service.add(nonnegative(now - began));
  times.ended.store(now.time_since_epoch().count(), std::memory_order_release);
}

std::string Cause::message() const {
  if (kind != Kind::failed) return rejection.message();
  return exception ? "the call threw" : "the call failed";
}

}  // namespace bulkhead
