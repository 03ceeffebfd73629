// workers.h - the threads of a pool: started when there is work, woken one at a time, ended after a long idle time.
//
// Invariants (all under the lock)
//  P1  A task is in `ready` only from its admission by the gate until a worker takes it, so there are never more ready
//      tasks than the gate's limit.
//  P2  While `ready` is not empty, a wake-up is in flight (`waking`), or no worker is idle and no further one may start,
//      or as many workers as there are ready tasks run their start hook (`starting`). A worker that takes a task and
//      leaves others passes the wake-up on. All of this is one state under the lock, so no wake-up is lost.
//  P3  An idle worker is woken only by the thread that took it off the idle list; its signal is set then.
//  P4  At most one idle worker spins for work instead of sleeping (patience.h); it is the first to be called.
//  P5  If the system gives no thread, the existing workers run the task. Without any worker the submitting thread acts as
//      a Worker while there is work: tasks that are admitted when a task ends run after it, not inside it. Only tasks
//      that a task submits itself run inside it, at most as deep as the gate's limit.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/thread.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/detail/std_mutex.h"
#include "bulkhead/pool.h"
#include "pool/patience.h"

namespace bulkhead {

class Workers : public std::enable_shared_from_this<Workers> {
  struct Worker;

 public:
  // Each worker keeps this object alive until it ends, so the last one may outlive the pool by a few instructions.
  using Execute = void (*)(detail::TaskState&) noexcept;
  Workers(const PoolCore& pool, const PoolOptions& options, Clock& clock, Execute execute);

  // Gives `task` to a worker. A worker that calls this at the end of a task takes it itself.
  void add(detail::TaskState& task) noexcept;

  // Marks the end of a task on this thread: a task that its release admits can run on this thread.
  class HandingOver {
   public:
    HandingOver() noexcept;
    ~HandingOver();
  };

  // Marks the time from before the permit of a task is given back until its result is visible.
  class Settling {
   public:
    Settling() noexcept;
    void over() noexcept;

   private:
    Worker* const worker_;
  };
  // Waits until no other thread is settling a task; false: `until` came first.
  bool wait_settled(TimePoint until) const noexcept;

  void resize(std::uint32_t threads) noexcept;
  void stop() noexcept;  // ends the workers when they are idle, and waits for them

  struct Count {
    std::uint32_t threads, max_threads, idle;
    std::uint64_t started;
  };
  Count count() const noexcept;
  bool on_worker() const noexcept;  // the calling thread is one of these workers
  // The workers of `pool` if the calling thread is one of them, else null. Does not access `pool`.
  static Workers* of_this_thread(const PoolCore& pool) noexcept;

  // For the check against self-deadlock: the calling worker, which holds `units`, begins or ends to wait for a task of its
  // own pool. Returns the units of all workers that wait so.
  std::uint32_t block(std::uint32_t units) noexcept {
    return blocked_.fetch_add(units, std::memory_order_acq_rel) + units;
  }
  void unblock(std::uint32_t units) noexcept { blocked_.fetch_sub(units, std::memory_order_acq_rel); }
  static const detail::TaskState* running_on_this_thread() noexcept;

 private:
  struct Wake {
    Worker* worker = nullptr;  // asleep
    std::size_t start = 0;     // number of the worker to start, from 1
  };

  Wake pass_on() noexcept BULKHEAD_REQUIRES(mutex_);
  void carry_out(const Wake& wake) noexcept;
  bool start(std::size_t number) noexcept;
  void stand_in() noexcept;
  void run(Worker& me, detail::TaskState* task) noexcept;
  void loop(std::size_t number) noexcept;
  bool idle(Worker& me) noexcept BULKHEAD_REQUIRES(mutex_);
  bool look(Worker& me) noexcept;
  detail::TaskState* take() noexcept BULKHEAD_REQUIRES(mutex_);
  static thread_local Worker* mine;

  const PoolCore& pool_;  // may be destroyed before the last worker
  const std::string name_;
  const base::ThreadOptions thread_options_;
  const std::function<void(std::size_t)> on_start_, on_end_;
  const std::chrono::nanoseconds keep_alive_;
  const std::uint32_t min_threads_;
  Clock& clock_;
  const Execute execute_;
  std::atomic<std::uint32_t> ready_count_{0};  // written under the lock; a hint without it
  std::atomic<std::uint32_t> blocked_{0};

  mutable detail::Mutex mutex_;
  std::condition_variable_any ended_;
  detail::TaskState* first_ready_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  detail::TaskState* last_ready_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;
  Worker* all_ BULKHEAD_GUARDED_BY(mutex_) = nullptr;  // workers that may run a task
  Worker* idle_ BULKHEAD_GUARDED_BY(mutex_) =
      nullptr;  // the last to become idle is woken first: its cache is warm
  Patience patience_ BULKHEAD_GUARDED_BY(mutex_);
  std::uint32_t idle_count_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  bool waking_ BULKHEAD_GUARDED_BY(mutex_) = false;
  bool stopping_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::uint32_t threads_ BULKHEAD_GUARDED_BY(mutex_) = 0, ending_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::uint32_t starting_ BULKHEAD_GUARDED_BY(mutex_) = 0;  // workers in their start hook
  std::uint32_t max_threads_ BULKHEAD_GUARDED_BY(mutex_);
  std::uint64_t started_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  std::vector<bool> numbers_ BULKHEAD_GUARDED_BY(mutex_);  // in use
};

}  // namespace bulkhead
