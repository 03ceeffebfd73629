// oneTBB: an arena without a place for the submitting thread. By default TBB starts one thread less than
// there are cores, so it is allowed as many as asked for. A result comes through a std::promise.
#pragma once

#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>

#include <future>
#include <memory>

#include "bench/pool/rival.h"

namespace bench {

class TbbArena {
 public:
  static constexpr std::string_view name = "oneTBB task_arena";
  static constexpr bool has_workers = true;
  static constexpr unsigned batch = 64;
  explicit TbbArena(unsigned workers)
      : threads_(tbb::global_control::max_allowed_parallelism, workers + 1),
        arena_(static_cast<int>(workers), 0) {
    arena_.initialize();
  }

  template <class F>
  void post(F f) {
    arena_.enqueue(std::move(f));
  }
  template <class F>
  std::future<int> submit(F f) {
    auto promise = std::make_shared<std::promise<int>>();
    std::future<int> future = promise->get_future();
    arena_.enqueue([promise = std::move(promise), f = std::move(f)] { promise->set_value(f()); });
    return future;
  }

 private:
  tbb::global_control threads_;
  tbb::task_arena arena_;
};

}  // namespace bench
