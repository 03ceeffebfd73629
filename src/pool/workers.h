// workers.h - the threads of a pool: started when there is work, woken one at a time, ended when
// idle for long.
//
// Invariants (all under the lock)
//  P1  A task is in `ready` only between its admission by the gate and the moment a worker takes it,
//      so there are never more of them than the gate's limit.
//  P2  While `ready` is not empty, a wake-up is in flight (`waking`), or no worker is idle and no
//      further one may start. Whoever takes a task and leaves others passes the wake-up on. One
//      combined state decides, so none is lost.
//  P3  An idle worker is woken only by whoever took it off the idle list; it finds its signal set.
//  P4  At most one idle worker looks for work instead of sleeping (patience.h); it is the first to be called.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/thread.h"
#include "bulkhead/detail/mutex.h"
#include "bulkhead/pool.h"
#include "pool/patience.h"

namespace bulkhead {

class Workers : public std::enable_shared_from_this<Workers> {
 public:
  // Each worker keeps this object alive until it ends, so the last one may outlive the pool by
  // a few instructions.
  using Execute = void (*)(detail::TaskState&) noexcept;
  Workers(const PoolCore& pool, const PoolOptions& options, Clock& clock, Execute execute);

  // Has `task` executed by a worker soon. The worker that calls this at the very end of a task
  // takes it itself.
  void add(detail::TaskState& task) noexcept;

  // Marks the end of a task on this thread: what its release admits can go on right here.
  class HandingOver {
   public:
    HandingOver() noexcept;
    ~HandingOver();
  };

  void resize(std::uint32_t threads) noexcept;
  void stop() noexcept;  // ends the workers as soon as they have nothing to do, and waits for that

  struct Count {
    std::uint32_t threads, max_threads, idle;
    std::uint64_t started;
  };
  Count count() const noexcept;
  bool on_worker() const noexcept;  // the calling thread is one of these
  // Those of `pool`, if the calling thread is one of them. Only looks at the address.
  static Workers* of_this_thread(const PoolCore& pool) noexcept;

  // For the check against self-deadlock: the calling worker, which holds so many units, is about to block on, or
  // resumes from, a task of its own. Gives the units of all that are blocked.
  std::uint32_t block(std::uint32_t units) noexcept {
    return blocked_.fetch_add(units, std::memory_order_acq_rel) + units;
  }
  void unblock(std::uint32_t units) noexcept { blocked_.fetch_sub(units, std::memory_order_acq_rel); }
  static const detail::TaskState* running_on_this_thread() noexcept;

 private:
  struct Worker;
  struct Wake {
    Worker* worker = nullptr;  // asleep
    std::size_t start = 0;     // number of the worker to start, from 1
  };

  Wake pass_on() noexcept;  // under the lock
  void carry_out(const Wake& wake) noexcept;
  void loop(std::size_t number) noexcept;
  bool idle(std::unique_lock<detail::Mutex>& lock, Worker& me) noexcept;
  bool look(Worker& me) noexcept;
  detail::TaskState* take() noexcept;
  static thread_local Worker* mine;

  const PoolCore& pool_;  // may be gone before the last worker
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
  detail::TaskState* first_ready_ = nullptr;
  detail::TaskState* last_ready_ = nullptr;
  Worker* idle_ = nullptr;  // the last to become idle is the first to be woken: its cache is warm
  Patience patience_;
  std::uint32_t idle_count_ = 0;
  bool waking_ = false;
  bool stopping_ = false;
  std::uint32_t threads_ = 0, ending_ = 0;
  std::uint32_t max_threads_;
  std::uint64_t started_ = 0;
  std::vector<bool> numbers_;  // in use
};

}  // namespace bulkhead
