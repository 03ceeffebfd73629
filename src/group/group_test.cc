#include "bulkhead/group.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/sync_point.h"
#include "bulkhead/manual_clock.h"
#include "group/group_test.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// ---- the guarantee and the cap ----

TEST(Group, AMemberBorrowsWhatOthersDoNotUse) {
  Group group{halves(Lend::headroom(0))};
  const Permits a = take(group.member("a"), 12);
  EXPECT_EQ(a.size(), 10u);
  EXPECT_EQ(group.snapshot().in_flight, 10u);
  EXPECT_EQ(group.snapshot().find("a")->borrowed, 5u);
  EXPECT_EQ(group.snapshot().find("b")->lent, 5u);
}

TEST(Group, WhatIsLentIsRejectedToTheLenderRatherThanExceedTheTotal) {
  Group group{halves(Lend::headroom(0))};
  const Permits a = take(group.member("a"), 10);
  const auto b = group.member("b").try_acquire();
  ASSERT_FALSE(b);
  EXPECT_EQ(b.error().reason, Reason::concurrency_limit);
  EXPECT_EQ(b.error().name, "b");
  EXPECT_EQ(group.snapshot().in_flight, 10u);
}

TEST(Group, WithLendNoneAGuaranteeIsAlwaysThere) {
  Group group{halves(Lend::none())};
  const Permits a = take(group.member("a"), 10);
  EXPECT_EQ(a.size(), 5u);
  const Permits b = take(group.member("b"), 10);
  EXPECT_EQ(b.size(), 5u);
}

TEST(Group, WithLendNoneWhatNobodyIsGuaranteedCanBeBorrowed) {
  Group group{
      {.total = 10,
       .lend = Lend::none(),
       .members = {{.name = "a", .guaranteed = {.units = 3}}, {.name = "b", .guaranteed = {.units = 3}}}}};
  Permits a = take(group.member("a"), 10);
  EXPECT_EQ(a.size(), 7u);
  EXPECT_EQ(take(group.member("b"), 10).size(), 3u);
  a.resize(3);  // idle again: b can have them
  EXPECT_EQ(take(group.member("b"), 10).size(), 7u);
}

TEST(Group, HeadroomIsNeverLent) {
  Group group{halves(Lend::headroom(2))};
  const Permits a = take(group.member("a"), 10);
  EXPECT_EQ(a.size(), 8u);
  const Permits b = take(group.member("b"), 10);
  EXPECT_EQ(b.size(), 2u) << "the first two arrivals of the lender never wait";
}

TEST(Group, AMemberStopsAtItsMax) {
  Group group{{.total = 10, .members = {{.name = "a", .guaranteed = {.units = 2}, .max = {.percent = 60}}}}};
  EXPECT_EQ(take(group.member("a"), 10).size(), 6u);
}

TEST(Group, AMemberWithoutAGuaranteeLivesOnWhatIsLeft) {
  Group group{{.total = 4, .members = {{.name = "a", .guaranteed = {.units = 4}}, {.name = "b"}}}};
  {
    const Permits b = take(group.member("b"), 10);
    EXPECT_EQ(b.size(), 4u);
  }
  const Permits a = take(group.member("a"), 4);
  EXPECT_EQ(a.size(), 4u);
  EXPECT_EQ(group.member("b").try_acquire().error().reason, Reason::concurrency_limit);
}

TEST(Group, IdleLoansComeBackAtOnce) {
  Group group{halves(Lend::headroom(0))};
  take(group.member("a"), 10);  // and gives them back
  EXPECT_EQ(group.snapshot().find("a")->allotted, 10u);
  auto one = group.member("b").try_acquire();
  EXPECT_TRUE(one);
  EXPECT_EQ(group.snapshot().find("b")->allotted, 5u) << "the rest of its guarantee with the first unit";
  const Permits b = take(group.member("b"), 9);
  EXPECT_EQ(b.size(), 9u);
}

// ---- a lender that waits ----

TEST(Group, ALenderInLineGetsTheNextUnitThatItsBorrowerGivesBack) {
  for (const Kind kind : kinds) {
    Group group{halves(Lend::headroom(0))};
    Gate &a = group.member("a"), &b = group.member("b");
    Permits held = take(a, 10);
    Caller borrower(a, {}, Kind::handler);  // was in line first
    Caller lender(b, {}, kind);
    until_waiting(b, 1);
    EXPECT_TRUE(lender.pending());
    EXPECT_EQ(group.snapshot().find("a")->called_back, 1u);
    held.pop_back();
    EXPECT_TRUE(lender.admitted());
    EXPECT_TRUE(borrower.pending());
    EXPECT_EQ(group.snapshot().in_flight, 10u);
    lender.release();
    EXPECT_TRUE(borrower.admitted()) << "what the lender does not use goes back to the borrower";
  }
}

TEST(Group, AllThatALineIsOwedIsCalledBackAtOnce) {
  Group group{halves(Lend::headroom(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  std::vector<Caller> lenders;
  for (int i = 0; i < 7; ++i) lenders.emplace_back(b);
  EXPECT_EQ(group.snapshot().find("a")->called_back, 5u);
  held.resize(5);
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(lenders[static_cast<std::size_t>(i)].pending());
  EXPECT_TRUE(lenders[5].pending()) << "beyond its guarantee it has no claim";
  EXPECT_EQ(a.try_acquire().error().reason, Reason::concurrency_limit);
  held.clear();
  EXPECT_FALSE(lenders[6].pending());
}

TEST(Group, AWaiterServedByAnIdleUnitOfAnotherMember) {
  Group group{halves(Lend::headroom(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  const Permits held_a = take(a, 5);
  Permits held_b = take(b, 5);
  Caller borrower(a);
  EXPECT_TRUE(borrower.pending());
  held_b.pop_back();
  EXPECT_TRUE(borrower.admitted());
  borrower.release();
  EXPECT_EQ(take(b, 1).size(), 1u);
}

TEST(Group, AWaiterThatLeavesLeavesNothingBehind) {
  ManualClock clock;
  GroupOptions options = halves(Lend::headroom(0));
  options.clock = &clock;
  Group group{std::move(options)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  Caller lender(b, {.timeout = 5ms});
  clock.advance(5ms);
  EXPECT_EQ(lender.reason(), Reason::timeout);
  held.clear();
  EXPECT_EQ(take(a, 10).size(), 10u);
  expect_balanced(group);
}

// ---- a lender that does not wait ----

TEST(Group, ARejectedLenderFindsItsUnitWhenItComesAgain) {
  ManualClock clock;
  GroupOptions options = halves(Lend::headroom(0), 0);
  options.members[0].gate.max_queue = 8;
  options.clock = &clock;
  Group group{std::move(options)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  Caller borrower(a);
  EXPECT_FALSE(b.try_acquire());
  held.pop_back();
  EXPECT_TRUE(borrower.pending()) << "the unit is kept for the lender";
  auto again = b.try_acquire();
  EXPECT_TRUE(again);
}

TEST(Group, AKeptUnitGoesToTheBorrowerWhenTheLenderDoesNotComeBack) {
  ManualClock clock;
  GroupOptions options = halves(Lend::headroom(0), 0);
  options.members[0].gate.max_queue = 8;
  options.clock = &clock;
  options.keep = 100ms;
  Group group{std::move(options)};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  Caller borrower(a);
  EXPECT_FALSE(b.try_acquire());
  held.pop_back();
  clock.advance(99ms);
  EXPECT_TRUE(borrower.pending());
  clock.advance(1ms);
  EXPECT_TRUE(borrower.admitted());
}

// ---- revocation ----

TEST(Group, ABorrowedPermitIsToldToStopWhenTheLenderNeedsIt) {
  Group group{halves(Lend::revocable())};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  std::vector<std::stop_token> tokens;
  for (Permit& p : held) tokens.push_back(p.stop_token());
  Caller lender(b);
  const auto stopped = [&] {
    return std::count_if(tokens.begin(), tokens.end(), [](auto& t) { return t.stop_requested(); });
  };
  EXPECT_EQ(stopped(), 1);
  EXPECT_TRUE(tokens.back().stop_requested()) << "the newest";
  Caller second(b);
  EXPECT_EQ(stopped(), 2);
  held.resize(8);
  EXPECT_TRUE(lender.admitted());
  EXPECT_TRUE(second.admitted());
  EXPECT_EQ(stopped(), 2);
  EXPECT_EQ(group.snapshot().find("a")->revoked, 2u);
}

TEST(Group, ATokenAskedForTooLateIsStoppedAlready) {
  Group group{halves(Lend::revocable())};
  Permits held = take(group.member("a"), 10);
  Caller lender(group.member("b"));
  EXPECT_TRUE(held[3].stop_token().stop_requested());
  EXPECT_FALSE(held[4].stop_token().stop_requested()) << "one unit is wanted, and one was told";
  held.clear();
  EXPECT_TRUE(lender.admitted());
}

TEST(Group, ABorrowerThatStopsInsideItsCallbackIsInTimeEvenForACallThatDoesNotWait) {
  Group group{halves(Lend::revocable(), 0)};
  Permits held = take(group.member("a"), 10);
  std::stop_callback give_back(held[9].stop_token(), [&] { held[9].release(); });
  auto b = group.member("b").try_acquire();
  EXPECT_TRUE(b);
  EXPECT_EQ(group.snapshot().in_flight, 10u);
}

TEST(Group, NobodyIsStoppedForUnitsBeyondAGuarantee) {
  Group group{halves(Lend::revocable())};
  Permits a = take(group.member("a"), 5);
  Permits b = take(group.member("b"), 5);
  std::vector<std::stop_token> tokens;
  for (Permit& p : b) tokens.push_back(p.stop_token());
  Caller greedy(group.member("a"));
  for (auto& t : tokens) EXPECT_FALSE(t.stop_requested());
  b.pop_back();
  EXPECT_TRUE(greedy.admitted());
}

TEST(Group, RunPassesATokenThatFiresForTheCallerAndForTheLender) {
  Group group{halves(Lend::revocable())};
  Gate &a = group.member("a"), &b = group.member("b");
  std::stop_source mine;
  EXPECT_TRUE(a.run([&](std::stop_token stop) { return mine.request_stop(), stop.stop_requested(); },
                    {.stop = mine.get_token()})
                  .value());
  const Permits others = take(a, 9);
  std::stop_source unused;
  std::optional<Caller> lender;
  const bool told = a.run(
                         [&](std::stop_token stop) {
                           lender.emplace(b);
                           return stop.stop_requested();
                         },
                         {.stop = unused.get_token()})
                        .value();
  EXPECT_TRUE(told);
  EXPECT_TRUE(lender->admitted());
}

TEST(Group, APermitOfAnOrdinaryGateHasNoStopToken) {
  Gate gate{{.max_concurrent = 1}};
  auto permit = gate.acquire();
  EXPECT_FALSE(permit->stop_token().stop_possible());
  permit->release();
  EXPECT_FALSE(permit->stop_token().stop_possible());
}

TEST(Group, AThousandStopsThatGiveBackAtOnceDoNotPileUp) {
  Group group{{.total = 20'000,
               .lend = Lend::revocable(),
               .members = {{.name = "a", .gate = {.max_queue = 1}},
                           {.name = "b", .guaranteed = {.percent = 100}, .gate = {.max_queue = 20'000}}}}};
  Permits held = take(group.member("a"), 20'000);
  struct GiveBack {
    Permit* permit;
    void operator()() const { permit->release(); }
  };
  std::vector<std::unique_ptr<std::stop_callback<GiveBack>>> callbacks;
  for (Permit& p : held)
    callbacks.push_back(std::make_unique<std::stop_callback<GiveBack>>(p.stop_token(), GiveBack{&p}));
  std::vector<Caller> lenders;
  for (int i = 0; i < 2000; ++i) lenders.emplace_back(group.member("b"));
  for (Caller& c : lenders) EXPECT_TRUE(c.admitted());
}

// ---- several who want ----

TEST(Group, WhoIsOwedComesBeforeWhoWouldBorrow) {
  Group group{{.total = 6,
               .members = {{.name = "a", .guaranteed = {.units = 2}, .gate = {.max_queue = 4}},
                           {.name = "b", .guaranteed = {.units = 2}, .gate = {.max_queue = 4}},
                           {.name = "c", .guaranteed = {.units = 2}, .gate = {.max_queue = 4}}}}};
  Permits a = take(group.member("a"), 4), c = take(group.member("c"), 2);
  Caller greedy(group.member("c"));
  Caller owed(group.member("b"));
  c.pop_back();  // c's own unit, within its guarantee: its own waiter may have it
  EXPECT_TRUE(greedy.admitted());
  a.pop_back();
  EXPECT_TRUE(owed.admitted());
}

TEST(Group, BorrowedUnitsAreSharedOutEvenly) {
  Group group{{.total = 8,
               .members = {{.name = "a", .gate = {.max_queue = 16}},
                           {.name = "b", .gate = {.max_queue = 16}},
                           {.name = "idle", .guaranteed = {.units = 8}}}}};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 8);
  std::deque<Caller> more_a, more_b;
  for (int i = 0; i < 8; ++i) more_a.emplace_back(a);
  for (int i = 0; i < 8; ++i) more_b.emplace_back(b);
  held.clear();
  EXPECT_EQ(group.snapshot().find("a")->in_flight, 4u);
  EXPECT_EQ(group.snapshot().find("b")->in_flight, 4u);
  for (auto* callers : {&more_a, &more_b})
    for (Caller& c : *callers) c.release();
}

TEST(Group, AHeavyCallOfOneMemberIsNotStarvedByLightOnesOfAnother) {
  Group group{{.total = 6,
               .members = {{.name = "heavy", .gate = {.max_queue = 4}},
                           {.name = "light", .gate = {.max_queue = 40}}}}};
  Gate &heavy = group.member("heavy"), &light = group.member("light");
  std::deque<Permit> running;
  for (int i = 0; i < 6; ++i) running.push_back(*light.try_acquire());
  Caller big(heavy, {.cost = 5});
  std::deque<Caller> line;
  for (int i = 0; i < 10; ++i) line.emplace_back(light);
  for (int i = 0; i < 6 && big.pending(); ++i) running.pop_front();
  EXPECT_TRUE(big.admitted());
  big.release();
  for (Caller& c : line) c.release();
}

TEST(Group, TwoHeavyCallsDoNotHoldHalfOfTheUnitsEach) {
  Group group{
      {.total = 6,
       .members = {{.name = "a", .gate = {.max_queue = 4}}, {.name = "b", .gate = {.max_queue = 4}}}}};
  Permits held = take(group.member("a"), 3);
  for (Permit& p : take(group.member("b"), 3)) held.push_back(std::move(p));
  Caller a(group.member("a"), {.cost = 5}), b(group.member("b"), {.cost = 5});
  held.clear();
  Caller& first = a.pending() ? b : a;
  Caller& second = a.pending() ? a : b;
  EXPECT_FALSE(first.pending());
  first.release();
  EXPECT_TRUE(second.admitted());
}

TEST(Group, ACostAboveWhatTheOthersEverLendIsRejectedAtOnce) {
  Group group{halves(Lend::headroom(2))};
  EXPECT_EQ(Caller(group.member("a"), {.cost = 9}).reason(), Reason::concurrency_limit);
  EXPECT_TRUE(Caller(group.member("a"), {.cost = 8}).admitted());
}

TEST(Group, TheCriticalReserveOfAMemberIsNotLent) {
  Group group{{.total = 10,
               .members = {{.name = "a", .guaranteed = {.units = 5}, .gate = {.critical_reserve = 0.4}},
                           {.name = "b", .guaranteed = {.units = 5}}}}};
  const Permits b = take(group.member("b"), 10);
  EXPECT_EQ(b.size(), 8u);
  EXPECT_FALSE(group.member("a").try_acquire());
  auto one = group.member("a").try_acquire({.priority = Priority::critical});
  auto two = group.member("a").try_acquire({.priority = Priority::critical});
  EXPECT_TRUE(one && two);
}

TEST(Group, ACriticalCallGetsTheUnitThatWasFoundForItBeforeTheLineOfALowerTier) {
  Group group{halves(Lend::headroom(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  const Permits held_a = take(a, 5);
  Permits held_b = take(b, 5);
  Caller low(a, {.priority = Priority::best_effort});
  held_b.reserve(6);
  Caller high(a, {.priority = Priority::critical});
  EXPECT_TRUE(low.pending());
  EXPECT_TRUE(high.pending());
  held_b.pop_back();
  EXPECT_TRUE(high.admitted());
  EXPECT_TRUE(low.pending());
  held_b.pop_back();
  EXPECT_TRUE(low.admitted());
}

// ---- what it shows ----

TEST(Group, TheSnapshotSaysWhoBorrowsHowMuchFromWhom) {
  Group group{{.name = "db",
               .total = 10,
               .members = {{.name = "a", .guaranteed = {.units = 3}},
                           {.name = "b", .guaranteed = {.units = 3}},
                           {.name = "c", .guaranteed = {.units = 3}}}}};
  const Permits b = take(group.member("b"), 3), a = take(group.member("a"), 6);
  const GroupSnapshot s = group.snapshot();
  EXPECT_EQ(s.in_flight, 9u);
  ASSERT_EQ(s.loans.size(), 2u);
  EXPECT_EQ(s.loans[0].lender, "");
  EXPECT_EQ(s.loans[0].borrower, "a");
  EXPECT_EQ(s.loans[0].units, 1u);
  EXPECT_EQ(s.loans[1].lender, "c");
  EXPECT_EQ(s.loans[1].units, 2u);
  EXPECT_EQ(s.loans[1].borrower, "a");
  expect_balanced(group);
}

// How long a lender waits, in virtual time: not at all, not for its headroom, until borrowers end, or until
// they have stopped.
TEST(Group, TheLendersWaitByModeOfLending) {
  struct Case {
    Lend lend;
    std::chrono::nanoseconds first, third;
  };
  const std::chrono::nanoseconds service = 1s, grace = 20ms;
  for (const auto& [lend, first, third] :
       {Case{Lend::none(), 0ns, 0ns}, Case{Lend::headroom(2), 0ns, service},
        Case{Lend::headroom(0), service, service}, Case{Lend::revocable(), grace, grace},
        Case{Lend::revocable(2), 0ns, grace}}) {
    ManualClock clock;
    GroupOptions options = halves(lend);
    options.clock = &clock;
    Group group{std::move(options)};
    Simulation simulation(clock);
    Gate &a = group.member("a"), &b = group.member("b");
    // a's calls take `service`, or `grace` once they are told to stop.
    Permits held = take(a, 10);
    for (Permit& p : held) simulation.run(p, service, grace);
    const TimePoint start = clock.now();
    std::vector<TimePoint> admitted(3);
    std::vector<Result<Permit>> kept;
    for (std::size_t i = 0; i < 3; ++i)
      b.async_acquire({}, [&, i](Result<Permit> p) {
        admitted[i] = clock.now();
        kept.push_back(std::move(p));
      });
    simulation.until_idle();
    EXPECT_EQ(admitted[0] - start, first) << static_cast<int>(lend.mode) << " " << lend.units;
    EXPECT_EQ(admitted[2] - start, third) << static_cast<int>(lend.mode) << " " << lend.units;
    EXPECT_EQ(group.snapshot().find("b")->longest_wait, third);
    kept.clear();
  }
}

// ---- the clock, and large numbers ----

TEST(Group, AUnitCanBeKeptForEver) {
  ManualClock clock;
  GroupOptions o = halves(Lend::headroom(0), 4);
  o.keep = wait_forever;
  o.clock = &clock;
  Group group{o};
  Permits a = take(group.member("a"), 10);
  EXPECT_FALSE(group.member("b").try_acquire());  // called back, and kept for b from now on
  group.member("a").async_acquire({}, [](const Result<Permit>&) {});
  a.pop_back();
  clock.advance(24h * 365);
  EXPECT_EQ(group.member("a").snapshot().waiting, 1u);
  EXPECT_TRUE(group.member("b").try_acquire());
}

TEST(Group, KeepsAUnitAndMeasuresWaitsBeforeTheBeginningOfTime) {
  for (const auto start : {-1h, 0h}) {
    ManualClock clock{TimePoint(start)};
    GroupOptions o = halves(Lend::headroom(0), 4);
    o.clock = &clock;
    Group group{o};
    Permits a = take(group.member("a"), 10);
    EXPECT_FALSE(group.member("b").try_acquire());
    Permit borrower;
    group.member("a").async_acquire({}, [&](Result<Permit> r) { borrower = *std::move(r); });
    a.pop_back();
    EXPECT_FALSE(borrower);
    clock.advance(1s);
    EXPECT_TRUE(borrower);
    // A lender in line: its wait is measured from the moment in which it joined.
    bool lender = false;
    group.member("b").async_acquire({}, [&](Result<Permit> r) { lender = r.has_value(); });
    clock.advance(20ms);
    a.clear();
    EXPECT_TRUE(lender);
    EXPECT_EQ(group.snapshot().find("b")->longest_wait, 20ms);
  }
}

// Units are called back from all borrowers at once; whose they are is the same as one by one.
TEST(Group, UnitsAreCalledBackFromWhoHasBorrowedMostAsIfOneByOne) {
  const std::vector<std::vector<std::uint32_t>> borrowed = {
      {5, 5, 5}, {9, 4, 2}, {1, 7, 7}, {3, 0, 12}, {0, 0, 15}};
  for (const auto& each : borrowed)
    for (std::uint32_t wanted = 1; wanted <= 15; ++wanted) {
      Group group{{.total = 15,
                   .members = {{.name = "lender", .guaranteed = {.units = 15}, .gate = {.max_queue = 1}},
                               {.name = "a"},
                               {.name = "b"},
                               {.name = "c"}}}};
      std::vector<Permits> held;
      const char* const names[] = {"a", "b", "c"};
      for (std::size_t i = 0; i < 3; ++i) held.push_back(take(group.member(names[i]), each[i]));
      std::vector<std::uint32_t> left = each;
      for (std::uint32_t unit = 0; unit < wanted; ++unit) --*std::max_element(left.begin(), left.end());
      group.member("lender").async_acquire({.cost = wanted}, [](const Result<Permit>&) {});
      for (std::size_t i = 0; i < 3; ++i)
        EXPECT_EQ(group.snapshot().find(names[i])->called_back, each[i] - left[i])
            << names[i] << ", " << wanted;
      expect_balanced(group);
      held.clear();
    }
}

#if defined(BULKHEAD_SYNC_POINTS)
int call_backs = 0;

// A tenth of the largest total there can be, a hundred borrowers: under the lock, each is asked once.
TEST(Group, CallingBackMillionsOfUnitsAsksEachBorrowerOnce) {
  constexpr std::uint32_t kTotal = 26'843'545, kBorrowers = 100;
  GroupOptions o{.total = kTotal,
                 .members = {{.name = "lender", .guaranteed = {.percent = 100}, .gate = {.max_queue = 1}}}};
  for (std::uint32_t i = 0; i < kBorrowers; ++i)
    o.members.push_back({.name = "borrower " + std::to_string(i)});
  Group group{o};
  std::vector<Permit> held;
  for (std::uint32_t i = 0; i < kBorrowers; ++i) {
    auto permit = group.member("borrower " + std::to_string(i)).try_acquire({.cost = 200'000 + 1000 * i});
    ASSERT_TRUE(permit);
    held.push_back(*std::move(permit));
  }
  call_backs = 0;
  base::sync_point_handler = [](const char* name) {
    call_backs += std::string_view(name) == "group.call_back";
  };
  bool admitted = false;
  group.member("lender").async_acquire({.cost = kTotal},
                                       [&](const Result<Permit>& r) { admitted = r.has_value(); });
  base::sync_point_handler = nullptr;
  EXPECT_GT(call_backs, 0);
  EXPECT_LE(call_backs, static_cast<int>(kBorrowers));
  held.clear();
  EXPECT_TRUE(admitted);
}
#endif

TEST(Group, ErrorsNameTheGroupAndTheFix) {
  const auto error = [](GroupOptions o) -> std::string {
    try {
      Group group{std::move(o)};
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(error({.name = "db", .total = 0}),
            "group \"db\": total = 0 is out of range: give 1 to 268435455");
  EXPECT_EQ(error({.name = "db", .members = {{}}}),
            "group \"db\": a member has no name: give each one its own");
  EXPECT_EQ(error({.name = "db", .members = {{.name = "a"}, {.name = "a"}}}),
            "group \"db\": two members are called \"a\": give each one its own name");
  EXPECT_EQ(error({.name = "db", .members = {{.name = "a", .gate = {.max_concurrent = 3}}}}),
            "group \"db\": member \"a\" has gate.max_concurrent = 3: give guaranteed and max instead");
  EXPECT_EQ(
      error({.name = "db", .members = {{.name = "x"}, {.name = "a", .gate = {.critical_reserve = 2}}}}),
      "bulkhead \"a\": critical_reserve = 2 is out of range: give a share from 0 to below 1, such as 0.2 for "
      "a fifth");
  EXPECT_EQ(error({.name = "db", .keep = -1ns}), "group \"db\": keep is negative: give 0 or more");
}

TEST(Group, AMemberThatSettlesGivesUnitsToTheOthers) {
  Group group{
      {.name = "g",
       .total = 10,
       .lend = Lend::revocable(0),
       .members = {
           {.name = "a", .guaranteed = {.units = 2}, .max = {.units = 10}, .gate = {.max_queue = 4}},
           {.name = "b", .guaranteed = {.units = 2}, .max = {.units = 10}, .gate = {.max_queue = 4}}}}};
  Gate& a = *group.find("a");
  Gate& b = *group.find("b");
  Permit permit = *a.acquire({.cost = 8});
  const std::stop_token stop = permit.stop_token();
  std::vector<Permit> admitted;
  b.async_acquire({.cost = 5}, [&](Result<Permit> r) {
    if (r) admitted.push_back(*std::move(r));
  });
  EXPECT_TRUE(admitted.empty());
  EXPECT_TRUE(permit.settle(6));
  EXPECT_TRUE(admitted.empty());
  EXPECT_TRUE(permit.settle(5));
  EXPECT_EQ(admitted.size(), 1u);
  EXPECT_FALSE(permit.try_grow(1));
  admitted.clear();
  EXPECT_TRUE(permit.try_grow(5)) << "borrowed";
  EXPECT_EQ(a.snapshot().permits, 1u);
  EXPECT_EQ(group.snapshot().in_flight, 10u);
  permit.settle(0);
  EXPECT_TRUE(permit.try_grow(7));
  permit.release();
  EXPECT_EQ(group.snapshot().in_flight, 0u);
  EXPECT_EQ(a.snapshot().permits, 0u);
  EXPECT_TRUE(a.drain(a.clock().now()));
}

TEST(Group, APermitThatHoldsNothingIsNotCalledBack) {
  Group group{halves(Lend::revocable(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  Permit heavy = *a.acquire({.cost = 8}), light = *a.acquire({.cost = 2});
  const std::stop_token heavy_stop = heavy.stop_token(), light_stop = light.stop_token();
  EXPECT_TRUE(light.settle(0));
  std::vector<Permit> admitted;
  const auto ask = [&](std::uint32_t cost) {
    b.async_acquire({.cost = cost}, [&](Result<Permit> r) {
      if (r) admitted.push_back(*std::move(r));
    });
  };
  ask(3);
  EXPECT_FALSE(light_stop.stop_requested()) << "it has nothing to give back";
  EXPECT_TRUE(heavy_stop.stop_requested());
  EXPECT_EQ(group.snapshot().find("a")->revoked, 1u);
  heavy.release();
  EXPECT_EQ(admitted.size(), 1u);

  EXPECT_TRUE(light.try_grow(7)) << "two of them borrowed";
  EXPECT_FALSE(light_stop.stop_requested());
  ask(2);
  EXPECT_TRUE(light_stop.stop_requested()) << "now it has";
  light.release();
  EXPECT_EQ(admitted.size(), 2u);
  Permit empty = *a.acquire();
  EXPECT_TRUE(empty.settle(0));
  EXPECT_FALSE(empty.stop_token().stop_requested()) << "a token of a permit that is empty already";
  empty.release();
  admitted.clear();
  expect_balanced(group);
}

}  // namespace
}  // namespace bulkhead
