#include "pool/workers.h"

#include <algorithm>

#include "base/futex.h"
#include "bulkhead/detail/platform.h"

namespace bulkhead {

struct Workers::Worker {
  enum Signal : std::uint32_t { looking, asleep, called };

  // Under the lock of the owner. True: a futex_wake is needed as well.
  bool call() noexcept { return signal.exchange(called, std::memory_order_acq_rel) == asleep; }

  Workers* owner = nullptr;
  Worker* next_idle = nullptr;
  std::atomic<std::uint32_t> signal{called};
  bool handing_over = false;
  const detail::TaskState* running = nullptr;
  detail::TaskState* next = nullptr;  // what this worker goes on with, without asking anybody
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
      max_threads_(o.threads) {}

Workers::HandingOver::HandingOver() noexcept {
  if (mine) mine->handing_over = true;
}
Workers::HandingOver::~HandingOver() {
  if (mine) mine->handing_over = false;
}

bool Workers::on_worker() const noexcept { return mine && mine->owner == this; }

Workers* Workers::of_this_thread(const PoolCore& pool) noexcept {
  return mine && &mine->owner->pool_ == &pool ? mine->owner : nullptr;
}

const detail::TaskState* Workers::running_on_this_thread() noexcept { return mine ? mine->running : nullptr; }

void Workers::add(detail::TaskState& task) noexcept {
  const bool goes_on = on_worker() && mine->handing_over && !mine->next;
  // No lock, when nobody was admitted before it and is still waiting for a thread.
  if (goes_on && ready_count_.load(std::memory_order_relaxed) == 0) {
    mine->next = &task;
    return;
  }
  Wake wake;
  {
    std::lock_guard lock(mutex_);
    task.set_next_ready(nullptr);
    if (last_ready_)
      last_ready_->set_next_ready(&task);
    else
      first_ready_ = &task;
    last_ready_ = &task;
    ready_count_.store(ready_count_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    if (goes_on)
      mine->next = take();  // as many are ready as before, and a wake-up is on the way to them
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
    return {.worker = worker->call() ? worker : nullptr};
  }
  if (threads_ >= max_threads_) return {};
  waking_ = true;
  ++threads_;
  ++started_;
  const auto free = std::find(numbers_.begin(), numbers_.end(), false);
  const auto number = static_cast<std::size_t>(free - numbers_.begin()) + 1;
  if (free == numbers_.end()) numbers_.push_back(true);
  numbers_[number - 1] = true;
  return {.start = number};
}

void Workers::carry_out(const Wake& wake) noexcept {
  if (wake.worker) base::futex_wake(&wake.worker->signal);
  if (wake.start == 0) return;
  base::ThreadOptions options = thread_options_;
  const std::string number = "-" + std::to_string(wake.start);
  options.name =
      name_.substr(0, base::kThreadName - number.size()) + number;  // the number is what tells them apart
  if (base::start_thread(options, [self = shared_from_this(), n = wake.start] { self->loop(n); })) return;
  // No thread to be had. The others will come to it, also one that has just gone to sleep; if there are none,
  // this thread is the worker.
  bool alone = false;
  Wake other;
  {
    std::lock_guard lock(mutex_);
    numbers_[wake.start - 1] = false;
    --threads_;
    --started_;
    waking_ = false;
    alone = threads_ == 0;
    if (idle_) other = pass_on();
  }
  if (other.worker) base::futex_wake(&other.worker->signal);
  while (alone) {
    detail::TaskState* task = nullptr;
    {
      std::lock_guard lock(mutex_);
      task = take();
    }
    if (!task) return;
    execute_(*task);
  }
}

void Workers::loop(std::size_t number) noexcept {
  Worker me;
  me.owner = this;
  mine = &me;
  if (on_start_) on_start_(number);
  std::unique_lock lock(mutex_);
  bool woken = true;  // the wake-up in flight was for this thread, as it is for one just started
  for (;;) {
    detail::TaskState* task = take();
    if (std::exchange(woken, false)) waking_ = false;
    if (task) {
      const Wake wake = pass_on();
      lock.unlock();
      carry_out(wake);
      while (task) {
        me.running = task;
        execute_(*task);
        task = std::exchange(me.next, nullptr);
      }
      me.running = nullptr;
      lock.lock();
      continue;
    }
    if (stopping_ || threads_ > max_threads_) break;
    woken = idle(lock, me);
    if (!woken && threads_ > min_threads_) break;
  }
  --threads_;  // from here on work that comes needs another thread
  ++ending_;
  lock.unlock();
  if (on_end_) on_end_(number);
  mine = nullptr;
  lock.lock();
  numbers_[number - 1] = false;
  --ending_;
  ended_.notify_all();
}

// True: it was called meanwhile. False: from now on it is asleep, for those who call.
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

// Sleeps until there is work, or for keep_alive. False: nobody called.
bool Workers::idle(std::unique_lock<detail::Mutex>& lock, Worker& me) noexcept {
  const bool somebody_looks = idle_ && idle_->signal.load(std::memory_order_relaxed) == Worker::looking;
  const bool looks = !somebody_looks && patience_.wants_to_look();
  Worker** const place = somebody_looks ? &idle_->next_idle : &idle_;
  me.signal.store(looks ? Worker::looking : Worker::asleep, std::memory_order_relaxed);
  me.next_idle = *place;
  *place = &me;
  ++idle_count_;
  lock.unlock();
  const bool found = looks && look(me);
  const TimePoint now = clock_.now();
  const bool kept = keep_alive_ >= no_deadline - now;
  const TimePoint until = kept ? no_deadline : now + keep_alive_;
  while (me.signal.load(std::memory_order_acquire) == Worker::asleep && (kept || clock_.now() < until))
    clock_.wait(me.signal, Worker::asleep, until);
  lock.lock();
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
    std::lock_guard lock(mutex_);
    max_threads_ = threads;
    wake = pass_on();
    // Idle workers above the new number are called, find nothing to do, and end.
    std::uint32_t above = threads_ > threads ? threads_ - threads : 0;
    for (; above > 0 && idle_; --above) {
      Worker* const worker = idle_;
      idle_ = worker->next_idle;
      --idle_count_;
      if (worker->call()) base::futex_wake(&worker->signal);
    }
  }
  carry_out(wake);
}

void Workers::stop() noexcept {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  for (Worker* worker = std::exchange(idle_, nullptr); worker;) {
    Worker* next = worker->next_idle;
    if (worker->call()) base::futex_wake(&worker->signal);
    worker = next;
  }
  idle_count_ = 0;
  ended_.wait(lock, [this] { return threads_ + ending_ == 0; });
}

Workers::Count Workers::count() const noexcept {
  std::lock_guard lock(mutex_);
  return {threads_, max_threads_, idle_count_, started_};
}

}  // namespace bulkhead
