// Two things at the same instant, again and again: timeouts against releases, close against calls.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <deque>
#include <iostream>
#include <stop_token>
#include <string>
#include <vector>

#include "bulkhead/gate.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

class GateRaces : public testing::TestWithParam<Fairness> {};

// A handler is told a moment after its call has left the line.
template <class A, class B>
void expect_soon_equal(const A& a, const B& b) {
  const auto patience = steady_clock::now() + 30s;
  while (a() != b() && steady_clock::now() < patience) std::this_thread::yield();
  EXPECT_EQ(a(), b());
}

void expect_all_there(Gate& gate, std::uint32_t limit) {
  EXPECT_TRUE(gate.drain(steady_clock::now() + 10s));
  std::vector<Permit> all;
  while (auto permit = gate.try_acquire()) all.push_back(*std::move(permit));
  EXPECT_EQ(all.size(), limit);
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.admitted, s.released + limit);
  EXPECT_EQ(s.waiting, 0u);
  EXPECT_EQ(s.underflows, 0u);
}

// Everybody in line runs out of time at the instant at which everybody running comes back.
TEST_P(GateRaces, AStormOfTimeoutsAgainstReleasesLosesNothing) {
  constexpr std::uint32_t kPermits = 8, kThreads = 4, kHandlers = 8, kReleasers = 2;
  Gate gate{{.name = "storm",
             .max_concurrent = kPermits,
             .max_queue = kThreads + kHandlers,
             .fairness = GetParam(),
             .max_barge = 50us}};
  std::vector<Permit> permits(kPermits);
  steady_clock::time_point instant;
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> calls{0}, admitted{0}, timed_out{0}, other{0};
  std::barrier round(1 + kThreads + kReleasers);
  const auto told = [&](const Result<Permit>& result) {
    result ? ++admitted : result.error().reason == Reason::timeout ? ++timed_out : ++other;
  };

  Threads threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.add([&, i] {
      for (;;) {
        round.arrive_and_wait();
        if (over) return;
        ++calls;
        told(gate.acquire({.priority = static_cast<Priority>(i % 3), .deadline = instant}));
        round.arrive_and_wait();
      }
    });
  for (std::uint32_t i = 0; i < kReleasers; ++i)
    threads.add([&, i] {
      Dice dice(i);
      for (;;) {
        round.arrive_and_wait();
        if (over) return;
        for (std::uint32_t p = i; p < kPermits; p += kReleasers) {
          const auto when = instant + std::chrono::microseconds(dice.below(60)) - 30us;
          while (steady_clock::now() < when) std::this_thread::yield();
          permits[p].release();
        }
        round.arrive_and_wait();
      }
    });

  std::uint64_t rounds = 0;
  Dice dice(42);
  for (const auto end = end_of_test(1.5); steady_clock::now() < end; ++rounds) {
    for (Permit& permit : permits) {
      auto taken = gate.try_acquire();
      ASSERT_TRUE(taken) << taken.error().message();
      permit = *std::move(taken);
    }
    instant = steady_clock::now() + 300us + std::chrono::microseconds(dice.below(100));
    round.arrive_and_wait();
    for (std::uint32_t i = 0; i < kHandlers; ++i) {
      ++calls;
      gate.async_acquire({.cost = 1 + i % 2, .deadline = instant}, told);
    }
    round.arrive_and_wait();
    ASSERT_TRUE(gate.drain(steady_clock::now() + 10s)) << "units were lost in round " << rounds;
  }
  over = true;
  round.arrive_and_wait();
  threads.join();

  expect_soon_equal([&] { return admitted + timed_out + other; }, [&] { return calls.load(); });
  expect_all_there(gate, kPermits);
  const Snapshot s = gate.snapshot();
  EXPECT_EQ(s.admitted, admitted + (rounds + 1) * kPermits);
  std::cout << rounds << " rounds, " << admitted << " admitted, " << timed_out << " timed out, " << other
            << " came too late\n";
}

// The stop_token of everybody in line fires while everybody running comes back.
TEST_P(GateRaces, CancelsAgainstReleasesLoseNothing) {
  constexpr std::uint32_t kPermits = 4, kThreads = 3, kHandlers = 6;
  Gate gate{{.max_concurrent = kPermits, .max_queue = kThreads + kHandlers, .fairness = GetParam()}};
  std::vector<Permit> permits(kPermits);
  std::stop_source source;
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> calls{0}, answers{0};
  std::barrier round(2 + kThreads);
  const auto told = [&](const Result<Permit>& result) {
    EXPECT_TRUE(result || result.error().reason == Reason::cancelled) << result.error().message();
    ++answers;
  };

  Threads threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.add([&, i] {
      for (;;) {
        round.arrive_and_wait();
        if (over) return;
        ++calls;
        told(gate.acquire({.priority = static_cast<Priority>(i % 3), .stop = source.get_token()}));
        round.arrive_and_wait();
      }
    });
  threads.add([&] {
    Dice dice(7);
    for (;;) {
      round.arrive_and_wait();
      if (over) return;
      linger(dice);
      for (Permit& permit : permits) permit.release();
      round.arrive_and_wait();
    }
  });

  std::uint64_t rounds = 0;
  Dice dice(42);
  for (const auto end = end_of_test(1); steady_clock::now() < end; ++rounds) {
    for (Permit& permit : permits) {
      auto taken = gate.try_acquire();
      ASSERT_TRUE(taken) << taken.error().message();
      permit = *std::move(taken);
    }
    source = std::stop_source();
    for (std::uint32_t i = 0; i < kHandlers; ++i) {
      ++calls;
      gate.async_acquire({.cost = 1 + i % 2, .stop = source.get_token()}, told);
    }
    round.arrive_and_wait();
    linger(dice);
    source.request_stop();
    round.arrive_and_wait();
    ASSERT_TRUE(gate.drain(steady_clock::now() + 10s)) << "units were lost in round " << rounds;
  }
  over = true;
  round.arrive_and_wait();
  threads.join();
  expect_soon_equal([&] { return answers.load(); }, [&] { return calls.load(); });
  expect_all_there(gate, kPermits);
}

// Once close() has returned, every call that begins is rejected with `shutdown`, and nobody is left in line.
TEST_P(GateRaces, CloseAgainstTrafficAnswersEverybody) {
  constexpr std::uint32_t kThreads = 4;
  std::deque<Gate> gates;  // one a round; they live to the end, so that late calls have a gate to ask
  std::atomic<Gate*> current{nullptr};
  std::atomic<Gate*> closed{nullptr};
  std::atomic<bool> over{false};
  std::atomic<std::uint64_t> calls{0}, answers{0};
  const auto next_gate = [&] {
    gates.emplace_back(
        GateOptions{.max_concurrent = 2, .max_queue = 8, .fairness = GetParam(), .max_barge = 50us});
    current = &gates.back();
  };
  next_gate();

  Threads threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.add([&, i] {
      Dice dice(i);
      while (!over) {
        Gate* gate = current;
        const bool late = closed.load() == gate;
        const auto told = [&answers, late](const Result<Permit>& result) {
          EXPECT_TRUE(!late || (!result && result.error().reason == Reason::shutdown));
          ++answers;
        };
        AcquireOptions o{.priority = static_cast<Priority>(dice.below(3)), .cost = 1 + dice.below(2)};
        if (dice.one_in(2)) o.timeout = std::chrono::microseconds(dice.below(500));
        ++calls;
        if (dice.one_in(3)) {
          gate->async_acquire(o, told);
        } else {
          auto result = dice.one_in(2) ? gate->acquire(o) : gate->try_acquire(o);
          told(result);
          linger(dice);
        }
      }
    });

  Dice dice(42);
  std::uint64_t rounds = 0;
  for (const auto end = end_of_test(1); steady_clock::now() < end && rounds < 20'000; ++rounds) {
    Gate& gate = gates.back();
    const std::uint64_t enough = calls + 1 + dice.below(40);
    while (calls < enough) std::this_thread::yield();
    gate.close();
    closed = &gate;
    EXPECT_EQ(gate.snapshot().waiting, 0u);
    EXPECT_TRUE(gate.snapshot().closed);
    EXPECT_TRUE(gate.drain(steady_clock::now() + 10s));
    next_gate();
  }
  gates.back().close();
  over = true;
  threads.join();
  for (Gate& gate : gates) EXPECT_TRUE(gate.drain(steady_clock::now() + 10s));
  expect_soon_equal([&] { return answers.load(); }, [&] { return calls.load(); });
  for (Gate& gate : gates) EXPECT_EQ(gate.snapshot().admitted, gate.snapshot().released);
  std::cout << rounds << " gates closed under " << calls << " calls\n";
}

INSTANTIATE_TEST_SUITE_P(All, GateRaces, kAllModes, name_of_mode);

}  // namespace
}  // namespace bulkhead::stress
