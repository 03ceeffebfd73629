// Admission allocates nothing, whichever way a call waits and whatever becomes of it.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "bulkhead/compose.h"
#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/allocations.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// A thread that does one thing when told. It is up and running, and its making not counted, by then.
class Worker {
 public:
  explicit Worker(std::function<void()> body)
      : thread_([this, body = std::move(body)] {
          up_ = true;
          while (!go_) std::this_thread::yield();
          body();
          done_ = true;
        }) {
    while (!up_) std::this_thread::yield();
  }
  void go() { go_ = true; }
  void wait() const {
    while (!done_) std::this_thread::yield();
  }

 private:
  std::atomic<bool> up_ = false, go_ = false, done_ = false;
  std::jthread thread_;
};

void spin_until_waiting(const Gate& gate, std::uint32_t n) {
  while (gate.snapshot().waiting != n) std::this_thread::yield();
}

TEST(Allocation, TheCounterCounts) {
  EXPECT_EQ(allocations_in([] { ::operator delete(::operator new(1)); }), 1u);
}

TEST(Allocation, NoneByTryAcquireAdmittedOrRejected) {
  Gate gate{{.max_concurrent = 2}};
  EXPECT_EQ(allocations_in([&] {
              auto a = gate.try_acquire();
              auto b = gate.try_acquire({.priority = Priority::critical});
              auto c = gate.try_acquire();
              auto d = gate.try_acquire({.cost = 9});
              a->release(Outcome::failure);
            }),
            0u);
}

TEST(Allocation, NoneByAcquireAdmittedRejectedOrCancelledBefore) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(allocations_in([&] {
              auto a = gate.acquire();
              auto b = gate.acquire({.timeout = 0ns});
              auto c = gate.acquire({.stop = stop.get_token()});
              auto d = gate.acquire({.deadline = clock.now()});
              auto e = gate.acquire({.cost = 2});
            }),
            0u);
}

TEST(Allocation, NoneInALineThatIsFairBetweenFlows) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2, .flow_queues = 64, .measure_occupancy = true}};
  std::optional<Permit> held = *gate.acquire();
  class Op final : public AsyncAcquire {
   public:
    explicit Op(Gate& g) : AsyncAcquire(g, nullptr) {}
    void join(std::uint64_t key) { start({.flow = key}); }

   private:
    void on_decided() noexcept override { const auto permit = result(); }
  };
  Op first(gate), evicted(gate), quiet(gate);
  EXPECT_EQ(allocations_in([&] {
              first.join(1);
              evicted.join(1);
              quiet.join(2);
              held.reset();
            }),
            0u);
  EXPECT_EQ(gate.snapshot().rejected(Reason::evicted), 1u);
  EXPECT_EQ(gate.snapshot().released, 3u);
}

TEST(Allocation, NoneByAThreadThatWaitsAndIsAdmitted) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  bool admitted = false;
  Worker waiter([&] { admitted = gate.acquire({.timeout = 1h}).has_value(); });
  EXPECT_EQ(allocations_in([&] {
              waiter.go();
              spin_until_waiting(gate, 1);
              holder->release();
              waiter.wait();
            }),
            0u);
  EXPECT_TRUE(admitted);
}

TEST(Allocation, NoneByAThreadThatTimesOut) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto holder = gate.acquire();
  Reason reason{};
  Worker waiter([&] { reason = gate.acquire({.timeout = 1ms}).error().reason; });
  EXPECT_EQ(allocations_in([&] {
              waiter.go();
              spin_until_waiting(gate, 1);
              clock.advance(1ms);
              waiter.wait();
            }),
            0u);
  EXPECT_EQ(reason, Reason::timeout);
}

TEST(Allocation, NoneByAThreadThatIsCancelled) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  std::stop_source stop;
  Reason reason{};
  Worker waiter([&] { reason = gate.acquire({.stop = stop.get_token()}).error().reason; });
  EXPECT_EQ(allocations_in([&] {
              waiter.go();
              spin_until_waiting(gate, 1);
              stop.request_stop();
              waiter.wait();
            }),
            0u);
  EXPECT_EQ(reason, Reason::cancelled);
}

TEST(Allocation, NoneByACoroutineThatWaitsBeyondItsOwnFrame) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 4, .clock = &clock}};
  auto holder = gate.acquire();
  std::stop_source stop;
  std::optional<Reason> reasons[3];
  bool admitted = false;
  const auto body = [](Gate& g, AcquireOptions options, bool& in, std::optional<Reason>& why) -> Coroutine {
    auto permit = co_await g.co_acquire(std::move(options));
    if (permit)
      in = true;
    else
      why = permit.error().reason;
  };
  Coroutine granted = body(gate, {}, admitted, reasons[0]);
  Coroutine late = body(gate, {.timeout = 1ms}, admitted, reasons[1]);
  Coroutine stopped = body(gate, {.stop = stop.get_token()}, admitted, reasons[2]);
  EXPECT_EQ(allocations_in([&] {
              granted.start();
              late.start();
              stopped.start();
              clock.advance(1ms);
              stop.request_stop();
              holder->release();
            }),
            0u);
  EXPECT_TRUE(admitted);
  EXPECT_EQ(reasons[1], Reason::timeout);
  EXPECT_EQ(reasons[2], Reason::cancelled);
}

TEST(Allocation, NoneByAHandlerThatWaits) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 4, .clock = &clock}};
  auto holder = gate.acquire();
  std::stop_source stop;
  int admitted = 0, rejected = 0;
  const auto handler = [&](Result<Permit> permit) { ++(permit ? admitted : rejected); };
  EXPECT_EQ(allocations_in([&] {
              gate.async_acquire({}, handler);
              gate.async_acquire({.timeout = 1ms}, handler);
              gate.async_acquire({.stop = stop.get_token()}, handler);
              clock.advance(1ms);
              stop.request_stop();
              holder->release();
            }),
            0u);
  EXPECT_EQ(admitted, 1);
  EXPECT_EQ(rejected, 2);
}

TEST(Allocation, NoneByAHandlerOnTheRealClockOnceItsTimerRuns) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  std::atomic<int> rejected = 0;
  const auto time_out = [&](int expected) {
    gate.async_acquire({.timeout = 1us}, [&](Result<Permit>) { ++rejected; });
    while (rejected != expected) std::this_thread::yield();
  };
  time_out(1);  // starts the timer thread of the library
  EXPECT_EQ(allocations_in([&] { time_out(2); }), 0u);
}

TEST(Allocation, NoneByAHundredThousandWaitersThatCameAndWent) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto holder = gate.acquire();
  EXPECT_EQ(allocations_in([&] {
              for (int i = 0; i < 100'000; ++i) {
                gate.async_acquire({.timeout = 1ns}, [](Result<Permit>) {});
                clock.advance(1ns);
              }
            }),
            0u);
}

TEST(Allocation, NoneByReleaseSnapshotResizeCloseAndDrain) {
  Gate gate{{.max_concurrent = 1, .max_queue = 4}};
  auto holder = gate.acquire();
  int answers = 0;
  for (int i = 0; i < 4; ++i) gate.async_acquire({}, [&](Result<Permit>) { ++answers; });
  EXPECT_EQ(allocations_in([&] {
              static_cast<void>(gate.snapshot());
              gate.resize(2);
              gate.resize(1);
              gate.resize_queue(9);
              static_cast<void>(gate.drain(TimePoint::min()));
              gate.close();
              holder->release();
              gate.drain();
            }),
            0u);
  EXPECT_EQ(answers, 4);
}

TEST(Allocation, NoneByAnEvictionInEveryTier) {
  Gate gate{{.max_concurrent = 1, .max_queue = 1}};
  auto holder = gate.acquire();
  int rejected = 0;
  EXPECT_EQ(allocations_in([&] {
              for (Priority tier : {Priority::best_effort, Priority::normal, Priority::critical})
                gate.async_acquire({.priority = tier}, [&](Result<Permit> p) { rejected += !p; });
              holder->release();
            }),
            0u);
  EXPECT_EQ(rejected, 2);
}

TEST(Allocation, NoneWithHooks) {
  int events = 0;
  Hooks hooks{.on_admit = [&](const Event&) { ++events; }, .on_release = [&](const Event&) { ++events; }};
  hooks.on_reject = [&](const Event&, Reason) { ++events; };
  Gate gate{{.name = "a name too long for the small string", .max_concurrent = 1, .hooks = hooks}};
  EXPECT_EQ(allocations_in([&] {
              auto a = gate.acquire();
              auto b = gate.acquire();
            }),
            0u);
  EXPECT_EQ(events, 3);
}

TEST(Allocation, NoneByRunWrapAndAcquireAll) {
  Gate one{{.max_concurrent = 1}}, two{{.max_concurrent = 1}};
  auto wrapped = wrap(one, [](int x) { return x; });
  EXPECT_EQ(allocations_in([&] {
              static_cast<void>(one.run([] { return 1; }));
              static_cast<void>(wrapped(2));
              auto both = acquire_all({}, one, two);
              auto neither = acquire_all({}, two, one);
            }),
            0u);
}

// async-bulkhead-ts allocates its ring for max_queue at construction. Here a queue costs memory only for the
// calls in it.
TEST(Allocation, AGateWithTheLargestQueueAllocatesNothing) {
  EXPECT_EQ(allocations_in([] { Gate gate{{.max_concurrent = 1, .max_queue = (1u << 21) - 1}}; }), 0u);
}

}  // namespace
}  // namespace bulkhead
