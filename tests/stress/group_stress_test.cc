// Groups under load: the sum in flight is counted inside the protected sections and watched from outside, while
// units are lent, called back and revoked, and the group changes its shape.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <string>

#include "bulkhead/group.h"
#include "tests/stress/stress.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace stress;

struct Setting {
  const char* name;
  Lend lend;
  Fairness mode;
};

class GroupStress : public testing::TestWithParam<Setting> {
 protected:
  GroupOptions options(std::uint32_t total) const {
    GroupOptions o{.name = "g", .total = total, .lend = GetParam().lend, .keep = 1ms};
    for (const auto& [name, percent] : {std::pair("a", 50.0), {"b", 30.0}, {"c", 20.0}, {"d", 0.0}})
      o.members.push_back({.name = name,
                           .guaranteed = {.percent = percent},
                           .gate = {.max_queue = 64, .max_wait = 5s, .fairness = GetParam().mode}});
    return o;
  }
};

// What is in flight, counted by those who are.
class Inside {
 public:
  explicit Inside(std::uint32_t total) : total_(total) {}
  void enter(std::uint32_t cost) {
    const std::uint32_t now = sum_.fetch_add(cost, std::memory_order_relaxed) + cost;
    if (now > total_.load(std::memory_order_relaxed)) overshoots_.fetch_add(1, std::memory_order_relaxed);
    count_.fetch_add(1, std::memory_order_relaxed);
  }
  void leave(std::uint32_t cost) { sum_.fetch_sub(cost, std::memory_order_relaxed); }
  std::uint64_t overshoots() const { return overshoots_; }
  std::uint64_t count() const { return count_; }
  std::uint32_t sum() const { return sum_; }

 private:
  std::atomic<std::uint32_t> sum_{0}, total_;
  std::atomic<std::uint64_t> overshoots_{0}, count_{0};
};

void expect_at_rest(const Group& group) {
  const GroupSnapshot s = group.snapshot();
  std::uint64_t sum = s.free;
  for (const auto& m : s.members) {
    EXPECT_EQ(m.in_flight, 0u) << m.name;
    EXPECT_EQ(m.waiting, 0u) << m.name;
    EXPECT_EQ(m.called_back, 0u) << m.name;
    sum += m.allotted;
  }
  EXPECT_EQ(sum, s.total) << "no unit is lost";
}

// One call, in one of the ways there are. Whoever holds a permit leaves the count before it gives it back.
void call(Gate& gate, Inside& inside, Dice& dice, std::atomic<std::uint32_t>& pending) {
  const std::uint32_t cost = dice.one_in(8) ? 2 : 1;
  AcquireOptions o{.priority = static_cast<Priority>(dice.below(3)), .cost = cost};
  if (dice.one_in(4)) o.timeout = std::chrono::microseconds(dice.below(300));
  const auto work = [&inside, cost](Permit permit, Dice& d) {
    inside.enter(cost);
    const std::stop_token stop = d.one_in(2) ? permit.stop_token() : std::stop_token();
    for (int i = 0; i < 4 && !stop.stop_requested(); ++i) linger(d);
    inside.leave(cost);
    if (d.one_in(8)) permit.fail();
  };
  switch (dice.below(4)) {
    case 0:
      if (auto permit = gate.try_acquire(o)) work(*std::move(permit), dice);
      break;
    case 1:
      if (auto permit = gate.acquire(o)) work(*std::move(permit), dice);
      break;
    case 2:
      pending.fetch_add(1);
      gate.async_acquire(o, [work, &pending, seed = dice.below(1000)](Result<Permit> permit) {
        Dice d(seed);
        if (permit) work(*std::move(permit), d);
        pending.fetch_sub(1);
      });
      break;
    default:
      // A permit that gives itself back from inside the stop callback.
      if (auto permit = gate.acquire(o)) {
        inside.enter(cost);
        std::atomic<bool> left = false;
        const auto leave = [&] {
          if (left.exchange(true)) return;
          inside.leave(cost);
          permit->release();
        };
        {
          const std::stop_callback on_stop(permit->stop_token(), leave);
          linger(dice);
        }
        leave();
      }
  }
}

TEST_P(GroupStress, TheSumNeverExceedsTheTotal) {
  constexpr std::uint32_t total = 6;
  Inside inside(total);
  std::atomic<std::uint32_t> pending = 0;
  Group group{options(total)};
  const auto end = end_of_test(1);
  std::atomic<bool> done = false;
  {
    std::uint64_t samples = 0;
    std::thread watcher([&] {
      for (; !done; ++samples) {
        const GroupSnapshot s = group.snapshot();
        EXPECT_LE(s.in_flight, total);
        std::uint64_t units = s.free;
        for (const auto& m : s.members) units += m.allotted + m.called_back;
        EXPECT_EQ(units, total);
        std::this_thread::yield();
      }
    });
    {
      Threads threads;
      for (std::uint32_t t = 0; t < 6; ++t)
        threads.add([&, t] {
          Dice dice(t + 1);
          Gate* gates[] = {&group.member("a"), &group.member("b"), &group.member("c"), &group.member("d")};
          while (steady_clock::now() < end) call(*gates[(t + dice.below(2)) % 4], inside, dice, pending);
        });
    }
    done = true;
    watcher.join();
    EXPECT_GT(samples, 0u);
  }
  while (pending > 0) std::this_thread::yield();
  EXPECT_EQ(inside.overshoots(), 0u);
  EXPECT_GT(inside.count(), 100u);
  for (const char* m : {"a", "b", "c", "d"}) group.member(m).drain();
  expect_at_rest(group);
}

// A line of waiters everywhere and nobody to give up: everybody is served, or some unit was lost on its way.
TEST_P(GroupStress, EverybodyWhoWaitsIsServed) {
  const auto end = end_of_test(0.7);
  while (steady_clock::now() < end) {
    Inside inside(3);
    Group group{options(3)};
    Threads threads;
    for (std::uint32_t t = 0; t < 8; ++t)
      threads.add([&, t] {
        Dice dice(t + 1);
        Gate& gate = group.member(std::string(1, static_cast<char>('a' + t % 4)));
        for (int i = 0; i < 40; ++i) {
          auto permit = gate.acquire({.cost = dice.one_in(6) ? 2u : 1u, .timeout = wait_forever});
          // With Lend::none only what is not guaranteed to others can be had: 2 may be more than that.
          if (!permit) {
            EXPECT_EQ(permit.error().reason, Reason::concurrency_limit);
            continue;
          }
          inside.enter(permit->cost());
          linger(dice);
          inside.leave(permit->cost());
        }
      });
    threads.join();
    EXPECT_EQ(inside.overshoots(), 0u);
    expect_at_rest(group);
  }
}

TEST_P(GroupStress, TheShapeChangesUnderLoad) {
  constexpr std::uint32_t most = 12;
  Inside inside(most);
  std::atomic<std::uint32_t> pending = 0;
  Group group{options(8)};
  const auto end = end_of_test(1);
  {
    Threads threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.add([&, t] {
        Dice dice(t + 1);
        Gate& gate = group.member(std::string(1, static_cast<char>('a' + t)));
        while (steady_clock::now() < end) call(gate, inside, dice, pending);
      });
    threads.add([&] {
      Dice dice(99);
      while (steady_clock::now() < end) {
        group.resize(4 + dice.below(most - 3));
        group.update("d", {.percent = 0}, {.percent = 50.0 + dice.below(50)});
        Gate& guest = group.add({.name = "guest", .gate = {.max_queue = 4}});
        for (int i = 0; i < 3; ++i) call(guest, inside, dice, pending);
        EXPECT_TRUE(group.remove("guest"));
        std::this_thread::yield();
      }
    });
  }
  while (pending > 0) std::this_thread::yield();
  EXPECT_EQ(inside.overshoots(), 0u);
  for (const char* m : {"a", "b", "c", "d"}) group.member(m).drain();
  expect_at_rest(group);
}

// Groups die while their last permits come back by all paths.
TEST_P(GroupStress, TheDestructorWaitsForEverybodyOnTheWayOut) {
  const auto end = end_of_test(0.7);
  for (std::uint32_t round = 0; steady_clock::now() < end; ++round) {
    Inside inside(4);
    std::atomic<std::uint32_t> pending = 0;
    Threads threads;
    {
      GroupOptions o = options(4);
      for (MemberOptions& m : o.members) m.gate.max_wait = 2ms;  // threads ask for more while they hold some
      Group group{std::move(o)};
      std::atomic<int> ready = 0;
      for (std::uint32_t t = 0; t < 4; ++t)
        threads.add([&, t, round] {
          Dice dice(round * 4 + t);
          Gate& gate = group.member(std::string(1, static_cast<char>('a' + t)));
          auto permit = gate.acquire({.timeout = 10ms});
          for (int i = 0; i < 3; ++i) call(gate, inside, dice, pending);
          ++ready;
          linger(dice);
          if (permit && dice.one_in(2)) static_cast<void>(permit->stop_token());
        });
      while (ready < 4) std::this_thread::yield();
    }
    threads.join();
    EXPECT_EQ(pending, 0u);
    EXPECT_EQ(inside.overshoots(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(AllModes, GroupStress,
                         testing::Values(Setting{"None", Lend::none(), Fairness::fifo},
                                         Setting{"Headroom", Lend::headroom(1), Fairness::fifo},
                                         Setting{"All", Lend::headroom(0), Fairness::fifo},
                                         Setting{"Revocable", Lend::revocable(), Fairness::fifo},
                                         Setting{"AllBarging", Lend::headroom(0), Fairness::barging},
                                         Setting{"RevocableAdaptive", Lend::revocable(), Fairness::adaptive}),
                         [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace bulkhead
