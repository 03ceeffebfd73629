#include "bulkhead/bulkhead.h"

#include <algorithm>
#include <mutex>
#include <vector>

#include "base/futex.h"
#include "base/text.h"
#include "bulkhead/core.h"

namespace bulkhead {
namespace {

[[noreturn]] void invalid(std::string_view name, std::string_view setting, std::string_view problem) {
  base::throw_invalid(base::join({"bulkhead \"", name, "\": ", setting, " ", problem}));
}

void check(const BulkheadOptions& o, bool in_group) {
  const std::string_view name = o.gate ? o.gate->name() : std::string_view(o.name);
  if (o.execution_timeout <= std::chrono::nanoseconds(0))
    invalid(name, "execution_timeout", "is not positive: give more than 0, or wait_forever");
  if (o.gate && o.isolation == Isolation::threads)
    invalid(name, "gate", "cannot be given with threads of its own: use Isolation::semaphore, or no gate");
  if (in_group && o.adaptive)
    invalid(
        name, "adaptive",
        "cannot move the limit of a member of a group, which does that itself: leave it out, or give a gate "
        "of its own");
}

GateOptions gate_options(const BulkheadOptions& o, Clock& clock) {
  return {.name = o.name,
          .max_concurrent = o.max_concurrent,
          .max_queue = o.max_queue,
          .max_wait = o.max_wait,
          .critical_reserve = o.critical_reserve,
          .fairness = o.fairness,
          .hooks = o.hooks,
          .flow_queues = o.flow_queues,
          .flow_hand = o.flow_hand,
          .flow_seed = o.flow_seed,
          .measure_service = o.measure_service,
          .track_holders = o.track_holders,
          .measure_occupancy = o.histograms,
          .clock = &clock};
}

PoolOptions pool_options(const BulkheadOptions& o, Clock& clock) {
  PoolOptions p = o.pool;
  p.name = o.name;
  p.threads = o.max_concurrent;
  p.max_queue = o.max_queue;
  p.max_wait = o.max_wait;
  p.critical_reserve = o.critical_reserve;
  p.flow_queues = o.flow_queues;
  p.flow_hand = o.flow_hand;
  p.flow_seed = o.flow_seed;
  p.hooks = o.hooks;
  p.measure_service = o.measure_service;
  p.track_holders = o.track_holders;
  p.measure_occupancy |= o.histograms;
  p.clock = &clock;
  return p;
}

std::int64_t ns(TimePoint t) { return t.time_since_epoch().count(); }

std::uint64_t nonnegative(std::chrono::nanoseconds span) {
  return span.count() > 0 ? static_cast<std::uint64_t>(span.count()) : 0;
}

// For a trial: nobody hears of it, and no thread starts.
BulkheadOptions silent(const BulkheadOptions& o) {
  BulkheadOptions quiet = o;
  quiet.hooks = {};
  quiet.pool.context = {};
  quiet.pool.on_thread_start = quiet.pool.on_thread_end = {};
  quiet.pool.min_threads = 0;
  if (quiet.breaker) quiet.breaker->on_transition = {};
  return quiet;
}

// A limiter that has nothing to decide.
LimiterOptions fixed_at(std::uint32_t limit) { return {.floor = limit, .ceiling = limit, .initial = limit}; }

template <class Options>
Options named(Options options, std::string_view name, Clock& clock) {
  options.name = name;
  options.clock = &clock;
  return options;
}

}  // namespace

std::string Cause::message() const {
  if (kind != Kind::failed) return rejection.message();
  return exception ? "the call threw" : "the call failed";
}

double BulkheadSnapshot::rejection_rate() const {
  const std::uint64_t asked = gate.admitted + gate.rejected();
  return asked == 0 ? 0 : static_cast<double>(gate.rejected()) / static_cast<double>(asked);
}

Bulkhead::Bulkhead(const BulkheadOptions& o)
    : clock_(o.clock  ? *o.clock
             : o.gate ? o.gate->clock()
                      : Clock::steady()),
      steady_(&clock_ == &Clock::steady()),
      core_(std::make_unique<Core>()) {
  bulkhead::check(o, o.gate && o.gate->backing_);
  if (o.gate) {
    gate_ = o.gate;
    shared_ = true;
  } else if (o.isolation == Isolation::threads) {
    pool_ = &core_->pool.emplace(pool_options(o, clock_));
    gate_ = &pool_->gate();
  } else {
    gate_ = &core_->gate.emplace(gate_options(o, clock_));
  }
  core_->judge = o.judge;
  apply(o);
}

Bulkhead::~Bulkhead() {
  if (pool_)
    pool_->shutdown(Shutdown::now, clock_.now());
  else if (core_->gate)
    core_->gate->close();
  // Those with a place use everything in here, and give it back last; who shares a gate is pinned.
  if (!shared_) gate_->drain();
  pins_.fetch_or(closing, std::memory_order_relaxed);
  for (std::uint32_t n = 0; (n = pins_.load(std::memory_order_acquire)) != closing;)
    base::futex_wait(pins_, n, no_deadline);
}

void Bulkhead::pin(Call& call) noexcept {
  pins_.fetch_add(1, std::memory_order_relaxed);
  call.bulkhead_ = this;
  call.flags_ |= Call::is_pinned;
}

void Bulkhead::unpin() noexcept {
  const auto* pins = &pins_;
  if (pins_.fetch_sub(1, std::memory_order_acq_rel) == closing + 1) base::futex_wake(pins);
}

// ---- settings ----

void Bulkhead::apply(const BulkheadOptions& o) {
  Core& core = *core_;
  // Taken away first, so that nothing moves the limit any more; a limit of threads needs as many threads.
  if (!o.adaptive) limiter_.store(nullptr, std::memory_order_relaxed);
  if (pool_ && o.adaptive) pool_->allow(std::max(o.max_concurrent, o.adaptive->ceiling));
  if (o.adaptive && core.limiter)
    core.limiter->update(*o.adaptive);
  else if (o.adaptive)
    core.limiter = std::make_unique<AdaptiveLimiter>(*gate_, *o.adaptive);
  else if (!o.gate && o.max_concurrent != gate_->snapshot().max_concurrent)
    size(o.max_concurrent);
  if (o.breaker && core.breaker) {
    core.breaker->update(named(*o.breaker, name(), clock_));
    // A mode that an operator has set stays, unless these settings ask for another one than the last ones did.
    const auto before = options().breaker;
    const bool asked = !before || before->mode != o.breaker->mode;
    if (asked && core.breaker->snapshot().mode != o.breaker->mode) core.breaker->set_mode(o.breaker->mode);
  } else if (o.breaker)
    core.breaker = std::make_unique<Breaker>(named(*o.breaker, name(), clock_));
  if (o.rate_limit && core.rate)
    core.rate->update(named(*o.rate_limit, name(), clock_));
  else if (o.rate_limit)
    core.rate = std::make_unique<RateLimiter>(named(*o.rate_limit, name(), clock_));
  if (core.limiter) core.limiter->hold(!o.adaptive);

  const bool time_matters = o.histograms || o.breaker || o.rate_limit || o.adaptive;
  const bool here = !pool_ && !shared_ && o.execution_timeout == wait_forever;
  const bool hidden = !gate_->turnstile_.observed() || gate_->only_measured();
  mode_.store(static_cast<std::uint8_t>((o.enabled ? 0 : bypassed) | (o.shadow ? shadowed : 0) |
                                        (time_matters ? timed : 0) | (o.histograms ? with_histograms : 0) |
                                        (here ? 0 : elsewhere) | (hidden ? 0 : watched) |
                                        (mode_.load(std::memory_order_relaxed) & draining)),
              std::memory_order_relaxed);
  fallback_on_.store(o.fallback_on, std::memory_order_relaxed);
  max_wait_.store(o.max_wait, std::memory_order_relaxed);
  execution_timeout_.store(o.execution_timeout, std::memory_order_relaxed);
  // release: a call that finds a policy finds it made
  rate_.store(o.rate_limit ? core.rate.get() : nullptr, std::memory_order_release);
  breaker_.store(o.breaker ? core.breaker.get() : nullptr, std::memory_order_release);
  limiter_.store(o.adaptive ? core.limiter.get() : nullptr, std::memory_order_release);
  std::lock_guard lock(core.mutex);
  core.options = o;
}

void Bulkhead::check(const BulkheadOptions& o) const {
  const BulkheadOptions old = options();
  const auto fixed = [&](bool same, std::string_view setting) {
    if (!same) invalid(name(), setting, "cannot be changed on a living bulkhead: make a new one");
  };
  fixed(o.name == old.name, "name");
  fixed(o.isolation == old.isolation, "isolation");
  fixed(o.fairness == old.fairness, "fairness");
  fixed(o.critical_reserve == old.critical_reserve, "critical_reserve");
  fixed(o.flow_queues == old.flow_queues, "flow_queues");
  fixed(o.flow_hand == old.flow_hand, "flow_hand");
  fixed(o.flow_seed == old.flow_seed, "flow_seed");
  fixed(o.gate == old.gate, "gate");
  fixed(o.clock == old.clock, "clock");
  bulkhead::check(o, gate_->backing_);
  try_out(silent(o));
}

void Bulkhead::update(const BulkheadOptions& o) {
  std::lock_guard lock(core_->settings);
  check(o);
  if (!o.gate && o.max_queue != options().max_queue) gate_->resize_queue(o.max_queue);
  apply(o);
}

// Everything that can be wrong is tried first, so that a wrong setting changes nothing.
void Bulkhead::try_out(const BulkheadOptions& o) const {
  if (!o.gate) {
    if (pool_) [[maybe_unused]]
      const Pool tried(pool_options(o, clock_));
    else [[maybe_unused]]
      const Gate tried(gate_options(o, clock_));
  }
  if (o.breaker) [[maybe_unused]]
    const Breaker tried(named(*o.breaker, name(), clock_));
  if (o.rate_limit) [[maybe_unused]]
    const RateLimiter tried(named(*o.rate_limit, name(), clock_));
  if (o.adaptive) {
    Gate gate(gate_options(o, clock_));
    [[maybe_unused]] const AdaptiveLimiter tried(gate, *o.adaptive);
  }
}

void Bulkhead::size(std::uint32_t max_concurrent) {
  if (!core_->limiter) {
    if (pool_)
      pool_->resize(max_concurrent);
    else
      gate_->resize(max_concurrent);
    return;
  }
  if (pool_) pool_->allow(max_concurrent);
  core_->limiter->update(fixed_at(max_concurrent));
}

void Bulkhead::resize(std::uint32_t max_concurrent) {
  std::lock_guard lock(core_->settings);
  BulkheadOptions o = options();
  const std::uint32_t before = std::exchange(o.max_concurrent, max_concurrent);  // a hook inside comes later
  if (!o.gate) try_out(silent(o));
  if (!o.adaptive) size(max_concurrent);
  std::lock_guard options_lock(core_->mutex);
  if (core_->options.max_concurrent == before) core_->options.max_concurrent = max_concurrent;
}

void Bulkhead::resize_queue(std::uint32_t max_queue) {
  std::lock_guard lock(core_->settings);
  gate_->resize_queue(max_queue);
  std::lock_guard options_lock(core_->mutex);
  core_->options.max_queue = max_queue;
}

BulkheadOptions Bulkhead::options() const {
  std::lock_guard lock(core_->mutex);
  return core_->options;
}

void Bulkhead::close() noexcept { gate_->close(); }

bool Bulkhead::drain(TimePoint until) { return gate_->drain(until); }

void Bulkhead::set_draining(bool on) {
  std::lock_guard lock(core_->settings);
  // Relaxed, as every reader's: a call that sees it a moment later is one that came a moment earlier.
  if (on)
    mode_.fetch_or(draining, std::memory_order_relaxed);
  else
    mode_.fetch_and(static_cast<std::uint8_t>(~draining), std::memory_order_relaxed);
}

bool Bulkhead::idle() const noexcept {
  // Acquire: who finds the last pin gone finds everything that its call has counted.
  return gate_->in_flight() == 0 && gate_->snapshot().waiting == 0 &&
         pins_.load(std::memory_order_acquire) == 0;
}

AcquireOptions Bulkhead::with_defaults(AcquireOptions o) const noexcept {
  if (o.timeout == gate_default && !shared_) o.timeout = max_wait_.load(std::memory_order_relaxed);
  return o;
}

std::chrono::nanoseconds Bulkhead::time_limit(std::chrono::nanoseconds own) const noexcept {
  return own == gate_default ? execution_timeout_.load(std::memory_order_relaxed) : own;
}

// ---- the way of a call ----

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

// ---- what it can tell ----

namespace {

Snapshot since(Snapshot s, const Snapshot& baseline) {
  s.admitted -= baseline.admitted;
  s.released -= baseline.released;
  s.succeeded -= baseline.succeeded;
  s.failed -= baseline.failed;
  s.double_releases -= baseline.double_releases;
  s.hook_errors -= baseline.hook_errors;
  s.occupancy -= baseline.occupancy;
  s.saturated -= baseline.saturated;
  for (std::size_t i = 0; i < kReasons; ++i) s.rejected_by_reason[i] -= baseline.rejected_by_reason[i];
  return s;
}

std::uint64_t value(const std::atomic<std::uint64_t>& counter) {
  return counter.load(std::memory_order_relaxed);
}

}  // namespace

BulkheadSnapshot Bulkhead::snapshot() const {
  const Core& core = *core_;
  std::lock_guard lock(core.mutex);
  BulkheadSnapshot s;
  s.name = name();
  s.isolation = isolation();
  s.enabled = core.options.enabled;
  s.shadow = core.options.shadow;
  s.draining = mode_.load(std::memory_order_relaxed) & draining;
  s.gate = since(gate_->snapshot(), core.baseline);
  if (pool_) {
    s.pool = pool_->snapshot();
    s.pool->gate = s.gate;
    s.pool->abandoned_total -= core.abandoned_before;
    s.pool->caller_runs -= core.caller_runs_before;
  }
  if (core.options.breaker) s.breaker = core.breaker->snapshot();
  if (core.options.rate_limit) s.rate_limit = core.rate->snapshot();
  if (core.options.adaptive) s.adaptive = core.limiter->snapshot();
  s.bypassed = value(core.bypassed);
  s.timed_out = value(core.timed_out);
  for (std::size_t i = 0; i < s.fallbacks.size(); ++i) s.fallbacks[i] = value(core.fallbacks[i]);
  s.fallback_failures = value(core.fallback_failures);
  s.handler_errors = value(core.handler_errors);
  for (std::size_t i = 0; i < kReasons; ++i) s.would_reject[i] = value(core.would_reject[i]);
  s.would_wait = value(core.would_wait);
  s.beyond = core.beyond.load(std::memory_order_relaxed);
  if (core.options.histograms) {
    s.wait = core.wait.counts();
    s.service = core.service.counts();
    // Calls that need not wait are not recorded as they come, only counted here.
    const std::uint64_t ended = s.service.count(), waited = s.wait.count();
    if (ended > waited) s.wait.buckets[0] += ended - waited;
  }
  return s;
}

void Bulkhead::reset_statistics() {
  Core& core = *core_;
  std::lock_guard lock(core.mutex);
  core.baseline = gate_->snapshot();
  // Admissions of calls still in flight are forgotten, their ends are not: they count as released later.
  core.baseline.admitted = core.baseline.released;
  for (auto* counter :
       {&core.bypassed, &core.timed_out, &core.fallback_failures, &core.handler_errors, &core.would_wait})
    counter->store(0, std::memory_order_relaxed);
  for (auto& counter : core.fallbacks) counter.store(0, std::memory_order_relaxed);
  for (auto& counter : core.would_reject) counter.store(0, std::memory_order_relaxed);
  core.wait.reset();
  core.service.reset();
  if (!pool_) return;
  const PoolSnapshot pool = pool_->snapshot();
  core.abandoned_before = pool.abandoned_total;
  core.caller_runs_before = pool.caller_runs;
}

}  // namespace bulkhead
