#include "bulkhead/acquire_all.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <coroutine>
#include <memory>
#include <random>
#include <stop_token>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

struct Gates {
  ManualClock clock;
  std::vector<std::unique_ptr<Gate>> owned = make(clock);  // by address
  Gate &first = *owned[0], &second = *owned[1], &third = *owned[2];

  std::uint32_t in_flight() const { return first.in_flight() + second.in_flight() + third.in_flight(); }

 private:
  static std::vector<std::unique_ptr<Gate>> make(ManualClock& clock) {
    std::vector<std::unique_ptr<Gate>> gates;
    for (const char* name : {"a", "b", "c"})
      gates.push_back(std::make_unique<Gate>(
          GateOptions{.name = name, .max_concurrent = 4, .max_queue = 4, .max_wait = 10ms, .clock = &clock}));
    std::ranges::sort(gates, {}, [](const auto& gate) { return gate.get(); });
    return gates;
  }
};

TEST(AcquireAll, TakesAllOrNothing) {
  Gates g;
  {
    auto all = acquire_all({{g.second, 2}, {g.first, 3}});
    ASSERT_TRUE(all);
    EXPECT_EQ(g.first.in_flight(), 3u);
    EXPECT_EQ(g.second.in_flight(), 2u);
    EXPECT_EQ(all->of(g.second)->cost(), 2u);
    EXPECT_EQ(all->of(g.third), nullptr);
    all->of(g.second)->settle(1);
    EXPECT_EQ(g.second.in_flight(), 1u);

    auto none = try_acquire_all({{g.third, 1}, {g.first, 2}});
    ASSERT_FALSE(none);
    EXPECT_EQ(none.error().name.view(), g.first.name());
    EXPECT_EQ(g.third.in_flight(), 0u);
    auto late = try_acquire_all({{g.first, 1}, {g.second, 4}});
    ASSERT_FALSE(late);
    EXPECT_EQ(g.first.in_flight(), 3u) << "given back";
  }
  EXPECT_EQ(g.in_flight(), 0u);
}

TEST(AcquireAll, WithoutAGateTheAnswerIsPermitsOfNothing) {
  Gates g;
  for (const auto timeout : {gate_default, std::chrono::nanoseconds(1ms), wait_forever}) {
    auto all = acquire_all({{}}, {.timeout = timeout});
    ASSERT_TRUE(all);
    EXPECT_EQ(all->of(g.first), nullptr);
    int told = 0;
    async_acquire_all({{}}, {.timeout = timeout},
                      [&](const Result<AllPermits>& got) { told += got ? 1 : 100; });
    EXPECT_EQ(told, 1);
  }
  EXPECT_TRUE(try_acquire_all({{}}));
}

TEST(AcquireAll, AddsUpTheCostsOfAGateThatIsNamedTwice) {
  Gates g;
  auto all = acquire_all({{g.first, 2}, {g.second, 1}, {g.first, 2}});
  ASSERT_TRUE(all);
  EXPECT_EQ(all->of(g.first)->cost(), 4u);
  all->release();
  EXPECT_FALSE(acquire_all({{g.first, 4'000'000'000}, {g.first, 4'000'000'000}}));
  EXPECT_FALSE(acquire_all({{g.first, 3}, {g.first, 2}}))
      << "more than there can ever be, so rejected at once";
  EXPECT_EQ(g.in_flight(), 0u);
}

TEST(AcquireAll, AHandlerThatTheReleaseAdmitsMayDestroyThePermits) {
  Gates g;
  auto all = std::make_unique<AllPermits>(*acquire_all({{g.first, 4}, {g.second, 4}}));
  g.first.async_acquire({}, [&](const Result<Permit>& permit) {
    EXPECT_TRUE(permit);
    EXPECT_EQ(g.second.in_flight(), 0u) << "all units are back";
    all.reset();
  });
  all->release();
  EXPECT_FALSE(all);
  EXPECT_EQ(g.in_flight(), 0u);
}

TEST(AcquireAll, HasOneTimeoutForAllGates) {
  Gates g;
  Permit one = *g.first.acquire({.cost = 4});
  const Permit two = *g.second.acquire({.cost = 4});
  std::vector<Rejection> told;
  async_acquire_all({{g.first}, {g.second}}, {.timeout = 10ms}, [&](Result<AllPermits> all) {
    ASSERT_FALSE(all);
    told.push_back(all.error());
  });
  g.clock.advance(7ms);
  one.release();
  EXPECT_EQ(g.first.in_flight(), 1u) << "held while it waits for the second gate";
  EXPECT_EQ(g.second.snapshot().waiting, 1u);
  g.clock.advance(3ms);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_EQ(told[0].reason, Reason::timeout);
  EXPECT_EQ(told[0].name.view(), g.second.name());
  EXPECT_EQ(g.first.in_flight(), 0u);
}

TEST(AcquireAll, TheDefaultTimeoutIsTheShortestOfTheGates) {
  ManualClock clock;
  Gate patient{{.name = "p", .max_concurrent = 1, .max_queue = 1, .max_wait = 1h, .clock = &clock}};
  Gate hasty{{.name = "h", .max_concurrent = 1, .max_queue = 1, .max_wait = 1ms, .clock = &clock}};
  const Permit one = *patient.acquire(), two = *hasty.acquire();
  int told = 0;
  async_acquire_all({{patient}, {hasty}}, {}, [&](const Result<AllPermits>&) { ++told; });
  clock.advance(1ms);
  EXPECT_EQ(told, 1);
}

TEST(AcquireAll, ACancelledCallHoldsNothing) {
  Gates g;
  const Permit busy = *g.third.acquire({.cost = 4});
  std::stop_source stop;
  std::optional<Reason> told;
  async_acquire_all({{g.third, 1}, {g.second, 4}, {g.first, 4}},
                    {.timeout = wait_forever, .stop = stop.get_token()},
                    [&](Result<AllPermits> all) { told = all.error().reason; });
  EXPECT_EQ(g.in_flight(), 12u);
  stop.request_stop();
  EXPECT_EQ(told, Reason::cancelled);
  EXPECT_EQ(g.in_flight(), 4u);
}

TEST(AcquireAll, AClosedGateRejectsTheCallWhereverItWaits) {
  Gates g;
  const Permit busy = *g.second.acquire({.cost = 4});
  std::optional<Reason> told;
  async_acquire_all({{g.first, 2}, {g.second, 1}}, {},
                    [&](Result<AllPermits> all) { told = all.error().reason; });
  g.second.close();
  EXPECT_EQ(told, Reason::shutdown);
  EXPECT_EQ(g.first.in_flight(), 0u);
}

class Started {  // a coroutine that runs at once
 public:
  struct promise_type {
    Started get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Started take(Gates& g, bool& done) {
  auto acquiring = co_acquire_all({{g.second, 2}, {g.first, 2}}, {.timeout = wait_forever});
  auto all = co_await acquiring;
  EXPECT_TRUE(all);
  EXPECT_EQ(g.first.in_flight(), 2u);
  EXPECT_EQ(g.second.in_flight(), 2u);
  done = true;
}

TEST(AcquireAll, ACoroutineWaitsForAllGates) {
  Gates g;
  Permit one = *g.first.acquire({.cost = 4}), two = *g.second.acquire({.cost = 4});
  bool done = false;
  take(g, done);
  EXPECT_FALSE(done);
  one.release();
  EXPECT_FALSE(done);
  two.release();
  EXPECT_TRUE(done);
  EXPECT_EQ(g.in_flight(), 0u);
}

TEST(AcquireAll, ADestroyedCoroutineLeavesTheLineAndHoldsNothing) {
  struct Held {
    struct promise_type {
      Held get_return_object() { return {std::coroutine_handle<promise_type>::from_promise(*this)}; }
      std::suspend_never initial_suspend() noexcept { return {}; }
      std::suspend_always final_suspend() noexcept { return {}; }
      void return_void() {}
      void unhandled_exception() { std::terminate(); }
    };
    std::coroutine_handle<> handle;
  };
  Gates g;
  const Permit full = *g.second.acquire({.cost = 4});
  const auto body = [](Gates& gates) -> Held {
    auto acquiring = co_acquire_all({{gates.second, 1}, {gates.first, 2}}, {.timeout = wait_forever});
    const auto all = co_await acquiring;
    ADD_FAILURE() << static_cast<bool>(all);
  };
  const Held held = body(g);
  EXPECT_EQ(g.first.in_flight(), 2u) << "it has the first gate and waits for the second";
  EXPECT_EQ(g.second.snapshot().waiting, 1u);
  held.handle.destroy();
  EXPECT_EQ(g.first.in_flight(), 0u);
  EXPECT_EQ(g.second.snapshot().waiting, 0u);
}

// Every thread names the gates in another order, with other costs, timeouts and cancellations. Without the fixed order
// this blocks within a few rounds.
TEST(AcquireAll, ThreadsThatNameTheGatesInAnyOrderDoNotBlockEachOther) {
  Gate a{{.name = "a", .max_concurrent = 3, .max_queue = 64}};
  Gate b{{.name = "b", .max_concurrent = 2, .max_queue = 64}};
  Gate c{{.name = "c", .max_concurrent = 4, .max_queue = 64}};
  std::atomic<std::uint64_t> admitted{0}, rejected{0};
  const auto worker = [&](unsigned seed) {
    std::mt19937 random(seed);
    const auto cost = [&](std::uint32_t most) { return 1 + static_cast<std::uint32_t>(random() % most); };
    for (int i = 0; i < 20'000; ++i) {
      const AcquireAllOptions options{.timeout =
                                          random() % 8 == 0 ? std::chrono::nanoseconds(20us) : wait_forever};
      const auto asked = random() % 3;
      Result<AllPermits> all = asked == 0   ? acquire_all({{a, cost(3)}, {b, cost(2)}, {c, cost(4)}}, options)
                               : asked == 1 ? acquire_all({{c, cost(4)}, {b, cost(2)}, {a, cost(3)}}, options)
                                            : acquire_all({{b, cost(2)}, {a, cost(3)}}, options);
      ++(all ? admitted : rejected);
      if (all && random() % 4 == 0) all->of(a)->settle(0);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(worker, i + 1);
  for (auto& thread : threads) thread.join();
  EXPECT_GT(admitted, 0u);
  for (Gate* gate : {&a, &b, &c}) {
    EXPECT_EQ(gate->in_flight(), 0u);
    EXPECT_EQ(gate->snapshot().permits, 0u);
    EXPECT_EQ(gate->snapshot().waiting, 0u);
  }
}

}  // namespace
}  // namespace bulkhead
