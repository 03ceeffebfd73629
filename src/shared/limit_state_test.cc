#include "shared/limit_state.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

namespace bulkhead::shared {
namespace {

constexpr std::int64_t kNow = 1'000'000;

struct Store {
  LimitState state;
  std::int64_t now = kNow;
  std::uint64_t seq = 0;

  StoreRequest request(StoreOp op, const std::string& member) {
    StoreRequest r;
    r.op = op;
    r.member = member;
    r.seq = ++seq;
    r.run = "run";
    r.limit = 10;
    r.seen_ver = state.ver;
    return r;
  }
  StoreReply sync(const std::string& member, std::uint32_t have, std::uint32_t need) {
    StoreRequest r = request(StoreOp::sync, member);
    r.have = have;
    r.need = need;
    return decide(state, r, now);
  }
  // Nobody has units, and it has been learnt.
  void settle() {
    sync("a", 0, 0);
    now += 5000;
    sync("a", 0, 0);
  }
};

TEST(LimitState, AnUnknownLimitIsLearntForOneLease) {
  Store s;
  const StoreReply first = s.sync("a", 0, 4);
  EXPECT_EQ(first.granted, 0u);
  EXPECT_EQ(first.learning, 5000);
  s.now += 1000;
  EXPECT_EQ(s.sync("b", 7, 7).granted, 7u);  // a claim is believed
  for (int i = 0; i < 3; ++i) {
    s.now += 1000;
    s.sync("b", 7, 7);
  }
  s.now += 1000;
  const StoreReply after = s.sync("a", 0, 4);
  EXPECT_EQ(after.learning, 0);
  EXPECT_EQ(after.granted, 3u);
  EXPECT_TRUE(after.hungry);
}

TEST(LimitState, ASilenceIsADoubtUnlessAMemberHasMeasuredIt) {
  const auto after = [](std::int64_t silence, std::int64_t step, auto&& change) {
    Store s;
    s.settle();
    s.sync("b", 0, 3);
    s.now += 500;
    const std::int64_t heard = s.sync("a", 0, 4).at;
    s.now += silence + step;
    StoreRequest r = s.request(StoreOp::renew, "a");
    r.have = r.need = 4;
    r.seen_at = heard;
    r.since = silence;
    change(s, r);
    return decide(s.state, r, s.now).status;
  };
  const auto as_it_is = [](Store&, StoreRequest&) {};
  EXPECT_EQ(after(3000, 0, as_it_is), StoreStatus::ok);
  EXPECT_EQ(after(3000, 1250, as_it_is),
            StoreStatus::ok);  // as a step between two requests that are not far apart
  EXPECT_EQ(after(3000, 1251, as_it_is), StoreStatus::full);
  EXPECT_EQ(after(3000, -3001, as_it_is), StoreStatus::full);
  EXPECT_EQ(after(3000, 0, [](Store&, StoreRequest& r) { r.seen_at = r.since = 0; }), StoreStatus::full);
  // The lease of a member that was silent for so long has ended.
  EXPECT_EQ(after(5000, -1, as_it_is), StoreStatus::full);
  // It has not heard of the store since a doubt, so it cannot say what the clock did before that.
  EXPECT_EQ(after(3000, 0, [](Store& s, StoreRequest& r) { s.state.doubted = r.seen_ver; }),
            StoreStatus::full);
}

// A store that hangs executes what waits in its sockets when it goes on: after the senders have given it up.
TEST(LimitState, ARequestThatIsLateItselfIsNoReasonToLearn) {
  Store s;
  s.settle();
  const std::int64_t heard = s.sync("a", 0, 4).at;
  StoreRequest late = s.request(StoreOp::sync, "a");
  late.have = late.need = 4;
  late.seen_at = heard;
  late.since = 1000;
  s.now += 1000 + 1300;
  const LimitState before = s.state;
  EXPECT_EQ(decide(s.state, late, s.now).status, StoreStatus::full);
  EXPECT_EQ(s.state, before);
  StoreRequest again = s.request(StoreOp::sync, "a");
  again.have = 4;
  again.need = 6;
  again.seen_at = heard;
  again.since = 2300;
  const StoreReply reply = decide(s.state, again, s.now);
  EXPECT_EQ(reply.learning, 0);
  EXPECT_EQ(reply.granted, 6u);
  // Its sender has read the reply, so it was the clock.
  s.now += 1300;
  again = s.request(StoreOp::sync, "a");
  again.have = 6;
  EXPECT_EQ(decide(s.state, again, s.now).learning, 5000);
}

TEST(LimitState, ARepliesTimeAndTheSpareUnitsAreThoseAfterIt) {
  Store s;
  s.settle();
  const StoreReply reply = s.sync("a", 0, 4);
  EXPECT_EQ(reply.at, s.now);
  EXPECT_EQ(reply.spare, 6u);
}

TEST(LimitState, ALateRequestChangesNothing) {
  Store s;
  s.settle();
  StoreRequest late = s.request(StoreOp::sync, "a");
  late.have = 0;
  late.need = 9;
  EXPECT_EQ(s.sync("a", 0, 3).granted, 3u);
  const LimitState before = s.state;
  EXPECT_EQ(decide(s.state, late, s.now).status, StoreStatus::stale);
  EXPECT_EQ(s.state, before);
}

TEST(LimitState, UnitsOfAMemberThatIsSilentComeBackAfterItsLeaseAndTheGrace) {
  Store s;
  s.settle();
  EXPECT_EQ(s.sync("dead", 0, 10).granted, 10u);
  StoreRequest r = s.request(StoreOp::sync, "a");
  for (int i = 1; i <= 6; ++i) {
    s.now += 1000;
    r = s.request(StoreOp::sync, "a");
    r.need = 10;
    r.grace = 1000;
    EXPECT_EQ(decide(s.state, r, s.now).granted, i == 6 ? 10u : 0u) << i;
  }
}

TEST(LimitState, LeavingReturnsEverythingAtOnce) {
  Store s;
  s.settle();
  EXPECT_EQ(s.sync("b", 0, 10).granted, 10u);
  EXPECT_EQ(decide(s.state, s.request(StoreOp::leave, "b"), s.now).status, StoreStatus::ok);
  EXPECT_EQ(s.sync("a", 0, 10).granted, 10u);
}

TEST(LimitState, BorrowingAndGivingBackReadOneMemberOnly) {
  Store s;
  s.settle();
  StoreRequest r = s.request(StoreOp::borrow, "a");
  r.want = 6;
  EXPECT_EQ(decide(s.state, r, s.now).granted, 6u);
  s.sync("b", 0, 0);
  r = s.request(StoreOp::borrow, "b");
  r.want = 6;
  EXPECT_EQ(decide(s.state, r, s.now).granted, 4u);
  r = s.request(StoreOp::give_back, "a");
  r.have = 1;
  EXPECT_EQ(decide(s.state, r, s.now).granted, 1u);
  EXPECT_EQ(s.state.sum, 5u);
}

TEST(LimitState, TheFastOperationsAskForASyncWheneverThereIsDoubt) {
  const auto fails = [](auto&& change) {
    Store s;
    s.settle();
    s.sync("a", 0, 3);
    StoreRequest r = s.request(StoreOp::renew, "a");
    r.have = 3;
    change(s, r);
    const LimitState before = s.state;
    const bool full = decide(s.state, r, s.now).status == StoreStatus::full;
    EXPECT_TRUE(!full || s.state == before);
    return full;
  };
  EXPECT_FALSE(fails([](Store&, StoreRequest&) {}));
  EXPECT_TRUE(fails([](Store& s, StoreRequest&) { s.state = {}; }));
  EXPECT_TRUE(fails([](Store& s, StoreRequest&) { s.state.members.clear(); }));
  EXPECT_TRUE(fails([](Store& s, StoreRequest&) { s.now += 1251; }));
  EXPECT_TRUE(fails([](Store& s, StoreRequest&) { s.now -= 1; }));
  EXPECT_TRUE(fails([](Store&, StoreRequest& r) { r.run = "other"; }));
  EXPECT_TRUE(fails([](Store&, StoreRequest& r) { r.seen_ver += 1; }));
  EXPECT_TRUE(fails([](Store& s, StoreRequest&) { s.state.learn = s.now + 1; }));
  EXPECT_TRUE(fails([](Store&, StoreRequest& r) { r.have = 4; }));
  EXPECT_TRUE(fails([](Store&, StoreRequest& r) { r.limit_version = 1; }));
}

TEST(LimitState, AnOldConfigurationDoesNotRevertTheLimit) {
  Store s;
  s.settle();
  s.sync("b", 0, 0);
  StoreRequest r = s.request(StoreOp::sync, "b");
  r.limit = 20;
  r.limit_version = kVersionStep;
  EXPECT_EQ(decide(s.state, r, s.now).limit, 20u);
  EXPECT_EQ(s.sync("a", 0, 0).limit, 20u);
  r = s.request(StoreOp::sync, "a");
  r.limit = 30;
  r.limit_version = kVersionStep;
  EXPECT_EQ(decide(s.state, r, s.now).limit, 20u);
  r.seq = ++s.seq;
  r.limit_version = kVersionStep + 1;
  EXPECT_EQ(decide(s.state, r, s.now).limit, 30u);
}

TEST(LimitState, TheLastMemberStatesTheLimitAgain) {
  Store s;
  s.settle();
  StoreRequest r = s.request(StoreOp::sync, "a");
  r.limit = 12;
  EXPECT_EQ(decide(s.state, r, s.now).limit, 12u);
  s.sync("b", 0, 0);
  r = s.request(StoreOp::sync, "a");
  r.limit = 14;
  EXPECT_EQ(decide(s.state, r, s.now).limit, 12u);
}

// F1, F3 and F4 for any requests, in any order.
RC_GTEST_PROP(LimitState, GrantsStayWithinTheLimit, ()) {
  Store s;
  s.settle();
  const int steps = *rc::gen::inRange(1, 120);
  for (int i = 0; i < steps; ++i) {
    const std::string member(1, static_cast<char>('a' + *rc::gen::inRange(0, 5)));
    StoreRequest r = s.request(static_cast<StoreOp>(*rc::gen::inRange(0, 6)), member);
    const auto own = s.state.members.find(member);
    const std::uint32_t granted = own == s.state.members.end() ? 0 : own->second.granted;
    r.have = *rc::gen::inRange<std::uint32_t>(0, granted + 1);
    r.want = *rc::gen::inRange<std::uint32_t>(0, 12);
    r.need = *rc::gen::inRange<std::uint32_t>(0, 12);
    r.slack = *rc::gen::inRange<std::uint32_t>(0, 4);
    r.limit = *rc::gen::inRange<std::uint32_t>(5, 15);
    r.limit_version = *rc::gen::inRange<std::uint64_t>(0, 4);
    if (*rc::gen::inRange(0, 10) == 0) r.seq = 1;
    s.now += *rc::gen::inRange(0, 1500);
    const LimitState before = s.state;
    const StoreReply reply = decide(s.state, r, s.now);
    if (reply.status != StoreStatus::ok) {
      RC_ASSERT(s.state == before);
      continue;
    }
    std::uint64_t sum = 0;
    for (const auto& [id, m] : s.state.members) sum += m.granted;
    RC_ASSERT(sum == s.state.sum);
    RC_ASSERT(sum <= std::max<std::uint64_t>(s.state.limit, before.sum));
    RC_ASSERT(s.state.ver > before.ver || r.op == StoreOp::leave || r.op == StoreOp::list);
    if (r.op == StoreOp::list) RC_ASSERT(s.state.members == before.members && s.state.ver == before.ver);
    for (const auto& [id, m] : before.members)
      if (id != member && s.state.members.contains(id)) RC_ASSERT(s.state.members.at(id) == m);
    if (reply.learning > 0 && r.op == StoreOp::sync) RC_ASSERT(reply.granted == r.have);
    const auto was = before.members.find(member);
    if (was != before.members.end() && r.op == StoreOp::sync)
      RC_ASSERT(reply.granted >= r.have || s.now >= was->second.expires);
  }
}

}  // namespace
}  // namespace bulkhead::shared
