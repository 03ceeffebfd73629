// The ways to a task's result: co_await, then, polling, a fallback; and what becomes of it when it costs
// more, is dropped, or outlives its caller.
#include "bulkhead/task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <coroutine>
#include <exception>
#include <memory>
#include <optional>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>

#include "bulkhead/manual_clock.h"
#include "bulkhead/pool.h"
#include "tests/support/stuck.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::Stuck;
using tests::until;

// Starts at once; dies with this object, wherever it is suspended.
class Coroutine {
 public:
  struct promise_type {
    Coroutine get_return_object() noexcept {
      return Coroutine(std::coroutine_handle<promise_type>::from_promise(*this));
    }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_always final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept { std::terminate(); }
  };
  explicit Coroutine(std::coroutine_handle<> handle) noexcept : handle_(handle) {}
  Coroutine(const Coroutine&) = delete;
  Coroutine& operator=(const Coroutine&) = delete;
  ~Coroutine() { handle_.destroy(); }

 private:
  std::coroutine_handle<> handle_;
};

struct Heard {
  std::optional<Result<int>> result;
  std::thread::id thread;
  std::string thrown;
  std::atomic<bool> done = false;
};

Coroutine hear(Task<int> task, Heard& heard) {
  try {
    heard.result = co_await std::move(task);
  } catch (const std::exception& e) {
    heard.thrown = e.what();
  }
  heard.thread = std::this_thread::get_id();
  heard.done = true;
}

TEST(Task, ACoroutineResumesOnTheThreadThatFinishedIt) {
  Heard heard;
  Stuck stuck;
  auto pool = std::make_unique<Pool>(PoolOptions{.max_concurrent = 1});
  const auto worker = pool->submit([] { return std::this_thread::get_id(); }).get().value();
  const Coroutine c = hear(pool->submit(stuck.work()), heard);
  EXPECT_FALSE(heard.done);
  stuck.go.release();
  until([&] { return heard.done.load(); });
  EXPECT_EQ(heard.result->value(), 1);
  EXPECT_EQ(heard.thread, worker);
  pool.reset();  // its thread has left the coroutine
}

TEST(Task, ACoroutineDoesNotSuspendForATaskThatIsReady) {
  Heard heard;
  Pool pool{{.max_concurrent = 1}};
  auto task = pool.submit([] { return 2; });
  until([&] { return task.ready(); });
  const Coroutine c = hear(std::move(task), heard);
  EXPECT_TRUE(heard.done);
  EXPECT_EQ(heard.result->value(), 2);
  EXPECT_EQ(heard.thread, std::this_thread::get_id());
}

TEST(Task, WhatTheWorkThrewIsThrownInTheCoroutine) {
  Heard heard;
  auto pool = std::make_unique<Pool>(PoolOptions{.max_concurrent = 1});
  const Coroutine c = hear(pool->submit([]() -> int { throw std::runtime_error("no"); }), heard);
  until([&] { return heard.done.load(); });
  EXPECT_EQ(heard.thrown, "no");
  pool.reset();
}

TEST(Task, ACoroutineDestroyedWhileItWaitsGivesUp) {
  Stuck stuck;
  Heard heard;
  std::atomic<bool> ran = false;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  auto running = pool.submit(stuck.work());
  {
    const Coroutine c = hear(pool.submit([&] { return ran = true, 2; }), heard);
    EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  }
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  stuck.go.release();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(pool.shutdown());
  EXPECT_FALSE(ran);
  EXPECT_FALSE(heard.done);
}

TEST(Task, ThenIsCalledAtOnceForATaskThatIsReady) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1}};
  auto running = pool.submit(stuck.work());
  std::optional<Reason> reason;
  pool.submit([] { return 1; }).then([&](Task<int> task) { reason = task.get().error().reason; });
  EXPECT_EQ(reason, Reason::concurrency_limit);
  stuck.go.release();
}

TEST(Task, ThenIsCalledForWhatTimesOutIsEvictedOrShutDown) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto running = pool.submit(stuck.work());
  std::optional<Reason> late, evicted, closed;
  const auto note = [](std::optional<Reason>& where) {
    return [&where](Task<int> task) { where = task.get().error().reason; };
  };
  pool.submit([] { return 1; }, {.timeout = 1ms}).then(note(late));
  clock.advance(1ms);
  EXPECT_EQ(late, Reason::timeout);
  pool.submit([] { return 1; }, {.priority = Priority::best_effort}).then(note(evicted));
  pool.submit([] { return 1; }).then(note(closed));
  EXPECT_EQ(evicted, Reason::evicted);
  EXPECT_FALSE(pool.shutdown(Shutdown::now, TimePoint::min()));
  EXPECT_EQ(closed, Reason::shutdown);
  stuck.go.release();
}

TEST(Task, AHandlerMaySubmitTheNextWork) {
  std::atomic<int> sum = 0;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  pool.submit([] { return 1; }).then([&](Task<int> first) {
    sum += first.get().value();
    pool.submit([] { return 2; }).then([&](Task<int> second) { sum += second.get().value(); });
  });
  until([&] { return sum == 3; });
}

TEST(Task, PollingKeepsTheResult) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .clock = &clock}};
  auto task = pool.submit(stuck.work());
  EXPECT_FALSE(task.wait_for(0ns));
  EXPECT_TRUE(task.valid());
  stuck.go.release();
  EXPECT_TRUE(task.wait_for(wait_forever));
  EXPECT_TRUE(task.ready());
  EXPECT_EQ(task.get().value(), 1);
  EXPECT_FALSE(task.valid());
}

TEST(Task, DetachedWorkRunsAndWhatItThrowsIsCounted) {
  std::atomic<bool> ran = false;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  pool.submit([&] {
        ran = true;
        throw std::runtime_error("no");
      })
      .detach();
  EXPECT_TRUE(pool.shutdown());
  EXPECT_TRUE(ran);
  EXPECT_EQ(pool.snapshot().gate.failed, 1u);
}

TEST(Task, WhatTheWorkHeldIsGoneWhenItsResultIsThere) {
  Pool pool{{.max_concurrent = 1}};
  auto held = std::make_shared<int>(1);
  auto task = pool.submit([held] { return *held; });
  until([&] { return task.ready(); });
  EXPECT_EQ(held.use_count(), 1);
}

TEST(Task, AssigningToATaskGivesUpTheOneItWas) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 2}};
  auto running = pool.submit(stuck.work());
  auto task = pool.submit([] { return 2; });
  task = pool.submit([] { return 3; });
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  stuck.go.release();
  EXPECT_EQ(task.get().value(), 3);
}

// ---- fallbacks ----

TEST(Task, AFallbackAnswersForWorkEvictedTimedOutOrCancelled) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto running = pool.submit(stuck.work());
  const auto work = [] { return std::string("fresh"); };
  const auto why = [](const Rejection& r) { return std::string(to_string(r.reason)); };
  auto evicted = pool.submit_or(work, why, {.priority = Priority::best_effort});
  auto late = pool.submit_or(work, why, {.timeout = 1ms});
  EXPECT_EQ(evicted.get().value(), "evicted");
  clock.advance(1ms);
  EXPECT_EQ(late.get().value(), "timeout");
  std::stop_source source;
  auto stopped = pool.submit_or(work, why, {.stop = source.get_token()});
  source.request_stop();
  EXPECT_EQ(stopped.get().value(), "cancelled");
  auto impatient = pool.submit_or(work, why);
  EXPECT_EQ(impatient.get_until(clock.now()).value(), "timeout");
  stuck.go.release();
}

TEST(Task, AFallbackAnswersForWorkThatRunsTooLong) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .clock = &clock}};
  auto task = pool.submit_or(stuck.work(), [](const Rejection& r) { return -static_cast<int>(r.reason); },
                             {.execution_timeout = 1ms});
  stuck.begun.acquire();
  until([&] { return clock.next_alarm() != no_deadline; });
  clock.advance(1ms);
  EXPECT_EQ(task.get().value(), -static_cast<int>(Reason::execution_timeout));
  stuck.go.release();
}

TEST(Task, WhatAFallbackThrowsIsThrownToTheCaller) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1}};
  auto running = pool.submit(stuck.work());
  auto task =
      pool.submit_or([] { return 1; }, [](const Rejection&) -> int { throw std::runtime_error("no"); });
  EXPECT_THROW(static_cast<void>(task.get()), std::runtime_error);
  stuck.go.release();
}

TEST(Task, AFallbackIsNotAskedWhenTheWorkItselfFails) {
  Pool pool{{.max_concurrent = 1}};
  auto task =
      pool.submit_or([]() -> int { throw std::runtime_error("no"); }, [](const Rejection&) { return 1; });
  EXPECT_THROW(static_cast<void>(task.get()), std::runtime_error);
}

// ---- cost ----

TEST(Task, CostlyWorkTakesSeveralThreadsWorthOfThePool) {
  Stuck big, small;
  Pool pool{{.max_concurrent = 3, .max_queue = 2}};
  auto first = pool.submit(big.work(), {.cost = 2});
  auto second = pool.submit(small.work());
  big.begun.acquire();
  small.begun.acquire();
  EXPECT_EQ(pool.snapshot().gate.in_flight, 3u);
  EXPECT_EQ(pool.snapshot().gate.permits, 2u);
  auto third = pool.submit([] { return 3; }, {.cost = 2});
  small.go.release();
  EXPECT_TRUE(second.get());
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);  // one is not enough
  big.go.release();
  EXPECT_EQ(third.get().value(), 3);
  EXPECT_EQ(pool.submit([] {}, {.cost = 4}).get().error().reason, Reason::concurrency_limit);
}

TEST(Task, AnEmptyOneSaysSoInsteadOfCrashing) {
  const auto rejected = [](const auto& use) {
    try {
      use();
      ADD_FAILURE() << "accepted";
    } catch (const std::logic_error& e) {
      EXPECT_THAT(e.what(), testing::HasSubstr("Task is empty"));
    }
  };
  Pool pool{{.max_concurrent = 1}};
  Task<int> task = pool.submit([] { return 1; });
  EXPECT_EQ(*task.get(), 1);
  EXPECT_FALSE(task.valid());
  EXPECT_FALSE(task.ready());
  rejected([&] { static_cast<void>(task.get()); });
  rejected([&] { static_cast<void>(task.get_for(1s)); });
  rejected([&] { static_cast<void>(task.get_until(no_deadline)); });
  rejected([&] { task.wait_for(1s); });
  rejected([&] { std::move(task).then([](Task<int>) {}); });
  rejected([&] { static_cast<void>(std::move(task).operator co_await().await_ready()); });
  rejected([&] { static_cast<void>(task.settled().await_ready()); });
  task.cancel();
  task.detach();
}

}  // namespace
}  // namespace bulkhead
