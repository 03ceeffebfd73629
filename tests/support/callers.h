// callers.h - a call at a gate as a test sees it: pending, then admitted or rejected, whichever way it waits.
//
//   Caller b(gate, {.timeout = 10ms}, Kind::coroutine);
//   EXPECT_TRUE(b.pending());
//   a.release();
//   EXPECT_TRUE(b.admitted());
//
// A Caller keeps its permit until release() or its end. Declare the gate first, and decide every Kind::thread
// before it dies: its thread is joined.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <optional>
#include <ostream>
#include <source_location>
#include <string>
#include <thread>
#include <utility>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/until.h"

namespace bulkhead {

inline void PrintTo(Reason reason, std::ostream* out) { *out << to_string(reason); }
inline void PrintTo(Priority priority, std::ostream* out) { *out << to_string(priority); }

namespace tests {

// Until n calls are in line, and have come to rest there: a call shows a moment before its place is
// final, which is when the gate's lock is free again. A drain that does not wait takes that lock
// and changes nothing.
inline void until_waiting(Gate& gate, std::uint32_t n,
                          std::source_location where = std::source_location::current()) {
  until([&] { return gate.snapshot().waiting == n; }, where);
  gate.drain(TimePoint::min());
}

// {in flight, waiting}
using Numbers = std::pair<std::uint32_t, std::uint32_t>;
inline Numbers numbers(const Gate& gate) {
  const Snapshot s = gate.snapshot();
  return {s.in_flight, s.waiting};
}

// What must hold whenever nothing is in flight and nobody waits.
inline void expect_idle(const Gate& gate, std::source_location where = std::source_location::current()) {
  const ::testing::ScopedTrace trace(where.file_name(), static_cast<int>(where.line()), "expect_idle");
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.in_flight, 0u);
  EXPECT_EQ(s.permits, 0u);
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(s.admitted, s.released);
  EXPECT_EQ(s.succeeded + s.failed, s.released);
  EXPECT_EQ(s.underflows, 0u);
}

// A coroutine that starts at once and frees itself at its end.
struct Detached {
  struct promise_type {
    Detached get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
};

// A coroutine that starts when told and dies with this object, wherever it is suspended.
class Coroutine {
 public:
  struct promise_type {
    Coroutine get_return_object() noexcept {
      return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_always initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };

  Coroutine(Coroutine&& other) noexcept : handle_(std::exchange(other.handle_, {})) {}
  Coroutine& operator=(Coroutine&&) = delete;
  ~Coroutine() {
    if (handle_) handle_.destroy();
  }
  void start() { handle_.resume(); }
  bool done() const { return handle_.done(); }

 private:
  explicit Coroutine(std::coroutine_handle<promise_type> handle) noexcept : handle_(handle) {}
  std::coroutine_handle<promise_type> handle_;
};

enum class Kind { handler, coroutine, thread };
inline void PrintTo(Kind kind, std::ostream* out) {
  *out << (kind == Kind::handler ? "handler" : kind == Kind::coroutine ? "coroutine" : "thread");
}
inline std::string kind_name(const ::testing::TestParamInfo<Kind>& info) {
  return ::testing::PrintToString(info.param);
}
inline constexpr Kind kinds[] = {Kind::handler, Kind::coroutine, Kind::thread};

class Caller {
 public:
  explicit Caller(Gate& gate, AcquireOptions options = {}, Kind kind = Kind::handler)
      : call_(std::make_shared<Call>()) {
    switch (kind) {
      case Kind::handler:
        gate.async_acquire(std::move(options),
                           [call = call_](Result<Permit> result) { call->decide(std::move(result)); });
        break;
      case Kind::coroutine:
        co_call(gate, std::move(options), call_);
        break;
      case Kind::thread:
        thread_ = std::jthread(
            [&gate, options = std::move(options), call = call_] { call->decide(gate.acquire(options)); });
        break;
    }
  }

  bool pending() const { return !call_->decided.load(std::memory_order_acquire); }
  // These wait for the answer: a thread may still be on its way to hear it.
  bool admitted() const { return call_->wait().has_value(); }
  Reason reason() const { return call_->wait().error().reason; }
  const Rejection& rejection() const { return call_->wait().error(); }
  std::uint64_t turn() const { return call_->wait(), call_->turn; }  // answers are numbered as they come

  bool release(Outcome outcome = Outcome::success) { return call_->wait()->release(outcome); }

 private:
  struct Call {
    std::optional<Result<Permit>> result;
    std::uint64_t turn = 0;
    std::atomic<bool> decided = false;

    void decide(Result<Permit> r) {
      EXPECT_FALSE(decided) << "a call was answered twice";
      result.emplace(std::move(r));
      static std::atomic<std::uint64_t> turns{0};
      turn = ++turns;
      decided.store(true, std::memory_order_release);
    }
    Result<Permit>& wait() {
      until([&] { return decided.load(std::memory_order_acquire); });
      return *result;
    }
  };

  static Detached co_call(Gate& gate, AcquireOptions options, std::shared_ptr<Call> call) {
    call->decide(co_await gate.co_acquire(std::move(options)));
  }

  std::shared_ptr<Call> call_;
  std::jthread thread_;
};

}  // namespace tests
}  // namespace bulkhead
