#include "bulkhead/bulkhead.h"

#include <algorithm>
#include <mutex>

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

}  // namespace bulkhead
