// Thousands of short lives: gates destroyed while threads, handlers and coroutines wait and while others
// release, cancel or time out. What is asked of it: everybody is answered, nobody touches a gate that is gone
// (which ASan and TSan see), and the destructor returns.
#include <gtest/gtest.h>

#include <atomic>
#include <barrier>
#include <iostream>
#include <memory>
#include <stop_token>
#include <string>
#include <vector>

#include "bulkhead/gate.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

class GateLifetime : public testing::TestWithParam<Fairness> {};

constexpr std::uint64_t kMostRounds = 1'000'000;

Detached wait_in_coroutine(Gate& gate, AcquireOptions options, std::atomic<std::uint64_t>& answers) {
  {
    auto result = co_await gate.co_acquire(std::move(options));
  }
  ++answers;
}

// No line: the last releases race with the destructor on the shortest paths there are.
TEST_P(GateLifetime, PermitsComeBackWhileTheGateIsDestroyed) {
  constexpr std::uint32_t kReleasers = 3;
  std::vector<Permit> permits(kReleasers);
  std::atomic<bool> over{false};
  std::barrier round(1 + kReleasers);
  Threads threads;
  for (std::uint32_t i = 0; i < kReleasers; ++i)
    threads.add([&, i] {
      Dice dice(i);
      for (;;) {
        round.arrive_and_wait();
        if (over) return;
        linger(dice);
        permits[i].release(dice.one_in(4) ? Outcome::failure : Outcome::success);
        round.arrive_and_wait();
      }
    });

  std::uint64_t rounds = 0;
  std::atomic<std::uint64_t> released{0}, hooked{0};
  Dice dice(42);
  for (const auto end = end_of_test(1); steady_clock::now() < end && rounds < kMostRounds; ++rounds) {
    GateOptions o{.max_concurrent = 2 * kReleasers, .fairness = GetParam()};
    if (rounds % 4 == 0) o.hooks.on_release = [&](const Event&) { ++hooked; };
    if (rounds % 4 == 1) o.track_holders = true;
    if (rounds % 4 == 0) released += kReleasers;
    auto gate = std::make_unique<Gate>(std::move(o));
    for (Permit& permit : permits) permit = *gate->acquire({.cost = dice.one_in(3) ? 2u : 1u});
    round.arrive_and_wait();
    linger(dice);
    gate.reset();
    EXPECT_EQ(hooked, released);  // a hook never runs after its gate
    round.arrive_and_wait();
  }
  over = true;
  round.arrive_and_wait();
  std::cout << rounds << " gates\n";
}

// A full line of every kind of waiter; releases, cancels and timeouts fall into the destructor.
TEST_P(GateLifetime, WaitersAreAnsweredWhileTheGateIsDestroyed) {
  constexpr std::uint32_t kThreads = 3, kAsync = 6, kPermits = 3;
  Gate* current = nullptr;
  Priority threads_tier{};  // theirs alone, so that a snapshot tells how many of them wait
  std::stop_source source{std::nostopstate};
  std::vector<Permit> permits(kPermits);
  std::atomic<std::uint32_t> returned{0};
  std::atomic<std::uint64_t> calls{0}, answers{0};
  std::atomic<bool> go{false}, over{false};
  std::barrier round(1 + kThreads + 2);

  Threads threads;
  for (std::uint32_t i = 0; i < kThreads; ++i)
    threads.add([&, i] {
      Dice dice(i);
      for (;;) {
        round.arrive_and_wait();
        if (over) return;
        AcquireOptions o{.priority = threads_tier};
        if (i == 0) o.timeout = std::chrono::microseconds(1 + dice.below(300));
        if (i == 1) o.stop = source.get_token();
        {
          auto result = current->acquire(o);
          ++returned;  // this call touches the gate no more, but for a permit
          linger(dice);
        }
        ++answers;
        round.arrive_and_wait();
      }
    });
  threads.add([&] {
    for (;;) {
      round.arrive_and_wait();
      if (over) return;
      while (!go) std::this_thread::yield();
      for (Permit& permit : permits) permit = Permit();
      round.arrive_and_wait();
    }
  });
  threads.add([&] {
    for (;;) {
      round.arrive_and_wait();
      if (over) return;
      while (!go) std::this_thread::yield();
      source.request_stop();
      round.arrive_and_wait();
    }
  });

  std::uint64_t rounds = 0;
  Dice dice(42);
  for (const auto end = end_of_test(1.5); steady_clock::now() < end && rounds < kMostRounds; ++rounds) {
    GateOptions o{.max_concurrent = kPermits,
                  .max_queue = kThreads + kAsync,
                  .fairness = GetParam(),
                  .max_barge = 50us};
    if (rounds % 4 == 0)
      o.hooks.on_admit = o.hooks.on_release = [](const Event& e) { EXPECT_LE(e.in_flight, 3u); };
    auto gate = std::make_unique<Gate>(std::move(o));
    current = gate.get();
    source = std::stop_source();
    returned = 0;
    go = false;
    threads_tier = static_cast<Priority>(rounds % 3);
    for (Permit& permit : permits) permit = *gate->try_acquire();
    for (std::uint32_t i = 0; i < kAsync; ++i) {
      const auto tier = static_cast<Priority>((rounds + 1 + dice.below(2)) % 3);
      AcquireOptions a{.priority = tier, .cost = 1 + dice.below(2)};
      if (i % 3 == 0) a.timeout = std::chrono::microseconds(1 + dice.below(300));
      if (i % 3 == 1) a.stop = source.get_token();
      if (i % 2 == 0) {
        wait_in_coroutine(*gate, a, answers);
      } else {
        gate->async_acquire(a, [&](Result<Permit>) { ++answers; });
      }
    }
    calls += kAsync + kThreads;
    round.arrive_and_wait();
    // Whoever calls a gate must see to it that it is there: destroy it once every thread waits
    // or has returned.
    for (std::uint32_t safe = 0; safe < kThreads; std::this_thread::yield()) {
      safe = returned;  // first, so that nobody is counted twice
      safe += gate->snapshot().waiting_by_priority[rounds % 3];
    }
    go = true;
    linger(dice);
    gate.reset();
    round.arrive_and_wait();
  }
  over = true;
  round.arrive_and_wait();
  threads.join();
  // A coroutine on the timer's thread may have a step to go after it has let its gate go.
  const auto patience = steady_clock::now() + 30s;
  while (answers != calls && steady_clock::now() < patience) std::this_thread::yield();
  EXPECT_EQ(answers, calls);
  std::cout << rounds << " gates, " << calls << " calls\n";
}

// The handler that gets the last permit destroys the gate, on whatever thread it runs.
TEST_P(GateLifetime, AHandlerDestroysItsGate) {
  std::unique_ptr<Gate> gate;
  Permit permit;
  std::atomic<std::uint64_t> destroyed{0};
  std::atomic<bool> over{false};
  std::barrier round(2);
  Threads threads;
  threads.add([&] {
    for (;;) {
      round.arrive_and_wait();
      if (over) return;
      permit.release();
      round.arrive_and_wait();
    }
  });

  std::uint64_t rounds = 0;
  for (const auto end = end_of_test(0.5); steady_clock::now() < end && rounds < kMostRounds; ++rounds) {
    gate = std::make_unique<Gate>(GateOptions{.max_concurrent = 1, .max_queue = 2, .fairness = GetParam()});
    permit = *gate->acquire();
    AcquireOptions o;
    if (rounds % 2 == 0) o.timeout = 20us;
    round.arrive_and_wait();
    gate->async_acquire(o, [&](Result<Permit> result) {
      if (result) result->release();
      gate.reset();
      ++destroyed;
    });
    round.arrive_and_wait();
    while (destroyed != rounds + 1) std::this_thread::yield();
  }
  over = true;
  round.arrive_and_wait();
  std::cout << rounds << " gates\n";
}

INSTANTIATE_TEST_SUITE_P(All, GateLifetime, kAllModes, name_of_mode);

}  // namespace
}  // namespace bulkhead::stress
