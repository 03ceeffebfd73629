// The threads of a pool: when they start and end, what they look like, what happens while one comes or goes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <optional>
#include <semaphore>
#include <set>
#include <stop_token>
#include <string>
#include <thread>
#include <vector>

#include "base/thread.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/pool.h"
#include "pool/patience.h"
#include "tests/support/stuck.h"
#include "tests/support/sync_points.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;
using tests::Stuck;
using tests::SyncPoints;
using tests::until;

std::string thread_name() {
  char text[16] = {};
  pthread_getname_np(pthread_self(), text, sizeof text);
  return text;
}

// Runs `n` pieces of work at the same moment, each of which tells `say()`.
template <class F>
auto all_at_once(Pool& pool, int n, F say) {
  std::vector<Task<decltype(say())>> tasks;
  std::atomic<int> inside = 0;
  for (int i = 0; i < n; ++i)
    tasks.push_back(pool.submit([&] {
      ++inside;
      until([&] { return inside == n; });
      return say();
    }));
  std::vector<decltype(say())> said;
  for (auto& task : tasks) said.push_back(task.get().value());
  return said;
}

// ---- how they look ----

TEST(PoolThreads, EachCarriesTheNameOfThePoolAndItsNumber) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  Pool pool{{.name = "db", .max_concurrent = 3}};
  EXPECT_THAT(all_at_once(pool, 3, thread_name), UnorderedElementsAre("db-1", "db-2", "db-3"));
}

TEST(PoolThreads, ALongNameLeavesRoomForTheNumber) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  Pool pool{{.name = "analytics-reports", .max_concurrent = 1}};
  EXPECT_EQ(pool.submit([] { return thread_name(); }).get().value(), "analytics-rep-1");
}

TEST(PoolThreads, ANumberIsUsedAgainOnceItsThreadHasEnded) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  ManualClock clock;
  Pool pool{{.name = "db", .max_concurrent = 1, .keep_alive = 1s, .clock = &clock}};
  for (int round = 0; round < 3; ++round) {
    EXPECT_EQ(pool.submit(thread_name).get().value(), "db-1");
    until([&] { return pool.snapshot().idle == 1; });
    clock.advance(1s);
    until([&] { return pool.snapshot().threads == 0; });
  }
  EXPECT_EQ(pool.snapshot().threads_started, 3u);
}

TEST(PoolThreads, RunOnlyOnTheGivenProcessors) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  cpu_set_t ours;
  CPU_ZERO(&ours);
  ASSERT_EQ(sched_getaffinity(0, sizeof ours, &ours), 0);
  unsigned one = 0;
  while (!CPU_ISSET(one, &ours)) ++one;
  Pool pool{{.max_concurrent = 1, .cpus = {one}}};
  const auto set = pool.submit([] {
                         cpu_set_t mine;
                         CPU_ZERO(&mine);
                         pthread_getaffinity_np(pthread_self(), sizeof mine, &mine);
                         return mine;
                       })
                       .get()
                       .value();
  EXPECT_EQ(CPU_COUNT(&set), 1);
  EXPECT_TRUE(CPU_ISSET(one, &set));
}

TEST(PoolThreads, AProcessorThatDoesNotExistIsPassedOver) {
  Pool pool{{.max_concurrent = 1, .cpus = {1'000'000}}};
  EXPECT_EQ(pool.submit([] { return 1; }).get().value(), 1);
}

TEST(PoolThreads, HaveTheStackAskedFor) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  constexpr std::size_t asked = 3 << 20;
  Pool pool{{.max_concurrent = 1, .stack_size = asked}};
  const auto size = pool.submit([] {
                          pthread_attr_t attributes;
                          pthread_getattr_np(pthread_self(), &attributes);
                          std::size_t bytes = 0;
                          pthread_attr_getstacksize(&attributes, &bytes);
                          pthread_attr_destroy(&attributes);
                          return bytes;
                        })
                        .get()
                        .value();
  EXPECT_GE(size, asked);  // the C library may hand out a larger one that it kept
}

TEST(PoolThreads, AreAsNiceAsAskedAndNobodyElseIs) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  const auto niceness = [] { return getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid))); };
  const int before = niceness();
  Pool pool{{.max_concurrent = 1, .nice = 19}};
  EXPECT_EQ(pool.submit(niceness).get().value(), 19);
  EXPECT_EQ(niceness(), before);
}

TEST(PoolThreads, TheHooksRunOnEachThreadWithItsNumberAroundAllItsWork) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  std::mutex mutex;
  std::vector<std::string> log;
  const auto note = [&](const std::string& text) {
    std::lock_guard lock(mutex);
    log.push_back(text);
  };
  {
    Pool pool{{.name = "db",
               .max_concurrent = 1,
               .on_thread_start = [&](std::size_t n) { note(thread_name() + " start " + std::to_string(n)); },
               .on_thread_end = [&](std::size_t n) { note(thread_name() + " end " + std::to_string(n)); }}};
    EXPECT_TRUE(pool.submit([&] { note("work"); }).get());
    EXPECT_TRUE(pool.submit([&] { note("work"); }).get());
  }
  EXPECT_THAT(log, ElementsAre("db-1 start 1", "work", "work", "db-1 end 1"));
}

TEST(PoolThreads, ThePresetsFitWhatTheyAreFor) {
  const PoolOptions cpu = PoolOptions::cpu_bound("sums");
  EXPECT_EQ(cpu.name, "sums");
  EXPECT_EQ(cpu.max_concurrent, base::processors());
  EXPECT_EQ(cpu.max_queue, 4 * base::processors());
  const PoolOptions io = PoolOptions::io_bound("db", 8);
  EXPECT_EQ(io.max_concurrent, 8u);
  EXPECT_EQ(io.max_queue, 16u);
  EXPECT_EQ(PoolOptions::io_bound("db").max_concurrent, 32u);
  Pool pool{cpu};
  EXPECT_EQ(pool.submit([] { return 1; }).get().value(), 1);
}

// ---- when they come and go ----

TEST(PoolThreads, NoneStartsWhileAnIdleOneIsThere) {
  Pool pool{{.max_concurrent = 4}};
  for (int i = 0; i < 100; ++i) {
    EXPECT_TRUE(pool.submit([] {}).get());
    until([&] { return pool.snapshot().idle == 1; });
  }
  EXPECT_EQ(pool.snapshot().threads_started, 1u);
}

TEST(PoolThreads, TheMinimumStaysForEver) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 3, .min_threads = 2, .keep_alive = 1s, .clock = &clock}};
  all_at_once(pool, 3, thread_name);
  until([&] { return pool.snapshot().idle == 3; });
  for (int i = 0; i < 3; ++i) {
    clock.advance(10s);
    until([&] { return pool.snapshot().threads == 2 && pool.snapshot().idle == 2; });
  }
  EXPECT_EQ(pool.snapshot().threads_started, 3u);
}

TEST(PoolThreads, AShrunkPoolEndsItsIdleThreadsAtOnce) {
  Pool pool{{.max_concurrent = 3}};
  all_at_once(pool, 3, thread_name);
  until([&] { return pool.snapshot().idle == 3; });
  pool.resize(1);
  until([&] { return pool.snapshot().threads == 1; });
  EXPECT_EQ(pool.snapshot().gate.max_concurrent, 1u);
  pool.resize(3);
  EXPECT_EQ(all_at_once(pool, 3, thread_name).size(), 3u);
}

// A worker that has decided to end is of no use to work that comes now.
TEST(PoolThreads, WorkThatComesWhileTheLastThreadEndsIsNotLeftBehind) {
  ManualClock clock;
  std::binary_semaphore ending{0}, end{0};
  std::atomic<bool> hold = true;
  Pool pool{{.max_concurrent = 1,
             .max_queue = 4,
             .keep_alive = 1s,
             .on_thread_end =
                 [&](std::size_t) {
                   if (!hold.exchange(false)) return;
                   ending.release();
                   end.acquire();
                 },
             .clock = &clock}};
  EXPECT_TRUE(pool.submit([] {}).get());
  until([&] { return pool.snapshot().idle == 1; });
  clock.advance(1s);
  ending.acquire();
  auto task = pool.submit([] { return 7; });
  end.release();
  until([&] { return task.ready(); });
  EXPECT_EQ(task.get().value(), 7);
}

TEST(PoolThreads, WithoutAThreadToBeHadTheSubmitterDoesTheWork) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  Pool pool{{.max_concurrent = 2, .max_queue = 2, .stack_size = std::size_t{1} << 52}};
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(pool.submit([] { return std::this_thread::get_id(); }).get().value(),
              std::this_thread::get_id());
  EXPECT_EQ(pool.snapshot().threads, 0u);
  EXPECT_EQ(pool.snapshot().threads_started, 0u);
}

// Each of them hands its place to the next, and none may run inside the one before it.
TEST(PoolThreads, WithoutAThreadALongQueueTakesNoMoreStackThanAShortOne) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  constexpr int kTasks = 2000;
  Pool pool{{.max_concurrent = 1, .max_queue = kTasks, .stack_size = std::size_t{1} << 52}};
  std::uintptr_t lowest = UINTPTR_MAX, highest = 0;
  int ran = 0;
  const auto note = [&] {
    const auto at = reinterpret_cast<std::uintptr_t>(__builtin_frame_address(0));
    lowest = std::min(lowest, at);
    highest = std::max(highest, at);
    ++ran;
  };
  EXPECT_TRUE(pool.submit([&] {
                    for (int i = 0; i < kTasks; ++i) EXPECT_TRUE(pool.post(note));
                  })
                  .get());
  EXPECT_EQ(ran, kTasks);
  EXPECT_LT(highest - lowest, 16'384u) << "bytes of stack";
}

TEST(PoolThreads, WithoutAThreadWorkMayWaitForWorkThatItSubmits) {
  if (!base::thread_options_work()) GTEST_SKIP() << "threads without options here";
  Pool pool{{.max_concurrent = 2, .stack_size = std::size_t{1} << 52}};
  EXPECT_EQ(*pool.submit([&] { return *pool.submit([] { return 7; }).get(); }).get(), 7);
}

// A thread that comes up slowly is no reason to let work wait beside an idle one.
TEST(PoolThreads, AnIdleThreadIsCalledWhileAnotherOneIsStillStarting) {
  std::binary_semaphore starting{0}, start{0};
  Pool pool{{.max_concurrent = 3, .max_queue = 4, .on_thread_start = [&](std::size_t number) {
               if (number != 2) return;
               starting.release();
               start.acquire();
             }}};
  Stuck stuck;
  auto first = pool.submit(stuck.work());
  stuck.begun.acquire();
  auto second = pool.submit([] {});  // for thread 2, but thread 1 will come to it
  starting.acquire();
  stuck.go.release();
  EXPECT_TRUE(first.get());
  EXPECT_TRUE(second.get_for(5s));
  until([&] { return pool.snapshot().idle == 1; });
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pool.submit([] {}).get_for(5s));
  EXPECT_EQ(pool.snapshot().threads_started, 2u) << "and no third one is started for it";
  start.release();
}

TEST(PoolThreads, FurtherThreadsStartWhileOneIsStillStarting) {
  std::binary_semaphore starting{0}, start{0};
  Pool pool{{.max_concurrent = 3, .max_queue = 4, .on_thread_start = [&](std::size_t number) {
               if (number != 1) return;
               starting.release();
               start.acquire();
             }}};
  auto first = pool.submit([] {});
  starting.acquire();
  auto second = pool.submit([] {});
  EXPECT_TRUE(first.get_for(5s)) << "by thread 2, which takes what came first";
  EXPECT_TRUE(second.get_for(5s));
  start.release();
}

// ---- the end ----

TEST(PoolThreads, AfterAShutdownEveryTaskIsReady) {
  SyncPoints points;
  points.hold("worker", "task.before_settle");
  Pool pool{
      {.max_concurrent = 1, .on_thread_start = [](std::size_t) { SyncPoints::name_this_thread("worker"); }}};
  auto task = pool.submit([] { return 7; });
  points.until_held("worker");
  EXPECT_EQ(pool.gate().in_flight(), 0u) << "its place is free already";
  EXPECT_FALSE(pool.shutdown(Shutdown::graceful, Clock::steady().now() + 1ms));
  EXPECT_FALSE(task.ready());
  points.let_go("worker");
  EXPECT_TRUE(pool.shutdown());
  EXPECT_TRUE(task.ready());
}

TEST(PoolThreads, AShutdownFromAContinuationDoesNotWaitForItself) {
  Pool pool{{.max_concurrent = 2}};
  std::binary_semaphore done{0};
  Stuck stuck;
  auto task = pool.submit(stuck.work());
  stuck.begun.acquire();
  std::move(task).then([&](auto) {
    EXPECT_TRUE(pool.shutdown());
    done.release();
  });
  stuck.go.release();
  done.acquire();
}

// ---- work that is admitted and still waits for its thread to come up ----

struct SlowStart {
  std::binary_semaphore starting{0}, start{0};
  auto hook() {
    return [this](std::size_t) {
      starting.release();
      start.acquire();
    };
  }
};

TEST(PoolThreads, WorkCancelledByItsStopTokenBeforeItBeganDoesNotRun) {
  SlowStart slow;
  Pool pool{{.max_concurrent = 1, .on_thread_start = slow.hook()}};
  std::stop_source source;
  std::atomic<bool> ran = false;
  auto task = pool.submit([&] { ran = true; }, {.stop = source.get_token()});
  slow.starting.acquire();
  source.request_stop();
  slow.start.release();
  EXPECT_EQ(task.get().error().reason, Reason::cancelled);
  EXPECT_TRUE(pool.shutdown());
  EXPECT_FALSE(ran);
}

TEST(PoolThreads, WorkGivenUpBeforeItBeganDoesNotRunAndIsNotCalledAbandoned) {
  SlowStart slow;
  Pool pool{{.max_concurrent = 1, .on_thread_start = slow.hook()}};
  std::atomic<bool> ran = false;
  auto task = pool.submit([&] { ran = true; });
  slow.starting.acquire();
  task.cancel();
  slow.start.release();
  EXPECT_TRUE(pool.shutdown());
  EXPECT_FALSE(ran);
  EXPECT_EQ(pool.snapshot().abandoned_total, 0u);
}

TEST(PoolThreads, AShutdownNowReachesWorkThatIsAboutToBegin) {
  SlowStart slow;
  Pool pool{{.max_concurrent = 1, .on_thread_start = slow.hook()}};
  auto task = pool.submit([](std::stop_token stop) {
    until([&] { return stop.stop_requested(); });
    return 1;
  });
  slow.starting.acquire();
  EXPECT_FALSE(pool.shutdown(Shutdown::now, TimePoint::min()));
  slow.start.release();
  EXPECT_EQ(task.get().value(), 1);
}

// ---- looking for work before going to sleep ----

// How often of `idles` it wants to look; each look pays, or does not.
int looks(Patience& patience, int idles, bool paid) {
  int count = 0;
  for (int i = 0; i < idles; ++i) {
    if (!patience.wants_to_look()) continue;
    ++count;
    patience.learn(paid);
  }
  return count;
}

TEST(PoolPatience, LooksAtFirstNowAndThen) {
  Patience patience;
  EXPECT_EQ(looks(patience, 15, true), 0);
  EXPECT_EQ(looks(patience, 1, true), 1);
}

TEST(PoolPatience, LooksEverMoreRarelyWhileItDoesNotPay) {
  Patience patience;
  EXPECT_EQ(looks(patience, 16 + 16 + 32 + 64, false), 4);
  looks(patience, 100'000, false);
  EXPECT_EQ(looks(patience, 2 * 4096, false), 2);
}

TEST(PoolPatience, KeepsLookingWhileItPaysAndGivesUpSoonAfter) {
  Patience patience;
  looks(patience, 16, true);
  EXPECT_EQ(looks(patience, 100, true), 100);
  EXPECT_EQ(looks(patience, 10, false), 2);
  EXPECT_EQ(looks(patience, 30, true), 23) << "16 idles after the last it tries again, and it pays again";
}

TEST(PoolPatience, ThreeOfFourIsEnoughAndOneOfTwoIsNot) {
  Patience often, seldom;
  looks(often, 20, true);
  looks(seldom, 20, true);
  int often_looked = 0, seldom_looked = 0;
  for (int i = 0; i < 100; ++i) {
    often_looked += looks(often, 1, i % 4 != 0);
    seldom_looked += looks(seldom, 1, i % 2 != 0);
  }
  EXPECT_EQ(often_looked, 100);
  EXPECT_LT(seldom_looked, 50);
}

// Called after its last look: no system call will wake it, so it must not sleep.
TEST(PoolPatience, WorkThatComesAsItFallsAsleepIsDone) {
  tests::SyncPoints points;
  points.hold("worker", "idle.before_sleep");
  Pool pool{{.max_concurrent = 1, .max_queue = 4, .on_thread_start = [](std::size_t) {
               static thread_local std::optional<tests::SyncPoints::Name> name;
               name.emplace("worker");
             }}};
  for (int i = 0; i < 16; ++i) {
    EXPECT_TRUE(pool.submit([] {}).get());
    until([&] { return pool.snapshot().idle == 1; });
  }
  points.until_held("worker");
  auto task = pool.submit([] { return 7; });
  points.let_go("worker");
  EXPECT_EQ(task.get_for(60s).value_or(0), 7);  // the time only keeps a broken build from hanging
}

// ---- waiting for work of the own pool ----

TEST(PoolThreads, WorkMayWaitForWorkOfItsOwnPoolWhileAnotherThreadCanDoIt) {
  Pool pool{{.max_concurrent = 2, .max_queue = 4}};
  for (int i = 0; i < 200; ++i)
    EXPECT_EQ(pool.submit([&] { return pool.submit([] { return 1; }).get().value() + 1; }).get().value(), 2);
}

// One thread has its answer and is about to go on: it no longer counts as blocked, however long it
// takes to wake.
TEST(PoolThreads, AThreadThatIsAboutToGoOnIsNotTakenForADeadlock) {
  Pool pool{{.max_concurrent = 2, .max_queue = 4}};
  for (int i = 0; i < 200; ++i) {
    std::binary_semaphore begun{0}, go{0};
    auto outer = pool.submit([&] {
      auto inner = pool.submit([&] {
        begun.release();
        go.acquire();
      });
      return inner.get().has_value();
    });
    begun.acquire();
    auto next = pool.submit([&] { return pool.submit([] { return 1; }).get().value(); });
    go.release();
    EXPECT_TRUE(outer.get().value());
    EXPECT_EQ(next.get().value(), 1);
  }
}

TEST(PoolThreads, AWaitThatEndsInTimeIsNotTakenForADeadlock) {
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .max_queue = 4, .clock = &clock}};
  auto outer = pool.submit([&] { return pool.submit([] {}).get_until(clock.now()).error().reason; });
  EXPECT_EQ(outer.get().value(), Reason::timeout);
}

}  // namespace
}  // namespace bulkhead
