// A count under an absl::Mutex, waited for by an absl::Condition.
#pragma once

#include <absl/synchronization/mutex.h>

#include "bench/workload.h"

namespace bench {

class AbslSemaphore {
 public:
  static constexpr std::string_view name = "absl::Mutex + Condition";
  static constexpr Guarantees guarantees{};
  explicit AbslSemaphore(unsigned limit) : free_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    {
      absl::MutexLock lock(&mutex_);
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
      absl::MutexLock lock(&mutex_, absl::Condition(+[](unsigned* free) { return *free > 0; }, &free_));
      --free_;
    }
    body();
    release();
  }

 private:
  void release() {
    absl::MutexLock lock(&mutex_);
    ++free_;
  }

  alignas(64) absl::Mutex mutex_;
  unsigned free_;
};

}  // namespace bench
