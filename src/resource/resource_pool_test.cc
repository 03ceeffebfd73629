// A pool of numbered things on virtual time: what is lent, what is closed, what callers are told.
#include "bulkhead/resource_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

struct Thing {
  int id = 0;
};

// Makes things, and remembers what became of them. May be used from several threads.
struct World {
  ManualClock clock;
  std::atomic<int> made{0}, closed{0}, validated{0}, reset{0}, alive{0}, most{0};
  std::atomic<bool> down{false}, good{true}, resets{true}, throws{false};
  std::atomic<int> last_closed{0};
  std::mutex mutex;
  Opening told;  // under the mutex, while others may open

  ResourceOptions<Thing> options(std::uint32_t max) {
    return {.name = "db",
            .max = max,
            .open = [this](const Opening& o) -> Result<Thing, std::string> {
              {
                const std::lock_guard lock(mutex);
                told = o;
              }
              if (throws) throw std::runtime_error("no route to host");
              if (down) return Unexpected("connection refused");
              most = std::max(most.load(), ++alive);
              return Thing{++made};
            },
            .dispose =
                [this](Thing& thing) {
                  last_closed = thing.id;
                  ++closed;
                  --alive;
                },
            .lifetime_jitter = 0,
            .backoff = {.initial = 100ms, .max = 1s, .jitter = 0},
            .maintenance = Maintenance::by_hand,
            .clock = &clock};
  }
  ResourceOptions<Thing> validating(std::uint32_t max) {
    auto o = options(max);
    o.validate = [this](Thing&) {
      ++validated;
      return good.load();
    };
    return o;
  }
};

TEST(ResourcePool, TheThingReturnedLastIsLentFirst) {
  World world;
  ResourcePool<Thing> pool(world.options(3));
  auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire();
  EXPECT_EQ((*a)->id, 1);
  EXPECT_EQ((*c)->id, 3);
  a->release();
  c->release();
  EXPECT_EQ((*pool.acquire())->id, 3);
  EXPECT_EQ(world.made, 3);
}

TEST(ResourcePool, AFullPoolRejectsLikeItsGate) {
  World world;
  ResourcePool<Thing> pool(world.options(1));
  const auto held = pool.acquire();
  const auto rejected = pool.acquire();
  ASSERT_FALSE(rejected);
  EXPECT_FALSE(rejected.error().failed());
  EXPECT_EQ(rejected.error().rejection->reason, Reason::concurrency_limit);
  EXPECT_EQ(rejected.error().message(),
            R"(bulkhead "db" rejected (concurrency_limit): 1/1 running, 0/0 waiting)");
}

TEST(ResourcePool, AFailingFactoryIsNotAFullPool) {
  World world;
  world.down = true;
  ResourcePool<Thing> pool(world.options(2));
  const auto first = pool.acquire();
  ASSERT_FALSE(first);
  EXPECT_TRUE(first.error().failed());
  EXPECT_EQ(first.error().message(),
            R"(bulkhead "db" cannot open: connection refused (1 failure), next try in 100 ms)");
  world.down = false;
  EXPECT_TRUE(pool.acquire().error().failed()) << "the factory is left alone for a while";
  EXPECT_EQ(world.made, 0);
  world.clock.advance(100ms);
  EXPECT_TRUE(pool.acquire());
  EXPECT_EQ(pool.snapshot().failures, 0u);
  EXPECT_EQ(pool.snapshot().failing_calls, 2u);
  EXPECT_EQ(pool.snapshot().gate.rejected(), 0u);
}

TEST(ResourcePool, TheBackoffDoublesUpToItsMaximum) {
  World world;
  world.throws = true;
  ResourcePool<Thing> pool(world.options(2));
  for (const auto wait : {100ms, 200ms, 400ms, 800ms, 1000ms, 1000ms}) {
    const auto failed = pool.acquire();
    ASSERT_FALSE(failed);
    EXPECT_EQ(failed.error().failure, "no route to host");
    EXPECT_EQ(failed.error().retry_after, wait);
    world.clock.advance(wait);
  }
  EXPECT_EQ(pool.snapshot().open_failures, 6u);
}

TEST(ResourcePool, IdleThingsAreLentWhileTheFactoryFails) {
  World world;
  ResourcePool<Thing> pool(world.options(2));
  auto a = pool.acquire();
  world.down = true;
  EXPECT_FALSE(pool.acquire());
  a->release();
  EXPECT_EQ((*pool.acquire())->id, 1);
}

TEST(ResourcePool, ABrokenThingIsReplacedAndItsNeighboursAreLookedAt) {
  World world;
  ResourcePool<Thing> pool(world.validating(3));
  auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire();
  a->release();
  b->release();
  c->mark_broken();
  c->release();
  EXPECT_EQ(world.closed, 0) << "giving back does not wait for the closing";
  EXPECT_EQ(pool.snapshot().closing, 1u);
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.last_closed, 3);
  const auto next = pool.acquire();
  EXPECT_EQ((*next)->id, 2);
  EXPECT_EQ(world.validated, 1) << "though it was idle for no time at all";
  EXPECT_EQ(pool.snapshot().broken, 1u);
}

TEST(ResourcePool, WhoNeedsTheSlotOfADoomedThingClosesIt) {
  World world;
  ResourcePool<Thing> pool(world.options(1));
  auto a = pool.acquire();
  a->mark_broken();
  a->release();
  const auto b = pool.acquire();
  EXPECT_EQ((*b)->id, 2);
  EXPECT_EQ(world.most, 1);
  EXPECT_EQ(pool.snapshot().most_alive, 1u);
}

TEST(ResourcePool, AnExpiredThingIsNeverLent) {
  World world;
  auto options = world.options(2);
  options.max_lifetime = 10s;
  ResourcePool<Thing> pool(std::move(options));
  (void)pool.acquire();
  world.clock.advance(10s - 1ns);
  EXPECT_EQ((*pool.acquire())->id, 1);
  world.clock.advance(1ns);
  EXPECT_EQ((*pool.acquire())->id, 2);
  EXPECT_EQ(pool.snapshot().expired, 1u);
}

TEST(ResourcePool, LifetimesDifferByTheJitter) {
  World world;
  auto options = world.options(50);
  options.max_lifetime = 100s;
  options.lifetime_jitter = 0.2;
  options.idle_timeout = wait_forever;
  ResourcePool<Thing> pool(std::move(options));
  {
    std::vector<ResourceResult<Thing>> all;
    for (int i = 0; i < 50; ++i) all.push_back(pool.acquire());
  }
  world.clock.advance(80s - 1ns);
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.closed, 0);
  world.clock.advance(10s);
  pool.maintain(world.clock.now());
  EXPECT_GT(world.closed, 10);
  EXPECT_LT(world.closed, 40);
  world.clock.advance(10s + 1ns);
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.closed, 50);
}

TEST(ResourcePool, AThingThatFailsItsValidationIsReplaced) {
  World world;
  ResourcePool<Thing> pool(world.validating(2));
  (void)pool.acquire();
  world.clock.advance(499ms);
  (void)pool.acquire();
  EXPECT_EQ(world.validated, 0);
  world.clock.advance(500ms);
  world.good = false;
  EXPECT_EQ((*pool.acquire())->id, 2);
  EXPECT_EQ(world.validated, 1);
  EXPECT_EQ(pool.snapshot().invalid, 1u);
}

TEST(ResourcePool, IdleThingsAboveMinIdleAreClosedAndThoseBelowAreOpenedAhead) {
  World world;
  auto options = world.options(5);
  options.min_idle = 2;
  options.idle_timeout = 60s;
  ResourcePool<Thing> pool(std::move(options));
  pool.maintain(world.clock.now());
  EXPECT_EQ(pool.snapshot().idle, 2u);
  {
    auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire(), d = pool.acquire();
    pool.maintain(world.clock.now());
    EXPECT_EQ(pool.snapshot().idle, 1u) << "max allows no more";
  }
  const TimePoint next = pool.maintain(world.clock.now());
  EXPECT_EQ(pool.snapshot().idle, 5u);
  EXPECT_LE(next, world.clock.now() + 60s);
  world.clock.advance(60s);
  pool.maintain(world.clock.now());
  EXPECT_EQ(pool.snapshot().idle, 2u);
  EXPECT_EQ(pool.snapshot().idled_out, 3u);
}

TEST(ResourcePool, ADirtyThingIsCleanedBeforeItIsLentAgainAndItsPlaceIsHeldMeanwhile) {
  World world;
  auto options = world.options(1);
  bool dirty = false;
  options.dirty = [&](Thing&) { return dirty; };
  options.reset = [&](Thing&) {
    ++world.reset;
    return world.resets.load();
  };
  ResourcePool<Thing> pool(std::move(options));
  (void)pool.acquire();
  EXPECT_EQ(world.reset, 0);
  dirty = true;
  (void)pool.acquire();
  EXPECT_EQ(pool.snapshot().cleaning, 1u);
  EXPECT_FALSE(pool.acquire());
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.reset, 1);
  world.resets = false;
  (void)pool.acquire();
  pool.maintain(world.clock.now());
  EXPECT_EQ((*pool.acquire())->id, 2) << "what cannot be cleaned is closed";
}

TEST(ResourcePool, ShrinkingClosesIdleThingsFirstAndBorrowedOnesWhenTheyReturn) {
  World world;
  ResourcePool<Thing> pool(world.options(4));
  auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire(), d = pool.acquire();
  c->release();
  d->release();
  pool.resize(1);
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.closed, 2);
  a->release();
  pool.maintain(world.clock.now());
  EXPECT_EQ(world.closed, 3);
  EXPECT_EQ(pool.snapshot().surplus, 3u);
  b->release();
  EXPECT_EQ((*pool.acquire())->id, 2);
  pool.resize(2);
  auto e = pool.acquire(), f = pool.acquire();
  EXPECT_TRUE(e && f);
  EXPECT_EQ(pool.snapshot().max, 2u);
}

TEST(ResourcePool, AFactoryIsToldItsDeadlineAndThatThePoolCloses) {
  World world;
  auto options = world.options(1);
  options.connect_timeout = 3s;
  ResourcePool<Thing> pool(std::move(options));
  (void)pool.acquire();
  EXPECT_EQ(world.told.deadline, world.clock.now() + 3s);
  EXPECT_FALSE(world.told.stop.stop_requested());
  pool.close();
  EXPECT_TRUE(world.told.stop.stop_requested());
  EXPECT_EQ(pool.acquire().error().rejection->reason, Reason::shutdown);
  pool.maintain(world.clock.now());
  EXPECT_EQ(pool.snapshot().alive, 0u);
}

TEST(ResourcePool, TryAcquireNeverOpensButSeesToItThatTheNextOneFindsSomething) {
  World world;
  ResourcePool<Thing> pool(world.options(1));
  EXPECT_EQ(pool.try_acquire().error().rejection->reason, Reason::timeout);
  pool.maintain(world.clock.now());
  EXPECT_TRUE(pool.try_acquire());
}

TEST(ResourcePool, HandlersWaitInLineAndGetWhatIsReturned) {
  World world;
  auto options = world.options(1);
  options.gate.max_queue = 2;
  ResourcePool<Thing> pool(std::move(options));
  auto held = pool.acquire();
  std::vector<int> got;
  Lease<Thing> kept;
  pool.async_acquire({}, [&](ResourceResult<Thing> lease) {
    got.push_back((*lease)->id);
    kept = *std::move(lease);
  });
  pool.async_acquire({.timeout = 1s}, [&](ResourceResult<Thing> lease) {
    got.push_back(-static_cast<int>(lease.error().rejection->reason));
  });
  EXPECT_TRUE(got.empty());
  held->release();
  world.clock.advance(1s);
  EXPECT_EQ(got, (std::vector{1, -static_cast<int>(Reason::timeout)}));
  EXPECT_TRUE(kept);
}

TEST(ResourcePool, AClaimOpensByItselfAndCountsMeanwhile) {
  World world;
  ResourcePool<Thing> pool(world.validating(2));
  std::optional<Claim<Thing>> claim;
  const auto keep = [&](Result<Claim<Thing>, ResourceError> c) { claim.emplace(*std::move(c)); };
  pool.async_claim({}, keep);
  ASSERT_TRUE(claim->vacant());
  EXPECT_EQ(pool.snapshot().opening, 1u);
  EXPECT_EQ(pool.snapshot().alive, 1u);
  claim.reset();
  EXPECT_EQ(pool.snapshot().alive, 0u) << "a claim that is dropped gives its place back";
  EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);

  pool.async_claim({}, keep);
  (void)std::move(*claim).fill(Thing{7});
  world.clock.advance(1s);
  pool.async_claim({}, keep);
  pool.maintain(world.clock.now());
  ASSERT_TRUE(claim->unchecked());
  EXPECT_EQ((**claim).id, 7);
  EXPECT_EQ(world.validated, 0) << "that is for the claimant to do";
  std::move(*claim).discard();
  pool.maintain(world.clock.now());
  pool.async_claim({}, keep);
  const ResourceError error = std::move(*claim).fail("down");
  EXPECT_EQ(error.failure, "down");
  EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);
  EXPECT_EQ(pool.snapshot().alive, 0u);
}

TEST(ResourcePool, TimesAreMeasuredWhenAskedFor) {
  World world;
  auto options = world.options(1);
  options.histograms = true;
  ResourcePool<Thing> pool(std::move(options));
  auto lease = pool.acquire();
  world.clock.advance(1s);
  EXPECT_EQ(pool.snapshot().oldest_lease, 1s);
  lease->release();
  const auto s = pool.snapshot();
  EXPECT_EQ(s.wait.count(), 1u);
  EXPECT_NEAR(static_cast<double>(s.use.quantile(0.5)), 1e9, 5e7);
  EXPECT_EQ(s.oldest_lease, 0s);
}

TEST(ResourcePool, PoolsOnOneBudgetCloseEachOthersIdleThingsButNeverExceedIt) {
  World world;
  Group group{{.name = "db",
               .total = 4,
               .members = {{.name = "oltp", .guaranteed = {.units = 2}},
                           {.name = "reports", .guaranteed = {.units = 2}}}}};
  ResourceBudget budget(4);
  auto options = world.options(4);
  options.budget = &budget;
  options.on = &group.member("oltp");
  ResourcePool<Thing> oltp(options);
  options.on = &group.member("reports");
  ResourcePool<Thing> reports(options);
  {
    auto a = oltp.acquire(), b = oltp.acquire(), c = oltp.acquire(), d = oltp.acquire();
    ASSERT_TRUE(d) << "lent by reports, which does not need them";
    EXPECT_FALSE(reports.acquire()) << "called back, but still in use";
  }
  EXPECT_EQ(oltp.snapshot().idle, 4u);
  auto a = reports.acquire(), b = reports.acquire();
  ASSERT_TRUE(a && b);
  EXPECT_EQ(oltp.snapshot().idle, 2u);
  EXPECT_EQ(budget.most_alive(), 4u);
  EXPECT_EQ(world.most, 4);
  EXPECT_EQ(oltp.name(), "oltp");
  EXPECT_THROW(oltp.resize(3), std::invalid_argument);
}

TEST(ResourcePool, WrongOptionsNameTheSettingAndTheFix) {
  World world;
  const auto message = [&](auto change) {
    auto options = world.options(2);
    change(options);
    try {
      ResourcePool<Thing> pool(std::move(options));
    } catch (const std::invalid_argument& e) {
      return std::string(e.what());
    }
    return std::string("accepted");
  };
  EXPECT_EQ(message([](auto& o) { o.max = 0; }),
            R"(bulkhead "db": max = 0 is out of range: give 1 to 10000)");
  EXPECT_EQ(message([](auto& o) { o.min_idle = 3; }),
            R"(bulkhead "db": min_idle = 3 is above max = 2: give at most that)");
  EXPECT_THAT(message([](auto& o) { o.open = nullptr; }), HasSubstr("open is missing"));
  EXPECT_THAT(message([](auto& o) { o.connect_timeout = 0s; }),
              HasSubstr("connect_timeout = 0 ms is not positive"));
  EXPECT_THAT(message([](auto& o) { o.idle_timeout = -1s; }), HasSubstr("idle_timeout = -1000 ms"));
  EXPECT_THAT(message([](auto& o) { o.max_lifetime = 0s; }), HasSubstr("max_lifetime"));
  EXPECT_THAT(message([](auto& o) { o.backoff.max = 1ms; }), HasSubstr("backoff.max = 1 ms is below"));
  EXPECT_THAT(message([](auto& o) { o.backoff.jitter = 1.5; }), HasSubstr("backoff.jitter"));
  EXPECT_THAT(message([](auto& o) { o.lifetime_jitter = -1; }), HasSubstr("lifetime_jitter"));
}

// ---- with helper threads and real time ----

TEST(ResourcePool, ACallerDoesNotWaitLongerThanItWantsForAFactoryThatHangs) {
  World world;
  std::atomic<bool> hang{true};
  auto options = world.options(1);
  options.clock = nullptr;
  options.maintenance = Maintenance::background;
  options.open = [&](const Opening&) {  // knows nothing of deadlines
    while (hang) std::this_thread::yield();
    return Thing{++world.made};
  };
  ResourcePool<Thing> pool(std::move(options));
  EXPECT_EQ(pool.acquire({.timeout = 5ms}).error().rejection->reason, Reason::timeout);
  std::stop_source stop;
  stop.request_stop();
  EXPECT_EQ(pool.acquire({.timeout = 5ms, .stop = stop.get_token()}).error().rejection->reason,
            Reason::cancelled);
  EXPECT_EQ(pool.snapshot().opening, 1u);
  EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);
  hang = false;
  EXPECT_EQ((*pool.acquire({.timeout = 10s}))->id, 1) << "what was opened too late for one is for the next";
  EXPECT_EQ(pool.snapshot().timeouts, 1u);
}

TEST(ResourcePool, HelpersCleanCloseAndRefillOnTheirOwn) {
  World world;
  auto options = world.options(3);
  options.clock = nullptr;
  options.maintenance = Maintenance::background;
  options.min_idle = 1;
  options.idle_timeout = 2ms;
  options.reset = [&](Thing&) { return ++world.reset, true; };
  ResourcePool<Thing> pool(std::move(options));
  {
    auto a = pool.acquire(), b = pool.acquire(), c = pool.acquire();
  }
  while (world.reset < 3 || pool.snapshot().idled_out < 2 || pool.snapshot().idle != 1)
    std::this_thread::yield();
  pool.close();
  while (pool.snapshot().alive != 0) std::this_thread::yield();
  EXPECT_LE(world.most, 3);
}

}  // namespace
}  // namespace bulkhead
