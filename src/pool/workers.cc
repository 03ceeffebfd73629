#include "pool/workers.h"

#include <algorithm>
#include <thread>

#include "base/futex.h"
#include "bulkhead/detail/platform.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead {

struct Workers::Worker {
  enum Signal : std::uint32_t { looking, asleep, called };

  // Under the lock of the owner. True: the worker sleeps and needs a futex_wake.
  bool notify() noexcept { return signal.exchange(called, std::memory_order_acq_rel) == asleep; }

  // Adds it to the list of its owner, and removes it.
  void enlist(Workers& workers) noexcept BULKHEAD_REQUIRES(workers.mutex_) {
    owner = &workers;
    next = workers.all_;
    if (next) next->before = this;
    workers.all_ = this;
  }
  void leave() noexcept {
    owner->mutex_.assert_held();
    (before ? before->next : owner->all_) = next;
    if (next) next->before = before;
  }

  Workers* owner = nullptr;
  Worker *next = nullptr, *before = nullptr;
  Worker* next_idle = nullptr;
  std::atomic<std::uint32_t> signal{called};
  bool handing_over = false;
  const detail::TaskState* running = nullptr;
  detail::TaskState* going_on = nullptr;  // the next task of this worker, not in `ready`
  std::atomic<bool> settling{false};
};

constinit thread_local Workers::Worker* Workers::mine = nullptr;

Workers::Workers(const PoolCore& pool, const PoolOptions& o, Clock& clock, Execute execute)
    : pool_(pool),
      name_(o.name),
      thread_options_{.name = {}, .stack_size = o.stack_size, .cpus = o.cpus, .nice = o.nice},
      on_start_(o.on_thread_start),
      on_end_(o.on_thread_end),
      keep_alive_(o.keep_alive),
      min_threads_(o.min_threads),
      clock_(clock),
      execute_(execute),
      max_threads_(o.max_concurrent) {}

Workers::HandingOver::HandingOver() noexcept {
  if (mine) mine->handing_over = true;
}
Workers::HandingOver::~HandingOver() {
  if (mine) mine->handing_over = false;
}

Workers::Settling::Settling() noexcept : worker_(mine) {
  // Relaxed: the release of the permit follows, and a thread that finds the gate idle has acquired it.
  if (worker_) worker_->settling.store(true, std::memory_order_relaxed);
}
void Workers::Settling::over() noexcept {
  if (worker_) worker_->settling.store(false, std::memory_order_release);
}

bool Workers::wait_settled(TimePoint until) const noexcept {
  const auto settled = [this] {
    const detail::MutexLock lock(mutex_);
    for (const Worker* w = all_; w; w = w->next)
      if (w != mine && w->settling.load(std::memory_order_acquire)) return false;
    return true;
  };
  // This takes a few instructions, unless the thread was preempted or a hook of the gate runs in between.
  while (!settled()) {
    if (clock_.now() >= until) return false;
    std::this_thread::yield();
  }
  return true;
}

bool Workers::on_worker() const noexcept { return mine && mine->owner == this; }

Workers* Workers::of_this_thread(const PoolCore& pool) noexcept {
  return mine && &mine->owner->pool_ == &pool ? mine->owner : nullptr;
}

const detail::TaskState* Workers::running_on_this_thread() noexcept { return mine ? mine->running : nullptr; }

void Workers::add(detail::TaskState& task) noexcept {
  const bool goes_on = on_worker() && mine->handing_over && !mine->going_on;
  // No lock is needed if no task that was admitted earlier waits for a thread.
  if (goes_on && ready_count_.load(std::memory_order_relaxed) == 0) {
    mine->going_on = &task;
    return;
  }
  Wake wake;
  {
    detail::MutexLock lock(mutex_);
    task.set_next_ready(nullptr);
    if (last_ready_)
      last_ready_->set_next_ready(&task);
    else
      first_ready_ = &task;
    last_ready_ = &task;
    ready_count_.store(ready_count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (goes_on)
      mine->going_on = take();  // the number of ready tasks is unchanged, and their wake-up is in flight
    else
      wake = pass_on();
  }
  carry_out(wake);
}

detail::TaskState* Workers::take() noexcept {
  detail::TaskState* task = first_ready_;
  if (!task) return nullptr;
  first_ready_ = task->next_ready();
  if (!first_ready_) last_ready_ = nullptr;
  ready_count_.store(ready_count_.load(std::memory_order_relaxed) - 1, std::memory_order_relaxed);
  return task;
}

Workers::Wake Workers::pass_on() noexcept {
  if (!first_ready_ || waking_) return {};
  if (Worker* worker = idle_) {
    idle_ = worker->next_idle;
    --idle_count_;
    waking_ = true;
    return {.worker = worker->notify() ? worker : nullptr};
  }
  // Workers in their start hook will take one task each, unless an idle worker takes it first.
  if (threads_ >= max_threads_ || ready_count_.load(std::memory_order_relaxed) <= starting_) return {};
  waking_ = true;
  ++threads_;
  ++started_;
  const auto free = std::find(numbers_.begin(), numbers_.end(), false);
  const auto number = static_cast<std::size_t>(free - numbers_.begin()) + 1;
  if (free != numbers_.end()) numbers_[number - 1] = true;
  return {.start = number};
}

bool Workers::start(std::size_t number) noexcept {
#if defined(__cpp_exceptions)
  try {
#endif
    {
      const detail::MutexLock lock(mutex_);  // only one thread is being started at a time
      if (numbers_.size() < number) numbers_.resize(number, true);
    }
    base::ThreadOptions options = thread_options_;
    const std::string text = "-" + std::to_string(number);
    // The number identifies the thread, so it must not be cut off.
    options.name = name_.substr(0, base::kThreadName - text.size()) + text;
    return base::start_thread(options, [self = shared_from_this(), number] { self->loop(number); });
#if defined(__cpp_exceptions)
  } catch (...) {
    return false;  // without memory there is no thread
  }
#endif
}

void Workers::carry_out(const Wake& wake) noexcept {
  if (wake.worker) base::futex_wake(&wake.worker->signal);
  if (wake.start == 0 || start(wake.start)) return;
  // P5. Calls a worker that has just gone to sleep.
  bool alone = false;
  Wake other;
  {
    detail::MutexLock lock(mutex_);
    if (wake.start <= numbers_.size()) numbers_[wake.start - 1] = false;
    --threads_;
    --started_;
    waking_ = false;
    alone = threads_ == 0;
    if (idle_) other = pass_on();
  }
  if (other.worker) base::futex_wake(&other.worker->signal);
  // A thread that acts as a worker already takes the task when its current one ends.
  if (alone && !(on_worker() && mine->handing_over)) stand_in();
}

void Workers::stand_in() noexcept {
  const auto self = weak_from_this().lock();  // the pool may be destroyed once its last task is settled
  Worker me;
  Worker* const outer = std::exchange(mine, &me);
  detail::UniqueLock lock(mutex_);
  me.enlist(*this);
  while (detail::TaskState* task = take()) {
    lock.unlock();
    run(me, task);
    lock.lock();
  }
  me.leave();
  mine = outer;
}

void Workers::run(Worker& me, detail::TaskState* task) noexcept {
  while (task) {
    me.running = task;
    execute_(*task);
    task = std::exchange(me.going_on, nullptr);
  }
  me.running = nullptr;
}

void Workers::loop(std::size_t number) noexcept {
  Worker me;
  detail::UniqueLock lock(mutex_);
  me.enlist(*this);
  mine = &me;
  bool woken = true;  // a new thread has used the wake-up in flight
  if (on_start_) {
    // The hook may take long: until it ends, other workers take new tasks.
    woken = waking_ = false;
    ++starting_;
    const Wake wake = pass_on();
    lock.unlock();
    carry_out(wake);
    on_start_(number);
    lock.lock();
    --starting_;
  }
  for (;;) {
    detail::TaskState* task = take();
    if (std::exchange(woken, false)) waking_ = false;
    if (task) {
      const Wake wake = pass_on();
      lock.unlock();
      carry_out(wake);
      run(me, task);
      lock.lock();
      continue;
    }
    if (stopping_ || threads_ > max_threads_) break;
    woken = idle(me);
    if (!woken && threads_ > min_threads_) break;
  }
  --threads_;  // from here on new tasks need another thread
  ++ending_;
  me.leave();
  lock.unlock();
  if (on_end_) on_end_(number);
  mine = nullptr;
  lock.lock();
  numbers_[number - 1] = false;
  --ending_;
  ended_.notify_all();
}

// True: it was called meanwhile. False: it counts as asleep from now on.
bool Workers::look(Worker& me) noexcept {
  for (int i = 0; i < Patience::kLooks; ++i) {
    if (me.signal.load(std::memory_order_acquire) == Worker::called) return true;
    detail::StdPlatform::pause();
  }
  detail::StdPlatform::point("idle.before_sleep");
  std::uint32_t expected = Worker::looking;
  return !me.signal.compare_exchange_strong(expected, Worker::asleep, std::memory_order_acq_rel,
                                            std::memory_order_acquire);
}

// Sleeps until it is called; false: keep_alive has passed.
bool Workers::idle(Worker& me) noexcept {
  const bool somebody_looks = idle_ && idle_->signal.load(std::memory_order_relaxed) == Worker::looking;
  const bool looks = !somebody_looks && patience_.wants_to_look();
  Worker** const place = somebody_looks ? &idle_->next_idle : &idle_;
  me.signal.store(looks ? Worker::looking : Worker::asleep, std::memory_order_relaxed);
  me.next_idle = *place;
  *place = &me;
  ++idle_count_;
  mutex_.unlock();
  const bool found = looks && look(me);
  const TimePoint until = saturating_add(clock_.now(), keep_alive_);
  const bool kept = until == no_deadline;
  while (me.signal.load(std::memory_order_acquire) == Worker::asleep && (kept || clock_.now() < until))
    clock_.wait(me.signal, Worker::asleep, until);
  mutex_.lock();
  if (looks) patience_.learn(found);
  if (me.signal.load(std::memory_order_relaxed) == Worker::called) return true;
  for (Worker** w = &idle_; *w; w = &(*w)->next_idle) {
    if (*w != &me) continue;
    *w = me.next_idle;
    break;
  }
  --idle_count_;
  return false;
}

void Workers::resize(std::uint32_t threads) noexcept {
  Wake wake;
  {
    detail::MutexLock lock(mutex_);
    max_threads_ = threads;
    wake = pass_on();
    // Call idle workers above the new number: they find no task, and end.
    std::uint32_t above = threads_ > threads ? threads_ - threads : 0;
    for (; above > 0 && idle_; --above) {
      Worker* const worker = idle_;
      idle_ = worker->next_idle;
      --idle_count_;
      if (worker->notify()) base::futex_wake(&worker->signal);
    }
  }
  carry_out(wake);
}

void Workers::stop() noexcept {
  detail::UniqueLock lock(mutex_);
  stopping_ = true;
  for (Worker* worker = std::exchange(idle_, nullptr); worker;) {
    Worker* next = worker->next_idle;
    if (worker->notify()) base::futex_wake(&worker->signal);
    worker = next;
  }
  idle_count_ = 0;
  while (threads_ + ending_ != 0) ended_.wait(lock);
}

Workers::Count Workers::count() const noexcept {
  detail::MutexLock lock(mutex_);
  return {threads_, max_threads_, idle_count_, started_};
}

}  // namespace bulkhead
