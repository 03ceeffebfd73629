// The pool of the textbooks: a std::deque of std::function under a std::mutex, and a condition variable. It
// notifies after unlocking. A result comes through a std::packaged_task.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "bench/pool/rival.h"

namespace bench {

class MutexPool {
 public:
  static constexpr std::string_view name = "mutex + condition_variable + deque";
  static constexpr bool has_workers = true;
  static constexpr unsigned batch = 64;
  explicit MutexPool(unsigned workers) {
    for (unsigned i = 0; i < workers; ++i) threads_.emplace_back([this] { work(); });
  }
  ~MutexPool() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
  }

  template <class F>
  void post(F f) {
    {
      std::lock_guard lock(mutex_);
      tasks_.emplace_back(std::move(f));
    }
    changed_.notify_one();
  }
  template <class F>
  std::future<int> submit(F f) {
    auto task = std::make_shared<std::packaged_task<int()>>(std::move(f));
    std::future<int> future = task->get_future();
    post([task = std::move(task)] { (*task)(); });
    return future;
  }

 private:
  void work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
      if (tasks_.empty()) return;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace bench
