// task_queue.h - the threads of a server, one for each connection at a time; further connections wait in line.
//
// It starts `threads` threads, or as many as the system has, which may be none.
#pragma once

#include <httplib.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::httplib {

class TaskQueue final : public ::httplib::TaskQueue {
 public:
  explicit TaskQueue(std::uint32_t threads) noexcept;
  ~TaskQueue() override;

  void enqueue(std::function<void()> task) override;
  void shutdown() override;  // when all tasks have ended
  std::uint32_t threads() const noexcept { return static_cast<std::uint32_t>(threads_.size()); }

 private:
  void work();

  detail::StdMutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_ BULKHEAD_GUARDED_BY(mutex_);
  bool ending_ BULKHEAD_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

}  // namespace bulkhead::httplib
