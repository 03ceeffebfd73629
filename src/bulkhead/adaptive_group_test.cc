// One adaptive limit for the total of a group: two members in front of one dependency, on a manual clock.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;
using testing::HasSubstr;

// A dependency with `slots`; calls that exceed them queue inside. `rate` of a member: calls per second that arrive at
// random; 0: there is always another caller.
struct World {
  struct Caller {
    double rate = 0;
    std::unique_ptr<Bulkhead> bulkhead{};
    std::uint64_t arrived = 0, served = 0, rejected = 0;
  };
  struct Running {
    Caller* caller;
    Call call;
  };

  ManualClock clock;
  std::uint32_t slots;
  nanoseconds time = 40ms;
  Group group;
  AdaptiveLimiter limiter;
  Caller checkout, reports;
  std::deque<Running> waiting;                       // admitted, not begun by the dependency
  std::deque<std::pair<TimePoint, Running>> served;  // ends, in order: all calls take the same time
  std::mt19937 random{7};
  std::uint32_t most = 0;  // in flight above the total in force at an admission: never

  World(std::uint32_t its_slots, GroupOptions options, const LimiterOptions& limits = {})
      : slots(its_slots), group((options.clock = &clock, std::move(options))), limiter(group, limits) {
    for (auto& [caller, name] : {std::pair(&checkout, "checkout"), std::pair(&reports, "reports")})
      caller->bulkhead = std::make_unique<Bulkhead>(
          BulkheadOptions{.gate = &group.member(name), .limiter = &limiter, .clock = &clock});
  }
  ~World() {
    served.clear();
    waiting.clear();
  }

  void admit(Caller& caller, Result<Call> call) {
    if (!call) {
      ++caller.rejected;
      return;
    }
    const GroupSnapshot s = group.snapshot();
    if (s.in_flight > s.total) most = std::max(most, s.in_flight - s.total);
    waiting.push_back({&caller, *std::move(call)});
  }
  void arrive(Caller& caller) {
    if (caller.rate == 0) {
      while (auto call = caller.bulkhead->try_acquire()) {
        ++caller.arrived;
        admit(caller, std::move(call));
      }
      return;
    }
    std::poisson_distribution<int> calls(caller.rate / 1000);
    for (int n = calls(random); n > 0; --n) {
      ++caller.arrived;
      caller.bulkhead->async_acquire({.timeout = 1s},
                                     [&](Result<Call> call) { admit(caller, std::move(call)); });
    }
  }
  void run(nanoseconds how_long) {
    for (const TimePoint until = clock.now() + how_long; clock.now() < until; clock.advance(1ms)) {
      while (!served.empty() && served.front().first <= clock.now()) {
        Running ended = std::move(served.front().second);
        served.pop_front();
        ++ended.caller->served;
        ended.call.finish(Outcome::success);
      }
      arrive(checkout);
      arrive(reports);
      while (!waiting.empty() && served.size() < slots) {
        served.emplace_back(clock.now() + time, std::move(waiting.front()));
        waiting.pop_front();
      }
    }
  }
  std::uint32_t settled() const { return limiter.snapshot().settled; }
  std::string why() const { return limiter.snapshot().why.text(); }
};

GroupOptions two(Share guaranteed, Lend lend = Lend::headroom(0), std::uint32_t total = 20) {
  return {.name = "db",
          .total = total,
          .lend = lend,
          .members = {{.name = "checkout", .guaranteed = guaranteed, .gate = {.max_queue = 50}},
                      {.name = "reports", .guaranteed = {.percent = 10}}}};
}

TEST(AdaptiveGroup, FindsTheCapacityForAllMembersTogether) {
  World world(50, two({.percent = 40}));
  world.run(120s);
  EXPECT_GE(world.settled(), 42u) << world.why();
  EXPECT_LE(world.settled(), 75u) << world.why();
  EXPECT_EQ(world.group.snapshot().total, world.limiter.limit());
  EXPECT_EQ(world.group.total(), 20u) << "the one that was given";
  EXPECT_EQ(world.most, 0u);
}

TEST(AdaptiveGroup, AMemberWithAGuaranteeIsServedWhileTheOtherFloods) {
  World world(50, two({.percent = 40}));
  world.checkout.rate = 250;  // ten slots of fifty
  world.run(60s);
  world.checkout.arrived = world.checkout.rejected = world.reports.served = 0;
  world.run(120s);
  EXPECT_LE(world.checkout.rejected, world.checkout.arrived / 100)
      << world.checkout.rejected << " of " << world.checkout.arrived << "; " << world.why();
  EXPECT_GE(static_cast<double>(world.reports.served), 120 * 0.8 * (1250 - 250)) << world.why();
  EXPECT_EQ(world.most, 0u);
}

TEST(AdaptiveGroup, FollowsACapacityThatDropsAndComesBack) {
  World world(50, two({.percent = 40}));
  world.checkout.rate = 100;  // four slots: less than its guarantee also of what is left
  world.run(60s);
  world.slots = 10;
  world.run(60s);
  EXPECT_LE(world.settled(), 18u) << world.why();
  EXPECT_GE(world.settled(), 8u) << world.why();
  world.checkout.arrived = world.checkout.rejected = 0;
  world.run(60s);
  EXPECT_LE(world.checkout.rejected, world.checkout.arrived / 50) << world.checkout.arrived;
  world.slots = 50;
  world.run(120s);
  EXPECT_GE(world.settled(), 40u) << world.why();
  EXPECT_EQ(world.most, 0u);
}

TEST(AdaptiveGroup, GuaranteesInUnitsShrinkWithTheTotalAndComeBack) {
  World world(50, two({.units = 15}));
  const auto guaranteed = [&] { return world.group.snapshot().find("checkout")->guaranteed; };
  world.run(60s);
  EXPECT_EQ(guaranteed(), 15u);
  world.slots = 5;
  world.run(60s);
  const GroupSnapshot low = world.group.snapshot();
  EXPECT_LT(low.total, 15u);
  EXPECT_LE(low.find("checkout")->guaranteed + low.find("reports")->guaranteed, low.total);
  EXPECT_GE(low.find("checkout")->guaranteed, low.total / 2);
  EXPECT_GE(low.find("reports")->guaranteed, 1u);
  world.slots = 50;
  world.run(120s);
  EXPECT_EQ(guaranteed(), 15u);
}

TEST(AdaptiveGroup, AMemberThatIsCappedByItsShareMovesTheTotal) {
  World world(50, {.name = "db",
                   .total = 10,
                   .members = {{.name = "checkout", .guaranteed = {.percent = 50}},
                               {.name = "reports", .max = {.percent = 60}}}});
  world.checkout.rate = 0.001;
  world.run(120s);
  EXPECT_GE(world.settled(), 60u) << world.why();  // 60 % of it: 36 of 50 slots or more
}

TEST(AdaptiveGroup, AMemberThatIsCappedInUnitsDoesNot) {
  World world(50, {.name = "db",
                   .total = 20,
                   .members = {{.name = "checkout", .guaranteed = {.percent = 50}},
                               {.name = "reports", .max = {.units = 5}}}});
  world.checkout.rate = 0.001;
  world.run(60s);
  EXPECT_EQ(world.settled(), 20u) << world.why();
}

// A probe lowers the total for a short time. Calls that borrow units would be stopped every few seconds.
TEST(AdaptiveGroup, ALowerTotalAsksNoCallToStop) {
  Group group({.name = "db",
               .total = 10,
               .lend = Lend::revocable(),
               .members = {{.name = "a", .guaranteed = {.units = 5}, .gate = {.max_queue = 9}},
                           {.name = "b", .guaranteed = {.units = 2}, .gate = {.max_queue = 9}}}});
  std::vector<Permit> a, b;
  for (int i = 0; i < 5; ++i) a.push_back(*group.member("a").try_acquire());
  for (int i = 0; i < 5; ++i) b.push_back(*group.member("b").try_acquire());
  for (auto* all : {&a, &b})
    for (Permit& permit : *all) (void)permit.stop_token();
  bool admitted = false;
  group.member("a").async_acquire({}, [&](const Result<Permit>& r) { admitted = r.has_value(); });
  ASSERT_TRUE(group.adapt(8));
  for (int i = 0; i < 2; ++i) b.pop_back();
  for (const auto& m : group.snapshot().members)
    EXPECT_EQ(m.revoked, 0u) << m.name << " has what it is guaranteed";
  a.pop_back();
  EXPECT_TRUE(admitted);
}

TEST(AdaptiveGroup, LentUnitsComeBackAlsoWhileTheTotalMoves) {
  for (const std::uint32_t total : {1u, 3u, 7u, 20u}) {
    ManualClock clock;
    GroupOptions o = two({.units = 12}, Lend::headroom(0));
    o.clock = &clock;
    Group group(std::move(o));
    std::deque<Permit> lent;
    while (auto permit = group.member("reports").try_acquire()) lent.push_back(*std::move(permit));
    EXPECT_EQ(lent.size(), 20u);
    ASSERT_TRUE(group.adapt(total));
    const std::uint32_t mine = group.snapshot().find("checkout")->guaranteed;
    EXPECT_GE(mine, 1u);
    std::vector<Permit> got;
    for (std::uint32_t i = 0; i < mine; ++i)
      group.member("checkout").async_acquire({}, [&](Result<Permit> r) {
        ASSERT_TRUE(r);
        got.push_back(*std::move(r));
      });
    while (!lent.empty()) lent.pop_front();
    EXPECT_EQ(got.size(), mine) << total;
  }
}

TEST(AdaptiveGroup, AnUpdateOfTheSharesDuringADipFitsTheGivenTotal) {
  Group group(two({.units = 15}));
  ASSERT_TRUE(group.adapt(4));
  group.update("checkout", {.units = 17});
  EXPECT_LE(group.snapshot().find("checkout")->guaranteed, 4u);
  EXPECT_THROW(group.update("checkout", {.units = 21}), std::invalid_argument);
  group.add({.name = "admin", .guaranteed = {.units = 1}});
  EXPECT_EQ(group.snapshot().total, 4u);
  group.resize(30);
  EXPECT_EQ(group.snapshot().find("checkout")->guaranteed, 17u);
}

TEST(AdaptiveGroup, WrongOptionsNameTheGroupAndTheFix) {
  Group group(two({.units = 5}));
  const auto message = [](const auto& make) -> std::string {
    try {
      make();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_EQ(message([&] { AdaptiveLimiter wrong(group, {.floor = 0}); }),
            "group \"db\": limiter.floor = 0 is out of range: give 1 to 268435455");
  AdaptiveLimiter limiter(group, {});
  EXPECT_THAT(message([&] { Bulkhead b({.adaptive = LimiterOptions{}, .gate = &group.member("checkout")}); }),
              HasSubstr("make one AdaptiveLimiter for the group"));
  EXPECT_THAT(message([&] { Bulkhead b({.name = "other", .limiter = &limiter}); }),
              HasSubstr("give a member of that group as gate"));
}

}  // namespace
}  // namespace bulkhead
