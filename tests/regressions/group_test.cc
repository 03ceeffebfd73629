// Interleavings of a group, forced: two members that ask each other, a call-back against a release, a lender
// that leaves. And the defects of partitions in other libraries, see tests/SOURCES.md.
#include "bulkhead/group.h"

#include <gtest/gtest.h>

#include <optional>
#include <thread>

#include "src/group/group_test.h"
#include "tests/support/callers.h"
#include "tests/support/sync_points.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

GroupOptions halves(std::uint32_t total, Lend lend = Lend::headroom(0), std::uint32_t queue = 8) {
  return {.name = "db",
          .total = total,
          .lend = lend,
          .members = {{.name = "a", .guaranteed = {.percent = 50}, .gate = {.max_queue = queue}},
                      {.name = "b", .guaranteed = {.percent = 50}, .gate = {.max_queue = queue}}}};
}

// Both are at the end of what they have, and both are about to take the other's last idle unit.
TEST(GroupRace, TwoMembersAskEachOtherAtOnce) {
  for (const bool a_first : {true, false}) {
    SyncPoints points;
    Group group{halves(4)};
    Gate &a = group.member("a"), &b = group.member("b");
    const Permits held_a = take(a, 2);
    Permits held_b = take(b, 2);
    held_b.pop_back();  // one idle unit, b's own
    std::optional<Result<Permit>> for_a, for_b;
    points.hold("a", "group.admit.before_lock");
    std::jthread asks_a = named("a", [&] { for_a.emplace(a.try_acquire()); });
    points.until_held("a");
    if (a_first) {
      points.let_go("a");
      asks_a.join();
      for_b.emplace(b.try_acquire());
    } else {
      for_b.emplace(b.try_acquire());
      points.let_go("a");
      asks_a.join();
    }
    EXPECT_NE(for_a->has_value(), for_b->has_value()) << "one unit, one winner";
    EXPECT_EQ(for_a->has_value(), a_first);
    EXPECT_EQ(group.snapshot().in_flight, 4u);
    expect_balanced(group);
  }
}

// The lender has joined its line and is about to call back, and the borrower's release comes first: nobody
// else would bring the unit.
TEST(GroupRace, TheBorrowerReleasesJustBeforeItIsCalledBack) {
  SyncPoints points;
  Group group{halves(2)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 2);
  std::optional<Result<Permit>> result;
  points.hold("lender", "group.settle.before_lock");
  std::jthread lender = named("lender", [&] { result.emplace(b.acquire()); });
  points.until_held("lender");
  held.pop_back();  // by the fast path: nobody watches yet
  EXPECT_FALSE(result);
  points.let_go("lender");
  lender.join();
  EXPECT_TRUE(*result);
  EXPECT_EQ(group.snapshot().in_flight, 2u);
}

// The release has paid and is held before it tells the group: the unit is in nobody's hands, and not lost.
TEST(GroupRace, TheLenderLeavesWhileItsUnitIsOnTheWay) {
  SyncPoints points;
  Group group{halves(2)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 2);
  std::stop_source stop;
  Caller lender(b, {.stop = stop.get_token()});
  EXPECT_EQ(group.snapshot().find("a")->called_back, 1u);
  points.hold("borrower", "group.settle.before_lock");
  std::jthread borrower = named("borrower", [&] { held.pop_back(); });
  points.until_held("borrower");
  stop.request_stop();
  EXPECT_EQ(lender.reason(), Reason::cancelled);
  points.let_go("borrower");
  borrower.join();
  expect_balanced(group);
  EXPECT_EQ(group.snapshot().find("a")->called_back, 0u);
  EXPECT_EQ(take(a, 1).size(), 1u);
}

// A unit is between the borrower and the lender, and a newcomer of the borrower wants it.
TEST(GroupRace, ANewcomerOfTheBorrowerDoesNotTakeTheUnitThatComesBack) {
  SyncPoints points;
  Group group{halves(2)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 2);
  Caller lender(b);
  points.hold("borrower", "release.before_lock");
  std::jthread borrower = named("borrower", [&] { held.pop_back(); });
  points.until_held("borrower");
  EXPECT_FALSE(a.try_acquire());
  EXPECT_EQ(group.snapshot().in_flight, 1u);
  points.let_go("borrower");
  borrower.join();
  EXPECT_TRUE(lender.admitted());
}

// A release that sees nobody watching, and a member that is about to wait for it.
TEST(GroupRace, AReleaseBetweenTheLookAndTheWatchIsSeen) {
  SyncPoints points;
  Group group{halves(2)};
  Gate &a = group.member("a"), &b = group.member("b");
  const Permits held_a = take(a, 1);
  Permits held_b = take(b, 1);
  std::optional<Result<Permit>> result;
  points.hold("borrower", "group.settle.before_lock");
  std::jthread borrower = named("borrower", [&] { result.emplace(a.acquire()); });
  points.until_held("borrower");
  held_b.clear();
  points.let_go("borrower");
  borrower.join();
  EXPECT_TRUE(*result);
}

// ---- peers ----

// Netflix concurrency-limits, partitioned limiter: a guarantee is honoured by exceeding the total.
TEST(PeerDefect, AGuaranteeNeverExceedsTheTotal) {
  Group group{{.total = 10,
               .members = {{.name = "batch", .guaranteed = {.percent = 10}},
                           {.name = "live", .guaranteed = {.percent = 90}, .gate = {.max_queue = 9}}}}};
  Permits batch = take(group.member("batch"), 10);
  ASSERT_EQ(batch.size(), 10u);
  std::vector<Caller> live;
  for (int i = 0; i < 9; ++i) live.emplace_back(group.member("live"));
  EXPECT_EQ(group.snapshot().in_flight, 10u) << "theirs has 19 in flight now";
  while (!batch.empty()) {
    batch.pop_back();
    EXPECT_LE(group.snapshot().in_flight, 10u);
  }
  for (Caller& c : live) EXPECT_TRUE(c.admitted());
}

// Netflix concurrency-limits (#234): the check of the total and the increment are two steps. Here the second
// asker is held between its own gate's rejection and the group.
TEST(PeerDefect, TwoMembersCannotBothTakeTheLastUnit) {
  SyncPoints points;
  Group group{{.total = 1, .members = {{.name = "a"}, {.name = "b"}}}};
  std::optional<Result<Permit>> a;
  points.hold("a", "group.admit.before_lock");
  std::jthread asks = named("a", [&] { a.emplace(group.member("a").try_acquire()); });
  points.until_held("a");
  auto b = group.member("b").try_acquire();
  EXPECT_TRUE(b);
  points.let_go("a");
  asks.join();
  EXPECT_FALSE(*a);
  EXPECT_EQ(group.snapshot().in_flight, 1u);
}

// Netflix concurrency-limits, Lifo: the head of the line blocks the other partitions.
TEST(PeerDefect, TheHeadOfOneMembersLineDoesNotBlockTheOthers) {
  Group group{halves(4, Lend::none())};
  Gate &a = group.member("a"), &b = group.member("b");
  const Permits held = take(a, 2);
  Caller stuck(a, {.cost = 2});
  EXPECT_TRUE(stuck.pending());
  EXPECT_TRUE(b.try_acquire()) << "each member has its own line";
}

// Netflix concurrency-limits, partitionRejectDelay: the rejected thread is put to sleep.
TEST(PeerDefect, ARejectedCallReturnsWithoutSleeping) {
  ManualClock clock;
  GroupOptions options = halves(2, Lend::revocable(), 0);
  options.clock = &clock;
  Group group{std::move(options)};
  const Permits held = take(group.member("a"), 2);
  EXPECT_FALSE(group.member("b").acquire({.timeout = 0ns}));  // on a clock that stands still: it returns
  EXPECT_FALSE(group.member("b").try_acquire());
}

// Netflix concurrency-limits (#95): with partitions the limit that is shown does not change.
TEST(PeerDefect, TheLimitShownFollowsLoansAndResizes) {
  Group group{halves(4)};
  const Permits a = take(group.member("a"), 4);
  EXPECT_EQ(group.member("a").snapshot().max_concurrent, 4u);
  EXPECT_EQ(group.member("b").snapshot().max_concurrent, 0u);
  group.resize(8);
  EXPECT_EQ(group.snapshot().find("b")->guaranteed, 4u);
}

}  // namespace
}  // namespace bulkhead
