// The semaphore of the textbooks: a count under a std::mutex, and a condition variable.
#pragma once

#include <condition_variable>
#include <mutex>

#include "bench/workload.h"

namespace bench {

class CondvarSemaphore {
 public:
  static constexpr std::string_view name = "std::mutex + condition_variable";
  static constexpr Guarantees guarantees{};
  explicit CondvarSemaphore(unsigned limit) : free_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    {
      std::lock_guard lock(mutex_);
      if (free_ == 0) return false;
      --free_;
    }
    body();
    release();
    return true;
  }
  template <class F>
  void call(F&& body) {
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return free_ > 0; });
      --free_;
    }
    body();
    release();
  }

 private:
  void release() {
    {
      std::lock_guard lock(mutex_);
      ++free_;
    }
    changed_.notify_one();
  }

  alignas(64) std::mutex mutex_;
  std::condition_variable changed_;
  unsigned free_;
};

}  // namespace bench
