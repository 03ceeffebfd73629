#include "shared/lease.h"

#include <gtest/gtest.h>

#include "shared/demand.h"

namespace bulkhead::shared {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;

struct Member {
  explicit Member(WhenCutOff mode, bool direct = false, double max_share = 1)
      : lease({.member = "a",
               .when_cut_off = mode,
               .static_for = 60 * kSecond,
               .max_share = max_share,
               .limit = 20,
               .direct = direct}) {}
  Lease lease;
  std::int64_t now = 100 * kSecond;

  StoreRequest ask(const Lease::Needs& needs = {}) {
    auto r = lease.next(needs, "run", now);
    EXPECT_TRUE(r);
    return r ? *r : StoreRequest();
  }
  void grant(std::uint64_t seq, std::uint32_t units, std::uint32_t members = 4) {
    lease.on_reply(seq, {.ver = 1, .granted = units, .target = units, .members = members, .limit = 20}, now);
  }
};

TEST(Lease, TheTimesKeepTheirRules) {
  for (const std::int64_t lease : {kSecond / 2, kSecond, 5 * kSecond, 60 * kSecond, 600 * kSecond}) {
    EXPECT_TRUE(LeaseTimes::from(lease, 0).hold());
    EXPECT_LE(LeaseTimes::from(lease, 0).reply_timeout, 2 * kSecond);  // the end of a process waits for one
  }
}

TEST(Lease, AdmitsWithinItsCapUntilItsDeadline) {
  Member m(WhenCutOff::closed);
  EXPECT_FALSE(m.lease.take(1, m.now));
  m.grant(m.ask().seq, 3);
  EXPECT_TRUE(m.lease.take(2, m.now));
  EXPECT_FALSE(m.lease.take(2, m.now));
  EXPECT_TRUE(m.lease.take(1, m.now));
  m.lease.give_back(3);
  EXPECT_TRUE(m.lease.take(1, m.lease.deadline() - 1));
  EXPECT_FALSE(m.lease.take(1, m.lease.deadline()));
}

TEST(Lease, TheDeadlineCountsFromTheSendingNotFromTheReply) {
  Member m(WhenCutOff::closed);
  const StoreRequest r = m.ask();
  m.now += 400'000'000;
  m.grant(r.seq, 3);
  EXPECT_EQ(m.lease.deadline(), 100 * kSecond + 5 * kSecond - 1'400'000'000);
}

TEST(Lease, AReplyToAnEarlierRequestIsIgnored) {
  Member m(WhenCutOff::closed);
  const StoreRequest first = m.ask();
  m.now += kSecond;
  const StoreRequest second = m.ask();
  EXPECT_GT(second.seq, first.seq);
  m.grant(first.seq, 9);
  EXPECT_EQ(m.lease.cap(), 0u);
  m.grant(second.seq, 2);
  EXPECT_EQ(m.lease.cap(), 2u);
}

TEST(Lease, ALapsedMemberClaimsWhatItsModeAllows) {
  const auto claims = [](WhenCutOff mode, std::uint32_t& degraded) {
    Member m(mode, false, 0.75);
    m.grant(m.ask().seq, 12);
    m.now = m.lease.deadline();
    degraded = m.lease.allowed(m.now);
    EXPECT_EQ(m.lease.allowed(m.now + 60 * kSecond), 0u);
    return m.ask().have;
  };
  std::uint32_t degraded = 0;
  EXPECT_EQ(claims(WhenCutOff::closed, degraded), 0u);
  EXPECT_EQ(degraded, 0u);
  EXPECT_EQ(claims(WhenCutOff::safe_share, degraded), 5u);  // 20 / 4
  EXPECT_EQ(degraded, 5u);
  EXPECT_EQ(claims(WhenCutOff::keep, degraded), 12u);
  EXPECT_EQ(degraded, 12u);
  EXPECT_EQ(claims(WhenCutOff::local, degraded), 5u);
  EXPECT_EQ(degraded, 15u);
}

TEST(Lease, ADirectMemberThatIsCutOffAdmitsItsShare) {
  Member m(WhenCutOff::safe_share, true);
  m.grant(m.ask().seq, 0);
  EXPECT_EQ(m.lease.allowed(m.lease.deadline()), 5u);
  m.now = m.lease.deadline();
  EXPECT_EQ(m.ask().have, 5u);
}

TEST(Lease, WhatWasGivenBackIsNotUsedWithoutALease) {
  Member m(WhenCutOff::keep);
  m.grant(m.ask().seq, 12);
  m.now += kSecond;
  const StoreRequest r = m.ask({.need = 3});
  m.lease.on_reply(r.seq, {.ver = 2, .granted = 12, .target = 3, .members = 4, .limit = 20}, m.now);
  m.now += kSecond;
  EXPECT_EQ(m.ask({.need = 3}).have, 3u);  // its reply is lost
  EXPECT_EQ(m.lease.allowed(m.lease.deadline()), 3u);
}

TEST(Lease, AMemberThatStartsClaimsItsPartIfItKnowsHowManyThereAre) {
  const auto claims = [](WhenCutOff mode, std::uint32_t replicas, bool direct) {
    Lease lease({.member = "a", .when_cut_off = mode, .replicas = replicas, .limit = 20, .direct = direct});
    const auto r = lease.next({}, "run", kSecond);
    EXPECT_EQ(lease.allowed(kSecond), mode == WhenCutOff::local ? 20u : 0u);  // nothing is granted yet
    lease.on_reply(r->seq,
                   {.ver = 1, .granted = r->have, .learning = 5000, .members = 1, .limit = 20, .spare = 1},
                   kSecond);
    EXPECT_EQ(lease.allowed(kSecond), r->have);
    EXPECT_EQ(lease.next({}, "run", 2 * kSecond)->have, r->have);  // and keeps it while the store learns
    return r->have;
  };
  for (const bool direct : {false, true}) {
    EXPECT_EQ(claims(WhenCutOff::safe_share, 8, direct), 2u);
    EXPECT_EQ(claims(WhenCutOff::keep, 8, direct), 2u);
    EXPECT_EQ(claims(WhenCutOff::local, 8, direct), 2u);
    EXPECT_EQ(claims(WhenCutOff::safe_share, 40, direct), 0u);
    EXPECT_EQ(claims(WhenCutOff::safe_share, 0, direct), 0u);
    EXPECT_EQ(claims(WhenCutOff::closed, 8, direct), 0u);  // it promises the limit and nothing on top
  }
}

// The first of a fleet has seen no other member yet.
TEST(Lease, TheSafeShareIsThatOfAllMembersThatThereWillBe) {
  Lease lease({.member = "a", .replicas = 5, .limit = 20, .direct = true});
  lease.on_reply(lease.next({}, "run", kSecond)->seq, {.ver = 1, .members = 1, .limit = 20}, kSecond);
  EXPECT_EQ(lease.allowed(lease.deadline()), 4u);
}

TEST(Lease, ADegradedModeMayLastForEver) {
  Lease lease({.member = "a", .static_for = INT64_MAX, .limit = 20, .direct = true});
  lease.on_reply(lease.next({}, "run", kSecond)->seq, {.ver = 1, .members = 4, .limit = 20}, kSecond);
  EXPECT_EQ(lease.allowed(1000 * kSecond), 5u);
}

TEST(Lease, OnlyLocalAdmitsBeforeTheFirstLease) {
  EXPECT_FALSE(Member(WhenCutOff::safe_share).lease.take(1, kSecond));
  EXPECT_TRUE(Member(WhenCutOff::local).lease.take(1, kSecond));
}

TEST(Lease, TheCapOfTheProcessHoldsAboveWhatIsGranted) {
  Member m(WhenCutOff::closed, false, 0.1);
  const StoreRequest r = m.ask({.need = 9});
  EXPECT_EQ(r.need, 2u);
  m.grant(r.seq, 9);
  EXPECT_EQ(m.lease.cap(), 2u);
}

TEST(Lease, WhatIsAboveTheTargetIsGivenBackOnceCallsEnd) {
  Member m(WhenCutOff::closed);
  m.grant(m.ask().seq, 8);
  EXPECT_TRUE(m.lease.take(6, m.now));
  m.now += kSecond;
  const StoreRequest r = m.ask({.need = 3});
  m.lease.on_reply(r.seq, {.ver = 2, .granted = 8, .target = 4, .members = 4, .limit = 20}, m.now);
  EXPECT_EQ(m.lease.held(), 6u);
  m.lease.give_back(1);
  EXPECT_FALSE(m.lease.take(1, m.now));  // or it would never become less
  m.lease.give_back(2);
  EXPECT_TRUE(m.lease.take(1, m.now));
  EXPECT_EQ(m.lease.held(), 4u);
  m.now += 20'000'001;  // and it does not wait for the next heartbeat to say so
  const StoreRequest back = m.ask({.need = 3});
  EXPECT_EQ(back.op, StoreOp::give_back);
  EXPECT_EQ(back.have, 4u);
  m.grant(back.seq, 4);
  EXPECT_EQ(m.lease.cap(), 4u);
}

TEST(Lease, AHeavyCallNeedsAllItsUnitsAtOnce) {
  Member m(WhenCutOff::closed);
  m.grant(m.ask().seq, 2);
  m.now += kSecond;
  EXPECT_EQ(m.ask({.need = 1, .line = 9, .first = 8, .rejected = true}).need, 8u);  // the first in line
  m.now += kSecond;
  EXPECT_EQ(m.ask({.need = 1, .first = 7, .rejected = true}).need, 7u);  // one that could not wait
  m.now += kSecond;
  EXPECT_EQ(m.ask({.need = 1, .line = 9, .first = 1, .rejected = true}).need, 1u);  // light ones step by step
}

TEST(Lease, DirectBorrowsWhatTheLineNeedsAndReturnsWhatIsIdle) {
  Member m(WhenCutOff::closed, true);
  m.grant(m.ask().seq, 0);
  StoreRequest r = m.ask({.line = 2});
  EXPECT_EQ(r.op, StoreOp::borrow);
  EXPECT_EQ(r.want, 2u);
  m.grant(r.seq, 2);
  EXPECT_TRUE(m.lease.take(2, m.now));
  EXPECT_FALSE(m.lease.next({}, "run", m.now));  // in use: nothing to say before the next heartbeat
  m.lease.give_back(2);
  r = m.ask();
  EXPECT_EQ(r.op, StoreOp::give_back);
  EXPECT_EQ(r.have, 0u);
  EXPECT_FALSE(m.lease.take(1, m.now));
}

// While units are left over, a direct member keeps what its calls need all the time.
TEST(Lease, DirectKeepsItsNeedWhileThereIsRoom) {
  Member m(WhenCutOff::closed, true);
  const auto reply = [&](std::uint32_t granted, std::uint32_t spare, bool hungry = false) {
    return StoreReply{
        .ver = 1, .granted = granted, .members = 4, .limit = 20, .hungry = hungry, .spare = spare};
  };
  const Lease::Needs busy{.need = 2};
  m.lease.on_reply(m.ask().seq, reply(0, 20), m.now);
  m.lease.on_reply(m.ask({.need = 2, .line = 3}).seq, reply(3, 5), m.now);
  EXPECT_EQ(m.ask(busy).have, 2u);  // the third one goes back at once
  m.lease.on_reply(3, reply(2, 5), m.now);
  EXPECT_FALSE(m.lease.next(busy, "run", m.now));
  EXPECT_TRUE(m.lease.take(2, m.now));  // no request
  m.lease.give_back(2);
  m.now += kSecond;
  EXPECT_EQ(m.ask(busy).have, 2u);  // a heartbeat
  m.lease.on_reply(4, reply(2, 4), m.now);
  EXPECT_EQ(m.ask(busy).have, 0u);  // others have come
  m.lease.on_reply(5, reply(0, 4), m.now);

  m.lease.on_reply(m.ask({.need = 2, .line = 2}).seq, reply(2, 15), m.now);
  m.now += kSecond;
  m.lease.on_reply(m.ask(busy).seq, reply(2, 15, true), m.now);  // another member got too little
  EXPECT_EQ(m.ask(busy).have, 0u);
}

// Learning grants nothing new, so what is given back is lost until it ends.
TEST(Lease, NothingIsGivenBackWhileTheStoreLearns) {
  for (const bool direct : {false, true}) {
    Member m(WhenCutOff::closed, direct);
    m.grant(m.ask({.need = 3, .line = 3}).seq, 3);
    m.now += kSecond;
    const StoreRequest r = m.ask({.need = 3, .line = 1});
    m.lease.on_reply(r.seq, {.ver = 2, .granted = 3, .target = 1, .learning = 5000, .limit = 20, .spare = 17},
                     m.now);
    EXPECT_EQ(m.lease.held(), 3u);
    EXPECT_FALSE(m.lease.next({}, "run", m.now));
    m.now += kSecond;
    EXPECT_EQ(m.ask().have, 3u);
    // The limit was lowered: this one holds too much.
    m.lease.on_reply(3, {.ver = 3, .granted = 3, .target = 1, .learning = 4000, .limit = 2}, m.now);
    EXPECT_EQ(m.lease.held(), 1u);
  }
}

// What a request says of the time: at least so much has passed on this machine since the store's time that it saw last.
TEST(Lease, SaysHowLongTheStoreWasSilent) {
  Member m(WhenCutOff::closed);
  StoreRequest r = m.ask();
  EXPECT_EQ(r.seen_at, 0);
  m.now += 100'000'000;
  m.lease.on_reply(r.seq, {.ver = 1, .granted = 3, .limit = 20, .at = 77'000}, m.now);
  m.now += 2 * kSecond + 999'999;
  r = m.ask();
  EXPECT_EQ(r.seen_at, 77'000);
  EXPECT_EQ(r.since, 2000);
  m.lease.on_reply(r.seq, {.status = StoreStatus::full, .ver = 1, .limit = 20, .at = 79'100}, m.now);
  m.now += kSecond;
  EXPECT_EQ(m.ask().seen_at, 0);  // the store has not taken its word, so the time in that reply says nothing
}

TEST(Lease, DirectRemembersForAMomentThatTheLimitIsFull) {
  Member m(WhenCutOff::closed, true);
  m.grant(m.ask().seq, 0);
  m.grant(m.ask({.line = 1}).seq, 0);
  EXPECT_FALSE(m.lease.next({.line = 1}, "run", m.now));
  m.now += 5'000'000;
  EXPECT_TRUE(m.lease.next({.line = 1}, "run", m.now));
}

// Otherwise a member whose line never ends sends a request per reply, and no other gets a unit.
TEST(Lease, ADirectMemberWithAllUnitsAsksAtAMeasuredPace) {
  Member m(WhenCutOff::closed, true);
  m.grant(m.ask({.line = 20}).seq, 20);
  ASSERT_TRUE(m.lease.take(20, m.now));
  const Lease::Needs waiting{.line = 4};
  EXPECT_FALSE(m.lease.next(waiting, "run", m.now + 1'000'000));
  EXPECT_TRUE(m.lease.next(waiting, "run", m.now + 21'000'000));
}

TEST(Lease, ADirectMemberWithItsShareLeavesWhatItGivesBackToOthers) {
  Member m(WhenCutOff::closed, true);
  const Lease::Needs waiting{.line = 10};
  const auto hungry = [&](std::uint64_t seq, std::uint32_t granted, std::uint32_t target) {
    m.lease.on_reply(
        seq, {.ver = 1, .granted = granted, .target = target, .members = 2, .limit = 20, .hungry = true},
        m.now);
  };
  m.grant(m.ask(waiting).seq, 20);
  ASSERT_TRUE(m.lease.take(20, m.now));
  m.now += kSecond;
  hungry(m.ask(waiting).seq, 20, 20);  // a renewal; the next request asks for the share
  m.now += kSecond;
  StoreRequest r = m.ask(waiting);
  ASSERT_EQ(r.op, StoreOp::sync);
  hungry(r.seq, 20, 10);
  m.lease.give_back(6);  // 14 calls still run, so the cap of 10 admits none
  m.now += 30'000'000;
  r = m.ask(waiting);
  EXPECT_EQ(r.op, StoreOp::give_back);
  EXPECT_EQ(r.have, 14u);
  hungry(r.seq, 14, 14);
  EXPECT_FALSE(m.lease.next(waiting, "run", m.now + 4'000'000)) << "others have the first chance";
  m.now += 6'000'000;
  EXPECT_TRUE(m.lease.next(waiting, "run", m.now));
}

TEST(Lease, HeartbeatsRenewAndDemandSyncs) {
  Member m(WhenCutOff::closed);
  const Lease::Needs same{.need = 2, .slack = 1};
  m.grant(m.ask(same).seq, 3);
  EXPECT_FALSE(m.lease.next(same, "run", m.now));
  m.now += kSecond;
  const StoreRequest r = m.ask(same);
  EXPECT_EQ(r.op, StoreOp::renew);
  EXPECT_EQ(r.have, 3u);
  m.grant(r.seq, 3);
  m.now += 20'000'001;
  EXPECT_EQ(m.ask({.need = 2, .slack = 1, .rejected = true}).op, StoreOp::sync);
}

TEST(Lease, AnOperatorsLimitIsStatedAtOnceWithANewVersion) {
  Member m(WhenCutOff::closed);
  m.grant(m.ask().seq, 3);
  EXPECT_TRUE(m.lease.set_limit(30));
  const StoreRequest r = m.ask();
  EXPECT_EQ(r.op, StoreOp::sync);
  EXPECT_EQ(r.limit, 30u);
  EXPECT_EQ(r.limit_version, 1u);
}

TEST(Lease, AMemberPassesOnTheNewestLimitItHasSeen) {
  Member m(WhenCutOff::closed);
  m.lease.on_reply(m.ask().seq, {.ver = 1, .granted = 3, .members = 1, .limit = 50, .limit_version = 7},
                   m.now);
  m.now += kSecond;
  EXPECT_EQ(m.ask().limit, 50u);
  EXPECT_EQ(m.lease.limit(), 50u);
}

TEST(Demand, IsArrivalsTimesTheMeanTimeOfACall) {
  Demand d;
  for (int i = 0; i < 100; ++i) d.sample(0.1, 20, 10, 4);  // half of the calls are rejected; 4 in use
  EXPECT_EQ(d.units(1000).need, 8u);
  EXPECT_EQ(d.units(1000).slack, 6u);
  EXPECT_EQ(d.units(5).need, 5u);
}

TEST(Demand, FortySmallPoolsLoseWhatOneLargePoolDoesNot) {
  EXPECT_NEAR(erlang_b(5, 3), 0.11, 0.005);
  EXPECT_LT(erlang_b(200, 120), 1e-9);
  EXPECT_EQ(erlang_b(5, 0), 0);
}

TEST(Demand, GrowsFromRejectedCallsAlone) {
  Demand d;
  d.sample(0.1, 5, 0, 0);
  EXPECT_GE(d.units(100).need, 1u);
}

TEST(Demand, AnIdleProcessKeepsOneUnitOfSlack) {
  Demand d;
  for (int i = 0; i < 100; ++i) d.sample(0.1, 0, 0, 0);
  EXPECT_EQ(d.units(100).need, 0u);
  EXPECT_EQ(d.units(100).slack, 1u);
}

}  // namespace
}  // namespace bulkhead::shared
