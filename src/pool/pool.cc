#include "bulkhead/pool.h"

#include <algorithm>

#include "base/text.h"
#include "bulkhead/detail/mutex.h"
#include "gate/line_options.h"
#include "pool/pool_core.h"

namespace bulkhead {
namespace {

[[noreturn]] void invalid(std::string_view name, std::string_view setting, std::string_view problem) {
  base::throw_invalid(base::join({"bulkhead \"", name, "\": ", setting, " ", problem}));
}

void check_limit(std::string_view name, std::uint32_t max_concurrent) {
  if (max_concurrent < 1 || max_concurrent > 65'536)
    invalid(name, "max_concurrent",
            base::join({"= ", std::to_string(max_concurrent), " is out of range: give 1 to 65536"}));
}

// Each message names the setting and what to give instead.
PoolOptions checked(PoolOptions o) {
  const auto reject = [&](std::string_view setting, std::string_view problem) {
    invalid(o.name, setting, problem);
  };
  check_limit(o.name, o.max_concurrent);
  if (o.min_threads > o.max_concurrent)
    reject("min_threads", base::join({"= ", std::to_string(o.min_threads), " is above max_concurrent = ",
                                      std::to_string(o.max_concurrent), ": give at most that"}));
  if (o.keep_alive < std::chrono::nanoseconds(0)) reject("keep_alive", "is negative: give 0 or more");
  if (o.execution_timeout <= std::chrono::nanoseconds(0))
    reject("execution_timeout", "is not positive: give more than 0, or wait_forever");
  if (o.fairness != Fairness::fifo)
    reject("fairness", "is not fifo: a pool runs its queue in order, leave it out");
  if (o.nice < -20 || o.nice > 19)
    reject("nice", base::join({"= ", std::to_string(o.nice), " is out of range: give -20 to 19"}));
  return o;
}

GateOptions gate_options(const PoolOptions& o) {
  GateOptions gate = gate_of_line(o, o.max_concurrent);
  gate.critical_queue_reserve = std::max(o.critical_queue_reserve, o.critical_reserve);
  return gate;
}

}  // namespace

PoolOptions PoolOptions::cpu_bound(std::string name) {
  const std::uint32_t processors = base::processors();
  return {.name = std::move(name), .max_concurrent = processors, .max_queue = 4 * processors};
}

PoolOptions PoolOptions::io_bound(std::string name, std::uint32_t max_concurrent) {
  return {.name = std::move(name), .max_concurrent = max_concurrent, .max_queue = 2 * max_concurrent};
}

PoolCore::PoolCore(const PoolOptions& o)
    : execution_timeout(o.execution_timeout),
      on_reject(o.on_reject),
      context(o.context),
      clock(o.clock ? *o.clock : Clock::steady()),
      workers(std::make_shared<Workers>(*this, o, clock,
                                        [](detail::TaskState& task) noexcept { task.execute(); })),
      gate(gate_options(o)),
      plain(execution_timeout == wait_forever && !context.capture &&
            !AcquireWatch::needed(gate, gate_default, no_deadline, {})) {
  gate.post_to(inbox);
  if (on_reject == OnReject::discard_oldest) gate.discard_oldest();
}

std::stop_source PoolCore::next_to_stop() noexcept {
  detail::MutexLock lock(mutex);
  for (detail::TaskState* t = running; t; t = static_cast<detail::TaskState*>(t->next))
    if (t->stoppable_ && !std::exchange(t->told_, true)) return *t->stop();
  return std::stop_source(std::nostopstate);
}

TimePoint PoolCore::oldest_abandoned(TimePoint now) const noexcept {
  for (const detail::TaskState* t = running; t; t = static_cast<const detail::TaskState*>(t->next))
    if (t->abandoned_) now = std::min(now, TimePoint(std::chrono::nanoseconds(t->since)));
  return now;
}

Pool::Pool(PoolOptions options) : core_(std::make_unique<PoolCore>(checked(std::move(options)))) {}

Pool::~Pool() {
  shutdown(Shutdown::now);
  core_->workers->stop();
}

Gate& Pool::gate() const noexcept { return core_->gate; }

namespace {
AcquireOptions acquire_options(const SubmitOptions& o) {
  return {.priority = o.priority,
          .cost = o.cost,
          .timeout = o.timeout,
          .deadline = o.deadline,
          .stop = o.stop,
          .flow = o.flow,
          .label = o.label,
          .where = o.where};
}
}  // namespace

detail::TaskExtrasPtr Pool::extras(const SubmitOptions& o) const {
  if (core_->plain && o.timeout == gate_default && o.execution_timeout == gate_default &&
      o.deadline == no_deadline && !o.stop.stop_possible())
    return nullptr;
  const auto timeout = o.execution_timeout == gate_default ? core_->execution_timeout : o.execution_timeout;
  if (timeout == wait_forever && !core_->context.capture &&
      !AcquireWatch::needed(core_->gate, o.timeout, o.deadline, o.stop))
    return nullptr;
  detail::TaskExtrasPtr extras(new (detail::take_block(sizeof(detail::TaskExtras)))
                                   detail::TaskExtras(acquire_options(o)));
  extras->execution_timeout = timeout;
  if (core_->context.capture) extras->context = core_->context.capture();
  return extras;
}

Result<void> Pool::start(detail::TaskState& task, const SubmitOptions& options) noexcept {
  const auto reject = [&task](const Rejection& rejection) {
    task.reject(rejection);
    return Result<void>(unexpect, rejection);
  };
  if (!core_->accepting.load(std::memory_order_acquire))
    return reject(core_->gate.reject(options.priority, Reason::shutdown));
  const bool ordinary = !task.extras_ && options.priority == Priority::normal && options.cost <= 1;
  if (ordinary && task.join()) return {};
  const bool decided = task.extras_
                           ? task.AsyncAcquire::start(task.extras_->watch.options())
                           : task.AsyncAcquire::start(
                                 {.priority = options.priority, .cost = options.cost, .flow = options.flow});
  if (!decided) return {};  // it is in the queue
  Result<Permit> permit = task.result();
  if (permit) {
    task.permit_ = *std::move(permit);
    core_->workers->add(task);
    return {};
  }
  const Reason reason = permit.error().reason;
  const bool full = reason == Reason::concurrency_limit || reason == Reason::queue_limit;
  if (!full || core_->on_reject != OnReject::caller_runs) return reject(permit.error());
  core_->caller_runs.fetch_add(1, std::memory_order_relaxed);
  task.execute();
  return {};
}

void Pool::resize(std::uint32_t max_concurrent) {
  check_limit(name(), max_concurrent);
  core_->gate.resize(max_concurrent);
  core_->workers->resize(max_concurrent);
}

void Pool::allow(std::uint32_t threads) noexcept { core_->workers->resize(threads); }

void Pool::resize_queue(std::uint32_t max_queue) { core_->gate.resize_queue(max_queue); }

bool Pool::shutdown(Shutdown how, TimePoint until) {
  core_->accepting.store(false, std::memory_order_release);
  if (how == Shutdown::now) {
    core_->gate.close();
    {
      detail::MutexLock lock(core_->mutex);
      core_->stopping = true;
    }
    for (std::stop_source s = core_->next_to_stop(); s.stop_possible(); s = core_->next_to_stop())
      s.request_stop();  // without the lock: it runs callbacks of the work
  }
  if (!core_->gate.drain(until)) return false;
  // A concurrent submission may have been queued since: it is rejected, or waited for.
  core_->gate.close();
  return core_->gate.drain(until) && core_->workers->wait_settled(until);
}

// Gate, workers and tasks are read one after the other, so their numbers are of slightly different instants.
PoolSnapshot Pool::snapshot() const {
  PoolSnapshot s;
  s.gate = core_->gate.snapshot();
  const Workers::Count count = core_->workers->count();
  s.threads = count.threads;
  s.max_threads = count.max_threads;
  s.idle = count.idle;
  s.threads_started = count.started;
  s.caller_runs = core_->caller_runs.load(std::memory_order_relaxed);
  detail::MutexLock lock(core_->mutex);
  s.abandoned = core_->abandoned;
  s.abandoned_total = core_->abandoned_total;
  const TimePoint now = core_->clock.now();
  s.oldest_abandoned = now - core_->oldest_abandoned(now);
  return s;
}

}  // namespace bulkhead
