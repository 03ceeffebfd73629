// The stages of a call through a bulkhead: one function each, in the order in which a call passes them.
#include "bulkhead/bulkhead.h"
#include "bulkhead/bulkhead_core.h"
#include "gate/completions.h"

namespace bulkhead {
namespace detail {
namespace {

std::int64_t ns(TimePoint t) { return t.time_since_epoch().count(); }
TimePoint time_of(const std::atomic<std::int64_t>& ns) {
  return TimePoint(std::chrono::nanoseconds(ns.load(std::memory_order_acquire)));
}

std::uint64_t nonnegative(std::chrono::nanoseconds span) {
  return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0;
}

}  // namespace

// flatten: the stages are compiled into this function, which saves a third of the time of an empty call.
[[gnu::flatten]] void CallPath::execute(CallBody& body) noexcept {
  Call call;
  RejectionSlot why;
  WaitPin waits;
  if (!admit(call, body.asked, why) || !take_place(call, body.asked, true, why, waits))
    return reject(body, *why);
  waits.reset();  // the handler of a call that gets this one's units may destroy the bulkhead
  run(call, body);
}

bool CallPath::start(Call& call, CallBody& body) noexcept {
  RejectionSlot why;
  if (!admit(call, body.asked, why)) {
    reject(body, *why);
    return false;
  }
  hold(call);
  if (!call.free()) return true;
  run(call, body);
  return false;
}

void CallPath::arrive(Call& call, Result<Permit> permit, CallBody& body) noexcept {
  WaitPin pin;
  if (!permit) pin.emplace(*this);  // a rejected call is no longer pinned itself, and its fallback comes next
  RejectionSlot why;
  if (!placed(call, std::move(permit), why)) return reject(body, *why);
  run(call, body);
}

Result<Call> CallPath::acquire(const AcquireOptions& options, bool may_wait) noexcept {
  Result<Call> call(std::in_place);
  RejectionSlot why;
  WaitPin waits;
  if (!admit(*call, options, why) || !take_place(*call, options, may_wait, why, waits))
    return Result<Call>(unexpect, *why);
  if (is_faulty(*call)) [[unlikely]] {
    const Injected fault = injected(*call, options.deadline);
    if (may_wait) sleep(fault.until);
    if (fault.error) return Result<Call>(unexpect, fail(*call));
  }
  return call;
}

// One object for all answers, made where the caller has it: a call that is admitted is not moved.
std::optional<Result<Call>> CallPath::begin_acquire(const AcquireOptions& options, Call& begun) noexcept {
  std::optional<Result<Call>> answer(std::in_place);
  RejectionSlot why;
  const auto begin = [&](Call& call) {
    if (!admit(call, options, why)) return Place::rejected;
    if (call.free()) return Place::taken;
    if (is_faulty(call)) [[unlikely]] {  // the second step waits for the latency
      pin(call);
      return Place::wait;
    }
    if (call.budgets_) [[unlikely]] {
      const Place budgets = budgets_at_once(call, true, why);
      if (budgets != Place::taken) return budgets;
    }
    const Place place = place_at_once(call, options, true, why);
    if (place == Place::wait && !shared_) pin(call);
    return place;
  };
  switch (begin(**answer)) {
    case Place::taken:
      break;
    case Place::rejected:
      answer.emplace(unexpect, *why);
      break;
    case Place::wait:
      begun = std::move(**answer);
      answer.reset();
      break;
  }
  return answer;
}

// In shadow mode a call that a stage would reject skips the later stages, as a rejected call does, and then runs.
bool CallPath::admit(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept {
  const std::uint8_t mode = mode_.load(std::memory_order_relaxed);
  if (mode & (kBypassed | kShadow | kDraining | kHoldback | kFaulty)) [[unlikely]] {
    if (mode & kDraining) return reject(call, options.priority, Reason::draining, {}, why);
    if (!(mode & (kBypassed | kShadow))) {
      if (mode & kFaulty) call.flags_ = Call::kFaulty;
    } else {
      call.flags_ = Call::kFree;
      pin(call);
    }
    if (mode & kBypassed) {
      call.flags_ |= Call::kBypassed;
      core().counts.bypassed.fetch_add(1, std::memory_order_relaxed);
      return true;
    }
    if ((mode & kHoldback) && holds_back(options)) {
      if (!call.free()) return reject(call, options.priority, Reason::holdback, {}, why);
      would_reject(Reason::holdback);
      return true;
    }
  }
  // The mode may be older or newer than the policies, and each of them needs the time.
  if ((mode & kTimed) || rate_.load(std::memory_order_relaxed) || breaker_.load(std::memory_order_relaxed))
    call.began_ = glance();
  const bool admitted = limit_rate(call, options, why) && ask_breaker(call, options, why) &&
                        (options.costs.empty() || reserve(call, options, why));
  if (!call.free()) [[likely]]
    return admitted;
  if (admitted)
    shadow_place(call, options);
  else
    would_reject(why->reason);
  return true;
}

// ---- 0. holdback ----

[[gnu::noinline]] bool CallPath::holds_back(const AcquireOptions& options) noexcept {
  Holdback* const holdback = holdback_.load(std::memory_order_acquire);
  if (!holdback) return false;
  const auto load = gate_->load();
  // Relative to the limit in force, also while an adaptive limiter dips: critical calls need free places then, too.
  const HoldbackLoad now{.used = std::uint64_t{load.in_flight} + load.waiting,
                         .room = std::uint64_t{load.limit} + load.max_queue,
                         .in_line = load.waiting > 0};
  if (holdback->admits(options.priority, now, holdback->reads_gauges() ? glance() : TimePoint{}))
    return false;
  // A higher limit would admit the call, unless a gauge holds it back.
  if (AdaptiveLimiter* const limiter = limiter_.load(std::memory_order_acquire))
    if (!holdback->gauges_lead(now)) limiter->held_back();
  return true;
}

// ---- 1. rate limit ----

bool CallPath::limit_rate(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept {
  RateLimiter* const rate = rate_.load(std::memory_order_acquire);
  if (!rate) return true;
  if (call.began_ == TimePoint{}) [[unlikely]]
    call.began_ = glance();  // the policy was added just now
  const RateLimiter::Token token = rate->take(options.cost, call.began_);
  if (token.charge == 0) [[unlikely]]
    return reject(call, options.priority, Reason::rate_limit, RateLimiter::rejection(token).retry_after, why);
  call.rate_ = rate;
  call.ticket_.charge = token.charge;
  call.ticket_.mark = token.mark;
  return true;
}

void CallPath::take_back_tokens(Call& call) noexcept {
  if (RateLimiter* const rate = std::exchange(call.rate_, nullptr)) rate->cancel(call.ticket_);
}

// ---- 2. breaker ----

bool CallPath::ask_breaker(Call& call, const AcquireOptions& options, RejectionSlot& why) noexcept {
  Breaker* const breaker = breaker_.load(std::memory_order_acquire);
  if (!breaker) return true;
  if (call.began_ == TimePoint{}) [[unlikely]]
    call.began_ = glance();
  const auto pass = breaker->admit(call.began_);
  if (!pass) [[unlikely]] {
    take_back_tokens(call);
    return reject(call, options.priority, Reason::breaker_open, pass.error().retry_after, why);
  }
  call.breaker_ = breaker;
  call.pass_ = *pass;
  return true;
}

// Stages 0 to 2 reject a call. The gate counts the rejection, unless the call runs anyway (shadow mode).
bool CallPath::reject(const Call& call, Priority priority, Reason reason,
                      std::chrono::nanoseconds retry_after, RejectionSlot& why) noexcept {
  const bool counts = !call.free();
  why.make(counts ? gate_->reject(priority, reason) : Rejection{.reason = reason}).retry_after = retry_after;
  return false;
}

// ---- 3. place ----

bool CallPath::take_place(Call& call, const AcquireOptions& options, bool may_wait, RejectionSlot& why,
                          WaitPin& waits) noexcept {
  if (call.free()) return true;
  if (call.budgets_) [[unlikely]] {
    waits.emplace(*this);
    if (!take_budgets(call, may_wait, why)) return false;
  }
  const Place place = place_at_once(call, options, may_wait, why);
  if (place != Place::wait) [[likely]]
    return place == Place::taken;
  if (!waits) waits.emplace(*this);
  return placed(call, gate_->acquire(place_options(call, options)), why);
}

CallPath::Place CallPath::place_at_once(Call& call, const AcquireOptions& options, bool may_wait,
                                        RejectionSlot& why) noexcept {
  if (shared_) pin(call);
  const std::int64_t seen = call.flags_ & Call::kWaited ? 0 : ns(call.began_);
  if (gate_->enter_at_once(options, seen, call.permit_)) [[likely]] {
    hold(call);
    begin_service(call);
    return Place::taken;
  }
  const auto place = [&](Result<Permit> permit) {
    return placed(call, std::move(permit), why) ? Place::taken : Place::rejected;
  };
  if (!may_wait) return place(gate_->try_acquire_slow(options, seen));
  if (auto decided = gate_->at_once(options, seen)) return place(*std::move(decided));
  return Place::wait;
}

bool CallPath::placed(Call& call, Result<Permit> permit, RejectionSlot& why) noexcept {
  hold(call);
  if (!permit) {
    if (permit.error().reason == Reason::timeout && call.began_ != TimePoint{})
      if (Holdback* const holdback = holdback_.load(std::memory_order_acquire))
        holdback->left_line(call.began_);
    why.make(permit.error());
    call.finish(Outcome::ignored);
    return false;
  }
  call.permit_ = *std::move(permit);
  begin_service(call);
  return true;
}

// The call has its place. The time it waited is not part of its service time.
void CallPath::begin_service(Call& call) noexcept {
  if (call.began_ == TimePoint{}) return;
  if (call.permit_.waited() || (call.flags_ & Call::kWaited)) {
    const TimePoint now = glance();
    if (mode_.load(std::memory_order_relaxed) & kHistograms)
      core().wait.record(nonnegative(now - call.began_));
    if (Holdback* const holdback = holdback_.load(std::memory_order_acquire))
      holdback->left_line(call.began_);
    call.began_ = now;
  }
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire))
    call.sample_ = gate_->backing_ ? limiter->admitted(call.began_, *gate_)  // of the group
                                   : limiter->admitted(call.began_, gate_->in_flight());
}

// In shadow mode calls without a place run all the same. They are those that would wait, up to the length of the
// line; the rest would be rejected.
void CallPath::shadow_place(Call& call, const AcquireOptions& options) noexcept {
  call.rate_ = nullptr;  // the call is made: it keeps its tokens
  const bool budgets = !call.budgets_ || peek_budgets(call);
  if (budgets) {
    if (Result<Permit> permit = gate_->peek({.priority = options.priority, .cost = options.cost})) {
      call.permit_ = *std::move(permit);
      return;
    }
  }
  call.flags_ |= Call::kOverLimit;
  const Snapshot s = gate_->snapshot();
  if (core().counts.over_limit.fetch_add(1, std::memory_order_relaxed) < s.max_queue)
    core().counts.would_wait.fetch_add(1, std::memory_order_relaxed);
  else if (!budgets)
    would_reject(Reason::budget_limit);
  else
    would_reject(s.max_queue == 0 ? Reason::concurrency_limit : Reason::queue_limit);
}

// ---- 4. call ----

void CallPath::run(Call& call, CallBody& body) noexcept {
  if (is_faulty(call)) [[unlikely]]
    return run_faulty(call, body);
  CallBody::Attempt attempt(*this, call, body);
  body.run(attempt);
  end(attempt, body);
}

CallBody::Attempt::Attempt(CallPath& its_path, Call& its_call, const CallBody& its_body) noexcept
    : path(its_path), call(its_call), body(its_body) {
  const auto longest = path.time_limit(body.execution_timeout);
  if (longest == wait_forever && body.asked.deadline == no_deadline) return;
  if (call.flags_ & Call::kBypassed) return;
  if (call.began_ == TimePoint{}) call.began_ = path.clock_.now();
  until = std::min(saturating_add(call.began_, longest), body.asked.deadline);
}

std::stop_token CallBody::Attempt::stop() {
  const TimePoint fires = call.free() ? no_deadline : until;  // shadow mode stops no call
  return limit.watch(path.clock_, fires, body.asked.stop, call.permit_.stop_token());
}

// ---- 5. outcome ----

void CallPath::end(CallBody::Attempt& attempt, CallBody& body) noexcept {
  Call& call = attempt.call;
  Ending ending;
  if (attempt.until != no_deadline) {
    ending.now = clock_.now();
    ending.timed_out = ending.now >= attempt.until;
  } else if (call.began_ != TimePoint{}) {
    ending.now = glance();
  }
  ending.took = ending.now - call.began_;
  conclude(call, body, ending);
}

void CallPath::conclude(Call& call, CallBody& body, const Ending& ending) noexcept {
  const bool late = ending.timed_out && !call.free();  // whatever it returned or threw
  const Verdict verdict = late ? Verdict{Outcome::timeout, true} : judge(body, call.permit_);
  if (!verdict.failed && !ending.timed_out) [[likely]]
    return leave(call, verdict.outcome, ending);  // nothing of the bulkhead is used afterwards
  const Pin pin(*this);
  leave(call, ending.timed_out ? Outcome::timeout : verdict.outcome, ending);
  if (late) {
    const Rejection why = timed_out();
    body.reject(why);
    return fall_back(body, {.kind = Cause::Kind::timed_out, .rejection = why});
  }
  if (ending.timed_out) would_reject(Reason::execution_timeout);
  if (verdict.failed) fall_back(body, {.kind = Cause::Kind::failed, .exception = body.thrown});
}

CallPath::Verdict CallPath::judge(CallBody& body, Permit& permit) noexcept {
  if (!body.needs_judge) return {Outcome::success, false};
  const auto [outcome, by_judge] = body.judge(core().judge_of_all);
  if (by_judge || outcome != Outcome::failure) return {outcome, is_failure(outcome)};
  // What a call returns or throws because it was cancelled, by its caller or by a lender, says nothing about the
  // dependency. A caller that has cancelled gets no fallback; one whose unit a lender took back does.
  if (body.asked.stop.stop_requested()) return {Outcome::ignored, false};
  if (permit.stop_token().stop_requested()) return {Outcome::ignored, true};
  return {outcome, true};
}

// The place goes last: the next call that gets it finds everything counted, and it keeps the bulkhead from being
// destroyed. Nothing before it can throw or wait.
void CallPath::leave(Call& call, Outcome outcome, const Ending& ending) noexcept {
  call.path_ = nullptr;
  const bool has_place{call.permit_};
  if (!has_place) take_back_tokens(call);
  if (has_place && call.began_ != TimePoint{} && mode_.load(std::memory_order_relaxed) & kHistograms)
    core().service.add(nonnegative(ending.took));
  if (Breaker* const breaker = std::exchange(call.breaker_, nullptr))
    breaker->complete(call.pass_, outcome, ending.took, ending.now);
  if (call.sample_.start != TimePoint{})
    if (AdaptiveLimiter* const limiter = limiter_.load(std::memory_order_acquire))
      limiter->completed(call.sample_, ending.now, outcome);
  const std::uint8_t flags = std::exchange(call.flags_, std::uint8_t{0});
  if (flags & Call::kOverLimit) core().counts.over_limit.fetch_sub(1, std::memory_order_relaxed);
  const auto give_back = [&] {
    if (!has_place) return;
    if (is_failure(outcome)) call.permit_.fail();
    call.permit_.drop(ns(ending.now));
  };
  if (BudgetHold* const hold = std::exchange(call.budgets_, nullptr)) [[unlikely]] {
    // Handlers of the calls that get these units run last: one may destroy the bulkhead, which waits for the pin.
    const Completions::Together all;
    give_back();
    BudgetHold::destroy(hold);  // after the place: a call that waits for these units then finds it free
    unpin();                    // a call with a hold is pinned
    return;
  }
  give_back();
  if (flags & Call::kPinned) unpin();
}

bool CallPath::finish(Call& call, Outcome outcome) noexcept {
  Ending ending{.now = call.began_ == TimePoint{} ? call.began_ : glance()};
  ending.took = ending.now - call.began_;
  if (outcome == Outcome::timeout) {
    if (call.free())
      would_reject(Reason::execution_timeout);
    else
      core().counts.timed_out.fetch_add(1, std::memory_order_relaxed);
  }
  leave(call, outcome, ending);
  return true;
}

Rejection CallPath::timed_out() noexcept {
  core().counts.timed_out.fetch_add(1, std::memory_order_relaxed);
  const Snapshot s = gate_->snapshot();
  return {Reason::execution_timeout, gate_->name(), s.in_flight, s.max_concurrent, s.waiting, s.max_queue};
}

// ---- 6. fallback ----

void CallPath::reject(CallBody& body, const Rejection& why) noexcept {
  body.reject(why);
  if (why.reason == Reason::cancelled) return;  // its caller no longer waits for an answer
  fall_back(body, {.kind = Cause::Kind::rejected, .rejection = why});
}

void CallPath::fall_back(CallBody& body, const Cause& cause) noexcept {
  if (!body.has_fallback() || !covers(fallback_on_.load(std::memory_order_relaxed), cause.kind)) return;
  body.thrown = nullptr;
  body.fall_back(cause);
  core().counts.fallbacks[static_cast<std::size_t>(cause.kind)].fetch_add(1, std::memory_order_relaxed);
  if (body.thrown) core().counts.fallback_failures.fetch_add(1, std::memory_order_relaxed);
}

// ---- stages 3 to 5 in a pool ----

SubmitOptions CallPath::submission(const Call& call, const CallBody& body) const noexcept {
  const AcquireOptions& o = body.asked;
  return {.priority = o.priority,
          .cost = o.cost,
          .timeout = place_options(call, o).timeout,
          .execution_timeout = time_limit(body.execution_timeout),
          .deadline = o.deadline,
          .stop = o.stop,
          .flow = o.flow,
          .label = o.label,
          .where = o.where};
}

TimePoint CallPath::submitted(const Call& call) const noexcept {
  return call.flags_ & Call::kWaited ? call.began_ : clock_.now();
}

TimePoint CallPath::begin_pooled(PooledTimes& times, TimePoint submitted) noexcept {
  const TimePoint now = clock_.now();
  if (mode_.load(std::memory_order_relaxed) & kHistograms) core().wait.record(nonnegative(now - submitted));
  if (Holdback* const holdback = holdback_.load(std::memory_order_acquire)) holdback->left_line(submitted);
  if (const AdaptiveLimiter* limiter = limiter_.load(std::memory_order_acquire))
    times.sample = limiter->admitted(now, gate_->in_flight());
  times.began.store(ns(now), std::memory_order_release);  // with the sample
  return now;
}

void CallPath::end_pooled(PooledTimes& times, TimePoint began) noexcept {
  const TimePoint now = clock_.now();
  if (mode_.load(std::memory_order_relaxed) & kHistograms) core().service.add(nonnegative(now - began));
  times.ended.store(ns(now), std::memory_order_release);
}

// The permit is the pool's. `rejection`: the pool's answer, if it was one; then the call ran only if its time was up.
void CallPath::conclude_pooled(Call& call, CallBody& body, const PooledTimes& times,
                               const Rejection* rejection) noexcept {
  const TimePoint now = clock_.now(), began = time_of(times.began);
  const bool ran = began != TimePoint{};
  if (ran) {
    call.sample_ = times.sample;
    call.rate_ = nullptr;
  }
  if (!rejection) {
    const Ending ending{.now = now, .took = time_of(times.ended) - began};
    return times.injected_error ? fail(call, body, ending) : conclude(call, body, ending);
  }
  if (ran && rejection->reason == Reason::execution_timeout)
    return conclude(call, body, {.now = now, .took = now - began, .timed_out = true});
  const Rejection why = *rejection;
  leave(call, Outcome::ignored, {.now = now, .took = now - began});
  reject(body, why);
}

// ---- around the stages ----

AcquireOptions CallPath::with_defaults(AcquireOptions o) const noexcept {
  if (o.timeout == gate_default && !shared_) o.timeout = max_wait_.load(std::memory_order_relaxed);
  return o;
}

std::chrono::nanoseconds CallPath::time_limit(std::chrono::nanoseconds own) const noexcept {
  return own == gate_default ? execution_timeout_.load(std::memory_order_relaxed) : own;
}

void CallPath::would_reject(Reason reason) noexcept {
  core().counts.would_reject[static_cast<std::size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
}

void CallPath::count_handler_error() noexcept {
  core().counts.handler_errors.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace detail

Call::Call(Call&& other) noexcept
    : path_(std::exchange(other.path_, nullptr)),
      breaker_(std::exchange(other.breaker_, nullptr)),
      rate_(std::exchange(other.rate_, nullptr)),
      budgets_(std::exchange(other.budgets_, nullptr)),
      ticket_(other.ticket_),
      permit_(std::move(other.permit_)),
      pass_(other.pass_),
      sample_(other.sample_),
      began_(other.began_),
      flags_(std::exchange(other.flags_, std::uint8_t{0})) {}

Call& Call::operator=(Call&& other) noexcept {
  if (this != &other) {
    finish(Outcome::ignored);
    std::destroy_at(this);
    std::construct_at(this, std::move(other));
  }
  return *this;
}

bool Call::finish(Outcome outcome) noexcept { return path_ && path_->finish(*this, outcome); }

std::chrono::nanoseconds Call::execution_timeout() const noexcept {
  return path_ && !free() ? path_->time_limit(gate_default) : wait_forever;
}

std::string Cause::message() const {
  if (kind != Kind::failed || rejection.reason == Reason::injected_fault) return rejection.message();
  return exception ? "the call threw" : "the call failed";
}

}  // namespace bulkhead
