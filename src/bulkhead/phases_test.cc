// Every operation of a bulkhead, on every kind of it, in every phase, ended in every way. A new operation, kind, phase or
// end is a row of a table.
//
// After each cell: at most one answer, exactly one unless the operation was abandoned, and every place, token and probe
// back. Whether anything is used after it was freed, or by two threads at once, is for the sanitizers to say.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <semaphore>
#include <stop_token>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;

enum class Kind : std::uint8_t {
  semaphore,
  threads,
  member,          // of a group
  budget,          // calls wait for units of a budget, not for a place
  budget_threads,  // the same, on threads
};
enum class Phase : std::uint8_t {
  queued,
  granted,  // it has its place, and whoever waits for it has not been resumed
  running,
  finishing,  // it has run, and its outcome is being counted
};
enum class End : std::uint8_t {
  completes,
  abandoned,         // the coroutine is destroyed
  cancelled,         // by its stop_token
  owner_goes_first,  // the bulkhead is destroyed
  all_at_once,       // cancelled while the bulkhead is destroyed
};
constexpr Kind bulkheads[] = {Kind::semaphore, Kind::threads, Kind::member, Kind::budget,
                              Kind::budget_threads};
constexpr Phase phases[] = {Phase::queued, Phase::granted, Phase::running, Phase::finishing};
constexpr End ends[] = {End::completes, End::abandoned, End::cancelled, End::owner_goes_first,
                        End::all_at_once};

std::string name_of(Kind kind) {
  constexpr const char* names[] = {"Semaphore", "Threads", "Member", "Budget", "BudgetThreads"};
  return names[static_cast<int>(kind)];
}
std::string name_of(Phase phase) {
  constexpr const char* names[] = {"Queued", "Granted", "Running", "Finishing"};
  return names[static_cast<int>(phase)];
}
std::string name_of(End end) {
  constexpr const char* names[] = {"Completes", "Abandoned", "Cancelled", "OwnerGoesFirst", "AllAtOnce"};
  return names[static_cast<int>(end)];
}

// What an operation is given: `body` is its call, and `answers` counts what it is told.
struct Ask {
  Bulkhead& bulkhead;
  std::stop_token stop;
  std::function<void()> body;
  std::atomic<int>& answers;
  Costs costs{};

  CallOptions<int> call() const { return {.stop = stop, .costs = costs}; }
  AcquireOptions place() const { return {.stop = stop, .costs = costs}; }
  auto work() const {
    return [body = body] { return body(), 1; };
  }
  void use(Result<Call> call) const {
    if (call) {
      body();
      call->finish(Outcome::success);
    }
    ++answers;
  }
};

struct Operation {
  virtual ~Operation() = default;
  virtual void abandon() {}
};

struct Blocking : Operation {  // on a thread of its own
  explicit Blocking(std::function<void()> f) : thread(std::move(f)) {}
  std::jthread thread;
};
struct Suspended : Operation {
  explicit Suspended(tests::Coroutine c) : coroutine(std::move(c)) { coroutine->start(); }
  void abandon() override { coroutine.reset(); }
  std::optional<tests::Coroutine> coroutine;
};
using Made = std::unique_ptr<Operation>;

Made execute(const Ask& a) {
  return std::make_unique<Blocking>([a] {
    static_cast<void>(a.bulkhead.execute(a.work(), a.call()));
    ++a.answers;
  });
}
Made acquire(const Ask& a) {
  return std::make_unique<Blocking>([a] { a.use(a.bulkhead.acquire(a.place())); });
}
Made async_execute(const Ask& a) {
  a.bulkhead.async_execute(a.work(), a.call(), [&answers = a.answers](const Ended<int>&) { ++answers; });
  return std::make_unique<Operation>();
}
Made async_acquire(const Ask& a) {
  a.bulkhead.async_acquire(a.place(), [a](Result<Call> call) { a.use(std::move(call)); });
  return std::make_unique<Operation>();
}
Made begin_acquire(const Ask& a) {
  Call begun;
  if (auto decided = a.bulkhead.begin_acquire(a.place(), begun))
    a.use(*std::move(decided));
  else
    a.bulkhead.async_acquire(std::move(begun), a.place(), [a](Result<Call> call) { a.use(std::move(call)); });
  return std::make_unique<Operation>();
}
tests::Coroutine co_executes(Ask a) {
  auto executing = a.bulkhead.co_execute(a.work(), a.call());  // named: GCC 12 miscompiles temporaries here
  static_cast<void>(co_await executing);
  ++a.answers;
}
tests::Coroutine co_acquires(Ask a) {
  auto acquiring = a.bulkhead.co_acquire(a.place());
  a.use(co_await acquiring);
}
Made co_execute(const Ask& a) { return std::make_unique<Suspended>(co_executes(a)); }
Made co_acquire(const Ask& a) { return std::make_unique<Suspended>(co_acquires(a)); }

struct Form {
  const char* name;
  bool blocks, suspends, pooled;  // pooled: it runs on a thread of the pool, if there is one
  Made (*make)(const Ask&);
};
constexpr Form forms[] = {
    {"Execute", true, false, true, &execute},
    {"Acquire", true, false, false, &acquire},
    {"AsyncExecute", false, false, true, &async_execute},
    {"AsyncAcquire", false, false, false, &async_acquire},
    {"BeginAcquire", false, false, false, &begin_acquire},
    {"CoExecute", false, true, true, &co_execute},
    {"CoAcquire", false, true, false, &co_acquire},
};

class BulkheadPhases : public testing::TestWithParam<std::tuple<Form, Kind, Phase, End>> {};

TEST_P(BulkheadPhases, EveryOperationEndsOnceAndGivesEverythingBack) {
  const auto& [form, kind, phase, end] = GetParam();
  const bool threads = kind == Kind::threads || kind == Kind::budget_threads;
  const bool on_pool = form.pooled && threads;
  const Costs costs = kind >= Kind::budget ? Costs({"tokens", 2}) : Costs();
  // A coroutine that runs must not be destroyed. It runs again, on the pool's thread, when its outcome is counted.
  const bool suspended = form.suspends && (phase < Phase::running || (phase == Phase::running && on_pool));

  Group group{{.name = "g",
               .total = 1,
               .members = {{.name = "a", .guaranteed = {.units = 1}, .gate = {.max_queue = 4}}}}};
  std::binary_semaphore starting{0}, start{0}, began{0}, ends_now{0};
  const auto stay = [&] {
    began.release();
    ends_now.acquire();
  };
  const bool holds_thread = on_pool && phase == Phase::granted;
  BulkheadOptions options{.name = "db",
                          .isolation = threads ? Isolation::threads : Isolation::semaphore,
                          .max_concurrent = kind >= Kind::budget ? 4u : 1u,
                          .max_queue = 4,
                          .breaker = BreakerOptions{.half_open_calls = phase == Phase::finishing ? 1u : 4u},
                          .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 100}};
  if (kind >= Kind::budget) options.budgets = {{.name = "tokens", .max = 3}};
  if (kind == Kind::member) options.gate = &group.member("a");
  options.pool.on_thread_start = [&](std::size_t) {
    if (!holds_thread) return;
    starting.release();
    start.acquire();
  };
  // The first probe that succeeds closes the breaker, on the thread that counts its outcome.
  if (phase == Phase::finishing)
    options.breaker->on_transition = [&](const BreakerTransition& t) {
      if (t.to == BreakerState::closed) stay();
    };
  auto bulkhead = std::make_unique<Bulkhead>(options);
  bulkhead->breaker()->force_half_open();  // every call is a probe, and a lost one would be seen

  std::stop_source stop;
  std::atomic<int> answers = 0;
  const Ask ask{*bulkhead, stop.get_token(),
                [&, in_body = phase == Phase::running] {
                  if (in_body) stay();
                },
                answers, costs};
  Made operation;
  std::jthread destroyer, canceller, runner;
  const auto end_it = [&] {
    if (end == End::abandoned) operation->abandon();
    if (end == End::cancelled) stop.request_stop();
    if (end == End::owner_goes_first || end == End::all_at_once)
      destroyer = std::jthread([&] { bulkhead.reset(); });
    if (end == End::all_at_once) canceller = std::jthread([&] { stop.request_stop(); });
  };

  if (phase == Phase::running || phase == Phase::finishing) {
    // One that runs on the thread that starts it needs another thread to end it. Work that a pool ends quickly is counted
    // on the thread that submitted it.
    if (form.blocks || (on_pool && phase == Phase::running))
      operation = form.make(ask);
    else
      runner = std::jthread([&] { operation = form.make(ask); });
    began.acquire();
    if (end != End::abandoned || suspended) end_it();
    ends_now.release();
  } else if (holds_thread) {
    operation = form.make(ask);
    starting.acquire();
    end_it();
    start.release();
  } else {
    auto holder = bulkhead->acquire({.costs = costs});
    ASSERT_TRUE(holder);
    // Behind this one the operation is granted its place while the handler still runs, and is told after it.
    std::optional<Call> first;
    const bool behind = phase == Phase::granted && !form.blocks;
    if (behind)
      bulkhead->async_acquire({.costs = costs}, [&](Result<Call> call) {
        first.emplace(*std::move(call));
        first->finish(Outcome::success);
        end_it();
      });
    operation = form.make(ask);
    until([&] {
      const BulkheadSnapshot s = bulkhead->snapshot();
      return s.gate.waiting + (s.budgets.empty() ? 0 : s.budgets[0].waiting) == (behind ? 2u : 1u);
    });
    bulkhead->drain(TimePoint::min());  // until they have come to rest, see until_waiting()
    if (phase == Phase::granted && form.blocks) {
      holder->finish(Outcome::success);
      end_it();  // while its thread wakes up
    } else if (phase == Phase::granted) {
      holder->finish(Outcome::success);
    } else {
      end_it();
      holder->finish(Outcome::success);
    }
  }

  const bool left = end == End::abandoned && suspended;
  if (!left) until([&] { return answers == 1; });
  if (runner.joinable()) runner.join();
  if (destroyer.joinable()) destroyer.join();
  if (canceller.joinable()) canceller.join();
  if (bulkhead) {
    until([&] { return bulkhead->idle(); });
    EXPECT_EQ(bulkhead->snapshot().breaker->probes_in_flight, 0u);
    EXPECT_EQ(bulkhead->gate().in_flight(), 0u);
    for (const BudgetSnapshot& budget : bulkhead->snapshot().budgets) {
      EXPECT_EQ(budget.in_use, 0u);
      EXPECT_EQ(budget.calls, 0u);
      EXPECT_EQ(budget.waiting, 0u);
    }
    bulkhead.reset();
  }
  operation.reset();
  EXPECT_EQ(group.snapshot().in_flight, 0u);
  EXPECT_EQ(answers, left ? 0 : 1);
}

INSTANTIATE_TEST_SUITE_P(, BulkheadPhases,
                         testing::Combine(testing::ValuesIn(forms), testing::ValuesIn(bulkheads),
                                          testing::ValuesIn(phases), testing::ValuesIn(ends)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  name_of(std::get<1>(test.param)) + name_of(std::get<2>(test.param)) +
                                  name_of(std::get<3>(test.param));
                         });

}  // namespace
}  // namespace bulkhead
