#include "bulkhead/pool.h"

#include "base/text.h"
#include "pool/core.h"

namespace bulkhead {
namespace {

[[noreturn]] void invalid(std::string_view name, std::string_view setting, std::string_view problem) {
  base::throw_invalid(base::join({"bulkhead \"", name, "\": ", setting, " ", problem}));
}

void check_threads(std::string_view name, std::uint32_t threads) {
  if (threads < 1 || threads > 65'536)
    invalid(name, "threads",
            base::join({"= ", std::to_string(threads), " is out of range: give 1 to 65536"}));
}

PoolOptions checked(PoolOptions o) {
  const auto refuse = [&](std::string_view setting, std::string_view problem) {
    invalid(o.name, setting, problem);
  };
  check_threads(o.name, o.threads);
  if (o.min_threads > o.threads)
    refuse("min_threads", base::join({"= ", std::to_string(o.min_threads), " is above threads = ",
                                      std::to_string(o.threads), ": give at most that"}));
  if (o.keep_alive < std::chrono::nanoseconds(0)) refuse("keep_alive", "is negative: give 0 or more");
  if (o.execution_timeout <= std::chrono::nanoseconds(0))
    refuse("execution_timeout", "is not positive: give more than 0, or wait_forever");
  if (o.nice < -20 || o.nice > 19)
    refuse("nice", base::join({"= ", std::to_string(o.nice), " is out of range: give -20 to 19"}));
  return o;
}

GateOptions gate_options(PoolOptions&& o) {
  return {.name = std::move(o.name),
          .max_concurrent = o.threads,
          .max_queue = o.max_queue,
          .max_wait = o.max_wait,
          .critical_reserve = o.critical_reserve,
          .hooks = std::move(o.hooks),
          .critical_queue_reserve = o.critical_reserve,
          .flow_queues = o.flow_queues,
          .flow_hand = o.flow_hand,
          .flow_seed = o.flow_seed,
          .measure_service = o.measure_service,
          .track_holders = o.track_holders,
          .measure_occupancy = o.measure_occupancy,
          .clock = o.clock};
}

}  // namespace

PoolOptions PoolOptions::cpu_bound(std::string name) {
  const std::uint32_t processors = base::processors();
  return {.name = std::move(name), .threads = processors, .max_queue = 4 * processors};
}

PoolOptions PoolOptions::io_bound(std::string name, std::uint32_t threads) {
  return {.name = std::move(name), .threads = threads, .max_queue = 2 * threads};
}

PoolCore::PoolCore(PoolOptions o)
    : execution_timeout(o.execution_timeout),
      on_reject(o.on_reject),
      context(o.context),
      clock(o.clock ? *o.clock : Clock::steady()),
      workers(std::make_shared<Workers>(*this, o, clock,
                                        [](detail::TaskState& task) noexcept { task.execute(); })),
      gate(gate_options(std::move(o))),
      plain(execution_timeout == wait_forever && !context.capture &&
            !AcquireWatch::needed(gate, gate_default, no_deadline, {})) {
  gate.post_to(inbox);
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
          .timeout = o.queue_timeout,
          .deadline = o.deadline,
          .stop = o.stop,
          .flow = o.flow,
          .label = o.label,
          .where = o.where};
}
}  // namespace

detail::TaskExtras* Pool::extras(const SubmitOptions& o) const {
  if (core_->plain && o.queue_timeout == gate_default && o.execution_timeout == gate_default &&
      o.deadline == no_deadline && !o.stop.stop_possible())
    return nullptr;
  const auto timeout = o.execution_timeout == gate_default ? core_->execution_timeout : o.execution_timeout;
  if (timeout == wait_forever && !core_->context.capture &&
      !AcquireWatch::needed(core_->gate, o.queue_timeout, o.deadline, o.stop))
    return nullptr;
  auto* extras = new (detail::take_block(sizeof(detail::TaskExtras))) detail::TaskExtras(acquire_options(o));
  extras->execution_timeout = timeout;
  if (core_->context.capture) extras->context = core_->context.capture();
  return extras;
}

Result<void> Pool::start(detail::TaskState& task, const SubmitOptions& options) noexcept {
  const auto refuse = [&task](const Rejection& rejection) {
    task.reject(rejection);
    return Result<void>(std::unexpect, rejection);
  };
  if (!core_->accepting.load(std::memory_order_acquire))
    return refuse(core_->gate.refuse(options.priority, Reason::shutdown));
  const bool ordinary = !task.extras_ && options.priority == Priority::normal && options.cost <= 1;
  if (ordinary && task.join()) return {};
  const bool decided = task.extras_
                           ? task.AsyncAcquire::start(task.extras_->watch.options())
                           : task.AsyncAcquire::start(
                                 {.priority = options.priority, .cost = options.cost, .flow = options.flow});
  if (!decided) return {};  // in the queue
  Result<Permit> permit = task.result();
  if (permit) {
    task.permit_ = *std::move(permit);
    core_->workers->add(task);
    return {};
  }
  const Reason reason = permit.error().reason;
  const bool full = reason == Reason::concurrency_limit || reason == Reason::queue_limit;
  if (!full || core_->on_reject != OnReject::caller_runs) return refuse(permit.error());
  core_->caller_runs.fetch_add(1, std::memory_order_relaxed);
  task.execute();
  return {};
}

void Pool::resize(std::uint32_t threads) {
  check_threads(name(), threads);
  core_->gate.resize(threads);
  core_->workers->resize(threads);
}

void Pool::allow(std::uint32_t threads) noexcept { core_->workers->resize(threads); }

void Pool::resize_queue(std::uint32_t max_queue) { core_->gate.resize_queue(max_queue); }

bool Pool::shutdown(Shutdown how, TimePoint until) {
  core_->accepting.store(false, std::memory_order_release);
  if (how == Shutdown::now) {
    core_->gate.close();
    std::vector<std::stop_source> sources;
    {
      std::lock_guard lock(core_->mutex);
      core_->stopping = true;
      for (detail::TaskState* task : core_->stoppable) sources.push_back(*task->stop());
    }
    for (std::stop_source& source : sources) source.request_stop();
  }
  if (!core_->gate.drain(until)) return false;
  // A submission that had found the pool open may have come in since: it is refused, or waited for.
  core_->gate.close();
  return core_->gate.drain(until);
}

PoolSnapshot Pool::snapshot() const {
  PoolSnapshot s;
  s.gate = core_->gate.snapshot();
  const Workers::Count count = core_->workers->count();
  s.threads = count.threads;
  s.max_threads = count.max_threads;
  s.idle = count.idle;
  s.threads_started = count.started;
  s.queued = s.gate.waiting;
  s.running = s.gate.permits;
  s.caller_runs = core_->caller_runs.load(std::memory_order_relaxed);
  std::lock_guard lock(core_->mutex);
  s.abandoned = static_cast<std::uint32_t>(core_->abandoned.size());
  s.abandoned_total = core_->abandoned_total;
  if (!core_->abandoned.empty()) s.oldest_abandoned = core_->clock.now() - core_->abandoned.front().since;
  return s;
}

}  // namespace bulkhead
