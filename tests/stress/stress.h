// stress.h - what the stress tests share: how long they run, the modes, dice, a coroutine that
// nobody waits for.
//
// BULKHEAD_STRESS_SECONDS makes every test run longer (or shorter) than its usual second or two.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <chrono>
#include <coroutine>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"

namespace bulkhead::stress {

using std::chrono::steady_clock;

inline steady_clock::time_point end_of_test(double usual_seconds) {
  const char* asked = std::getenv("BULKHEAD_STRESS_SECONDS");
  const double seconds = asked ? std::atof(asked) : usual_seconds;
  return steady_clock::now() +
         std::chrono::duration_cast<steady_clock::duration>(std::chrono::duration<double>(seconds));
}

inline const auto kAllModes = testing::Values(Fairness::fifo, Fairness::barging, Fairness::adaptive);

inline std::string mode_name(Fairness mode) {
  constexpr std::array<const char*, 3> names{"Fifo", "Barging", "Adaptive"};
  return names[static_cast<std::size_t>(mode)];
}
inline std::string name_of_mode(const testing::TestParamInfo<Fairness>& test) {
  return mode_name(test.param);
}

class Dice {
 public:
  explicit Dice(std::uint32_t seed) : random_(seed * 2654435761u + 1) {}
  std::uint32_t below(std::uint32_t n) { return static_cast<std::uint32_t>(random_() % n); }
  bool one_in(std::uint32_t n) { return below(n) == 0; }

 private:
  std::minstd_rand random_;
};

// Uses a little time, sometimes the rest of its slice: two cores must run many interleavings.
inline void linger(Dice& dice) {
  if (dice.one_in(16)) return std::this_thread::yield();
  for (std::uint32_t i = dice.below(200); i > 0; --i) asm volatile("" ::: "memory");
}

struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

// Threads that are joined before anything declared above them goes.
class Threads {
 public:
  template <class F>
  void add(F fn) {
    threads_.emplace_back(std::move(fn));
  }
  void join() {
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }
  ~Threads() { join(); }

 private:
  std::vector<std::thread> threads_;
};

}  // namespace bulkhead::stress
