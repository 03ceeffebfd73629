// The mass-abort and soak cases of async-bulkhead-ts (test/bulkhead.test.ts, see tests/SOURCES.md), on real
// threads.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <random>
#include <thread>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class AsyncBulkheadTsMass : public ::testing::TestWithParam<Kind> {};
INSTANTIATE_TEST_SUITE_P(As, AsyncBulkheadTsMass, ::testing::ValuesIn(kinds), kind_name);

TEST_P(AsyncBulkheadTsMass, AHundredWaitersAreCancelledAtOnce) {
  Gate gate{{.max_concurrent = 1, .max_queue = 100}};
  auto a = gate.try_acquire();
  std::stop_source stop;
  std::deque<Caller> line;
  for (int i = 0; i < 100; ++i) line.emplace_back(gate, AcquireOptions{.stop = stop.get_token()}, GetParam());
  until_waiting(gate, 100);
  stop.request_stop();
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  for (const Caller& caller : line) EXPECT_EQ(caller.reason(), Reason::cancelled);
  a->release();
  EXPECT_TRUE(gate.try_acquire());
  EXPECT_EQ(gate.snapshot().rejected(Reason::cancelled), 100u);
  expect_idle(gate);
}

TEST_P(AsyncBulkheadTsMass, AHundredWaitersAreCancelledFromManyThreads) {
  Gate gate{{.max_concurrent = 1, .max_queue = 100}};
  auto a = gate.try_acquire();
  std::vector<std::stop_source> stops(100);
  std::deque<Caller> line;
  for (auto& stop : stops) line.emplace_back(gate, AcquireOptions{.stop = stop.get_token()}, GetParam());
  until_waiting(gate, 100);
  {
    std::vector<std::jthread> cancellers;
    for (std::size_t t = 0; t < 4; ++t)
      cancellers.emplace_back([&, t] {
        for (std::size_t i = t; i < stops.size(); i += 4) stops[i].request_stop();
      });
    a->release();  // one of them may be faster than its cancellation
  }
  int admitted = 0;
  for (Caller& caller : line) {
    if (caller.admitted()) {
      ++admitted;
      caller.release();
    } else {
      EXPECT_EQ(caller.reason(), Reason::cancelled);
    }
  }
  EXPECT_LE(admitted, 1);
  expect_idle(gate);
}

// Random load from threads, handlers and coroutines on a gate of 20/50: bounds at every step,
// nothing left over.
class Load {
 public:
  explicit Load(Gate& gate, std::uint32_t limit) : gate_(gate), limit_(limit) {}

  void run(std::chrono::milliseconds time) {
    std::vector<std::jthread> threads;
    for (unsigned seed = 1; seed <= 4; ++seed) threads.emplace_back([this, seed] { burst(seed); });
    std::this_thread::sleep_for(time);
    over_ = true;
  }
  std::uint64_t admitted() const { return admitted_; }
  std::uint64_t rejected() const { return rejected_; }

 private:
  // Counts from inside the protected section, which is what the cap is about.
  void answer(Result<Permit> permit, unsigned spin) {
    if (!permit) {
      ++rejected_;
      return;
    }
    ++admitted_;
    EXPECT_LE(++inside_, limit_);
    for (unsigned i = 0; i < spin; ++i) std::this_thread::yield();
    --inside_;
  }
  static Detached co_call(Load& load, AcquireOptions options, unsigned spin) {
    load.answer(co_await load.gate_.co_acquire(std::move(options)), spin);
  }
  void burst(unsigned seed) {
    std::mt19937 random(seed);
    std::deque<std::stop_source> stops;
    while (!over_) {
      AcquireOptions options{.priority = static_cast<Priority>(random() % 3)};
      const unsigned spin = random() % 4;
      switch (random() % 10) {
        case 0:
          stops.emplace_back();
          options.stop = stops.back().get_token();
          break;
        case 1:
          options.timeout = std::chrono::microseconds(random() % 200);
          break;
        default:
          break;
      }
      switch (random() % 4) {
        case 0:
          answer(gate_.acquire(options), spin);
          break;
        case 1:
          gate_.async_acquire(options, [this, spin](Result<Permit> p) { answer(std::move(p), spin); });
          break;
        case 2:
          co_call(*this, options, spin);
          break;
        case 3:
          answer(gate_.try_acquire(options), spin);
          break;
      }
      if (stops.size() > 4) {
        stops.front().request_stop();
        stops.pop_front();
      }
      const Snapshot s = gate_.snapshot();
      EXPECT_LE(s.in_flight, s.max_concurrent);
      EXPECT_LE(s.waiting, s.max_queue);
    }
  }

  Gate& gate_;
  const std::uint32_t limit_;
  std::atomic<bool> over_ = false;
  std::atomic<std::uint32_t> inside_ = 0;
  std::atomic<std::uint64_t> admitted_ = 0, rejected_ = 0;
};

TEST(AsyncBulkheadTs, RandomLoadStaysWithinItsBoundsAndLeavesNothing) {
  for (Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    Gate gate{{.max_concurrent = 2, .max_queue = 5, .fairness = fairness}};
    Load load(gate, 2);
    load.run(300ms);
    EXPECT_TRUE(gate.drain());
    EXPECT_GT(load.admitted(), 0u);
    EXPECT_GT(load.rejected(), 0u);
    EXPECT_EQ(gate.snapshot().admitted, load.admitted());
    EXPECT_EQ(gate.snapshot().rejected(), load.rejected());
    expect_idle(gate);
  }
}

TEST(AsyncBulkheadTs, CloseAndDrainInMidTrafficLeaveNothing) {
  Gate gate{{.max_concurrent = 2, .max_queue = 20}};
  Load load(gate, 2);
  std::jthread closer([&] {
    std::this_thread::sleep_for(200ms);
    gate.close();
    EXPECT_TRUE(gate.drain());
    expect_idle(gate);
  });
  load.run(400ms);
  closer.join();
  EXPECT_TRUE(gate.snapshot().closed);
  EXPECT_EQ(gate.snapshot().admitted, load.admitted());
  EXPECT_EQ(gate.snapshot().rejected(), load.rejected());
  EXPECT_GT(gate.snapshot().rejected(Reason::shutdown), 0u);
  expect_idle(gate);
}

// That it costs no memory is proved in allocation_test.cc.
TEST(AsyncBulkheadTs, CancelledWaitersLeaveNothingBehindWhileTheGateIsFull) {
  ManualClock clock;
  Gate gate{{.max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  auto a = gate.try_acquire();
  std::uint64_t timed_out = 0;
  for (int i = 0; i < 100'000; ++i) {
    gate.async_acquire({.timeout = 1ns}, [&](Result<Permit> p) { timed_out += !p; });
    clock.advance(1ns);
  }
  EXPECT_EQ(timed_out, 100'000u);
  EXPECT_EQ(numbers(gate), Numbers(1, 0));
  EXPECT_EQ(clock.next_alarm(), no_deadline);
  a->release();
  expect_idle(gate);
}

}  // namespace
}  // namespace bulkhead
