// event_loop.h - one thread on which the demo's calls sleep, wake and time out.
//
//   EventLoop loop;
//   Job visit(EventLoop& loop) { co_await sleep_until(loop, arrival); ... }
//
// It is also the deadline driver of the gates, so arrivals, calls and timeouts all run on its thread.
// Threads: arm, disarm and hurry from any; jobs run on the loop's own thread.
#pragma once

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <exception>
#include <thread>

#include "base/alarm_loop.h"

namespace bulkhead::demo {

class EventLoop final : public AlarmLoop {
 public:
  EventLoop() : thread_([this] { run(); }) {}
  ~EventLoop() { join(); }
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;

  // stop(), and no job runs any more when this returns.
  void join() noexcept {
    stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  std::thread thread_;
};

// A coroutine that runs by itself: it starts at once and frees its frame at its end.
struct Job {
  struct promise_type {
    Job get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    [[noreturn]] void unhandled_exception() noexcept { std::terminate(); }
  };
};

// Counts a coroutine for as long as its frame lives.
class Alive {
 public:
  explicit Alive(std::atomic<std::uint32_t>& jobs) noexcept : jobs_(jobs) {
    jobs_.fetch_add(1, std::memory_order_relaxed);
  }
  ~Alive() { jobs_.fetch_sub(1, std::memory_order_release); }  // finished() sees all that was counted
  Alive(const Alive&) = delete;
  Alive& operator=(const Alive&) = delete;

 private:
  std::atomic<std::uint32_t>& jobs_;
};

// Lives in the frame of the coroutine that awaits it.
class [[nodiscard]] Sleep final : private Alarm {
 public:
  Sleep(EventLoop& loop, TimePoint until) noexcept : loop_(loop) { at = until; }

  bool await_ready() const noexcept { return at <= std::chrono::steady_clock::now(); }
  void await_suspend(std::coroutine_handle<> sleeper) noexcept {
    sleeper_ = sleeper;
    loop_.arm(*this);
  }
  void await_resume() const noexcept {}

 private:
  bool expire() noexcept override { return true; }
  void expired() noexcept override { sleeper_.resume(); }

  EventLoop& loop_;
  std::coroutine_handle<> sleeper_;
};

inline Sleep sleep_until(EventLoop& loop, TimePoint until) noexcept { return {loop, until}; }

}  // namespace bulkhead::demo
