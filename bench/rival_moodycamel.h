// moodycamel::LightweightSemaphore: a counter before a kernel semaphore, spinning a while before it sleeps.
#pragma once

#include <concurrentqueue/concurrentqueue.h>  // lightweightsemaphore.h uses its macros
#include <concurrentqueue/lightweightsemaphore.h>

#include "bench/workload.h"

namespace bench {

class Moodycamel {
 public:
  static constexpr std::string_view name = "moodycamel::LightweightSemaphore";
  static constexpr Guarantees guarantees{};
  explicit Moodycamel(unsigned limit) : semaphore_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    if (!semaphore_.tryWait()) return false;
    body();
    semaphore_.signal();
    return true;
  }
  template <class F>
  void call(F&& body) {
    while (!semaphore_.wait()) {
    }
    body();
    semaphore_.signal();
  }

 private:
  alignas(64) moodycamel::LightweightSemaphore semaphore_;
};

}  // namespace bench
