// What a pool does while its factory, its validation or its neighbours are slow: nobody waits longer than its limit, nobody
// starves beside room, and no more is opened than is needed. The factories block until the test lets them go.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/resource_pool.h"
#include "tests/support/sync_points.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;

// Something slow that a test can hold up. A broken build is held up for five seconds, not for ever.
class Obstacle {
 public:
  explicit Obstacle(bool open = false) : open_(open) {}
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    if (!changed_.wait_for(lock, 5s, [&] { return open_; })) timed_out_ = true;
    ++passed_;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    open_ = false;
  }
  int arrived() {
    const std::lock_guard lock(mutex_);
    return arrived_;
  }
  int passed() {
    const std::lock_guard lock(mutex_);
    return passed_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int arrived_ = 0, passed_ = 0;
  bool open_, timed_out_ = false;
};

struct Resource {
  int id = 0;
};

struct World {
  Obstacle opening{true}, validating{true}, closing{true};
  std::atomic<int> made{0}, validated{0}, closed{0};
  std::atomic<bool> down{false}, good{true};

  ResourceOptions<Resource> options(std::uint32_t max) {
    return {.name = "db",
            .max = max,
            .open = [this](const Opening&) -> Result<Resource, std::string> {
              opening.pass();
              if (down) return Unexpected("connection refused");
              return Resource{++made};
            },
            .dispose =
                [this](Resource&) {
                  closing.pass();
                  ++closed;
                },
            .lifetime_jitter = 0,
            .backoff = {.initial = 100ms, .max = 1s, .jitter = 0}};
  }
  ResourceOptions<Resource> validating_options(std::uint32_t max) {
    auto o = options(max);
    o.validate = [this](Resource&) {
      validating.pass();
      ++validated;
      return good.load();
    };
    return o;
  }
};

Reason reason_of(const ResourceResult<Resource>& result) {
  return !result && result.error().rejection ? result.error().rejection->reason : Reason::shutdown;
}

// ---- no longer than its limit ----

TEST(ResourceLimits, ACallThatDoesNotWaitIsNotHeldUpByTheFactory) {
  World world;
  world.opening.shut();
  ResourcePool<Resource> pool(world.options(1));
  EXPECT_EQ(reason_of(pool.acquire({.timeout = 0ms})), Reason::timeout);
  EXPECT_EQ(world.opening.passed(), 0) << "it returned before the factory did";
  world.opening.open();
  until([&] { return pool.snapshot().idle == 1; });
  EXPECT_TRUE(pool.acquire({.timeout = 0ms})) << "what was opened too late for one is for the next";
  EXPECT_EQ(world.made, 1);
}

TEST(ResourceLimits, ACallWithTimeForAWholeConnectTimeoutIsNotHeldUpByAFactoryThatIgnoresIt) {
  World world;
  world.opening.shut();
  auto options = world.options(1);
  options.connect_timeout = 10ms;
  ResourcePool<Resource> pool(std::move(options));
  EXPECT_EQ(reason_of(pool.acquire({.timeout = 20ms})), Reason::timeout);
  EXPECT_EQ(world.opening.passed(), 0);
  EXPECT_EQ(reason_of(pool.acquire({.deadline = std::chrono::steady_clock::now() + 20ms})), Reason::timeout);
  EXPECT_EQ(world.opening.passed(), 0);
  world.opening.open();
}

TEST(ResourceLimits, ACancelledCallIsNotHeldUpByTheFactory) {
  World world;
  world.opening.shut();
  ResourcePool<Resource> pool(world.options(1));
  std::stop_source stop;
  std::jthread canceller([&] {
    until([&] { return world.opening.arrived() == 1; });
    stop.request_stop();
  });
  EXPECT_EQ(reason_of(pool.acquire({.stop = stop.get_token()})), Reason::cancelled);
  EXPECT_EQ(world.opening.passed(), 0);
  world.opening.open();
}

TEST(ResourceLimits, ACallIsNotHeldUpByAValidation) {
  World world;
  auto options = world.validating_options(1);
  options.validate_after = 0ns;
  ResourcePool<Resource> pool(std::move(options));
  (void)pool.acquire();
  world.validating.shut();
  EXPECT_EQ(reason_of(pool.acquire({.timeout = 20ms})), Reason::timeout);
  EXPECT_EQ(reason_of(pool.acquire({.timeout = 0ms})), Reason::timeout);
  EXPECT_EQ(world.validating.passed(), 0);
  world.validating.open();
  EXPECT_EQ((*pool.acquire({.timeout = 10s}))->id, 1);
}

TEST(ResourceLimits, ACallIsNotHeldUpByTheClosingOfANeighboursResource) {
  World world;
  ResourceBudget budget(1);
  auto options = world.options(1);
  options.budget = &budget;
  ResourcePool<Resource> a(options), b(options);
  (void)a.acquire();
  world.closing.shut();
  EXPECT_EQ(reason_of(b.acquire({.timeout = 20ms})), Reason::timeout);
  EXPECT_EQ(world.closing.passed(), 0);
  world.closing.open();
  EXPECT_TRUE(b.acquire({.timeout = 10s}));
  EXPECT_EQ(budget.most_alive(), 1u);
}

TEST(ResourceLimits, AHandlerIsCalledWhenItsTimeIsUpAlthoughTheFactoryHangs) {
  World world;
  world.opening.shut();
  ManualClock clock;
  auto options = world.options(1);
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  std::atomic<int> told{-1};
  pool.async_acquire({.timeout = 1s},
                     [&](ResourceResult<Resource> lease) { told = static_cast<int>(reason_of(lease)); });
  until([&] { return world.opening.arrived() == 1; });
  EXPECT_EQ(told, -1);
  clock.advance(1s);
  until([&] { return told != -1; });
  EXPECT_EQ(told, static_cast<int>(Reason::timeout));
  EXPECT_EQ(world.opening.passed(), 0);
  world.opening.open();
}

// ---- what was broken, and what is suspect ----

TEST(ResourceLimits, TryAcquireLendsTheNeighboursOfABrokenResource) {
  World world;
  ResourcePool<Resource> pool(world.options(2));
  auto a = pool.acquire(), b = pool.acquire();
  b->release();
  a->mark_broken();
  a->release();
  EXPECT_TRUE(pool.try_acquire()) << "without `validate` nobody could ever say that it is good";
}

TEST(ResourceLimits, TryAcquireHasAStaleResourceValidatedForTheNextCall) {
  World world;
  ManualClock clock;
  auto options = world.validating_options(1);
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  (void)pool.acquire();
  clock.advance(1s);
  EXPECT_EQ(reason_of(pool.try_acquire()), Reason::timeout);
  until([&] { return pool.try_acquire().has_value(); });
  EXPECT_EQ(world.validated, 1);
  EXPECT_EQ(world.made, 1);
}

// ---- a shared budget ----

TEST(ResourceLimits, AResourceThatBecomesIdleIsClosedForANeighbourThatWaits) {
  World world;
  ResourceBudget budget(1);
  auto options = world.options(1);
  options.budget = &budget;
  ResourcePool<Resource> a(options), b(options);
  auto held = a.acquire();
  std::atomic<bool> got{false};
  std::jthread waiting([&] { got = b.acquire({.timeout = 5s}).has_value(); });
  until([&] { return b.snapshot().gate.in_flight == 1; });
  std::this_thread::sleep_for(20ms);  // so that it has looked at its neighbour; right without it, too
  held->release();
  waiting.join();
  EXPECT_TRUE(got);
  EXPECT_EQ(budget.most_alive(), 1u);
}

TEST(ResourceLimits, TryAcquireHasANeighboursIdleResourceClosedForTheNextCall) {
  World world;
  ResourceBudget budget(1);
  auto options = world.options(1);
  options.budget = &budget;
  ResourcePool<Resource> a(options), b(options);
  (void)a.acquire();
  until([&] { return b.try_acquire().has_value(); });
  EXPECT_EQ(budget.most_alive(), 1u);
}

// ---- no more than is needed, and no less ----

TEST(ResourceLimits, ConcurrentMaintenanceOpensNoMoreThanMinIdle) {
  for (int round = 0; round < 20; ++round) {
    World world;
    auto options = world.options(200);
    options.min_idle = 20;
    ResourcePool<Resource> pool(std::move(options));
    {
      std::vector<std::jthread> threads;
      for (int i = 0; i < 4; ++i)
        threads.emplace_back([&] {
          for (int n = 0; n < 5; ++n) pool.maintain(std::chrono::steady_clock::now());
        });
    }
    until([&] { return pool.snapshot().idle >= 20 && pool.snapshot().opening == 0; });
    ASSERT_EQ(world.made, 20) << "in round " << round;
  }
}

TEST(ResourceLimits, MinIdleIsRefilledAfterACallersOpeningFailed) {
  World world;
  ManualClock clock;
  auto options = world.options(2);
  options.min_idle = 1;
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 1; });
  world.opening.shut();
  world.down = true;
  auto first = pool.acquire();
  std::jthread release([&] {
    until([&] { return world.opening.arrived() == 2; });
    std::this_thread::sleep_for(
        20ms);  // so that maintenance sees the opening of the call; right without it, too
    world.opening.open();
  });
  EXPECT_FALSE(pool.acquire({.timeout = 10s}));
  release.join();
  until([&] { return pool.snapshot().opening == 0; });
  world.down = false;
  for (int i = 0; i < 100 && pool.snapshot().idle == 0; ++i) {
    clock.advance(1s);
    for (int n = 0; n < 1000 && pool.snapshot().idle == 0; ++n) std::this_thread::yield();
  }
  EXPECT_EQ(pool.snapshot().idle, 1u);
}

// In steps, because an alarm that is set for a time that has passed meanwhile fires with the next step.
void five_seconds_until_idle(std::uint32_t resources, ResourcePool<Resource>& pool, ManualClock& clock) {
  for (int i = 0; i < 50 && pool.snapshot().idle < resources; ++i) {
    clock.advance(100ms);
    for (int n = 0; n < 1000 && pool.snapshot().idle < resources; ++n) std::this_thread::yield();
  }
}

// After a failure one opening tries whether the factory is well again; the others follow at once, not with the next look at
// what is idle, which is 30 s later.
TEST(ResourceLimits, MinIdleIsRefilledOnceTheFactoryIsWellAgain) {
  World world;
  ManualClock clock;
  auto options = world.options(4);
  options.min_idle = 4;
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 4; });
  {
    std::array<ResourceResult<Resource>, 3> broken{pool.acquire(), pool.acquire(), pool.acquire()};
    world.down = true;
    for (auto& lease : broken) (*lease).mark_broken();
  }
  until([&] { return pool.snapshot().failures > 0; });
  world.down = false;
  five_seconds_until_idle(4, pool, clock);
  EXPECT_EQ(pool.snapshot().idle, 4u);
}

TEST(ResourceLimits, MinIdleIsRefilledAfterAClaimIsGivenUp) {
  World world;
  ManualClock clock;
  auto options = world.options(1);
  options.min_idle = 1;
  options.gate.max_queue = 1;
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 1; });
  auto lease = pool.acquire();
  std::optional<Claim<Resource>> claim;
  std::atomic<bool> claimed{false};
  pool.async_claim({}, [&](Result<Claim<Resource>, ResourceError> c) {
    claim.emplace(*std::move(c));
    claimed = true;
  });
  world.closing.shut();  // until the claim is next
  lease->mark_broken();
  lease->release();
  until([&] { return world.closing.arrived() == 1 && pool.snapshot().gate.waiting == 0; });
  world.closing.open();
  until([&] { return claimed.load(); });
  EXPECT_TRUE(claim->vacant());
  pool.maintain(clock.now());  // has looked, and there is no room
  claim.reset();
  until([&] { return pool.snapshot().idle == 1; });
}

// A look that took its time sets the alarm last: it must not undo what a newer look has set.
TEST(ResourceLimits, AnOlderLookAtThePoolDoesNotPutOffTheNextAttempt) {
  tests::SyncPoints points;
  World world;
  ManualClock clock;
  auto options = world.options(1);
  options.min_idle = 1;
  options.clock = &clock;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 1; });
  points.hold("older", "resource.watch");
  std::jthread older([&] {
    const tests::SyncPoints::Name name("older");
    pool.maintain(clock.now());
  });
  points.until_held("older");
  auto lease = pool.acquire();
  world.down = true;
  lease->mark_broken();
  lease->release();
  until([&] { return pool.snapshot().failures == 1 && pool.snapshot().alive == 0; });
  pool.maintain(clock.now());  // sets the alarm of the next attempt
  points.let_go("older");
  older.join();
  world.down = false;
  five_seconds_until_idle(1, pool, clock);
  EXPECT_EQ(pool.snapshot().idle, 1u);
}

TEST(ResourceLimits, MinIdleIsRefilledWhenANeighbourGivesAUnitOfTheBudgetBack) {
  World world;
  ResourceBudget budget(2);
  auto options = world.options(2);
  options.budget = &budget;
  ResourcePool<Resource> a(options);
  auto first = a.acquire(), second = a.acquire();
  options.min_idle = 1;
  ResourcePool<Resource> b(options), c(options);
  EXPECT_EQ(b.maintain(std::chrono::steady_clock::now()), no_deadline);  // and has looked
  EXPECT_EQ(c.maintain(std::chrono::steady_clock::now()), no_deadline);
  first->mark_broken();
  first->release();
  until([&] { return b.snapshot().idle + c.snapshot().idle == 1; });
  second->mark_broken();
  second->release();
  until([&] { return b.snapshot().idle == 1 && c.snapshot().idle == 1; });
  EXPECT_EQ(budget.most_alive(), 2u);
}

TEST(ResourceLimits, AnOpeningThatItsCallerNoLongerNeedsIsForTheNextCaller) {
  World world;
  ResourcePool<Resource> pool(world.options(10));
  auto first = pool.acquire();
  world.opening.shut();
  std::jthread a([&] { EXPECT_EQ((*pool.acquire({.timeout = 4s}))->id, 1); });
  until([&] { return world.opening.arrived() == 2; });
  first->release();
  a.join();
  auto again = pool.acquire();
  std::jthread b([&] { EXPECT_EQ((*pool.acquire({.timeout = 4s}))->id, 2); });
  until([&] { return pool.snapshot().gate.in_flight == 2; });
  std::this_thread::sleep_for(20ms);  // so that it would have begun another one; right without it, too
  EXPECT_EQ(world.opening.arrived(), 2);
  world.opening.open();
  b.join();
  EXPECT_EQ(pool.snapshot().most_alive, 2u);
}

TEST(ResourceLimits, EveryCallerIsServedWhenThereIsRoomForAll) {
  constexpr int kCallers = 24;
  for (int round = 0; round < 20; ++round) {
    World world;
    ResourcePool<Resource> pool(world.options(kCallers));
    std::array<Lease<Resource>, kCallers> kept;
    std::atomic<int> rejected{0};
    {
      std::vector<std::jthread> callers;
      for (int i = 0; i < kCallers; ++i)
        callers.emplace_back([&, i] {
          auto lease = pool.acquire({.timeout = 2s});
          if (lease)
            kept[static_cast<std::size_t>(i)] = *std::move(lease);
          else
            ++rejected;
        });
    }
    ASSERT_EQ(rejected, 0) << "in round " << round;
    EXPECT_EQ(pool.snapshot().most_alive, static_cast<std::uint32_t>(kCallers));
  }
}

// ---- keepalive ----

TEST(ResourceKeepalive, AnIdleResourceIsValidatedAndStaysWhereItWas) {
  World world;
  ManualClock clock;
  auto options = world.validating_options(3);
  options.clock = &clock;
  options.maintenance = Maintenance::by_hand;
  options.keepalive = 10s;
  options.idle_timeout = 60s;
  ResourcePool<Resource> pool(std::move(options));
  {
    auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire();
    a->release();
    b->release();
    c->release();
  }
  clock.advance(10s - 1ns);
  EXPECT_EQ(pool.maintain(clock.now()), clock.now() + 1ns);
  EXPECT_EQ(world.validated, 0);
  clock.advance(1ns);
  pool.maintain(clock.now());
  EXPECT_EQ(world.validated, 3);
  EXPECT_EQ((*pool.try_acquire())->id, 3) << "the last returned is lent first, as before";
  for (int i = 0; i < 5; ++i) {
    clock.advance(10s);
    pool.maintain(clock.now());
  }
  EXPECT_EQ(pool.snapshot().idled_out, 2u) << "a validation is no use";
}

TEST(ResourceKeepalive, OneThatFailsIsReplacedUpToMinIdle) {
  World world;
  ManualClock clock;
  auto options = world.validating_options(4);
  options.clock = &clock;
  options.maintenance = Maintenance::by_hand;
  options.keepalive = 10s;
  options.min_idle = 2;
  ResourcePool<Resource> pool(std::move(options));
  pool.maintain(clock.now());
  EXPECT_EQ(world.made, 2);
  world.good = false;
  clock.advance(10s);
  pool.maintain(clock.now());
  EXPECT_EQ(pool.snapshot().invalid, 2u);
  EXPECT_EQ(pool.snapshot().idle, 2u);
  EXPECT_EQ(world.made, 4);
  EXPECT_EQ(world.closed, 2);
}

TEST(ResourceKeepalive, HelpersValidateAFewAtATimeAndCallersDoNotWaitForThem) {
  World world;
  ManualClock clock;
  auto options = world.validating_options(4);
  options.clock = &clock;
  options.keepalive = 10s;
  options.validate_after = 1h;
  options.min_idle = 3;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 3; });
  world.validating.shut();
  clock.advance(13s);
  // A helper may set its alarm while the clock moves, and an alarm that is due rings with the next advance.
  until([&] { return clock.advance(0s), world.validating.arrived() == 1; });
  EXPECT_EQ(pool.snapshot().idle, 3u);
  auto a = pool.acquire({.timeout = 0s}), b = pool.acquire({.timeout = 0s});
  EXPECT_TRUE(a && b);
  auto c = pool.acquire({.timeout = 4s});
  ASSERT_TRUE(c) << "a fourth one is opened meanwhile";
  EXPECT_EQ(world.validating.passed(), 0);
  EXPECT_EQ(world.made, 4);
  world.validating.open();
  until([&] { return pool.try_acquire().has_value(); });
}

TEST(ResourceKeepalive, EveryIdleResourceHasItsTurn) {
  World world;
  ManualClock clock;
  auto options = world.validating_options(20);
  options.clock = &clock;
  options.keepalive = 10s;
  options.min_idle = 20;
  ResourcePool<Resource> pool(std::move(options));
  until([&] { return pool.snapshot().idle == 20; });
  clock.advance(13s);
  until([&] { return clock.advance(0s), world.validated == 20 && pool.snapshot().idle == 20; });  // as above
  EXPECT_EQ(world.made, 20);
}

TEST(ResourceKeepalive, NeedsAValidation) {
  World world;
  auto options = world.options(1);
  options.keepalive = 1s;
  try {
    ResourcePool<Resource> pool(std::move(options));
    FAIL();
  } catch (const std::invalid_argument& e) {
    EXPECT_EQ(std::string(e.what()),
              "bulkhead \"db\": keepalive needs `validate`: give the function that says whether a resource "
              "is still good");
  }
}

// ---- an empty lease ----

TEST(ResourceLimits, AReleasedLeaseCanBeMarkedAndFailedWithoutEffect) {
  World world;
  ResourcePool<Resource> pool(world.options(1));
  auto lease = pool.acquire();
  lease->release();
  lease->mark_broken();
  lease->fail();
  EXPECT_EQ(lease->get(), nullptr);
  EXPECT_FALSE(lease->release());
  EXPECT_TRUE(pool.try_acquire());
}

}  // namespace
}  // namespace bulkhead
