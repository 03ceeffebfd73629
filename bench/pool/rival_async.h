// std::async: a thread per task, however many workers are asked for. Its futures wait as they die, so those
// of the last window of tasks are kept.
#pragma once

#include <array>
#include <future>

#include "bench/pool/rival.h"

namespace bench {

class StdAsync {
 public:
  static constexpr std::string_view name = "std::async";
  static constexpr bool has_workers = false;
  static constexpr unsigned batch = 8;
  explicit StdAsync(unsigned) {}

  template <class F>
  void post(F f) {
    futures_[next_++ % futures_.size()] = std::async(std::launch::async, std::move(f));
  }
  template <class F>
  std::future<int> submit(F f) {
    return std::async(std::launch::async, std::move(f));
  }

 private:
  std::array<std::future<void>, Outstanding::window> futures_;
  std::size_t next_ = 0;
};

}  // namespace bench
