// What one hold of a gate's lock does at most, counted with a tenth of the largest line there can be.
//
// The turnstile is a template over its atomics and its lock: here both count. Every waiter that is decided or looked at
// takes some atomic operations, so their number between lock and unlock is the work that keeps other callers out.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <string>
#include <utility>

#include "bulkhead/detail/platform.h"
#include "gate/lending.h"
#include "gate/posting.h"
#include "gate/slow_path.h"

namespace bulkhead::detail {
namespace {

struct Work {
  static inline std::uint64_t now = 0, most = 0, holds = 0, in_all = 0;
  static inline bool held = false;
  static void step() {
    if (held) ++now;
  }
  static void reset() { now = most = holds = in_all = 0; }
};

template <class T>
struct CountedAtomic {
  CountedAtomic(T v = T()) : value(v) {}
  T load(std::memory_order) const { return Work::step(), value; }
  void store(T v, std::memory_order) { Work::step(), value = v; }
  T fetch_add(T v, std::memory_order) {
    return Work::step(), std::exchange(value, static_cast<T>(value + v));
  }
  T fetch_sub(T v, std::memory_order) {
    return Work::step(), std::exchange(value, static_cast<T>(value - v));
  }
  bool compare_exchange_weak(T& expected, T desired, std::memory_order, std::memory_order) {
    Work::step();
    if (value != expected) return expected = value, false;
    return value = desired, true;
  }
  bool compare_exchange_strong(T& expected, T desired, std::memory_order a, std::memory_order b) {
    return compare_exchange_weak(expected, desired, a, b);
  }
  T value;
};

struct CountedMutex {
  void lock() {
    Work::held = true;
    Work::now = 0;
  }
  void unlock() {
    Work::held = false;
    ++Work::holds;
    Work::in_all += Work::now;
    Work::most = std::max(Work::most, Work::now);
  }
};

struct CountingPlatform {
  template <class T>
  using Atomic = CountedAtomic<T>;
  template <class T>
  using Var = T;
  using Mutex = CountedMutex;
  [[maybe_unused]] static constexpr int kLooks = 1;
  static constexpr int kBatch = StdPlatform::kBatch;
  static std::uint64_t recall(const void*) { return 0; }
  static void remember(const void*, std::uint64_t) {}
  static void doubt() {}
  static void compare(const void*, std::uint64_t) {}
  static void fetch(const void*) {}
  static void wake(const Atomic<std::uint32_t>*) {}
  static void measure(Meter&, std::int64_t, int, std::int64_t) {}
  static void point(const char*) {}
};

using Line = Turnstile<CountingPlatform>;

constexpr std::uint32_t kWaiters = line::kMaxQueue / 10;
// Some twenty operations for each of two batches of waiters; a look at every one of 3072 queues.
constexpr std::uint64_t kMost = 64 * StdPlatform::kBatch;

struct Shape {
  const char* name;
  std::uint32_t queues;  // of flows; 0: none
  std::uint32_t max_cost;
};
void PrintTo(const Shape& shape, std::ostream* out) { *out << shape.name; }

class Bounds : public testing::TestWithParam<Shape> {
 protected:
  Bounds() {
    if (GetParam().queues > 0) {
      flows_ = std::make_unique<FlowQueues<CountingPlatform>>(GetParam().queues,
                                                              std::min(GetParam().queues, 4u), 0);
      line_.be_fair_with(*flows_);
    }
    std::mt19937 dice(1);  // NOLINT: the same every time
    Line::Wakes nobody;
    holder_.cost = kLimit;
    line_.enter(holder_, terms(), 0, nobody);
    for (std::uint32_t i = 0; i < kWaiters; ++i) {
      Line::Waiter& w = waiters_.emplace_back();
      w.is_thread = false;
      w.cost = 1 + static_cast<std::uint32_t>(dice()) % GetParam().max_cost;
      w.tier = static_cast<Priority>(dice() % 3);
      w.flow = dice() % 100'000;
      EXPECT_EQ(line_.enter(w, terms(), 0, nobody), Verdict::pending);
    }
    EXPECT_EQ(line_.waiting(), kWaiters);
    Work::reset();
  }
  static Line::Terms terms() { return {.may_queue = true, .may_wait = true}; }
  std::uint32_t told(Line::Wakes& wakes) {
    std::uint32_t n = 0;
    while (wakes.pop()) ++n;
    return n;
  }
  void expect_bounded(std::uint32_t decided) {
    EXPECT_LE(Work::most, kMost);
    EXPECT_GE(Work::in_all, decided);
    EXPECT_GE(Work::holds, decided / (2 * StdPlatform::kBatch));
  }

  static constexpr std::uint32_t kLimit = 4 * kWaiters;
  Line line_{{.limit = kLimit, .reserve = 0, .max_queue = line::kMaxQueue}};
  std::unique_ptr<FlowQueues<CountingPlatform>> flows_;
  Line::Waiter holder_;
  std::deque<Line::Waiter> waiters_;
};
INSTANTIATE_TEST_SUITE_P(All, Bounds,
                         testing::Values(Shape{"Light", 0, 1}, Shape{"Heavy", 0, 4}, Shape{"Flows", 64, 1},
                                         Shape{"HeavyFlows", 1024, 4}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST_P(Bounds, OfClose) {
  Line::Wakes wakes;
  EXPECT_TRUE(line_.close(wakes));
  EXPECT_EQ(line_.waiting(), 0u);
  EXPECT_EQ(told(wakes), kWaiters);
  expect_bounded(kWaiters);
}

TEST_P(Bounds, OfAReleaseThatLetsAllOfThemIn) {
  Line::Wakes wakes;
  if (!line_.give_back(kLimit)) line_.after_release(0, wakes);
  const std::uint32_t in = told(wakes);
  EXPECT_EQ(in + line_.waiting(), kWaiters);
  EXPECT_GT(in, kWaiters / 2);
  expect_bounded(in);
}

TEST_P(Bounds, OfGrowing) {
  Line::Wakes wakes;
  line_.resize(8 * kWaiters, 0, 0, wakes);
  EXPECT_EQ(line_.waiting(), 0u);
  EXPECT_EQ(told(wakes), kWaiters);
  expect_bounded(kWaiters);
}

TEST_P(Bounds, OfShrinkingBelowWhatSomeOfThemCost) {
  Line::Wakes wakes;
  line_.resize(1, 0, 0, wakes);
  const std::uint32_t hopeless = told(wakes);
  EXPECT_EQ(hopeless + line_.waiting(), kWaiters);
  EXPECT_EQ(hopeless > 0, GetParam().max_cost > 1);
  expect_bounded(hopeless);
  // Nobody costs too much now, and then nobody is looked at.
  Work::reset();
  if (GetParam().max_cost == 1) line_.resize(2, 0, 0, wakes);
  EXPECT_LE(Work::in_all, 8u * (GetParam().queues + 8));
}

TEST_P(Bounds, OfEvictingCancellingAndJoining) {
  Line::Wakes wakes;
  line_.resize_queue(kWaiters, 0);
  std::uint32_t left = 0;
  for (int i = 0; i < 1000; ++i) {
    Line::Waiter& w = waiters_.emplace_back();
    w.is_thread = false;
    w.tier = Priority::critical;
    w.flow = 1;
    line_.enter(w, terms(), 0, wakes);
    left += line_.withdraw(waiters_[static_cast<std::size_t>(i) * 7], Reason::cancelled, 0, wakes);
  }
  EXPECT_GT(left, 0u);
  EXPECT_LE(Work::most, 16u * (3 * GetParam().queues + 16));
}

}  // namespace
}  // namespace bulkhead::detail
