// Work that nobody waits for, and the inbox through which most work joins the queue: what is said of the queue
// elsewhere must hold for what is in there, too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <semaphore>
#include <stdexcept>
#include <stop_token>
#include <thread>
#include <vector>

#include "bulkhead/pool.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace tests;
using ::testing::ElementsAre;

// A pool of one thread that is busy until let go. Its first waiter stands in line behind the lock of the gate;
// the ordinary ones that follow are in the inbox.
struct Busy {
  explicit Busy(PoolOptions options) : pool(std::move(options)) {
    EXPECT_TRUE(pool.post([this] {
      begun.release();
      go.acquire();
    }));
    begun.acquire();
  }
  auto note(int number) {
    return [this, number] { order.push_back(number); };
  }
  void finish() {
    go.release();
    EXPECT_TRUE(pool.shutdown());
  }
  std::binary_semaphore begun{0}, go{0};
  std::vector<int> order;  // of the one thread
  Pool pool;
};

TEST(PoolPost, RunsTheWorkAndCountsIt) {
  std::atomic<int> runs = 0;
  Pool pool{{.max_concurrent = 2, .max_queue = 16}};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(pool.post([&] { return ++runs; }));
  EXPECT_TRUE(pool.post([]() -> int { throw std::runtime_error("lost"); }));
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(runs, 8);
  EXPECT_EQ(pool.snapshot().gate.succeeded, 8u);
  EXPECT_EQ(pool.snapshot().gate.failed, 1u);
}

TEST(PoolPost, SaysWhyThereIsNoPlaceAndDropsTheWork) {
  Busy busy{{.name = "mail", .max_concurrent = 1, .max_queue = 1}};
  const auto load = std::make_shared<int>(1);
  EXPECT_TRUE(busy.pool.post([load] {}));
  const Result<void> rejected = busy.pool.post([load] { FAIL(); });
  ASSERT_FALSE(rejected);
  EXPECT_EQ(rejected.error().reason, Reason::queue_limit);
  EXPECT_EQ(rejected.error().waiting, 1u);
  EXPECT_EQ(load.use_count(), 2);  // here and in the queue
  busy.finish();
  EXPECT_EQ(load.use_count(), 1);
  EXPECT_EQ(busy.pool.post([] {}).error().reason, Reason::shutdown);
  EXPECT_EQ(busy.pool.snapshot().gate.rejected(), 2u);
}

TEST(PoolPost, TheCallerRunsItIfThePoolSaysSo) {
  Busy busy{{.max_concurrent = 1, .on_reject = OnReject::caller_runs}};
  std::thread::id ran_on;
  EXPECT_TRUE(busy.pool.post([&] { ran_on = std::this_thread::get_id(); }));
  EXPECT_EQ(ran_on, std::this_thread::get_id());
  EXPECT_EQ(busy.pool.snapshot().caller_runs, 1u);
  busy.finish();
}

TEST(PoolPost, WhatIsRejectedLaterIsOnlyCounted) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  const auto load = std::make_shared<int>(1);
  EXPECT_TRUE(busy.pool.post([load] { FAIL(); }, {.priority = Priority::best_effort}));
  for (int i = 0; i < 7; ++i) EXPECT_TRUE(busy.pool.post([load] { FAIL(); }));
  EXPECT_TRUE(busy.pool.post([load] { FAIL(); }, {.priority = Priority::critical}));
  EXPECT_EQ(busy.pool.snapshot().gate.rejected_by_reason[static_cast<std::size_t>(Reason::evicted)], 1u);
  EXPECT_FALSE(busy.pool.shutdown(Shutdown::now, Clock::steady().now()));
  EXPECT_EQ(load.use_count(), 1);
  EXPECT_EQ(busy.pool.snapshot().gate.rejected_by_reason[static_cast<std::size_t>(Reason::shutdown)], 8u);
  busy.finish();
}

TEST(PoolInbox, TheQueueIsBoundedCountedAndFirstComeFirstServed) {
  Busy busy{{.max_concurrent = 1, .max_queue = 5}};
  std::vector<Task<void>> tasks;
  for (int i = 0; i < 6; ++i) {
    tasks.push_back(busy.pool.submit(busy.note(i)));
    EXPECT_EQ(busy.pool.snapshot().gate.waiting, i < 5 ? i + 1u : 5u);
  }
  EXPECT_EQ(tasks[5].get().error().reason, Reason::queue_limit);
  tasks[2].cancel();  // its place is free at once
  EXPECT_EQ(busy.pool.snapshot().gate.waiting, 4u);
  EXPECT_TRUE(busy.pool.post(busy.note(6)));
  EXPECT_FALSE(busy.pool.post(busy.note(7)));
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(0, 1, 3, 4, 6));
}

TEST(PoolInbox, NormalWorkIsServedBeforeBestEffortWorkThatCameFirst) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  EXPECT_TRUE(busy.pool.post(busy.note(4), {.priority = Priority::best_effort}));
  EXPECT_TRUE(busy.pool.post(busy.note(2)));
  EXPECT_TRUE(busy.pool.post(busy.note(3)));
  EXPECT_TRUE(busy.pool.post(busy.note(5), {.priority = Priority::best_effort}));
  EXPECT_TRUE(busy.pool.post(busy.note(1), {.priority = Priority::critical}));
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3, 4, 5));
}

// The thread serves best-effort work, one after the other, when normal work comes.
TEST(PoolInbox, NormalWorkThatComesWhileBestEffortWorkIsServedIsNext) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  EXPECT_TRUE(busy.pool.post(
      [&] {
        busy.order.push_back(1);
        EXPECT_TRUE(busy.pool.post(busy.note(2)));
      },
      {.priority = Priority::best_effort}));
  EXPECT_TRUE(busy.pool.post(busy.note(3), {.priority = Priority::best_effort}));
  EXPECT_TRUE(busy.pool.post(busy.note(4), {.priority = Priority::best_effort}));
  busy.go.release();
  until([&] { return busy.pool.snapshot().gate.released == 5; });
  EXPECT_TRUE(busy.pool.shutdown());
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3, 4));
}

TEST(PoolInbox, AFullQueueMakesRoomForNormalWorkByEviction) {
  Busy busy{{.max_concurrent = 1, .max_queue = 3}};
  auto report = busy.pool.submit(busy.note(9), {.priority = Priority::best_effort});
  for (int i = 1; i <= 3; ++i) EXPECT_TRUE(busy.pool.post(busy.note(i)));
  EXPECT_EQ(report.get().error().reason, Reason::evicted);
  EXPECT_EQ(busy.pool.post(busy.note(4)).error().reason, Reason::queue_limit);
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3));
}

TEST(PoolInbox, TheReserveKeepsPlacesForCriticalWork) {
  Busy busy{{.max_concurrent = 1, .max_queue = 4, .critical_reserve = 0.5}};
  EXPECT_TRUE(busy.pool.post(busy.note(2)));
  EXPECT_TRUE(busy.pool.post(busy.note(3)));
  EXPECT_EQ(busy.pool.post(busy.note(9)).error().reason, Reason::queue_limit);
  EXPECT_TRUE(busy.pool.post(busy.note(1), {.priority = Priority::critical}));
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3));
}

TEST(PoolInbox, AResizedQueueKeepsWhatIsInItAndTakesAsManyAsItHasPlaces) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  for (int i = 1; i <= 4; ++i) EXPECT_TRUE(busy.pool.post(busy.note(i)));
  busy.pool.resize_queue(2);
  EXPECT_FALSE(busy.pool.post(busy.note(9)));
  EXPECT_EQ(busy.pool.snapshot().gate.waiting, 4u);
  busy.pool.resize_queue(5);
  EXPECT_TRUE(busy.pool.post(busy.note(5)));
  EXPECT_FALSE(busy.pool.post(busy.note(9)));
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3, 4, 5));
}

TEST(PoolInbox, MoreThreadsAreAtOnceThereForWhatIsInIt) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  std::counting_semaphore<8> began{0}, go{0};
  for (int i = 0; i < 4; ++i)
    EXPECT_TRUE(busy.pool.post([&] {
      began.release();
      go.acquire();
    }));
  busy.pool.resize(4);
  for (int i = 0; i < 3; ++i) began.acquire();  // beside the busy one
  EXPECT_EQ(busy.pool.snapshot().gate.waiting, 1u);
  go.release(4);
  busy.finish();
}

// Who takes units of the gate stands in the same line.
TEST(PoolInbox, AThreadAtTheGateIsServedInItsTurn) {
  Busy busy{{.max_concurrent = 1, .max_queue = 8}};
  EXPECT_TRUE(busy.pool.post(busy.note(1)));
  EXPECT_TRUE(busy.pool.post(busy.note(2)));
  std::jthread visitor([&] {
    const auto permit = busy.pool.gate().acquire();
    busy.order.push_back(3);
  });
  until([&] { return busy.pool.snapshot().gate.waiting == 3; });
  EXPECT_TRUE(busy.pool.post(busy.note(4)));
  busy.go.release();
  visitor.join();
  busy.pool.shutdown();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3, 4));
}

TEST(PoolInbox, WorkWithATimeLimitWaitsBesideWorkWithoutOne) {
  ManualClock clock;
  Busy busy{{.max_concurrent = 1, .max_queue = 8, .clock = &clock}};
  EXPECT_TRUE(busy.pool.post(busy.note(1)));
  auto hurried = busy.pool.submit(busy.note(9), {.timeout = std::chrono::milliseconds(5)});
  auto patient = busy.pool.submit(busy.note(2), {.timeout = std::chrono::seconds(5)});
  EXPECT_TRUE(busy.pool.post(busy.note(3)));
  clock.advance(std::chrono::milliseconds(10));
  EXPECT_EQ(hurried.get().error().reason, Reason::timeout);
  busy.finish();
  EXPECT_THAT(busy.order, ElementsAre(1, 2, 3));
}

// Stopped after its admission and before it began: nobody runs for a caller that gave up.
TEST(PoolPost, WorkRejectedBeforeItBeganIsNotCountedAsAbandoned) {
  const auto stop = std::make_unique<std::stop_source>();
  Pool pool{{.max_concurrent = 1,
             .context = {.capture = [] { return std::make_shared<int>(1); },
                         .enter = [&](const auto&) { stop->request_stop(); }}}};
  auto task = pool.submit([] { FAIL(); }, {.stop = stop->get_token()});
  EXPECT_EQ(task.get().error().reason, Reason::cancelled);
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(pool.snapshot().abandoned_total, 0u);
}

}  // namespace
}  // namespace bulkhead
