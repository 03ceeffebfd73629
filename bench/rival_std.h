// std::counting_semaphore.
#pragma once

#include <semaphore>

#include "bench/workload.h"

namespace bench {

class StdSemaphore {
 public:
  static constexpr std::string_view name = kSemaphore;
  static constexpr Guarantees guarantees{};
  explicit StdSemaphore(unsigned limit) : semaphore_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    if (!semaphore_.try_acquire()) return false;
    body();
    semaphore_.release();
    return true;
  }
  template <class F>
  void call(F&& body) {
    semaphore_.acquire();
    body();
    semaphore_.release();
  }

 private:
  alignas(64) std::counting_semaphore<> semaphore_;
};

}  // namespace bench
