#include "task_queue.h"

#include <exception>
#include <utility>

namespace bulkhead::httplib {

TaskQueue::TaskQueue(std::uint32_t threads) noexcept {
  try {
    threads_.reserve(threads);
    while (threads_.size() < threads) threads_.emplace_back([this] { work(); });
  } catch (const std::exception&) {  // the system has no more
  }
}
TaskQueue::~TaskQueue() { shutdown(); }

void TaskQueue::enqueue(std::function<void()> task) {
  {
    const detail::MutexLock lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  changed_.notify_one();
}

void TaskQueue::shutdown() {
  {
    const detail::MutexLock lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_)
    if (thread.joinable()) thread.join();
}

void TaskQueue::work() {
  for (;;) {
    std::function<void()> task;
    {
      detail::UniqueLock lock(mutex_);
      while (tasks_.empty() && !ending_) changed_.wait(lock);
      if (tasks_.empty()) return;
      task = std::move(tasks_.front());
      tasks_.pop_front();
    }
    task();
  }
}

}  // namespace bulkhead::httplib
