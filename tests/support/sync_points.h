// sync_points.h - holds a chosen thread at a named place of the slow path, so that a test can force one
// interleaving. Needs a build with BULKHEAD_SYNC_POINTS.
//
//   SyncPoints points;
//   points.hold("waiter", "withdraw.before_lock");
//   std::jthread waiter = named("waiter", [&] { gate.acquire({.timeout = 1ms}); });
//   points.until_held("waiter");       // it is about to give up, and has not yet
//   permit->release();
//   points.let_go("waiter");
//
// A hold catches one passage. Threads without a name are never held. One SyncPoints at a time.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/sync_point.h"

namespace bulkhead::tests {

class SyncPoints {
 public:
  // The name of this thread, while it lives.
  struct Name {
    explicit Name(const char* name) { current = name; }
    ~Name() { current = nullptr; }
    Name(const Name&) = delete;
    Name& operator=(const Name&) = delete;
  };

  // For a thread that others start, until it ends.
  static void name_this_thread(const char* name) { current = name; }

  SyncPoints() {
    active = this;
    base::sync_point_handler.store(&SyncPoints::pass);
  }
  ~SyncPoints() {
    base::sync_point_handler.store(nullptr);
    std::unique_lock lock(mutex_);
    holds_.clear();
    changed_.notify_all();
    changed_.wait(lock, [&] { return inside_ == 0; });
    active = nullptr;
  }
  SyncPoints(const SyncPoints&) = delete;
  SyncPoints& operator=(const SyncPoints&) = delete;

  void hold(const char* thread, const char* point) {
    std::lock_guard lock(mutex_);
    holds_[thread] = {point, false};
  }
  void until_held(const char* thread) {
    std::unique_lock lock(mutex_);
    // The time only keeps a broken build from hanging.
    if (changed_.wait_for(lock, std::chrono::seconds(60), [&] { return holds_[thread].held; })) return;
    std::fprintf(stderr, "%s never came to %s\n", thread, holds_[thread].point.c_str());
    std::abort();
  }
  void let_go(const char* thread) {
    std::lock_guard lock(mutex_);
    holds_.erase(thread);
    changed_.notify_all();
  }

 private:
  struct Hold {
    std::string point;
    bool held = false;
  };

  static void pass(const char* point) {
    if (current && active) active->stop_here(point);
  }
  void stop_here(const char* point) {
    std::unique_lock lock(mutex_);
    const std::string thread = current;
    const auto hold = holds_.find(thread);
    if (hold == holds_.end() || hold->second.point != point || hold->second.held) return;
    hold->second.held = true;
    ++inside_;
    changed_.notify_all();
    changed_.wait(lock, [&] {
      const auto h = holds_.find(thread);
      return h == holds_.end() || h->second.point != point;
    });
    --inside_;
    changed_.notify_all();
  }

  static inline SyncPoints* active = nullptr;
  static inline thread_local const char* current = nullptr;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Hold> holds_;
  int inside_ = 0;
};

// A thread under a name, so that it can be held.
template <class F>
std::jthread named(const char* name, F&& body) {
  return std::jthread([name, body = std::forward<F>(body)]() mutable {
    SyncPoints::Name me(name);
    body();
  });
}

}  // namespace bulkhead::tests
