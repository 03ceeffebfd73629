// Resource pools under everything at once: callers of every kind, things that break and must be cleaned,
// a factory that comes and goes, resizes, short lives. Never more alive than the largest limit in force,
// never two holders of one thing, every call gets one answer, and in the end everything is closed.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <thread>
#include <utility>

#include "bulkhead/group.h"
#include "bulkhead/resource_pool.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

struct Tally {
  std::atomic<std::uint32_t> alive{0};
  std::atomic<std::uint64_t> asked{0}, answered{0}, leases{0}, failing{0}, too_many{0}, shared{0},
      used_after_close{0};
  std::atomic<bool> down{false};
};

class Thing {
 public:
  Thing(Tally& tally, std::uint32_t most) : state_(std::make_unique<State>()), tally_(&tally) {
    if (tally.alive.fetch_add(1) + 1 > most) ++tally.too_many;
  }
  void use(Dice& dice) {
    if (state_->users.fetch_add(1) != 0) ++tally_->shared;
    if (state_->closed) ++tally_->used_after_close;
    linger(dice);
    state_->users.fetch_sub(1);
  }
  void close() {
    if (state_->users != 0 || state_->closed.exchange(true)) ++tally_->shared;
    tally_->alive.fetch_sub(1);
  }
  bool dirty = false;

 private:
  struct State {
    std::atomic<std::uint32_t> users{0};
    std::atomic<bool> closed{false};
  };
  std::unique_ptr<State> state_;
  Tally* tally_;
};

ResourceOptions<Thing> options(Tally& tally, std::uint32_t max, std::uint32_t most) {
  return {.name = "stress",
          .max = max,
          .min_idle = 1,
          .open = [&tally, most](const Opening&) -> Result<Thing, std::string> {
            if (tally.down) return Unexpected("down");
            return Thing(tally, most);
          },
          .validate = [](Thing&) { return true; },
          .dirty = [](Thing& thing) { return thing.dirty; },
          .reset = [](Thing& thing) { return !(thing.dirty = false); },
          .dispose = [](Thing& thing) { thing.close(); },
          .validate_after = microseconds(20),
          .keepalive = milliseconds(1),
          .idle_timeout = milliseconds(2),
          .max_lifetime = milliseconds(5),
          .lifetime_jitter = 0.5,
          .backoff = {.initial = microseconds(200), .max = milliseconds(1)},
          .gate = {.max_queue = 8},
          .histograms = true};
}

void use(Tally& tally, ResourceResult<Thing> lease, Dice& dice) {
  ++tally.answered;
  if (!lease) {
    if (lease.error().failed()) ++tally.failing;
    return;
  }
  ++tally.leases;
  (*lease)->use(dice);
  if (dice.one_in(8)) lease->mark_broken();
  if (dice.one_in(8)) (*lease)->dirty = true;
}

Detached co_use(ResourcePool<Thing>& pool, Tally& tally, std::uint32_t seed) {
  Dice dice(seed);
  use(tally, co_await pool.co_acquire({.timeout = milliseconds(20)}), dice);
}

void call(ResourcePool<Thing>& pool, Tally& tally, Dice& dice) {
  ++tally.asked;
  switch (dice.below(5)) {
    case 0:
      return use(tally, pool.try_acquire(), dice);
    case 1:
      return use(tally, pool.acquire({.timeout = microseconds(50)}), dice);
    case 2:
      return use(tally, pool.acquire({.timeout = std::chrono::seconds(10)}), dice);
    case 3:
      co_use(pool, tally, dice.below(1'000'000));
      return;
    default: {
      PendingLease pending = pool.async_acquire({.timeout = milliseconds(20)},
                                                [&tally, seed = dice.below(1'000'000)](auto lease) {
                                                  Dice own(seed);
                                                  use(tally, std::move(lease), own);
                                                });
      if (dice.one_in(4)) pending.cancel();
      if (dice.one_in(4) && pending.abandon()) ++tally.answered;  // by nobody
    }
  }
}

void expect_right(const Tally& tally) {
  EXPECT_EQ(tally.asked, tally.answered);
  EXPECT_EQ(tally.too_many, 0u);
  EXPECT_EQ(tally.shared, 0u);
  EXPECT_EQ(tally.used_after_close, 0u);
  EXPECT_EQ(tally.alive, 0u);
  EXPECT_GT(tally.leases, 0u);
}

TEST(ResourceStress, NeverMoreAliveThanAllowedAndNeverTwoHoldersOfOneThing) {
  const auto end = end_of_test(2);
  Tally tally;
  {
    ResourcePool<Thing> pool(options(tally, 4, 6));
    Threads threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.add([&, t] {
        Dice dice(t);
        while (steady_clock::now() < end) call(pool, tally, dice);
      });
    threads.add([&] {
      Dice dice(99);
      while (steady_clock::now() < end) {
        pool.resize(1 + dice.below(6));
        tally.down = dice.one_in(4);
        const ResourceSnapshot s = pool.snapshot();
        EXPECT_EQ(s.alive, s.used + s.idle + s.opening + s.cleaning + s.closing);
        std::this_thread::sleep_for(microseconds(300));
      }
    });
  }
  expect_right(tally);
}

TEST(ResourceStress, PoolsOnOneBudgetNeverExceedItAndNobodyStarves) {
  const auto end = end_of_test(2);
  Tally tally;
  {
    Group group{{.name = "db",
                 .total = 4,
                 .members = {{.name = "a", .guaranteed = {.units = 2}, .gate = {.max_queue = 8}},
                             {.name = "b", .guaranteed = {.units = 1}, .gate = {.max_queue = 8}}}}};
    ResourceBudget budget(4);
    auto o = options(tally, 4, 4);
    o.budget = &budget;
    o.on = &group.member("a");
    ResourcePool<Thing> a(o);
    o.on = &group.member("b");
    ResourcePool<Thing> b(o);
    Threads threads;
    for (std::uint32_t t = 0; t < 4; ++t)
      threads.add([&, t] {
        Dice dice(t);
        while (steady_clock::now() < end) call(t % 2 ? a : b, tally, dice);
      });
    threads.join();
    EXPECT_LE(budget.most_alive(), 4u);
    EXPECT_GT(a.snapshot().gate.succeeded, 0u);
    EXPECT_GT(b.snapshot().gate.succeeded, 0u);
  }
  expect_right(tally);
}

TEST(ResourceStress, APoolEndsUnderTraffic) {
  const auto end = end_of_test(1);
  Tally tally;
  for (std::uint32_t round = 0; steady_clock::now() < end; ++round) {
    auto pool = std::make_unique<ResourcePool<Thing>>(options(tally, 3, 3));
    Threads threads;
    std::atomic<bool> closed{false};
    for (std::uint32_t t = 0; t < 2; ++t)
      threads.add([&, t] {
        Dice dice(round * 2 + t);
        while (!closed) call(*pool, tally, dice);
      });
    std::this_thread::sleep_for(microseconds(200 * (round % 5)));
    pool->close();
    closed = true;
    threads.join();
    pool.reset();
  }
  expect_right(tally);
}

}  // namespace
}  // namespace bulkhead::stress
