// The way of most calls: in at once, no time limit, and out on the same thread with a success. It does what
// call.cc does for every call, in the same order and to the same effect, but calls no function and writes little:
// between two atomic operations both can be counted in nanoseconds. Whatever is not as usual is left to call.cc,
// by a call that nothing comes after, so that no register has to be saved for it.
#include "breaker/core.h"
#include "bulkhead/core.h"
#include "gate/meter.h"
#include "rate/core.h"

namespace bulkhead {
namespace {

std::int64_t ns(TimePoint t) { return t.time_since_epoch().count(); }

}  // namespace

Bulkhead::Entry Bulkhead::enter_simply(SimpleCall& call) noexcept {
  // Before the clock, which the long way asks too.
  if (base::detail::number_of_thread.number == 0) [[unlikely]]
    return Entry::no;
  std::int64_t now = 0;
  if (mode_.load(std::memory_order_relaxed) & timed)
    if (!steady_ || !base::counter_glance(now)) [[unlikely]]
      return enter_simply_late(call);
  return enter_simply_at(call, TimePoint(std::chrono::nanoseconds(now)));
}

[[gnu::noinline]] Bulkhead::Entry Bulkhead::enter_simply_late(SimpleCall& call) noexcept {
  return enter_simply_at(call, glance());
}

[[gnu::always_inline]] inline Bulkhead::Entry Bulkhead::enter_simply_at(SimpleCall& call,
                                                                        TimePoint now) noexcept {
  using Pass = Gate::Turnstile::Pass;
  const base::ThreadNumber me = base::detail::number_of_thread;
  RateLimiter* const rate = rate_.load(std::memory_order_acquire);
  Breaker* const breaker = breaker_.load(std::memory_order_acquire);
  if (mode_.load(std::memory_order_relaxed) & ~(timed | with_histograms)) [[unlikely]]
    return Entry::no;
  // The mode may be older than the policies, which must not see a time that never was.
  if (now == TimePoint{} && (rate || breaker)) [[unlikely]]
    return Entry::no;
  call.began_ns = ns(now);
  call.breaker = breaker;
  call.sampled = false;
  // Only a look, for it is the rate limit's turn. A breaker that has something to say is asked on the long way.
  if (breaker) {
    const std::uint64_t word = breaker->look();
    if (word & Breaker::kAsk) [[unlikely]]
      return Entry::no;
    call.breaker_word = word;
  }
  RateLimiter::Token token{};
  if (rate) {
    token = rate->core_->take_one(now);
    if (token.charge == 0) [[unlikely]]
      return Entry::no;
  }
  Gate& gate = *gate_;
  std::uint64_t seen = 0;
  const Pass passed = gate.turnstile_.try_pass(1, seen);
  if (rate) rate->core_->count_one(me);  // only now: the exchange above would have waited for it
  if (passed == Pass::no) [[unlikely]] {
    call.rate = rate;
    call.charge = token.charge;
    call.mark = token.mark;
    return Entry::almost;
  }
  const bool adaptive = limiter_.load(std::memory_order_acquire);
  if (passed == Pass::yes && !adaptive) return Entry::yes;
  const bool usual = passed == Pass::noted && now != TimePoint{} && !adaptive;
  if (usual && !gate.turnstile_.needs_note(seen) && gate.meter_ && gate.meter_->step_own(me, 1, 0, ns(now)))
      [[likely]]
    return Entry::yes;
  return enter_simply_rest(call, passed);
}

[[gnu::noinline]] Bulkhead::Entry Bulkhead::enter_simply_rest(SimpleCall& call,
                                                              Gate::Turnstile::Pass passed) noexcept {
  if (passed != Gate::Turnstile::Pass::yes) {
    gate_->measure(1, passed, call.began_ns);
    gate_->turnstile_.note_pass();
  }
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire)) {
    call.sample = limiter->admitted(call.began(), gate_->in_flight());
    call.sampled = true;
  }
  return Entry::yes;
}

void Bulkhead::leave_simply(const SimpleCall& call) noexcept {
  std::int64_t now = 0;
  if (call.began_ns != 0)
    if (!steady_ || !base::counter_glance(now)) [[unlikely]]
      return leave_simply_late(call);
  leave_simply_at(call, TimePoint(std::chrono::nanoseconds(now)));
}

[[gnu::noinline]] void Bulkhead::leave_simply_late(const SimpleCall& call) noexcept {
  leave_simply_at(call, glance());
}

// The place last, as in leave().
[[gnu::always_inline]] inline void Bulkhead::leave_simply_at(const SimpleCall& call, TimePoint now) noexcept {
  if (call.began_ns != 0) {
    const auto took = now - call.began();
    if (mode_.load(std::memory_order_relaxed) & with_histograms)
      core_->service.add(base::detail::number_of_thread,
                         took.count() > 0 ? static_cast<std::uint64_t>(took.count()) : 0);
    const bool well = !call.breaker || call.breaker->core_->stays_well(call.breaker_word, took);
    if (!well || call.sampled) [[unlikely]]
      return leave_simply_telling(call, now);
  }
  give_back_simply(now);
}

// Breaker and limiter want to know.
[[gnu::noinline]] void Bulkhead::leave_simply_telling(const SimpleCall& call, TimePoint now) noexcept {
  if (call.breaker)
    call.breaker->complete({.generation = call.breaker_word >> Breaker::kFlags}, CallVerdict::success,
                           now - call.began(), now);
  if (call.sampled)
    if (AdaptiveLimiter* const limiter = limiter_.load(std::memory_order_acquire))
      limiter->completed(call.sample, now, CallEnd::success);
  give_back_simply(now);
}

[[gnu::always_inline]] inline void Bulkhead::give_back_simply(TimePoint now) noexcept {
  Gate& gate = *gate_;
  detail::Meter* const meter = gate.meter_.get();
  if (!meter) {
    if (!gate.turnstile_.give_back(1)) [[unlikely]]
      gate.release_slow();
    return;
  }
  // The meter wants to know the time even if nobody else does.
  if (now == TimePoint{} || !meter->step_own(base::detail::number_of_thread, -1, 0, ns(now))) [[unlikely]]
    return gate.release_measured(ns(now));
  if (!gate.turnstile_.give_back_quietly(1)) [[unlikely]]
    gate.release_stepped(ns(now));
}

Call Bulkhead::resume(const SimpleCall& simple) noexcept {
  Call call;
  call.bulkhead_ = this;
  call.began_ = simple.began();
  if (simple.sampled) call.sample_ = simple.sample;
  call.breaker_ = simple.breaker;
  if (call.breaker_) call.pass_.generation = simple.breaker_word >> Breaker::kFlags;
  call.permit_.hold(gate_, Priority::normal);
  if (gate_->turnstile_.observed()) call.permit_.observe();
  return call;
}

}  // namespace bulkhead
