#include "bulkhead/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <future>
#include <latch>
#include <semaphore>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/stuck.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tests::Stuck;

void until(const auto& condition) {
  while (!condition()) std::this_thread::yield();
}

TEST(Pool, GivesWhatTheWorkReturned) {
  Pool pool{{.name = "db", .max_concurrent = 2}};
  EXPECT_EQ(pool.submit([] { return 42; }).get().value(), 42);
  EXPECT_TRUE(pool.submit([] {}).get());
  EXPECT_EQ(*pool.submit([] { return std::make_unique<int>(7); }).get().value(), 7);
}

TEST(Pool, ThrowsWhatTheWorkThrewAndCountsItAsFailed) {
  Pool pool{{.max_concurrent = 1}};
  auto task = pool.submit([]() -> int { throw std::runtime_error("no"); });
  EXPECT_THROW(static_cast<void>(task.get()), std::runtime_error);
  EXPECT_EQ(pool.snapshot().gate.failed, 1u);
}

TEST(Pool, RunsOnThreadsOfItsOwnThatCarryItsName) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  Pool pool{{.name = "db", .max_concurrent = 1}};
  const auto name = pool.submit([] {
                          char text[16] = {};
                          pthread_getname_np(pthread_self(), text, sizeof text);
                          return std::string(text);
                        })
                        .get();
  EXPECT_EQ(name.value(), "db-1");
}

TEST(Pool, StartsThreadsOnlyWhenThereIsWork) {
  Pool pool{{.max_concurrent = 4, .max_queue = 4}};
  EXPECT_EQ(pool.snapshot().threads, 0u);
  Stuck a, b;
  auto first = pool.submit(a.work());
  auto second = pool.submit(b.work());
  a.begun.acquire();
  b.begun.acquire();
  EXPECT_EQ(pool.snapshot().threads, 2u);
  a.go.release();
  b.go.release();
  EXPECT_TRUE(first.get() && second.get());
}

TEST(Pool, IdleThreadsEndAfterTheKeepAlive) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 2, .min_threads = 1, .keep_alive = 1s, .clock = &clock}};
  Stuck a, b;
  auto first = pool.submit(a.work(), {});
  a.begun.acquire();
  EXPECT_EQ(pool.snapshot().threads, 1u);
  pool.resize_queue(1);
  auto second = pool.submit(b.work());
  b.begun.acquire();
  a.go.release();
  b.go.release();
  EXPECT_TRUE(first.get() && second.get());
  until([&] { return pool.snapshot().idle == 2; });
  clock.advance(2s);
  until([&] { return pool.snapshot().threads == 1; });
}

TEST(Pool, AKeepAliveBeyondTheEndOfTimeIsForEver) {
  Pool pool{{.max_concurrent = 1, .keep_alive = std::chrono::nanoseconds::max() - 1ns}};
  EXPECT_TRUE(pool.submit([] {}).get());
  until([&] { return pool.snapshot().idle == 1; });
  EXPECT_EQ(pool.snapshot().threads, 1u);
}

TEST(Pool, ResizeSaysWhatIsWrongAndChangesNothing) {
  Pool pool{{.name = "db", .max_concurrent = 2}};
  for (const std::uint32_t wrong : {0u, 65'537u}) {
    try {
      pool.resize(wrong);
      ADD_FAILURE() << "accepted";
    } catch (const std::invalid_argument& e) {
      EXPECT_EQ(std::string(e.what()), "bulkhead \"db\": max_concurrent = " + std::to_string(wrong) +
                                           " is out of range: give 1 to 65536");
    }
  }
  EXPECT_EQ(pool.snapshot().gate.max_concurrent, 2u);
  EXPECT_EQ(pool.snapshot().gate.max_concurrent, 2u);
}

TEST(Pool, WorkThatThrowsWhileItIsMovedIsNotTaken) {
  struct Fragile {
    int moves_left;
    explicit Fragile(int moves) : moves_left(moves) {}
    Fragile(Fragile&& other) : moves_left(other.moves_left - 1) {
      if (moves_left < 0) throw std::runtime_error("cannot move");
    }
    int operator()() const { return 1; }
  };
  Pool pool{{.max_concurrent = 1}};
  for (int moves = 0; moves < 3; ++moves) {
    try {
      EXPECT_EQ(pool.submit(Fragile(moves)).get().value(), 1);
    } catch (const std::runtime_error&) {
    }
  }
  EXPECT_EQ(pool.submit(Fragile(100)).get().value(), 1);
  EXPECT_TRUE(pool.shutdown());
}

TEST(Pool, AfterAGracefulShutdownNothingBegins) {
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  EXPECT_TRUE(pool.submit([] {}).get());
  EXPECT_TRUE(pool.shutdown());
  EXPECT_TRUE(pool.snapshot().gate.closed);
  EXPECT_EQ(pool.submit([] {}).get().error().reason, Reason::shutdown);
}

TEST(Pool, RejectsWhenThreadsAndQueueAreFull) {
  Pool pool{{.name = "db", .max_concurrent = 1, .max_queue = 1}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto queued = pool.submit([] { return 2; });
  auto rejected = pool.submit([] { return 3; });
  EXPECT_TRUE(rejected.ready());
  EXPECT_EQ(rejected.get().error().message(),
            "bulkhead \"db\" rejected (queue_limit): 1/1 running, 1/1 waiting");
  stuck.go.release();
  EXPECT_EQ(queued.get().value(), 2);
  EXPECT_EQ(running.get().value(), 1);
}

TEST(Pool, ServesTheTiersInOrder) {
  Pool pool{{.max_concurrent = 1, .max_queue = 8}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  std::vector<int> order;
  std::vector<Task<void>> tasks;
  tasks.push_back(pool.submit([&] { order.push_back(3); }, {.priority = Priority::best_effort}));
  tasks.push_back(pool.submit([&] { order.push_back(2); }));
  tasks.push_back(pool.submit([&] { order.push_back(1); }, {.priority = Priority::critical}));
  stuck.go.release();
  for (auto& task : tasks) EXPECT_TRUE(task.get());
  EXPECT_THAT(order, ElementsAre(1, 2, 3));
}

TEST(Pool, BestEffortWorkIsEvictedForCriticalWork) {
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto report = pool.submit([] { return 1; }, {.priority = Priority::best_effort});
  auto payment = pool.submit([] { return 2; }, {.priority = Priority::critical});
  EXPECT_EQ(report.get().error().reason, Reason::evicted);
  stuck.go.release();
  EXPECT_EQ(payment.get().value(), 2);
}

TEST(Pool, TheReserveKeepsThreadsAndPlacesForCriticalWork) {
  Pool pool{{.max_concurrent = 2, .max_queue = 2, .critical_reserve = 0.5}};
  Stuck a, b;
  auto normal = pool.submit(a.work());
  auto waits = pool.submit([] { return 1; });  // one thread and one place are not for it
  auto rejected = pool.submit([] { return 1; });
  EXPECT_EQ(rejected.get().error().reason, Reason::queue_limit);
  auto critical = pool.submit(b.work(), {.priority = Priority::critical});
  b.begun.acquire();
  a.go.release();
  b.go.release();
  EXPECT_TRUE(waits.get());
}

TEST(Pool, WorkOfACallerThatGaveUpNeverRunsAndFreesItsPlaceAtOnce) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  bool ran = false;
  auto queued = pool.submit([&] { ran = true; });
  EXPECT_EQ(queued.get_until(clock.now()).error().reason, Reason::timeout);
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  auto next = pool.submit([] { return 5; });  // there is room again
  next.cancel();
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  {
    auto dropped = pool.submit([&] { ran = true; });
  }
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  stuck.go.release();
  EXPECT_TRUE(running.get());
  EXPECT_FALSE(ran);
}

TEST(Pool, RunningWorkOfACallerThatGaveUpKeepsItsThreadAndIsShown) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .clock = &clock}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  stuck.begun.acquire();
  EXPECT_EQ(running.get_until(clock.now()).error().reason, Reason::timeout);
  clock.advance(3s);
  const PoolSnapshot s = pool.snapshot();
  EXPECT_EQ(s.abandoned, 1u);
  EXPECT_EQ(s.oldest_abandoned, 3s);
  EXPECT_EQ(s.gate.permits, 1u);
  EXPECT_EQ(pool.submit([] {}).get().error().reason, Reason::concurrency_limit);  // honest: no thread is free
  stuck.go.release();
  until([&] { return pool.snapshot().gate.permits == 0; });
  EXPECT_EQ(pool.snapshot().abandoned, 0u);
  EXPECT_EQ(pool.snapshot().abandoned_total, 1u);
}

TEST(Pool, AnExecutionTimeoutAsksTheWorkToStopAndFreesTheCaller) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .clock = &clock}};
  std::binary_semaphore begun{0};
  std::atomic<bool> stopped = false;
  auto task = pool.submit(
      [&](std::stop_token stop) {
        begun.release();
        until([&] { return stop.stop_requested(); });
        stopped = true;
      },
      {.execution_timeout = 1s});
  begun.acquire();
  clock.advance(1s);
  EXPECT_EQ(task.get().error().reason, Reason::execution_timeout);
  until([&] { return pool.snapshot().gate.permits == 0; });
  EXPECT_TRUE(stopped);
}

TEST(Pool, ATimeBeforeTheEpochIsATimeLikeAnyOther) {
  for (const TimePoint start : {TimePoint(-1h), TimePoint(-1s), TimePoint::min()}) {
    ManualClock clock{start};
    Pool pool{{.max_concurrent = 1, .max_queue = 2, .clock = &clock}};
    std::binary_semaphore begun{0};
    auto running = pool.submit(
        [&](std::stop_token stop) {
          begun.release();
          until([&] { return stop.stop_requested(); });
        },
        {.execution_timeout = 2s});
    begun.acquire();
    auto timed = pool.submit([] {}, {.timeout = 1s});
    auto due = pool.submit([] {}, {.deadline = start + 1s});
    clock.advance(1s - 1ns);
    EXPECT_EQ(pool.snapshot().gate.waiting, 2u);
    clock.advance(1ns);
    EXPECT_EQ(timed.get().error().reason, Reason::timeout);
    EXPECT_EQ(due.get().error().reason, Reason::timeout);
    EXPECT_FALSE(running.ready());
    clock.advance(1s);
    EXPECT_EQ(running.get().error().reason, Reason::execution_timeout);
    EXPECT_EQ(pool.submit([] {}, {.deadline = start + 2s}).get().error().reason, Reason::deadline);
  }
}

TEST(Pool, AQueueTimeoutRejectsWhatWaitsTooLong) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .max_queue = 1, .max_wait = 1s, .clock = &clock}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto queued = pool.submit([] {});
  clock.advance(1s);
  EXPECT_TRUE(queued.ready());
  EXPECT_EQ(queued.get().error().reason, Reason::timeout);
  stuck.go.release();
}

TEST(Pool, AStopTokenCancelsQueuedAndRunningWork) {
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  std::stop_source source;
  std::binary_semaphore begun{0};
  auto running = pool.submit(
      [&](std::stop_token stop) {
        begun.release();
        until([&] { return stop.stop_requested(); });
      },
      {.stop = source.get_token()});
  begun.acquire();
  auto queued = pool.submit([] {}, {.stop = source.get_token()});
  source.request_stop();
  EXPECT_EQ(queued.get().error().reason, Reason::cancelled);
  EXPECT_EQ(running.get().error().reason, Reason::cancelled);
}

TEST(Pool, TheCallerRunsWhatHasNoPlaceIfAskedTo) {
  Pool pool{{.max_concurrent = 1, .on_reject = OnReject::caller_runs}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto here = pool.submit([] { return std::this_thread::get_id(); });
  EXPECT_EQ(here.get().value(), std::this_thread::get_id());
  EXPECT_EQ(pool.snapshot().caller_runs, 1u);
  stuck.go.release();
  EXPECT_TRUE(running.get());
  pool.shutdown();
  EXPECT_EQ(pool.submit([] { return 1; }).get().error().reason, Reason::shutdown);
}

class PoolDiscardsOldest : public testing::TestWithParam<std::uint32_t> {};  // flow queues
INSTANTIATE_TEST_SUITE_P(, PoolDiscardsOldest, testing::Values(0u, 4u));

TEST_P(PoolDiscardsOldest, OfTheLowestTierForTheNewest) {
  Pool pool{{.max_concurrent = 1,
             .max_queue = 3,
             .flow_queues = GetParam(),
             .flow_hand = 1,
             .on_reject = OnReject::discard_oldest}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  stuck.begun.acquire();
  auto a = pool.submit([] { return 'a'; });
  auto spare = pool.submit([] { return 's'; }, {.priority = Priority::best_effort});
  auto b = pool.submit([] { return 'b'; });
  auto c = pool.submit([] { return 'c'; });
  EXPECT_EQ(spare.get().error().reason, Reason::evicted) << "a lower tier first";
  auto d = pool.submit([] { return 'd'; });
  EXPECT_EQ(a.get().error().reason, Reason::evicted);
  auto top = pool.submit([] { return 't'; }, {.priority = Priority::critical});
  EXPECT_EQ(b.get().error().reason, Reason::evicted);
  EXPECT_TRUE(pool.post([] {}));
  EXPECT_EQ(c.get().error().reason, Reason::evicted);
  EXPECT_EQ(pool.submit([] {}, {.priority = Priority::best_effort}).get().error().reason, Reason::queue_limit)
      << "nobody below it, and nobody beside it";
  EXPECT_EQ(pool.submit([] {}, {.timeout = 0s}).get().error().reason, Reason::timeout)
      << "it would not wait, and takes nobody's place";
  const Snapshot s = pool.snapshot().gate;
  EXPECT_EQ(s.waiting, 3u);
  EXPECT_EQ(s.rejected(Reason::evicted), 4u);
  EXPECT_EQ(s.rejected(Reason::queue_limit), 1u);
  stuck.go.release();
  EXPECT_EQ(*d.get(), 'd');
  EXPECT_EQ(*top.get(), 't');
  EXPECT_TRUE(running.get());
}

TEST(Pool, AFallbackIsTheResultOfWorkThatIsRejected) {
  Pool pool{{.max_concurrent = 1}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto task = pool.submit_or([] { return std::string("fresh"); },
                             [](const Rejection& why) { return std::string(to_string(why.reason)); });
  EXPECT_TRUE(task.ready());
  EXPECT_EQ(task.get().value(), "concurrency_limit");
  stuck.go.release();
}

TEST(Pool, GrowsAndShrinksWithoutLosingWork) {
  Pool pool{{.max_concurrent = 1, .max_queue = 8}};
  Stuck a, b;
  auto first = pool.submit(a.work());
  auto second = pool.submit(b.work());
  a.begun.acquire();
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  pool.resize(2);
  b.begun.acquire();
  pool.resize(1);
  auto third = pool.submit([] { return 3; });
  a.go.release();
  b.go.release();
  EXPECT_TRUE(first.get() && second.get());
  EXPECT_EQ(third.get().value(), 3);
  until([&] { return pool.snapshot().threads <= 1; });
}

TEST(Pool, AGracefulShutdownRunsWhatIsQueued) {
  Pool pool{{.max_concurrent = 1, .max_queue = 2}};
  Stuck stuck;
  auto running = pool.submit(stuck.work());
  auto queued = pool.submit([] { return 2; });
  EXPECT_FALSE(pool.shutdown(Shutdown::graceful, TimePoint::min()));
  EXPECT_EQ(pool.submit([] {}).get().error().reason, Reason::shutdown);
  stuck.go.release();
  EXPECT_TRUE(pool.shutdown(Shutdown::graceful));
  EXPECT_EQ(queued.get().value(), 2);
}

TEST(Pool, AShutdownNowRejectsWhatIsQueuedAndStopsWhatRuns) {
  Pool pool{{.max_concurrent = 1, .max_queue = 2}};
  std::binary_semaphore begun{0};
  auto running = pool.submit([&](std::stop_token stop) {
    begun.release();
    until([&] { return stop.stop_requested(); });
    return 1;
  });
  begun.acquire();
  auto queued = pool.submit([] { return 2; });
  EXPECT_TRUE(pool.shutdown(Shutdown::now));
  EXPECT_EQ(queued.get().error().reason, Reason::shutdown);
  EXPECT_EQ(running.get().value(), 1);
}

TEST(Pool, ATaskOutlivesItsPool) {
  Task<int> done, queued;
  {
    Pool pool{{.max_concurrent = 1}};
    done = pool.submit([] { return 1; });
    until([&] { return done.ready(); });
  }
  EXPECT_EQ(done.get_for(1ms).value(), 1);
}

TEST(Pool, ThenIsCalledWithTheFinishedTask) {
  Pool pool{{.max_concurrent = 1}};
  std::latch called(1);
  int value = 0;
  pool.submit([] { return 42; }).then([&](Task<int> task) {
    value = task.get().value();
    called.count_down();
  });
  called.wait();
  EXPECT_EQ(value, 42);
}

thread_local std::string trace;  // not inside the test: a worker does not pass there

TEST(Pool, CarriesTheContextOfTheSubmitter) {
  Pool pool{
      {.max_concurrent = 1,
       .context = {.capture = [] { return std::make_shared<std::string>(trace); },
                   .enter = [](const auto& context) { trace = *static_cast<std::string*>(context.get()); },
                   .leave = [](const auto&) { trace.clear(); }}}};
  trace = "abc";
  EXPECT_EQ(pool.submit([] { return trace; }).get().value(), "abc");
  trace = "def";
  EXPECT_EQ(pool.submit([] { return trace; }).get().value(), "def");
}

TEST(Pool, KeepsPlacesOfTheQueueForCriticalWork) {
  Pool pool{{.max_concurrent = 1, .max_queue = 2, .critical_queue_reserve = 0.5}};
  std::promise<void> go;
  const auto running = pool.submit([ready = go.get_future().share()] { ready.wait(); });
  const auto queued = pool.submit([] {});
  EXPECT_EQ(pool.post([] {}).error().reason, Reason::queue_limit);
  EXPECT_TRUE(pool.post([] {}, {.priority = Priority::critical}));
  go.set_value();
}

TEST(Pool, WrongOptionsNameTheSetting) {
  const auto message = [](PoolOptions o) -> std::string {
    try {
      Pool pool{std::move(o)};
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message({.name = "db", .max_concurrent = 0}),
            "bulkhead \"db\": max_concurrent = 0 is out of range: give 1 to 65536");
  EXPECT_THAT(message({.max_concurrent = 1, .min_threads = 2}),
              HasSubstr("min_threads = 2 is above max_concurrent = 1"));
  EXPECT_THAT(message({.keep_alive = -1s}), HasSubstr("keep_alive"));
  EXPECT_THAT(message({.fairness = Fairness::barging}), HasSubstr("fairness is not fifo"));
}

TEST(Pool, EverySubmissionEndsInExactlyOneResult) {
  Pool pool{{.max_concurrent = 2, .max_queue = 16}};
  std::atomic<int> ran = 0;
  std::atomic<int> answers = 0, values = 0;
  constexpr int threads = 3, each = 5'000;
  {
    std::vector<std::jthread> submitters;
    for (int t = 0; t < threads; ++t) {
      submitters.emplace_back([&, t] {
        for (int i = 0; i < each; ++i) {
          auto task = pool.submit([&] { ++ran; }, {.priority = static_cast<Priority>((i + t) % 3),
                                                   .timeout = std::chrono::microseconds(i % 50)});
          const auto result = i % 3 == 0 ? task.get_for(std::chrono::microseconds(i % 20)) : task.get();
          ++answers;
          if (result) ++values;
        }
      });
    }
  }
  pool.shutdown();
  EXPECT_EQ(answers, threads * each);
  EXPECT_LE(values, ran);
  const Snapshot s = pool.snapshot().gate;
  EXPECT_EQ(s.admitted, s.released);
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(pool.snapshot().abandoned, 0u);
}

#if !defined(NDEBUG)
TEST(PoolDeathTest, WorkThatWaitsForItsOwnPoolIsTold) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  EXPECT_DEATH(
      {
        Pool pool(PoolOptions{.name = "db", .max_concurrent = 1, .max_queue = 4});
        static_cast<void>(pool.submit([&] { static_cast<void>(pool.submit([] {}).get()); }).get());
      },
      "self-deadlock: 1 of 1 threads of the pool wait");
}

TEST(PoolDeathTest, WorkThatLeavesTooFewThreadsForWhatItWaitsForIsTold) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  const auto nested = [](std::uint32_t outer, std::uint32_t inner) {
    Pool pool(PoolOptions{.name = "db", .max_concurrent = 4, .max_queue = 4});
    return pool
        .submit([&] { return pool.submit([] { return 1; }, {.cost = inner}).get().value(); }, {.cost = outer})
        .get()
        .value();
  };
  EXPECT_EQ(nested(2, 2), 1);
  EXPECT_DEATH(
      static_cast<void>(nested(2, 3)),
      "self-deadlock: 2 of 4 threads of the pool wait for work that is queued behind them and needs 3");
}
#endif

}  // namespace
}  // namespace bulkhead
