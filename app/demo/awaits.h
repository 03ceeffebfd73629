// awaits.h - what the shop's calls wait for besides time: a connection, and an answer of the database.
//
//   ConnectionPool::Answer held = co_await connection_of(loop, pool);
//   auto said = co_await on_thread(loop, workers, [&] { return (*held)->ask(Ask::basket, 42, {}); });
//
// Both resume on the loop's thread, so what follows needs no lock.
#pragma once

#include <optional>
#include <type_traits>
#include <utility>

#include "app/demo/event_loop.h"
#include "app/demo/store.h"
#include "bulkhead/pool.h"

namespace bulkhead::demo {

// Lives in the frame of the coroutine that awaits it; gone as soon as it is armed.
template <class T>
class Awaited : private Alarm {
 public:
  Awaited(const Awaited&) = delete;
  Awaited& operator=(const Awaited&) = delete;
  bool await_ready() const noexcept { return false; }
  T await_resume() { return *std::move(value_); }

 protected:
  explicit Awaited(EventLoop& loop) noexcept : loop_(loop) { at = TimePoint::min(); }
  void expect(std::coroutine_handle<> waiter) noexcept { waiter_ = waiter; }
  void arrive(T value) {
    value_.emplace(std::move(value));
    loop_.arm(*this);
  }

 private:
  bool expire() noexcept override { return true; }
  void expired() noexcept override { waiter_.resume(); }

  EventLoop& loop_;
  std::coroutine_handle<> waiter_;
  std::optional<T> value_;
};

class [[nodiscard]] AwaitedConnection final : public Awaited<ConnectionPool::Answer> {
 public:
  AwaitedConnection(EventLoop& loop, ConnectionPool& pool) noexcept : Awaited(loop), pool_(pool) {}
  void await_suspend(std::coroutine_handle<> waiter) {
    expect(waiter);
    pool_.acquire([this](ConnectionPool::Answer answer) { arrive(std::move(answer)); });
  }

 private:
  ConnectionPool& pool_;
};

template <class F>
class [[nodiscard]] AwaitedWork final : public Awaited<std::invoke_result_t<F&>> {
 public:
  AwaitedWork(EventLoop& loop, Pool& workers, F work) noexcept
      : Awaited<std::invoke_result_t<F&>>(loop), workers_(workers), work_(std::move(work)) {}
  void await_suspend(std::coroutine_handle<> waiter) {
    this->expect(waiter);
    workers_.submit([this] { this->arrive(work_()); }).detach();
  }

 private:
  Pool& workers_;
  F work_;
};

inline AwaitedConnection connection_of(EventLoop& loop, ConnectionPool& pool) noexcept {
  return {loop, pool};
}
template <class F>
AwaitedWork<F> on_thread(EventLoop& loop, Pool& workers, F work) noexcept {
  return {loop, workers, std::move(work)};
}

// Threads for blocking work, as many as there are connections, so no work is rejected. Threads for reports have the lowest
// priority: the demo is about connections, and a bulkhead does not divide processors.
inline PoolOptions workers_for(std::string name, std::uint32_t connections, bool reports) {
  return {.name = std::move(name),
          .max_concurrent = connections,
          .max_queue = connections * 4,
          .nice = reports ? 19 : 0};
}

}  // namespace bulkhead::demo
