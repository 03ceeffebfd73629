#include "base/futex.h"

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <stop_token>
#include <thread>
#include <vector>

namespace bulkhead::base {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

TEST(Futex, DoesNotSleepWhenTheValueIsAnother) {
  const std::atomic<std::uint32_t> word{1};
  futex_wait(word, 0, no_deadline);
}

// A signal may end a wait early, but that is rare: a wait that does not sleep returns thousands of times in 5 ms. A wait that
// ignores the deadline is ended by the other thread, long after it.
TEST(Futex, ReturnsAtTheDeadlineAndNotMuchEarlier) {
  std::atomic<std::uint32_t> word{0};
  std::atomic<bool> rescued{false};
  std::jthread rescuer([&](std::stop_token over) {
    std::mutex mutex;
    std::condition_variable_any never;
    std::unique_lock lock(mutex);
    never.wait_for(lock, over, 20s, [] { return false; });
    if (over.stop_requested()) return;
    rescued = true;
    word = 1;
    futex_wake(&word);
  });
  const auto until = steady_clock::now() + 5ms;
  int returns = 0;
  for (; steady_clock::now() < until && word == 0; ++returns) futex_wait(word, 0, until);
  EXPECT_FALSE(rescued) << "the deadline did not end the wait";
  EXPECT_LE(returns, 50) << "it returned without having slept";
}

TEST(Futex, ADeadlineInThePastReturnsAtOnce) {
  const std::atomic<std::uint32_t> word{0};
  futex_wait(word, 0, steady_clock::now() - 1s);
  futex_wait(word, 0, TimePoint(0s));
  futex_wait(word, 0, TimePoint(-5s));
  futex_wait(word, 0, TimePoint::min());
}

TEST(Futex, AWakeAfterTheChangeIsNeverMissed) {
  std::atomic<std::uint32_t> ping{0}, pong{0};
  constexpr std::uint32_t kRounds = 2000;
  std::thread other([&] {
    for (std::uint32_t i = 1; i <= kRounds; ++i) {
      while (ping.load() != i) futex_wait(ping, i - 1, no_deadline);
      pong.store(i);
      futex_wake(&pong);
    }
  });
  for (std::uint32_t i = 1; i <= kRounds; ++i) {
    ping.store(i);
    futex_wake(&ping);
    while (pong.load() != i) futex_wait(pong, i - 1, no_deadline);
  }
  other.join();
}

TEST(Futex, WakesEverybodyWhoSleepsThere) {
  std::atomic<std::uint32_t> word{0};
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 8; ++i)
    sleepers.emplace_back([&] {
      while (word.load() == 0) futex_wait(word, 0, no_deadline);
    });
  word.store(1);
  futex_wake(&word);
  for (std::thread& t : sleepers) t.join();
}

}  // namespace
}  // namespace bulkhead::base
