// The counters of async-bulkhead-ts (see tests/SOURCES.md) always add up, on one thread and on many.
#include <gtest/gtest.h>

#include <array>
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

void expect_conserved(const Snapshot& s) {
  EXPECT_EQ(s.admitted, s.released + s.permits);
  EXPECT_EQ(s.released, s.succeeded + s.failed);
  EXPECT_LE(s.in_flight, s.max_concurrent);
  EXPECT_LE(s.waiting, s.max_queue);
  EXPECT_EQ(s.waiting, s.waiting_by_priority[0] + s.waiting_by_priority[1] + s.waiting_by_priority[2]);
  EXPECT_EQ(s.underflows, 0u);
}

TEST(AsyncBulkheadTs, TheLawsOfConservationHoldOver3000RandomSteps) {
  std::mt19937 random(53);
  ManualClock clock;
  Gate gate{{.max_concurrent = 3, .max_queue = 4, .clock = &clock}};
  std::array<std::uint64_t, kReasons> rejected{};
  std::uint64_t admitted = 0, released = 0;
  std::deque<Permit> held;
  std::deque<std::stop_source> stops;
  const auto answer = [&](Result<Permit> result) {
    if (result) {
      ++admitted;
      held.push_back(*std::move(result));
    } else {
      ++rejected[static_cast<std::size_t>(result.error().reason)];
    }
  };
  for (int step = 0; step < 3000; ++step) {
    switch (random() % 6) {
      case 0:
        answer(gate.try_acquire());
        break;
      case 1:
      case 2: {
        stops.emplace_back();
        gate.async_acquire({.priority = static_cast<Priority>(random() % 3),
                            .timeout = std::chrono::nanoseconds(random() % 4),
                            .stop = stops.back().get_token()},
                           answer);
        break;
      }
      case 3:
        if (!held.empty()) {
          Permit permit = std::move(held.front());
          held.pop_front();
          ++released;
          permit.release(random() % 2 ? Outcome::success : Outcome::failure);
        }
        break;
      case 4:
        if (!stops.empty()) stops[random() % stops.size()].request_stop();
        break;
      case 5:
        clock.advance(1ns);
        break;
    }
    const Snapshot s = gate.snapshot();
    expect_conserved(s);
    ASSERT_EQ(s.admitted, admitted);
    ASSERT_EQ(s.released, released);
    ASSERT_EQ(s.in_flight, held.size());
    ASSERT_EQ(s.rejected_by_reason, rejected);
    // Work-conserving: nobody waits while there is room.
    if (s.waiting > 0) {
      ASSERT_EQ(s.in_flight, 3u);
    }
  }
  for (Reason reason :
       {Reason::concurrency_limit, Reason::queue_limit, Reason::timeout, Reason::cancelled, Reason::evicted})
    EXPECT_GT(rejected[static_cast<std::size_t>(reason)], 0u) << to_string(reason);
  held.clear();
}

TEST(AsyncBulkheadTs, TheLawsOfConservationHoldAtEveryInstantOnManyThreads) {
  Gate gate{{.max_concurrent = 4, .max_queue = 3}};
  std::atomic<std::uint64_t> admitted = 0, rejected = 0, failed = 0;
  std::atomic<bool> over = false;
  std::vector<std::jthread> threads;
  for (unsigned seed = 0; seed < 6; ++seed)
    threads.emplace_back([&, seed] {
      std::mt19937 random(seed);
      while (!over) {
        auto permit = random() % 2 ? gate.try_acquire({.cost = static_cast<std::uint32_t>(random() % 3)})
                                   : gate.acquire({.priority = static_cast<Priority>(random() % 3),
                                                   .timeout = std::chrono::microseconds(random() % 100)});
        if (!permit) {
          ++rejected;
          continue;
        }
        ++admitted;
        if (random() % 4 == 0) {
          permit->fail();
          ++failed;
        }
      }
    });
  const auto end = std::chrono::steady_clock::now() + 500ms;
  while (std::chrono::steady_clock::now() < end) expect_conserved(gate.snapshot());
  over = true;
  threads.clear();
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.admitted, admitted);
  EXPECT_EQ(s.failed, failed);
  EXPECT_EQ(s.rejected(), rejected);
  expect_idle(gate);
}

TEST(AsyncBulkheadTs, ASnapshotIsACopy) {
  Gate gate{{.max_concurrent = 1}};
  Snapshot s = gate.snapshot();
  auto a = gate.try_acquire();
  EXPECT_FALSE(gate.try_acquire());
  EXPECT_EQ(s.in_flight, 0u);
  EXPECT_EQ(s.rejected(), 0u);
  s.rejected_by_reason.fill(99);
  EXPECT_EQ(gate.snapshot().rejected(), 1u);
}

TEST(AsyncBulkheadTs, AFailedTryAcquireIsCounted) {
  Gate gate{{.max_concurrent = 1, .max_queue = 5}};
  auto a = gate.try_acquire();
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(gate.try_acquire());
  EXPECT_EQ(gate.snapshot().rejected(Reason::concurrency_limit), 3u);
  EXPECT_EQ(gate.snapshot().rejected(), 3u);
}

}  // namespace
}  // namespace bulkhead
