// POSIX sem_t, unnamed and private to the process.
#pragma once

#include <semaphore.h>

#include "bench/workload.h"

namespace bench {

class PosixSemaphore {
 public:
  static constexpr std::string_view name = kPosix;
  static constexpr Guarantees guarantees{};
  explicit PosixSemaphore(unsigned limit) { sem_init(&semaphore_, 0, limit); }
  ~PosixSemaphore() { sem_destroy(&semaphore_); }

  template <class F>
  bool try_call(F&& body) {
    if (sem_trywait(&semaphore_) != 0) return false;
    body();
    sem_post(&semaphore_);
    return true;
  }
  template <class F>
  void call(F&& body) {
    while (sem_wait(&semaphore_) != 0) {
    }
    body();
    sem_post(&semaphore_);
  }

 private:
  alignas(64) sem_t semaphore_;
};

}  // namespace bench
