// Pools under everything at once: submitters of every kind, resizes, snapshots, destruction under traffic.
// Every submission gets exactly one result, work of a caller that gave up before it began never runs, and no
// more work is inside than the largest limit in force.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include <stdexcept>
#include <stop_token>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/pool.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using std::chrono::microseconds;

struct Tally {
  std::atomic<std::uint64_t> submitted{0}, answers{0}, values{0}, thrown{0}, rejected{0};
  std::atomic<std::uint64_t> begun{0}, ended{0}, ran_twice{0}, inside_too_many{0};
  std::atomic<std::uint32_t> inside{0};
};

// What one submission knows of itself, shared by its caller and its work.
struct Once {
  std::atomic<std::uint32_t> runs{0}, answers{0};
};

struct Work {
  Tally* tally;
  std::shared_ptr<Once> once;
  std::uint32_t most;  // inside at once; 0: not checked
  std::uint32_t dice;
  bool throws;

  int operator()(std::stop_token stop) {
    if (once->runs.fetch_add(1) != 0) ++tally->ran_twice;
    ++tally->begun;
    const std::uint32_t inside = tally->inside.fetch_add(1) + 1;
    if (most != 0 && inside > most) ++tally->inside_too_many;
    Dice d(dice);
    for (std::uint32_t i = d.below(4); i > 0 && !stop.stop_requested(); --i) linger(d);
    tally->inside.fetch_sub(1);
    ++tally->ended;
    if (throws) throw std::runtime_error("as told");
    return 1;
  }
};

template <class Get>
void answer(Tally& tally, Once& once, Get&& get) {
  try {
    const Result<int> result = get();
    ++(result ? tally.values : tally.rejected);
  } catch (const std::runtime_error&) {
    ++tally.thrown;
  }
  if (once.answers.fetch_add(1) != 0) ADD_FAILURE() << "two answers";
  ++tally.answers;
}

Detached co_answer(Task<int> task, Tally& tally, std::shared_ptr<Once> once) {
  std::optional<Result<int>> result;
  try {
    result = co_await std::move(task);
  } catch (const std::runtime_error&) {
    ++tally.thrown;
  }
  if (result) ++(*result ? tally.values : tally.rejected);
  if (once->answers.fetch_add(1) != 0) ADD_FAILURE() << "two answers";
  ++tally.answers;
}

void submit_one(Pool& pool, Tally& tally, Dice& dice, std::uint32_t most) {
  auto once = std::make_shared<Once>();
  std::stop_source source;
  SubmitOptions options{.priority = static_cast<Priority>(dice.below(3)), .cost = dice.one_in(8) ? 2u : 1u};
  if (dice.one_in(3)) options.timeout = microseconds(dice.below(200));
  if (dice.one_in(4)) options.execution_timeout = microseconds(1 + dice.below(50));
  if (dice.one_in(6)) options.deadline = steady_clock::now() + microseconds(dice.below(300));
  const bool stoppable = dice.one_in(4);
  if (stoppable) options.stop = source.get_token();
  ++tally.submitted;
  Work work{&tally, once, most, dice.below(1u << 30), dice.one_in(16)};
  Task<int> task = dice.one_in(5) ? pool.submit_or(
                                        std::move(work), [](const Rejection&) { return -1; }, options)
                                  : pool.submit(std::move(work), options);
  if (stoppable && dice.one_in(2)) source.request_stop();
  switch (dice.below(7)) {
    case 0:
      return answer(tally, *once, [&] { return task.get(); });
    case 1:
      return answer(tally, *once, [&] { return task.get_for(microseconds(dice.below(60))); });
    case 2:  // given up; from now on it begins no more
      task.cancel();
      break;
    case 3: {
      const Task<int> dropped = std::move(task);
      break;
    }
    case 4:
      std::move(task).then([&tally, once](Task<int> done) {
        if (!done.ready()) ADD_FAILURE() << "not ready";
        answer(tally, *once, [&] { return done.get(); });
      });
      return;
    case 5:
      co_answer(std::move(task), tally, once);
      return;
    default:
      while (!task.wait_for(microseconds(20))) {
      }
      return answer(tally, *once, [&] { return task.get(); });
  }
  // Whoever gave up is the only one to know the result.
  ++tally.answers;
  ++tally.rejected;
}

// A handler or coroutine that the timer resumed may have a few steps left when its pool is gone.
void expect_sound(const Tally& t) {
  const auto give_up = steady_clock::now() + std::chrono::seconds(30);
  while (t.answers != t.submitted && steady_clock::now() < give_up) std::this_thread::yield();
  EXPECT_EQ(t.answers, t.submitted);
  EXPECT_EQ(t.values + t.thrown + t.rejected, t.answers);
  EXPECT_EQ(t.begun, t.ended);
  EXPECT_EQ(t.ran_twice, 0u);
  EXPECT_EQ(t.inside_too_many, 0u);
}

TEST(PoolStress, EverySubmissionGetsOneResult) {
  const auto end = end_of_test(2);
  Tally tally;
  constexpr std::uint32_t most = 4;
  {
    Pool pool{{.name = "p",
               .max_concurrent = 2,
               .max_queue = 8,
               .critical_reserve = 0.25,
               .keep_alive = microseconds(50)}};
    {
      Threads threads;
      for (std::uint32_t t = 0; t < 4; ++t)
        threads.add([&, t] {
          Dice dice(t + 1);
          while (steady_clock::now() < end) submit_one(pool, tally, dice, most);
        });
      threads.add([&] {
        Dice dice(99);
        while (steady_clock::now() < end) {
          pool.resize(2 + dice.below(most - 1));
          pool.resize_queue(dice.below(16));
          std::this_thread::yield();
        }
      });
      threads.add([&] {
        while (steady_clock::now() < end) {
          const PoolSnapshot s = pool.snapshot();
          if (s.gate.admitted != s.gate.released + s.gate.permits)
            ADD_FAILURE() << "the counters do not add up";
          if (s.gate.in_flight > most) ADD_FAILURE() << s.gate.in_flight << " in flight";
          std::this_thread::yield();
        }
      });
    }
    EXPECT_TRUE(pool.shutdown());
    const PoolSnapshot s = pool.snapshot();
    EXPECT_EQ(s.gate.admitted, s.gate.released);
    EXPECT_EQ(s.gate.double_releases, 0u);
    EXPECT_EQ(s.gate.waiting, 0u);
  }
  expect_sound(tally);
  EXPECT_GT(tally.values, 0u);
  EXPECT_GT(tally.rejected, 0u);
  EXPECT_GT(tally.thrown, 0u);
}

// The caller gives up while the work is queued, about to begin or running: what left the queue so never runs,
// and only what ran is called abandoned.
TEST(PoolStress, WorkGivenUpRunsOnlyIfItHadBegun) {
  const auto end = end_of_test(1);
  std::atomic<std::uint64_t> ran{0}, values{0}, timeouts{0};
  Pool pool{{.max_concurrent = 2, .max_queue = 8}};
  {
    Threads threads;
    for (std::uint32_t t = 0; t < 3; ++t)
      threads.add([&, t] {
        Dice dice(t + 7);
        while (steady_clock::now() < end) {
          auto task = pool.submit([&ran, d = dice.below(1000)] {
            ++ran;
            Dice own(d);
            linger(own);
          });
          linger(dice);
          const auto result = task.get_for(microseconds(0));
          if (result)
            ++values;
          else if (result.error().reason == Reason::timeout)
            ++timeouts;
        }
      });
  }
  EXPECT_TRUE(pool.shutdown());
  EXPECT_GT(values, 0u);
  EXPECT_GT(timeouts, 0u);
  const PoolSnapshot s = pool.snapshot();
  EXPECT_LE(ran, s.gate.admitted);
  EXPECT_LE(values + s.abandoned_total, ran);
}

TEST(PoolStress, TheCallerRunsWhatHasNoPlace) {
  const auto end = end_of_test(1);
  Tally tally;
  {
    Pool pool{{.max_concurrent = 1, .max_queue = 1, .on_reject = OnReject::caller_runs}};
    Threads threads;
    for (std::uint32_t t = 0; t < 3; ++t)
      threads.add([&, t] {
        Dice dice(t + 1);
        while (steady_clock::now() < end) submit_one(pool, tally, dice, 0);
      });
    threads.join();
    EXPECT_TRUE(pool.shutdown());
    EXPECT_GT(pool.snapshot().caller_runs, 0u);
  }
  expect_sound(tally);
}

// Results are still awaited, by threads, handlers and coroutines, while the pool goes.
TEST(PoolStress, PoolsDestroyedUnderTraffic) {
  const auto end = end_of_test(1.5);
  Tally tally;
  Dice dice(5);
  std::uint64_t pools = 0;
  for (; steady_clock::now() < end; ++pools) {
    std::vector<Task<int>> waiting;
    std::vector<std::shared_ptr<Once>> onces;
    Threads waiters;
    {
      Pool pool{
          {.max_concurrent = 1 + dice.below(3), .max_queue = 16, .keep_alive = microseconds(dice.below(30))}};
      for (int i = 0; i < 12; ++i) {
        auto once = std::make_shared<Once>();
        ++tally.submitted;
        auto task = pool.submit(Work{&tally, once, 3, dice.below(1u << 30), dice.one_in(16)},
                                {.priority = static_cast<Priority>(dice.below(3)),
                                 .execution_timeout = dice.one_in(3) ? microseconds(10) : wait_forever});
        switch (dice.below(4)) {
          case 0:
            std::move(task).then(
                [&tally, once](Task<int> done) { answer(tally, *once, [&] { return done.get(); }); });
            break;
          case 1:
            co_answer(std::move(task), tally, once);
            break;
          case 2:
            waiting.push_back(std::move(task));
            onces.push_back(once);
            break;
          default:
            if (dice.one_in(3)) {
              waiters.add([&tally, once, t = std::make_shared<Task<int>>(std::move(task))] {
                answer(tally, *once, [&] { return t->get(); });
              });
            } else {
              waiting.push_back(std::move(task));
              onces.push_back(once);
            }
        }
      }
      if (dice.one_in(3))
        pool.shutdown(Shutdown::graceful, steady_clock::now() + microseconds(dice.below(50)));
      if (dice.one_in(2)) pool.resize(1 + dice.below(3));
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
      EXPECT_TRUE(waiting[i].ready());
      answer(tally, *onces[i], [&] { return waiting[i].get(); });
    }
  }
  EXPECT_GT(pools, 10u);
  expect_sound(tally);
}

// Threads that come and go all the time: no work is left behind by one that ends.
TEST(PoolStress, NoWorkIsLeftBehindByThreadsThatEnd) {
  const auto end = end_of_test(1);
  Pool pool{{.max_concurrent = 2, .max_queue = 4, .keep_alive = microseconds(0)}};
  Threads threads;
  std::atomic<std::uint64_t> done{0};
  for (std::uint32_t t = 0; t < 3; ++t)
    threads.add([&] {
      while (steady_clock::now() < end)
        if (pool.submit([] {}).get()) ++done;
    });
  threads.add([&] {
    while (steady_clock::now() < end) {
      pool.resize(1);
      pool.resize(2);
    }
  });
  threads.join();
  EXPECT_GT(done, 0u);
}

// Submitters, cancellations, a lower tier and readers at the queue of one thread: what was taken runs once and,
// of each submitter, in its order; what was rejected does not run; the bound holds.
TEST(PoolStress, PostedWorkRunsOnceAndInOrder) {
  const auto end = end_of_test(1.5);
  constexpr std::uint32_t kSubmitters = 3, kQueue = 24;
  struct Line {
    std::uint64_t taken = 0;                  // the submitter's
    std::uint64_t ran = 0, out_of_order = 0;  // the worker's
  };
  std::vector<Line> lines(kSubmitters);
  std::atomic<std::uint64_t> lesser_taken{0}, lesser_ran{0}, too_many{0};
  std::uint64_t evicted = 0;
  {
    Pool pool{{.max_concurrent = 1, .max_queue = kQueue}};
    Threads threads;
    for (std::uint32_t t = 0; t < kSubmitters; ++t)
      threads.add([&, t] {
        Line& line = lines[t];
        Dice dice(t + 1);
        while (steady_clock::now() < end) {
          const std::uint64_t number = line.taken;
          if (pool.post([&line, number] { line.out_of_order += line.ran++ != number; })) ++line.taken;
          if (dice.one_in(8)) {
            auto unwanted = pool.submit([] {});
            unwanted.cancel();
          }
          if (dice.one_in(8) &&
              pool.post([&lesser_ran] { ++lesser_ran; }, {.priority = Priority::best_effort}))
            ++lesser_taken;
          if (dice.one_in(64)) linger(dice);
        }
      });
    threads.add([&] {
      while (steady_clock::now() < end) {
        too_many += pool.snapshot().gate.waiting > kQueue;
        std::this_thread::yield();
      }
    });
    threads.join();
    EXPECT_TRUE(pool.shutdown());
    const Snapshot s = pool.snapshot().gate;
    evicted = s.rejected_by_reason[static_cast<std::size_t>(Reason::evicted)];
    EXPECT_EQ(s.waiting, 0u);
    EXPECT_EQ(s.in_flight, 0u);
    EXPECT_EQ(s.admitted, s.released);
  }
  for (const Line& line : lines) {
    EXPECT_EQ(line.ran, line.taken);
    EXPECT_EQ(line.out_of_order, 0u);
    EXPECT_GT(line.ran, 0u);
  }
  EXPECT_EQ(lesser_ran + evicted, lesser_taken);
  EXPECT_EQ(too_many, 0u);
}

// Two threads that take turns with a submitter at an empty queue: every hand-over of the inbox, many times.
TEST(PoolStress, NothingPostedIsLeftBehind) {
  const auto end = end_of_test(1.5);
  std::atomic<std::uint64_t> ran{0};
  std::uint64_t taken = 0;
  Dice dice(3);
  Pool pool{{.max_concurrent = 2, .max_queue = 64}};
  while (steady_clock::now() < end) {
    for (std::uint32_t i = dice.below(32); i > 0; --i) taken += pool.post([&] { ++ran; }).has_value();
    if (dice.one_in(4)) linger(dice);
    if (dice.one_in(64))
      while (ran != taken) std::this_thread::yield();  // hangs, if anything is left
  }
  EXPECT_TRUE(pool.shutdown());
  EXPECT_EQ(ran, taken);
}

}  // namespace
}  // namespace bulkhead::stress
