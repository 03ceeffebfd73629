#include "bulkhead/bulkhead.h"

#include <algorithm>

#include "base/futex.h"
#include "base/text.h"
#include "bulkhead/bulkhead_core.h"
#include "gate/completions.h"
#include "gate/line_options.h"

namespace bulkhead {
namespace detail {
namespace {

[[noreturn]] void invalid(std::string_view name, std::string_view setting, std::string_view problem) {
  base::throw_invalid(base::join({"bulkhead \"", name, "\": ", setting, " ", problem}));
}

// Combinations that no part can check alone. The parts check their own settings when they are made.
void check_options(const BulkheadOptions& o, bool in_group) {
  const std::string_view name = o.gate ? o.gate->name() : std::string_view(o.name);
  if (o.execution_timeout <= std::chrono::nanoseconds(0))
    invalid(name, "execution_timeout", "is not positive: give more than 0, or wait_forever");
  if (o.gate && o.isolation == Isolation::threads)
    invalid(name, "gate", "cannot be given with threads of its own: use Isolation::semaphore, or no gate");
  if (o.scope != Scope::process) {
    const std::string scope = base::join({"cannot be given with scope: ", to_string(o.scope)});
    if (!o.sources)
      invalid(name, "scope",
              base::join({"= ", to_string(o.scope),
                          " is not available here: give RegistryOptions::sources or "
                          "BulkheadOptions::sources, such as a shm::Host"}));
    if (o.isolation == Isolation::threads)
      invalid(name, "isolation: threads", base::join({scope, ": use semaphore"}));
    if (o.gate) invalid(name, "gate", base::join({scope, ": leave one of them out"}));
    if (o.holdback)
      invalid(name, "holdback",
              base::join({scope, ", where one process does not see the load of all: leave it out"}));
    if (o.adaptive)
      invalid(name, "adaptive",
              base::join({scope, ", where one process cannot know the load of all: leave it out"}));
    return;
  }
  if (in_group && o.adaptive)
    invalid(
        name, "adaptive",
        "cannot move the limit of a member of a group, which does that itself: make one AdaptiveLimiter for "
        "the group, and give its address as limiter");
  if (o.limiter && o.adaptive)
    invalid(name, "limiter", "cannot be given with adaptive, which has a limiter of its own: leave one out");
  if (o.limiter && !in_group)
    invalid(name, "limiter", "is for the total of a group: give a member of that group as gate");
}

GateOptions gate_options(const BulkheadOptions& o, Clock& clock) {
  GateOptions gate = gate_of_line(o, o.max_concurrent);
  gate.measure_occupancy |= o.histograms;
  gate.clock = &clock;
  return gate;
}

// The queue of a budget is as that of the bulkhead; a pool has fifo only.
GateOptions budget_line(const BulkheadOptions& o, Clock& clock, const Pool* pool) {
  GateOptions line = gate_options(o, clock);
  if (o.gate) line.name = o.gate->name();
  if (pool) line.fairness = Fairness::fifo;
  return line;
}

PoolOptions pool_options(const BulkheadOptions& o, Clock& clock) {
  PoolOptions pool = o.pool;
  copy_line_options(pool, o);
  pool.max_concurrent = o.max_concurrent;
  pool.fairness = Fairness::fifo;
  pool.measure_occupancy |= o.histograms || o.pool.measure_occupancy;
  pool.clock = &clock;
  return pool;
}

// For a trial: no hook is called, and no thread starts.
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

CallPath::CallPath(Clock& clock) noexcept : clock_(clock), steady_(&clock == &Clock::steady()) {}

BulkheadCore::BulkheadCore(const BulkheadOptions& o)
    : CallPath(o.clock  ? *o.clock
               : o.gate ? o.gate->clock()
                        : Clock::steady()) {
  check_options(o, o.gate && o.gate->backing_);
  if (o.scope != Scope::process) {
    gate_ = &scoped.emplace(gate_options(o, clock_), o.scope, *o.sources).gate();
  } else if (o.gate) {
    gate_ = o.gate;
    shared_ = true;
  } else if (o.isolation == Isolation::threads) {
    pool_ = &own_pool.emplace(pool_options(o, clock_));
    gate_ = &pool_->gate();
  } else {
    gate_ = &own_gate.emplace(gate_options(o, clock_));
  }
  judge_of_all = o.judge;
  Budgets::check(gate_->name(), o.budgets, budget_line(o, clock_, pool_), o.sources);
  apply(o);
}

BulkheadCore::~BulkheadCore() {
  if (pool_)
    pool_->shutdown(Shutdown::now, clock_.now());
  else if (!shared_)
    gate_->close();
  budgets.each([](const Budget& budget) { budget.gate->close(); });
  // Calls with a place use everything in here, and give the place back last. Calls of a shared gate hold a pin instead.
  if (!shared_) gate_->drain();
  pins_.fetch_or(kClosing, std::memory_order_relaxed);
  for (std::uint32_t n = 0; (n = pins_.load(std::memory_order_acquire)) != kClosing;)
    base::futex_wait(pins_, n, no_deadline);
}

void CallPath::pin(Call& call) noexcept {
  if (call.flags_ & Call::kPinned) return;
  pins_.fetch_add(1, std::memory_order_relaxed);
  call.path_ = this;
  call.flags_ |= Call::kPinned;
}

void CallPath::unpin() noexcept {
  const auto* pins = &pins_;
  if (pins_.fetch_sub(1, std::memory_order_acq_rel) == kClosing + 1) base::futex_wake(pins);
}

// Another process may have moved the limit of a fleet: only a number that these options change is to be stated, or every
// reload would revert what others did.
bool BulkheadCore::restates_limit(const BulkheadOptions& o) const {
  if (o.scope != Scope::fleet) return o.max_concurrent != gate_->snapshot().max_concurrent;
  const BulkheadOptions before = options();
  return before.scope == Scope::fleet && before.max_concurrent != o.max_concurrent;
}

void BulkheadCore::apply(const BulkheadOptions& o) {
  // Taken away first, so that nothing moves the limit any more; a limit of threads needs as many threads.
  if (!o.adaptive && !o.limiter) limiter_.store(nullptr, std::memory_order_relaxed);
  if (pool_ && o.adaptive) pool_->allow(std::max(o.max_concurrent, o.adaptive->ceiling));
  if (o.adaptive && limiter_policy)
    limiter_policy->update(*o.adaptive);
  else if (o.adaptive)
    limiter_policy = std::make_unique<AdaptiveLimiter>(*gate_, *o.adaptive);
  else if (!o.gate && restates_limit(o))
    size(o.max_concurrent);
  if (o.breaker && breaker_policy) {
    breaker_policy->update(named(*o.breaker, gate_->name(), clock_));
    // A mode that an operator has set stays, unless these settings ask for another one than the last ones did.
    const auto before = options().breaker;
    const bool asked = !before || before->mode != o.breaker->mode;
    if (asked && breaker_policy->snapshot().mode != o.breaker->mode)
      breaker_policy->set_mode(o.breaker->mode);
  } else if (o.breaker)
    breaker_policy = std::make_unique<Breaker>(named(*o.breaker, gate_->name(), clock_));
  if (o.rate_limit && rate_policy)
    rate_policy->update(named(*o.rate_limit, gate_->name(), clock_));
  else if (o.rate_limit)
    rate_policy = std::make_unique<RateLimiter>(named(*o.rate_limit, gate_->name(), clock_));
  if (limiter_policy) limiter_policy->hold(!o.adaptive);
  if (o.holdback && holdback_policy)
    holdback_policy->update(*o.holdback);
  else if (o.holdback)
    holdback_policy = std::make_unique<Holdback>(*o.holdback);

  budgets.apply(o.budgets, budget_line(o, clock_, pool_), o.sources, options().budgets);

  const bool time_matters =
      o.histograms || o.breaker || o.rate_limit || o.adaptive || o.limiter || o.holdback;
  mode_.store(static_cast<std::uint8_t>((o.enabled ? 0 : kBypassed) | (o.shadow ? kShadow : 0) |
                                        (time_matters ? kTimed : 0) | (o.histograms ? kHistograms : 0) |
                                        (o.holdback ? kHoldback : 0) |
                                        (mode_.load(std::memory_order_relaxed) & (kDraining | kFaulty))),
              std::memory_order_relaxed);
  fallback_on_.store(o.fallback_on, std::memory_order_relaxed);
  max_wait_.store(o.max_wait, std::memory_order_relaxed);
  execution_timeout_.store(o.execution_timeout, std::memory_order_relaxed);
  // release: a call that finds a policy finds it made
  rate_.store(o.rate_limit ? rate_policy.get() : nullptr, std::memory_order_release);
  breaker_.store(o.breaker ? breaker_policy.get() : nullptr, std::memory_order_release);
  limiter_.store(o.adaptive ? limiter_policy.get() : o.limiter, std::memory_order_release);
  holdback_.store(o.holdback ? holdback_policy.get() : nullptr, std::memory_order_release);
  MutexLock lock(mutex);
  options_in_force = o;
}

// First what cannot change, then a trial with the real classes: so update() fails before it changes anything.
void BulkheadCore::check(const BulkheadOptions& o) const {
  const BulkheadOptions old = options();
  const auto fixed = [&](bool same, std::string_view setting) {
    if (!same) invalid(gate_->name(), setting, "cannot change while the bulkhead exists: make a new one");
  };
  fixed(o.name == old.name, "name");
  fixed(o.isolation == old.isolation, "isolation");
  fixed(o.fairness == old.fairness, "fairness");
  fixed(o.max_barge == old.max_barge, "max_barge");
  fixed(o.critical_reserve == old.critical_reserve, "critical_reserve");
  fixed(o.critical_queue_reserve == old.critical_queue_reserve, "critical_queue_reserve");
  fixed(o.flow_queues == old.flow_queues, "flow_queues");
  fixed(o.flow_hand == old.flow_hand, "flow_hand");
  fixed(o.flow_seed == old.flow_seed, "flow_seed");
  fixed(o.gate == old.gate, "gate");
  fixed(o.scope == old.scope, "scope");
  fixed(o.sources == old.sources, "sources");
  fixed(o.clock == old.clock, "clock");
  check_options(o, gate_->backing_);
  budgets.check_change(gate_->name(), o.budgets);
  try_out(silent(o));
}

// What a change admits runs on this thread when the lock is free again: it may wait for another thread's change.
void BulkheadCore::update(const BulkheadOptions& o) {
  const Completions::Together after;
  MutexLock lock(settings);
  check(o);
  if (!o.gate && o.max_queue != options().max_queue) gate_->resize_queue(o.max_queue);
  apply(o);
}

// Everything that can be wrong is tried first, so that a wrong setting changes nothing.
void BulkheadCore::try_out(const BulkheadOptions& o) const {
  if (!o.gate) {
    if (pool_) [[maybe_unused]]
      const Pool tried(pool_options(o, clock_));
    else [[maybe_unused]]
      const Gate tried(gate_options(o, clock_));
    if (o.scope != Scope::process) shared::ScopedGate::check(gate_options(o, clock_), o.scope, *o.sources);
  }
  Budgets::check(gate_->name(), o.budgets, budget_line(o, clock_, pool_), o.sources);
  if (o.holdback) [[maybe_unused]]
    const Holdback tried(*o.holdback);
  if (o.breaker) [[maybe_unused]]
    const Breaker tried(named(*o.breaker, gate_->name(), clock_));
  if (o.rate_limit) [[maybe_unused]]
    const RateLimiter tried(named(*o.rate_limit, gate_->name(), clock_));
  if (o.adaptive) {
    Gate gate(gate_options(o, clock_));
    [[maybe_unused]] const AdaptiveLimiter tried(gate, *o.adaptive);
  }
}

void BulkheadCore::size(std::uint32_t max_concurrent) {
  if (!limiter_policy) {
    if (pool_)
      pool_->resize(max_concurrent);
    else
      gate_->resize(max_concurrent);
    return;
  }
  if (pool_) pool_->allow(max_concurrent);
  limiter_policy->update(fixed_at(max_concurrent));
}

void BulkheadCore::resize(std::uint32_t max_concurrent) {
  const Completions::Together after;
  MutexLock lock(settings);
  BulkheadOptions o = options();
  const std::uint32_t before = std::exchange(o.max_concurrent, max_concurrent);  // a hook inside comes later
  if (!o.gate) try_out(silent(o));
  if (!o.adaptive) size(max_concurrent);
  MutexLock options_lock(mutex);
  if (options_in_force.max_concurrent == before) options_in_force.max_concurrent = max_concurrent;
}

void BulkheadCore::resize_queue(std::uint32_t max_queue) {
  const Completions::Together after;
  MutexLock lock(settings);
  gate_->resize_queue(max_queue);
  budgets.each([&](const Budget& budget) { budget.gate->resize_queue(max_queue); });
  MutexLock options_lock(mutex);
  options_in_force.max_queue = max_queue;
}

BulkheadOptions BulkheadCore::options() const {
  MutexLock lock(mutex);
  return options_in_force;
}

void BulkheadCore::set_draining(bool on) {
  MutexLock lock(settings);
  // Relaxed, like every reader: a call that sees the change late counts as one that began before it.
  if (on)
    mode_.fetch_or(kDraining, std::memory_order_relaxed);
  else
    mode_.fetch_and(static_cast<std::uint8_t>(~kDraining), std::memory_order_relaxed);
}

bool BulkheadCore::idle() const noexcept {
  // Acquire: a thread that sees the last pin released also sees everything that its call has counted.
  const Snapshot s = gate_->snapshot();
  return s.permits == 0 && s.waiting == 0 && pins_.load(std::memory_order_acquire) == 0;
}

}  // namespace detail

Bulkhead::Bulkhead(const BulkheadOptions& options) : path_(std::make_unique<detail::BulkheadCore>(options)) {}
Bulkhead::~Bulkhead() = default;

detail::BulkheadCore& Bulkhead::core() const noexcept { return static_cast<detail::BulkheadCore&>(*path_); }

Result<Call> Bulkhead::try_acquire(const AcquireOptions& o) noexcept { return path_->acquire(o, false); }
Result<Call> Bulkhead::acquire(const AcquireOptions& o) noexcept { return path_->acquire(o, true); }
std::optional<Result<Call>> Bulkhead::begin_acquire(const AcquireOptions& o, Call& begun) noexcept {
  return path_->begin_acquire(o, begun);
}
void Bulkhead::update(const BulkheadOptions& options) { core().update(options); }
void Bulkhead::check(const BulkheadOptions& options) const { core().check(options); }
void Bulkhead::resize(std::uint32_t max_concurrent) { core().resize(max_concurrent); }
void Bulkhead::resize_queue(std::uint32_t max_queue) { core().resize_queue(max_queue); }
void Bulkhead::reset_statistics() { core().reset_statistics(); }
void Bulkhead::close() noexcept {
  gate().close();
  core().budgets.each([](const detail::Budget& budget) { budget.gate->close(); });
}
// A call with costs holds units of its budgets until it ends, so none is left when the budgets are drained.
bool Bulkhead::drain(TimePoint until) {
  bool drained = true;
  core().budgets.each([&](const detail::Budget& budget) { drained = drained && budget.gate->drain(until); });
  return drained && gate().drain(until);
}
void Bulkhead::set_draining(bool on) { core().set_draining(on); }
void Bulkhead::inject(const Fault& fault) { core().inject(fault); }
void Bulkhead::end_fault() { core().end_fault(); }
std::optional<Fault> Bulkhead::fault() const { return core().fault(); }
bool Bulkhead::idle() const noexcept { return core().idle(); }
BulkheadSnapshot Bulkhead::snapshot() const { return core().snapshot(); }
BulkheadOptions Bulkhead::options() const { return core().options(); }
std::vector<Holder> Bulkhead::holders() const { return path_->gate().holders(); }
std::string_view Bulkhead::name() const noexcept { return path_->gate().name(); }
Gate& Bulkhead::gate() noexcept { return path_->gate(); }
Breaker* Bulkhead::breaker() noexcept { return core().breaker(); }
Clock& Bulkhead::clock() const noexcept { return path_->clock(); }
Isolation Bulkhead::isolation() const noexcept {
  return path_->pool() ? Isolation::threads : Isolation::semaphore;
}

}  // namespace bulkhead
