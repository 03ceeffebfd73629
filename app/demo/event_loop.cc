#include "app/demo/event_loop.h"

namespace bulkhead::demo {

EventLoop::EventLoop() : thread_([this] { run(); }) {}

EventLoop::~EventLoop() { stop(); }

void EventLoop::arm(Alarm& alarm) noexcept {
  bool earlier = false;
  {
    std::lock_guard lock(mutex_);
    heap_.insert(alarm);
    earlier = heap_.first() == &alarm;
  }
  if (earlier && std::this_thread::get_id() != thread_.get_id()) changed_.notify_one();
}

void EventLoop::disarm(Alarm& alarm) noexcept {
  std::lock_guard lock(mutex_);  // expire() runs under this lock, so it is not running now
  heap_.remove(alarm);
}

void EventLoop::hurry() noexcept {
  {
    std::lock_guard lock(mutex_);
    hurried_ = true;
  }
  changed_.notify_one();
}

void EventLoop::stop() noexcept {
  {
    std::lock_guard lock(mutex_);
    hurried_ = true;
    stopping_ = true;
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void EventLoop::run() noexcept {
  std::unique_lock lock(mutex_);
  for (;;) {
    Alarm* alarm = heap_.first();
    if (!alarm) {
      if (stopping_) return;
      changed_.wait(lock);
    } else if (const TimePoint at = alarm->at; !hurried_ && std::chrono::steady_clock::now() < at) {
      changed_.wait_until(lock, at);
    } else {
      heap_.remove(*alarm);
      if (alarm->expire()) {
        lock.unlock();
        alarm->expired();
        lock.lock();
      }
    }
  }
}

}  // namespace bulkhead::demo
