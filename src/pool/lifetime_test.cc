// Every way to give work to a pool, in every phase, ended in every way. A new form or phase is a row of a table.
//
// After each cell: exactly one result for whoever asked for one, nothing in flight, nothing abandoned. Whether
// anything is used after it was freed, or by two threads at once, is for the sanitizers to say.
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

#include "bulkhead/pool.h"
#include "tests/support/callers.h"
#include "tests/support/sync_points.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::SyncPoints;
using tests::until;

enum class Phase : std::uint8_t {
  queued,   // behind other work
  granted,  // it has its thread, which has not begun it
  running,
  finishing,  // its place is free again, its result is not there yet
};
enum class End : std::uint8_t {
  completes,
  abandoned,         // whoever waits for it goes: the Task, the coroutine
  cancelled,         // by its stop_token
  owner_goes_first,  // the pool is destroyed
  all_at_once,       // by its stop_token, on another thread, while the pool is destroyed
};
constexpr Phase phases[] = {Phase::queued, Phase::granted, Phase::running, Phase::finishing};
constexpr End ends[] = {End::completes, End::abandoned, End::cancelled, End::owner_goes_first,
                        End::all_at_once};

constexpr const char* name_of(Phase phase) {
  constexpr const char* names[] = {"Queued", "Granted", "Running", "Finishing"};
  return names[static_cast<int>(phase)];
}
constexpr const char* name_of(End end) {
  constexpr const char* names[] = {"Completes", "Abandoned", "Cancelled", "OwnerGoesFirst", "AllAtOnce"};
  return names[static_cast<int>(end)];
}

// One submission: what it came to, and how to let go of it.
struct Submission {
  virtual ~Submission() = default;
  virtual void abandon() = 0;
};

struct Outcome {
  std::atomic<int> results{0};
};

using Work = std::function<void(std::stop_token)>;

// A result that was asked for: what is in the Task once it is ready.
void note(Task<void> task, Outcome& out) {
  static_cast<void>(task.get());
  ++out.results;
}

struct ByTask final : Submission {
  ByTask(Pool& pool, Work work, SubmitOptions o, Outcome& out)
      : task(pool.submit(std::move(work), o)), waiter([this, &out](const std::stop_token& stop) {
          while (!stop.stop_requested() && !task.wait_for(1ms)) {
          }
          if (!stop.stop_requested()) note(std::move(task), out);
        }) {}
  void abandon() override {
    waiter.request_stop();
    waiter.join();
    task.cancel();
  }
  Task<void> task;
  std::jthread waiter;
};

struct ByThen final : Submission {
  ByThen(Pool& pool, Work work, SubmitOptions o, Outcome& out) {
    pool.submit(std::move(work), o).then([&out](Task<void> task) { note(std::move(task), out); });
  }
  void abandon() override {}
};

struct ByFallback final : Submission {
  ByFallback(Pool& pool, Work work, SubmitOptions o, Outcome& out) {
    pool.submit_or(
            std::move(work), [](const Rejection&) {}, o)
        .then([&out](Task<void> task) { note(std::move(task), out); });
  }
  void abandon() override {}
};

struct ByPost final : Submission {
  ByPost(Pool& pool, Work work, const SubmitOptions& o, Outcome&) {
    static_cast<void>(pool.post(std::move(work), o));
  }
  void abandon() override {}
};

struct ByPlainPost final : Submission {  // without limits it stands in the inbox, and nobody can cancel it
  ByPlainPost(Pool& pool, Work work, const SubmitOptions&, Outcome&) {
    static_cast<void>(pool.post([work = std::move(work)] { work({}); }));
  }
  void abandon() override {}
};

struct ByDetach final : Submission {
  ByDetach(Pool& pool, Work work, const SubmitOptions& o, Outcome&) {
    pool.submit(std::move(work), o).detach();
  }
  void abandon() override {}
};

template <bool Settled>
struct ByCoroutine final : Submission {
  ByCoroutine(Pool& pool, Work work, const SubmitOptions& o, Outcome& out)
      : coroutine(await(pool.submit(std::move(work), o), out)) {
    coroutine->start();
  }
  static tests::Coroutine await(Task<void> task, Outcome& out) {
    if constexpr (Settled)
      co_await task.settled();
    else
      static_cast<void>(co_await std::move(task));
    ++out.results;
  }
  void abandon() override { coroutine.reset(); }
  std::optional<tests::Coroutine> coroutine;
};

struct Form {
  const char* name;
  bool has_result;   // somebody is told
  bool can_be_left;  // abandon() does something
  std::unique_ptr<Submission> (*submit)(Pool&, Work, SubmitOptions, Outcome&);
};
template <class S>
std::unique_ptr<Submission> submit_by(Pool& pool, Work work, SubmitOptions o, Outcome& out) {
  return std::make_unique<S>(pool, std::move(work), std::move(o), out);
}
constexpr Form forms[] = {
    {"Task", true, true, &submit_by<ByTask>},
    {"Then", true, false, &submit_by<ByThen>},
    {"Fallback", true, false, &submit_by<ByFallback>},
    {"Post", false, false, &submit_by<ByPost>},
    {"PlainPost", false, false, &submit_by<ByPlainPost>},
    {"Detach", false, false, &submit_by<ByDetach>},
    {"Coroutine", true, true, &submit_by<ByCoroutine<false>>},
    {"Settled", true, true, &submit_by<ByCoroutine<true>>},
};

class PoolLifetime : public testing::TestWithParam<std::tuple<Form, Phase, End>> {};

TEST_P(PoolLifetime, EndsInExactlyOneResult) {
  const auto& [form, phase, end] = GetParam();
  SyncPoints points;
  std::binary_semaphore starting{0}, start{0};
  const bool holds_start = phase == Phase::granted;
  auto pool = std::make_unique<Pool>(
      PoolOptions{.max_concurrent = 1, .max_queue = 2, .on_thread_start = [&](std::size_t) {
                    SyncPoints::name_this_thread("worker");
                    if (!holds_start) return;
                    starting.release();
                    start.acquire();
                  }});
  std::binary_semaphore other_began{0}, other_ends{0}, began{0}, go_on{0};
  if (phase == Phase::queued) {
    static_cast<void>(pool->post([&] {
      other_began.release();
      other_ends.acquire();
    }));
    other_began.acquire();
  }
  // Work that nobody waits for is over with its permit: there is nothing to settle.
  const bool holds_end = phase == Phase::finishing && form.has_result;
  if (holds_end) points.hold("worker", "task.before_settle");

  Outcome out;
  std::stop_source stop;
  const bool runs_until_told = phase == Phase::running;
  auto submission = form.submit(
      *pool,
      [&](const std::stop_token&) {
        if (!runs_until_told) return;
        began.release();
        go_on.acquire();
      },
      {.timeout = 1h, .execution_timeout = 1h, .stop = stop.get_token()}, out);
  if (phase == Phase::granted) starting.acquire();
  if (phase == Phase::running) began.acquire();
  if (holds_end) points.until_held("worker");

  // The end, and then what held it in its phase.
  std::jthread destroyer, canceller;
  const auto destroy = [&] { destroyer = std::jthread([&] { pool.reset(); }); };
  if (end == End::abandoned) submission->abandon();
  if (end == End::cancelled) stop.request_stop();
  if (end == End::owner_goes_first || end == End::all_at_once) destroy();
  if (end == End::all_at_once) canceller = std::jthread([&] { stop.request_stop(); });
  if (phase == Phase::queued) other_ends.release();
  if (phase == Phase::granted) start.release();
  if (phase == Phase::running) go_on.release();
  if (holds_end) points.let_go("worker");

  if (destroyer.joinable()) destroyer.join();
  if (canceller.joinable()) canceller.join();
  const bool left = end == End::abandoned && form.can_be_left;
  if (form.has_result && !left) until([&] { return out.results == 1; });
  if (pool) {
    EXPECT_TRUE(pool->shutdown());
    const PoolSnapshot s = pool->snapshot();
    EXPECT_EQ(s.gate.in_flight, 0u);
    EXPECT_EQ(s.gate.waiting, 0u);
    EXPECT_EQ(s.abandoned, 0u);
    pool.reset();
  }
  submission.reset();
  EXPECT_EQ(out.results, form.has_result && !left ? 1 : 0);
}

INSTANTIATE_TEST_SUITE_P(, PoolLifetime,
                         testing::Combine(testing::ValuesIn(forms), testing::ValuesIn(phases),
                                          testing::ValuesIn(ends)),
                         [](const auto& test) {
                           return std::string(std::get<0>(test.param).name) +
                                  name_of(std::get<1>(test.param)) + name_of(std::get<2>(test.param));
                         });

}  // namespace
}  // namespace bulkhead
