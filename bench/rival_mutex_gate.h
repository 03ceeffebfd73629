// The gate's guarantees the plain way, everything under one std::mutex: an exact cap that can be resized,
// exact counters, a bounded line served first come, first served by handing the place over.
#pragma once

#include <condition_variable>
#include <mutex>

#include "bench/workload.h"

namespace bench {

class MutexGate {
 public:
  static constexpr std::string_view name = "mutex gate, same guarantees";
  static constexpr Guarantees guarantees{.counters = true, .resize = true, .fifo = true};
  explicit MutexGate(unsigned limit) : limit_(limit) {}

  template <class F>
  bool try_call(F&& body) {
    {
      std::lock_guard lock(mutex_);
      if (!admit()) {
        ++rejected_;
        return false;
      }
    }
    body();
    release();
    return true;
  }
  template <class F>
  void call(F&& body) {
    wait();
    body();
    release();
  }

  void resize(unsigned limit) {
    std::lock_guard lock(mutex_);
    limit_ = limit;
    serve();
  }

 private:
  struct Waiter {
    std::condition_variable turn;
    bool admitted = false;
    Waiter* next = nullptr;
  };

  bool admit() {
    if (in_flight_ >= limit_ || first_) return false;
    ++in_flight_;
    ++admitted_;
    return true;
  }

  void wait() {
    std::unique_lock lock(mutex_);
    if (admit()) return;
    Waiter w;
    (first_ ? last_->next : first_) = &w;
    last_ = &w;
    w.turn.wait(lock, [&] { return w.admitted; });
  }

  void release() {
    std::lock_guard lock(mutex_);
    --in_flight_;
    ++released_;
    serve();
  }

  // Notifies under the lock, because a waiter's condition variable dies with the waiter.
  void serve() {
    while (first_ && in_flight_ < limit_) {
      Waiter& w = *first_;
      first_ = w.next;
      ++in_flight_;
      ++admitted_;
      w.admitted = true;
      w.turn.notify_one();
    }
  }

  alignas(64) std::mutex mutex_;
  unsigned limit_;
  unsigned in_flight_ = 0;
  std::uint64_t admitted_ = 0, released_ = 0, rejected_ = 0;
  Waiter* first_ = nullptr;
  Waiter* last_ = nullptr;
};

}  // namespace bench
