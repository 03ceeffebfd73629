#include "base/futex.h"

#include <gtest/gtest.h>

#include <chrono>
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

TEST(Futex, ReturnsAtTheDeadlineAndNotMuchEarlier) {
  const std::atomic<std::uint32_t> word{0};
  const auto until = steady_clock::now() + 5ms;
  while (steady_clock::now() < until) futex_wait(word, 0, until);  // may return early, but not for ever
  EXPECT_GE(steady_clock::now(), until);
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
