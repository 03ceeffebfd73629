// Gates on one region, each with a registration of its own, in one process: what the sanitizers can watch.
#include "shared/scoped_gate.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include "adapters/shm/host.h"
#include "adapters/shm/region.h"
#include "adapters/shm/table.h"

namespace bulkhead::shm {
namespace {

using namespace std::chrono_literals;

struct Member {
  Member(const std::shared_ptr<Region>& first, std::uint32_t max_concurrent)
      : host({.shared = Region::adopt(first->fd())}),
        scoped({.name = "db", .max_concurrent = max_concurrent, .max_queue = 20}, Scope::host, host) {}
  Host host;
  shared::ScopedGate scoped;
};

TEST(ScopedGate, TheCapHoldsUnderThreadsTimeoutsCostsAndResizes) {
  constexpr std::uint32_t most = 6;
  const auto region = Region::make_private();
  std::vector<std::unique_ptr<Member>> members;
  for (int i = 0; i < 3; ++i) members.push_back(std::make_unique<Member>(region, most));
  std::atomic<std::uint32_t> inside{0}, worst{0};
  std::atomic<std::uint64_t> admitted{0};
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 9; ++t)
    threads.emplace_back([&, t] {
      Gate& gate = members[t % 3]->scoped.gate();
      std::minstd_rand random(t + 1);
      for (int i = 0; i < 400; ++i) {
        const std::uint32_t cost = 1 + random() % 3;
        auto permit = gate.acquire({.priority = static_cast<Priority>(random() % 3),
                                    .cost = cost,
                                    .timeout = std::chrono::microseconds(random() % 2000)});
        if (!permit) continue;
        const std::uint32_t now = inside.fetch_add(cost) + cost;
        for (std::uint32_t seen = worst.load(); seen < now && !worst.compare_exchange_weak(seen, now);) {
        }
        ++admitted;
        if (random() % 4 == 0) std::this_thread::yield();
        if (random() % 2 == 0) {
          const std::uint32_t to = random() % (cost + 1);
          inside.fetch_sub(cost - to);  // before the units are back
          permit->settle(to);
        }
        if (random() % 2 == 0 && permit->try_grow(1)) {
          const std::uint32_t grown = inside.fetch_add(1) + 1;
          for (std::uint32_t seen = worst.load();
               seen < grown && !worst.compare_exchange_weak(seen, grown);) {
          }
        }
        inside.fetch_sub(permit->cost());
      }
    });
  std::thread resizer([&] {
    for (std::uint32_t i = 0; !stop.load(); ++i) {
      members[i % 3]->scoped.gate().resize(3 + i % 4);
      std::this_thread::sleep_for(100us);
    }
  });
  for (auto& t : threads) t.join();
  stop = true;
  resizer.join();
  EXPECT_LE(worst.load(), most);
  EXPECT_GT(admitted.load(), 100u);
  for (auto& m : members) {
    EXPECT_EQ(m->scoped.gate().snapshot().in_flight, 0u);
    EXPECT_EQ(m->scoped.gate().snapshot().waiting, 0u);
  }
  EXPECT_EQ(Table(region->limit("db"), region->token()).held(kUnits), 0u);
}

TEST(ScopedGate, SettledUnitsServeAWaiterOfAnotherGateAndGrowthTakesFromTheHost) {
  const auto region = Region::make_private();
  Member a(region, 10), b(region, 10);
  Table table(region->limit("db"), region->token());
  Permit permit = *a.scoped.gate().acquire({.cost = 9});
  EXPECT_FALSE(permit.try_grow(2));
  EXPECT_TRUE(permit.try_grow(1));
  EXPECT_EQ(table.held(kUnits), 10u);
  EXPECT_EQ(a.scoped.gate().snapshot().permits, 1u);
  std::atomic<bool> admitted{false};
  std::thread waiter([&] {
    const auto other = b.scoped.gate().acquire({.cost = 4, .timeout = 20s});
    EXPECT_TRUE(other);
    admitted = true;
  });
  while (b.scoped.gate().snapshot().waiting == 0) std::this_thread::yield();
  EXPECT_TRUE(permit.settle(7));
  EXPECT_FALSE(admitted);
  EXPECT_TRUE(permit.settle(6));
  waiter.join();
  EXPECT_EQ(table.held(kUnits), 6u);
  EXPECT_TRUE(permit.settle(0));
  EXPECT_EQ(table.held(kUnits), 0u);
  EXPECT_EQ(a.scoped.gate().snapshot().permits, 1u);
  EXPECT_TRUE(permit.try_grow(10));
  EXPECT_EQ(table.held(kUnits), 10u);
  permit.release();
  EXPECT_EQ(table.held(kUnits), 0u);
  EXPECT_TRUE(a.scoped.gate().drain(a.scoped.gate().clock().now()));
}

TEST(ScopedGate, AWaiterOfOneGateIsServedByAReleaseOfAnother) {
  const auto region = Region::make_private();
  Member a(region, 1), b(region, 1);
  for (int i = 0; i < 50; ++i) {
    auto first = a.scoped.gate().acquire({});
    ASSERT_TRUE(first);
    std::thread waiter([&] { EXPECT_TRUE(b.scoped.gate().acquire({.timeout = 20s})); });
    while (b.scoped.gate().snapshot().waiting == 0) std::this_thread::yield();
    first->release();
    waiter.join();
  }
}

TEST(ScopedGate, ClosingRejectsItsLineAndLeavesTheOthersAlone) {
  const auto region = Region::make_private();
  Member a(region, 1);
  auto held = a.scoped.gate().acquire({});
  ASSERT_TRUE(held);
  {
    Member b(region, 1);
    std::thread waiter([&] {
      const auto permit = b.scoped.gate().acquire({.timeout = 20s});
      ASSERT_FALSE(permit);
      EXPECT_EQ(permit.error().reason, Reason::shutdown);
    });
    while (b.scoped.gate().snapshot().waiting == 0) std::this_thread::yield();
    b.scoped.gate().close();
    waiter.join();
  }
  held->release();
  EXPECT_TRUE(a.scoped.gate().try_acquire());
}

TEST(ScopedGate, HooksSeeTheLimitOfTheHost) {
  const auto region = Region::make_private();
  Host host({.shared = region});
  std::vector<std::uint32_t> limits;
  shared::ScopedGate scoped(
      {.name = "db",
       .max_concurrent = 3,
       .hooks = {.on_admit = [&](const Event& e) { limits.push_back(e.max_concurrent); },
                 .on_resize = [&](const Event& e) { limits.push_back(e.max_concurrent); },
                 .on_reject = [&](const Event& e, Reason) { limits.push_back(e.max_concurrent); }}},
      Scope::host, host);
  auto permit = scoped.gate().try_acquire({});
  scoped.gate().resize(1);
  EXPECT_FALSE(scoped.gate().try_acquire({}));
  EXPECT_THAT(limits, testing::ElementsAre(3, 1, 1));
}

}  // namespace
}  // namespace bulkhead::shm
