// Defects found in the thread-pool bulkheads of others, each excluded by the test that carries its name.
// After them, cases from the tests of others. tests/SOURCES.md lists the libraries.
#include "bulkhead/pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"
#include "tests/support/sync_points.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;
using ::testing::ElementsAre;

// Work that stays until told to go; told at the latest when this goes, so declare it before the pool.
struct Stuck {
  std::binary_semaphore begun{0};
  std::atomic<bool> go = false;
  auto work(int value = 1) {
    return [this, value] {
      begun.release();
      go.wait(false);
      return value;
    };
  }
  void let_go() {
    go = true;
    go.notify_all();
  }
};

// resilience4j decorateFuture: get(timeout) gives the permit back while the work still runs, so a
// limit of 1 lets 5 run.
TEST(PoolPeerDefects, AGetThatTimesOutDoesNotLetMoreWorkInThanThreads) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .clock = &clock}};
  std::atomic<int> inside = 0, most = 0;
  std::atomic<bool> go = false;
  int rejected = 0;
  for (int i = 0; i < 5; ++i) {
    auto task = pool.submit([&] {
      most = std::max(most.load(), ++inside);
      go.wait(false);
      --inside;
    });
    if (i == 0) until([&] { return inside == 1; });
    rejected += task.get_until(clock.now()).error().reason == Reason::concurrency_limit;
  }
  EXPECT_EQ(rejected, 4);
  EXPECT_EQ(pool.snapshot().abandoned, 1u);
  go = true;
  go.notify_all();
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(most, 1);
}

// resilience4j decorateFuture, the other half: a cancel without a get never gives the permit back.
TEST(PoolPeerDefects, ACancelWithoutAGetGivesThePermitBackWhenTheWorkEnds) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  auto task = pool.submit(stuck.work());
  stuck.begun.acquire();
  task.cancel();
  EXPECT_EQ(pool.snapshot().gate.permits, 1u);
  auto next = pool.submit([] { return 2; });
  stuck.let_go();
  EXPECT_EQ(next.get().value(), 2);
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(pool.snapshot().gate.admitted, 2u);
  EXPECT_EQ(pool.snapshot().gate.released, 2u);
}

// resilience4j's pool (#1460) and cockatiel's queue (#114): a cancelled queued task keeps its place and still
// runs.
TEST(PoolPeerDefects, ACancelledQueuedTaskNeitherKeepsItsPlaceNorRuns) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  auto running = pool.submit(stuck.work());
  std::atomic<int> ran = 0;
  std::stop_source source;
  for (int i = 0; i < 3; ++i) {
    auto task = pool.submit([&] { ++ran; }, {.stop = source.get_token()});
    EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
    if (i == 0) {
      task.cancel();
    } else if (i == 1) {
      const auto dropped = std::move(task);
    } else {
      source.request_stop();
      EXPECT_EQ(task.get().error().reason, Reason::cancelled);
    }
  }
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  auto next = pool.submit([] { return 2; });
  stuck.let_go();
  EXPECT_EQ(next.get().value(), 2);
  EXPECT_EQ(ran, 0);
}

// resilience4j's pool with a discarding policy: the future of discarded work never completes.
TEST(PoolPeerDefects, WorkWithoutAPlaceHasItsResultAtOnceWhateverThePolicy) {
  for (const OnReject policy : {OnReject::abort, OnReject::caller_runs}) {
    Stuck stuck;
    Pool pool{{.max_concurrent = 1, .max_queue = 1, .on_reject = policy}};
    auto running = pool.submit(stuck.work());
    auto queued = pool.submit([] { return 2; }, {.priority = Priority::best_effort});
    auto full = pool.submit([] { return 3; }, {.priority = Priority::best_effort});
    EXPECT_TRUE(full.ready());
    EXPECT_EQ(full.get().has_value(), policy == OnReject::caller_runs);
    auto full_with_fallback = pool.submit_or([] { return 4; }, [](const Rejection&) { return -4; },
                                             {.priority = Priority::best_effort});
    EXPECT_TRUE(full_with_fallback.ready());
    EXPECT_EQ(full_with_fallback.get().value(), policy == OnReject::caller_runs ? 4 : -4);
    auto better = pool.submit([] { return 5; }, {.priority = Priority::critical});
    EXPECT_TRUE(queued.ready());  // evicted
    EXPECT_EQ(queued.get().error().reason, Reason::evicted);
    stuck.let_go();
    EXPECT_EQ(better.get().value(), 5);
  }
}

// The same, discarded by a shutdown.
TEST(PoolPeerDefects, QueuedWorkHasItsResultWhenThePoolIsDestroyed) {
  Task<int> running, queued;
  {
    Stuck stuck;
    Pool pool{{.max_concurrent = 1, .max_queue = 1}};
    running = pool.submit(stuck.work());
    queued = pool.submit([] { return 2; });
    stuck.begun.acquire();
    EXPECT_FALSE(pool.shutdown(Shutdown::now, TimePoint::min()));
    EXPECT_TRUE(queued.ready());
    stuck.let_go();
  }
  EXPECT_EQ(queued.get().error().reason, Reason::shutdown);
  EXPECT_EQ(running.get().value(), 1);
}

// resilience4j: ThreadPoolBulkheadConfig.from(base) changes base.
TEST(PoolPeerDefects, OptionsMadeFromOthersDoNotChangeThem) {
  const PoolOptions base{.name = "base", .max_concurrent = 2, .max_queue = 3};
  PoolOptions derived = base;
  derived.name = "derived";
  derived.max_concurrent = 1;
  derived.max_queue = 0;
  Pool one{base}, two{derived};
  two.resize(9);
  EXPECT_EQ(base.max_concurrent, 2u);
  EXPECT_EQ(one.snapshot().gate.max_concurrent, 2u);
  EXPECT_EQ(one.snapshot().gate.max_queue, 3u);
  EXPECT_EQ(one.name(), "base");
}

// Netflix concurrency-limits, Lifo: the newest goes first, so the oldest of a lasting backlog starves.
TEST(PoolPeerDefects, ALastingBacklogDoesNotStarveItsOldest) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 4}};
  std::vector<int> order;
  std::atomic<int> done = 0;
  std::vector<Task<void>> tasks;
  auto running = pool.submit(stuck.work());
  // Each piece of work puts a new one behind those that wait: the queue is never empty until the end.
  std::function<void(int)> add = [&](int n) {
    tasks.push_back(pool.submit([&, n] {
      order.push_back(n);
      if (n + 3 < 20) add(n + 3);
      ++done;
    }));
  };
  tasks.reserve(32);
  for (int i = 0; i < 3; ++i) add(i);
  stuck.let_go();
  until([&] { return done == 20; });
  EXPECT_TRUE(pool.shutdown());
  EXPECT_TRUE(std::ranges::is_sorted(order));
}

// Netflix concurrency-limits, Lifo, the other half: a head of the line that cannot go keeps the other classes
// waiting.
TEST(PoolPeerDefects, AHeadThatIsNotAllowedInDoesNotKeepAHigherClassWaiting) {
  Stuck normal, critical;
  Pool pool{{.max_concurrent = 2, .max_queue = 4, .critical_reserve = 0.5}};
  auto running = pool.submit(normal.work());
  normal.begun.acquire();
  auto head = pool.submit([] { return 2; });  // the thread that is free is not for it
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  auto payment = pool.submit(critical.work(), {.priority = Priority::critical});
  critical.begun.acquire();
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  critical.let_go();
  normal.let_go();
  EXPECT_EQ(head.get().value(), 2);
}

// resilience4j: a wait that was interrupted is reported as "full".
TEST(PoolPeerDefects, EveryWayToMissOneSTurnHasAReasonOfItsOwn) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.name = "db", .max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto running = pool.submit(stuck.work());
  std::stop_source source;
  auto cancelled = pool.submit([] {}, {.stop = source.get_token()});
  auto full = pool.submit([] {});
  source.request_stop();
  auto late = pool.submit([] {}, {.timeout = 1s});
  clock.advance(1s);
  auto past = pool.submit([] {}, {.deadline = clock.now()});
  auto evicted = pool.submit([] {}, {.priority = Priority::best_effort});
  auto critical = pool.submit([] {}, {.priority = Priority::critical});
  auto impatient = pool.submit([] {}, {.priority = Priority::critical, .cost = 2});
  EXPECT_FALSE(pool.shutdown(Shutdown::now, TimePoint::min()));
  auto closed = pool.submit([] {});
  const auto why = [](Task<void>& task) { return task.get().error().reason; };
  EXPECT_EQ(why(cancelled), Reason::cancelled);
  EXPECT_EQ(why(full), Reason::queue_limit);
  EXPECT_EQ(why(late), Reason::timeout);
  EXPECT_EQ(why(past), Reason::deadline);
  EXPECT_EQ(why(evicted), Reason::evicted);
  EXPECT_EQ(why(critical), Reason::shutdown);
  EXPECT_EQ(why(impatient), Reason::concurrency_limit);
  EXPECT_EQ(why(closed), Reason::shutdown);
  const Snapshot s = pool.snapshot().gate;
  EXPECT_EQ(s.rejected(Reason::cancelled), 1u);
  EXPECT_EQ(s.rejected(Reason::queue_limit), 1u);
  EXPECT_EQ(s.rejected(Reason::shutdown), 2u);
  stuck.let_go();
}

// ---- resilience4j ThreadPoolBulkheadTest, FixedThreadPoolBulkheadTest ----

TEST(PoolPeerCases, Resilience4jAFullPoolRejectsEveryKindOfWork) {
  Stuck a, b;
  Pool pool{{.name = "testPool", .max_concurrent = 1, .max_queue = 1}};
  auto running = pool.submit(a.work());
  auto queued = pool.submit(b.work());
  EXPECT_EQ(pool.submit([] {}).get().error().reason, Reason::queue_limit);                     // runnable
  EXPECT_EQ(pool.submit([] { return 1; }).get().error().reason, Reason::queue_limit);          // supplier
  EXPECT_EQ(pool.submit([]() -> int { throw 1; }).get().error().reason, Reason::queue_limit);  // callable
  EXPECT_EQ(pool.submit([](std::stop_token) {}).get().error().message(),
            "bulkhead \"testPool\" rejected (queue_limit): 1/1 running, 1/1 waiting");
  a.let_go();
  b.let_go();
}

TEST(PoolPeerCases, Resilience4jWithoutAQueueOnlyAFreeThreadTakesWork) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 0}};
  auto running = pool.submit(stuck.work());
  EXPECT_EQ(pool.submit([] {}).get().error().reason, Reason::concurrency_limit);
  stuck.let_go();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(pool.submit([] {}).get());  // whoever has the result finds the thread free
}

TEST(PoolPeerCases, Resilience4jThreadsAreNamedAfterTheBulkhead) {
  Pool pool{{.name = "TEST", .max_concurrent = 2}};
  for (int i = 0; i < 4; ++i) {
    const auto name = pool.submit([] {
                            char text[16] = {};
                            pthread_getname_np(pthread_self(), text, sizeof text);
                            return std::string(text);
                          })
                          .get()
                          .value();
    EXPECT_TRUE(name == "TEST-1" || name == "TEST-2") << name;
  }
}

thread_local std::string trace;  // not inside the test: a worker does not pass there

TEST(PoolPeerCases, Resilience4jTheContextIsPropagatedAndClearedAlsoWhenTheWorkThrows) {
  Pool pool{
      {.max_concurrent = 1,
       .context = {.capture = [] { return std::make_shared<std::string>(trace); },
                   .enter = [](const auto& context) { trace = *static_cast<std::string*>(context.get()); },
                   .leave = [](const auto&) { trace.clear(); }}}};
  trace = "abc";
  EXPECT_EQ(pool.submit([] { return trace; }).get().value(), "abc");
  EXPECT_THROW(static_cast<void>(pool.submit([]() -> int { throw std::runtime_error("no"); }).get()),
               std::runtime_error);
  trace = "";
  EXPECT_EQ(pool.submit([] { return trace; }).get().value(), "");
}

// ---- Hystrix HystrixCommandTest ----

// testRejectedThreadUsingQueueSize: one runs, one waits, the third is rejected and its fallback is its result.
TEST(PoolPeerCases, HystrixRejectedThreadUsingQueueSize) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 1}};
  auto running = pool.submit(stuck.work());
  auto queued = pool.submit([] { return 2; });
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  auto third = pool.submit_or(
      [] { return 3; }, [](const Rejection& why) { return why.reason == Reason::queue_limit ? -3 : 0; });
  EXPECT_EQ(third.get().value(), -3);
  stuck.let_go();
  EXPECT_EQ(running.get().value(), 1);
  EXPECT_EQ(queued.get().value(), 2);
}

// testCancelledTasksInQueueGetRemoved: after the caller let go, the queue is empty again, and takes the next.
TEST(PoolPeerCases, HystrixCancelledTasksInQueueGetRemoved) {
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 10}};
  auto running = pool.submit(stuck.work());
  stuck.begun.acquire();
  std::atomic<bool> ran = false;
  auto queued = pool.submit([&] { ran = true; });
  EXPECT_EQ(pool.snapshot().gate.waiting, 1u);
  queued.cancel();
  EXPECT_EQ(pool.snapshot().gate.waiting, 0u);
  stuck.let_go();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(pool.shutdown());
  EXPECT_FALSE(ran);
}

// A command that timed out in the queue must not run later (Hystrix checks this when its thread picks it up).
TEST(PoolPeerCases, HystrixWorkThatTimedOutInTheQueueDoesNotRunLater) {
  ManualClock clock;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 10, .clock = &clock}};
  auto running = pool.submit(stuck.work());
  std::atomic<bool> ran = false;
  auto queued =
      pool.submit_or([&] { return ran = true, 2; }, [](const Rejection&) { return -2; }, {.timeout = 50ms});
  clock.advance(50ms);
  EXPECT_EQ(queued.get().value(), -2);
  stuck.let_go();
  EXPECT_TRUE(running.get());
  EXPECT_TRUE(pool.shutdown());
  EXPECT_FALSE(ran);
}

// ---- Polly BulkheadScenarios: (parallel, queue, load, cancel queued, cancel executing) ----

struct Scenario {
  std::uint32_t parallel, queue;
  int load;
  bool cancel_queued, cancel_executing;
};

class PoolPolly : public testing::TestWithParam<Scenario> {};

TEST_P(PoolPolly, ShouldControlExecutionsPerSpecification) {
  const Scenario& s = GetParam();
  std::deque<Stuck> stuck(static_cast<std::size_t>(s.load));
  Pool pool{{.max_concurrent = s.parallel, .max_queue = s.queue}};
  std::deque<std::stop_source> sources(stuck.size());
  std::vector<Task<int>> tasks;
  for (std::size_t i = 0; i < stuck.size(); ++i)
    tasks.push_back(pool.submit(stuck[i].work(static_cast<int>(i)), {.stop = sources[i].get_token()}));
  const auto load = static_cast<std::uint32_t>(s.load);
  const std::uint32_t running = std::min(load, s.parallel), queued = std::min(load - running, s.queue);
  const auto expect = [&](std::uint32_t r, std::uint32_t q, std::uint64_t rejected, std::uint64_t cancelled) {
    const PoolSnapshot now = pool.snapshot();
    EXPECT_EQ(now.gate.permits, r);
    EXPECT_EQ(now.gate.waiting, q);
    EXPECT_EQ(now.gate.rejected(Reason::queue_limit) + now.gate.rejected(Reason::concurrency_limit),
              rejected);
    EXPECT_EQ(now.gate.rejected(Reason::cancelled), cancelled);
  };
  expect(running, queued, load - running - queued, 0);
  for (std::uint32_t i = 0; i < running; ++i) stuck[i].begun.acquire();
  std::uint32_t left = queued, cancelled = 0;
  if (s.cancel_queued && queued > 0) {
    sources[running].request_stop();
    EXPECT_EQ(tasks[running].get().error().reason, Reason::cancelled);
    --left;
    ++cancelled;
    expect(running, left, load - running - queued, cancelled);
  }
  if (s.cancel_executing) {  // the caller is free, the thread is not until the work ends
    sources[0].request_stop();
    EXPECT_EQ(tasks[0].get().error().reason, Reason::cancelled);
    EXPECT_EQ(pool.snapshot().abandoned, 1u);
    expect(running, left, load - running - queued, cancelled);
  }
  for (Stuck& one : stuck) one.let_go();
  for (std::size_t i = 0; i < tasks.size(); ++i) {
    if (!tasks[i].valid()) continue;
    const auto result = tasks[i].get();
    EXPECT_EQ(result.has_value(), i < running + queued);
    EXPECT_EQ(result.value_or(static_cast<int>(i)), static_cast<int>(i));
  }
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(pool.snapshot().gate.admitted, running + left);
  EXPECT_EQ(pool.snapshot().gate.released, running + left);
}

INSTANTIATE_TEST_SUITE_P(Scenarios, PoolPolly,
                         testing::Values(Scenario{5, 0, 3, false, false}, Scenario{20, 0, 3, false, true},
                                         Scenario{3, 0, 4, false, false}, Scenario{3, 1, 5, false, false},
                                         Scenario{6, 3, 9, true, true}, Scenario{5, 3, 8, false, false},
                                         Scenario{1, 6, 5, true, true}),
                         [](const auto& test) {
                           const Scenario& s = test.param;
                           return "Parallel" + std::to_string(s.parallel) + "Queue" +
                                  std::to_string(s.queue) + "Load" + std::to_string(s.load) +
                                  (s.cancel_queued ? "CancelQueued" : "") +
                                  (s.cancel_executing ? "CancelExecuting" : "");
                         });

// ---- the inbox, step by step ----

// A submitter has seen places in the inbox, and before it takes one the worker finds the queue empty and closes it.
TEST(PoolInbox, WorkThatComesAsTheQueueRunsEmptyIsNotLeftBehind) {
  SyncPoints points;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 8}};
  auto running = pool.submit(stuck.work());
  stuck.begun.acquire();
  auto first = pool.submit([] { return 1; });  // in line, which opens the inbox
  points.hold("submitter", "post.before_lock");
  std::optional<Task<int>> late;
  std::jthread submitter = named("submitter", [&] { late = pool.submit([] { return 2; }); });
  points.until_held("submitter");
  stuck.let_go();
  EXPECT_EQ(first.get().value(), 1);
  until([&] { return pool.snapshot().idle == 1; });
  points.let_go("submitter");
  submitter.join();
  EXPECT_EQ(late->get().value(), 2);
}

// The worker has finished and seen that somebody waits; before it looks who, everybody is rejected.
TEST(PoolInbox, AShutdownBetweenTwoTasksLeavesNothingToGoOnWith) {
  SyncPoints points;
  Stuck stuck;
  Pool pool{{.max_concurrent = 1, .max_queue = 8}};
  auto running = pool.submit([&] {
    static thread_local const SyncPoints::Name me("worker");
    return stuck.work()();
  });
  stuck.begun.acquire();
  auto first = pool.submit([] { return 1; });
  auto second = pool.submit([] { return 2; });
  points.hold("worker", "hand_on.before_lock");
  stuck.let_go();
  points.until_held("worker");
  EXPECT_FALSE(pool.shutdown(Shutdown::now, Clock::steady().now()));
  EXPECT_EQ(first.get().error().reason, Reason::shutdown);
  EXPECT_EQ(second.get().error().reason, Reason::shutdown);
  points.let_go("worker");
  EXPECT_EQ(running.get().value(), 1);
  EXPECT_TRUE(pool.shutdown());
}

// The same, and the pool has become smaller: the unit of the finished task is no longer there to be handed on.
TEST(PoolInbox, AShrinkBetweenTwoTasksIsNotOverrun) {
  SyncPoints points;
  Stuck a, b;
  Pool pool{{.max_concurrent = 2, .max_queue = 8}};
  auto one = pool.submit([&] {
    static thread_local const SyncPoints::Name me("worker");
    return a.work()();
  });
  a.begun.acquire();
  auto other = pool.submit(b.work());
  b.begun.acquire();
  std::atomic<int> ran = 0;
  auto first = pool.submit([&] { return ++ran; });
  auto second = pool.submit([&] { return ++ran; });
  points.hold("worker", "hand_on.before_lock");
  a.let_go();
  points.until_held("worker");
  pool.resize(1);
  points.let_go("worker");
  EXPECT_EQ(one.get().value(), 1);
  EXPECT_EQ(pool.snapshot().gate.in_flight, 1u);
  EXPECT_EQ(pool.snapshot().gate.waiting, 2u);
  EXPECT_EQ(ran, 0);
  b.let_go();
  EXPECT_EQ(first.get().value(), 1);
  EXPECT_EQ(second.get().value(), 2);
}

}  // namespace
}  // namespace bulkhead
