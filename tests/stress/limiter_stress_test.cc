// Limiters under everything at once: calls from many threads, live changes, hold, reset and snapshots beside
// them. The gate ends with the limit the limiter says, within the bounds in force, and no call is lost.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#include "bulkhead/bulkhead.h"
#include "bulkhead/gate.h"
#include "bulkhead/group.h"
#include "bulkhead/limiter.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

constexpr KneeOptions quick{.min_window = 50us, .max_window = 5ms};

class LimiterStress : public testing::TestWithParam<LimitAlgorithm> {};

TEST_P(LimiterStress, TheGateHasTheLimitTheLimiterSaysWhateverHappensBesideIt) {
  Gate gate{{.name = "stress", .max_concurrent = 4, .max_queue = 64}};
  AdaptiveLimiter limiter(gate, {.algorithm = GetParam(), .floor = 2, .ceiling = 40, .knee = quick});
  const auto end = end_of_test(1.5);
  std::atomic<std::uint64_t> calls{0};
  {
    Threads threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.add([&, t] {
        Dice dice(t);
        while (steady_clock::now() < end) {
          auto permit = gate.acquire();
          if (!permit) continue;
          const LimiterCall call = limiter.admitted(steady_clock::now(), gate.snapshot().in_flight);
          linger(dice);
          const Outcome how = dice.one_in(20)   ? Outcome::failure
                              : dice.one_in(50) ? Outcome::timeout
                              : dice.one_in(50) ? Outcome::ignored
                                                : Outcome::success;
          if (dice.one_in(2)) permit->release();
          limiter.completed(call, steady_clock::now(), how);
          calls.fetch_add(1, std::memory_order_relaxed);
        }
      });
    threads.add([&] {
      Dice dice(77);
      while (steady_clock::now() < end) {
        switch (dice.below(5)) {
          case 0: {
            const std::uint32_t floor = 2 + dice.below(3);
            limiter.update({.algorithm = GetParam(),
                            .floor = floor,
                            .ceiling = floor + 4 + dice.below(30),
                            .knee = quick});
            break;
          }
          case 1:
            limiter.hold(dice.one_in(2));
            break;
          case 2:
            limiter.reset();
            break;
          default: {
            const LimiterSnapshot s = limiter.snapshot();
            EXPECT_GE(s.limit, s.floor);
            EXPECT_LE(s.limit, s.ceiling);
            EXPECT_GE(s.settled, s.floor);
            EXPECT_LE(s.settled, s.ceiling);
            EXPECT_FALSE(s.why.text().empty());
          }
        }
        std::this_thread::yield();
      }
    });
  }
  EXPECT_GT(calls.load(), 0u);
  EXPECT_EQ(gate.snapshot().max_concurrent, limiter.limit());
  EXPECT_EQ(gate.snapshot().in_flight, 0u);
  EXPECT_GE(limiter.limit(), limiter.snapshot().floor);
  EXPECT_LE(limiter.limit(), limiter.snapshot().ceiling);
}

INSTANTIATE_TEST_SUITE_P(Algorithms, LimiterStress,
                         testing::Values(LimitAlgorithm::knee, LimitAlgorithm::aimd, LimitAlgorithm::vegas,
                                         LimitAlgorithm::gradient2),
                         [](const auto& test) { return std::string(to_string(test.param)); });

// Handlers of calls in line run inside the resize, complete calls of their own and change the limiter.
TEST(LimiterStress, HandlersThatRunInsideAResizeMayUseTheLimiter) {
  Gate gate{{.name = "stress", .max_concurrent = 2, .max_queue = 1000}};
  AdaptiveLimiter limiter(gate, {.floor = 1, .ceiling = 16, .knee = quick});
  const auto end = end_of_test(1);
  std::atomic<std::uint64_t> asked{0}, answered{0};
  {
    Threads threads;
    for (std::uint32_t t = 0; t < 2; ++t)
      threads.add([&, t] {
        Dice dice(t + 5);
        while (steady_clock::now() < end) {
          asked.fetch_add(1);
          const bool meddles = dice.one_in(64);
          gate.async_acquire({.timeout = 1s}, [&, meddles](Result<Permit> permit) {
            answered.fetch_add(1);
            if (!permit) return;
            const LimiterCall call = limiter.admitted(steady_clock::now(), 2);
            if (meddles) limiter.update({.floor = 1, .ceiling = 16, .knee = quick});
            limiter.completed(call, steady_clock::now(), Outcome::success);
          });
        }
      });
    threads.add([&] {
      Dice dice(9);
      while (steady_clock::now() < end) {
        limiter.update({.floor = 1 + dice.below(8), .ceiling = 16, .knee = quick});
        limiter.update({.floor = 1, .ceiling = 1 + dice.below(8), .knee = quick});
      }
    });
  }
  gate.drain();
  EXPECT_EQ(asked.load(), answered.load());
  EXPECT_EQ(gate.snapshot().max_concurrent, limiter.limit());
}

// One limiter for a group: members come and go, shares change, borrowers are called back. No unit is lost, and the total is
// the one that the limiter says.
TEST(LimiterStress, TheTotalOfAGroupIsWhatTheLimiterSaysWhateverHappensBesideIt) {
  Group group{{.name = "stress",
               .total = 8,
               .lend = Lend::revocable(),
               .members = {{.name = "a", .guaranteed = {.percent = 50}, .gate = {.max_queue = 64}},
                           {.name = "b", .guaranteed = {.units = 2}, .gate = {.max_queue = 64}}}}};
  AdaptiveLimiter limiter(group, {.floor = 1, .ceiling = 24, .knee = quick});
  const auto end = end_of_test(1.5);
  std::atomic<std::uint64_t> calls{0};
  {
    Bulkhead a{{.gate = &group.member("a"), .limiter = &limiter}};
    Bulkhead b{{.gate = &group.member("b"), .limiter = &limiter}};
    Threads threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.add([&, t] {
        Dice dice(t);
        while (steady_clock::now() < end) {
          Bulkhead& bulkhead = t % 2 ? a : b;
          if (dice.one_in(2)) {  // it can be asked to stop
            (void)bulkhead.execute([&](const std::stop_token&) { linger(dice); }, {.timeout = 10ms});
            continue;
          }
          auto call = bulkhead.acquire({.cost = 1 + dice.below(2), .timeout = 10ms});
          if (!call) continue;
          linger(dice);
          call->finish(dice.one_in(20) ? Outcome::failure : Outcome::success);
          calls.fetch_add(1, std::memory_order_relaxed);
        }
      });
    threads.add([&] {
      Dice dice(77);
      while (steady_clock::now() < end) {
        switch (dice.below(5)) {
          case 0:
            limiter.update({.floor = 1, .ceiling = 2 + dice.below(24), .knee = quick});
            break;
          case 1:
            group.update("b", {.units = dice.below(4)});
            break;
          case 2:
            group.add({.name = "c", .guaranteed = {.units = 1}});
            (void)group.member("c").try_acquire();
            EXPECT_TRUE(group.remove("c"));
            break;
          case 3:
            limiter.reset();
            break;
          default: {
            const GroupSnapshot s = group.snapshot();
            std::uint32_t guaranteed = 0;
            for (const auto& m : s.members) guaranteed += m.guaranteed;
            EXPECT_LE(guaranteed, s.total);
          }
        }
        std::this_thread::yield();
      }
    });
  }
  EXPECT_GT(calls.load(), 0u);
  const GroupSnapshot s = group.snapshot();
  EXPECT_EQ(s.total, limiter.limit());
  EXPECT_EQ(s.in_flight, 0u);
  std::uint32_t sum = s.free;
  for (const auto& m : s.members) sum += m.allotted + m.called_back;
  EXPECT_EQ(sum, s.total);
}

}  // namespace
}  // namespace bulkhead::stress
