#include "shared/member_list.h"

#include <gtest/gtest.h>

#include <string>

namespace bulkhead::shared {
namespace {

constexpr std::int64_t kNow = 1'000'000;

LimitState state() {
  LimitState s{.known = true, .limit = 50};
  s.members["a-1"] = {.granted = 5, .need = 3, .expires = kNow + 4000};
  s.members["b-2"] = {.granted = 1, .need = 9, .expires = kNow + 10};
  s.members["c-3"] = {.granted = 7, .need = 7, .expires = kNow};
  return s;
}

TEST(MemberList, HasTheSumsAndThoseThatHoldOrNeedMostFirst) {
  MemberList list;
  ASSERT_TRUE(read_list(list_of(state(), 10, kNow), list));
  EXPECT_EQ(list, (MemberList{.leased = 2,
                              .lapsed = 1,
                              .held = 6,
                              .needed = 12,
                              .lapsed_held = 7,
                              .members = {{"b-2", 1, 9, 10}, {"c-3", 7, 7, 0}, {"a-1", 5, 3, 4000}}}));
}

TEST(MemberList, IsCutAfterTheFirstMembersAndItsSumsAreNot) {
  MemberList list;
  ASSERT_TRUE(read_list(list_of(state(), 1, kNow), list));
  ASSERT_EQ(list.members.size(), 1u);
  EXPECT_EQ(list.members[0].name, "b-2");
  EXPECT_EQ(list.leased + list.lapsed, 3u);
}

TEST(MemberList, AMemberWithoutANameIsListed) {
  LimitState s{.known = true, .limit = 50};
  s.members[""] = {.granted = 5, .need = 3, .expires = kNow + 1};
  MemberList list;
  ASSERT_TRUE(read_list(list_of(s, 10, kNow), list));
  ASSERT_EQ(list.members.size(), 1u);
  EXPECT_EQ(list.members[0].name, "");
}

TEST(MemberList, OtherTextsAreNotOne) {
  MemberList list;
  for (const char* text : {"", "\n", "1 2 3 4\n", "1 2 3 4 5", "1 2 3 4 5 6\n", "1 2 3 4 5\n7 8\n",
                           "1 2 3 4 x\n", "1 2 3 4 5\n99999999999 1 1 a\n", "-1 2 3 4 5\n"})
    EXPECT_FALSE(read_list(text, list)) << text;
}

// Ten thousand members that look at the list make it once per ten seconds.
TEST(MemberList, IsMadeAtMostOncePerHeartbeatAndMoreSeldomForManyMembers) {
  LimitState s = state();
  StoreRequest ask{.op = StoreOp::list, .want = kListedMembers, .ttl = 5000};
  const auto made_anew = [&](std::int64_t now) { return decide(s, ask, now).list_age == 0; };
  EXPECT_TRUE(made_anew(kNow));
  EXPECT_FALSE(made_anew(kNow + 999));
  EXPECT_EQ(decide(s, ask, kNow + 999).list_age, 999);
  EXPECT_TRUE(made_anew(kNow + 1000));
  EXPECT_TRUE(made_anew(kNow - 5000)) << "the clock of the store went back";
  for (int i = 0; i < 10'000; ++i) s.members["m" + std::to_string(i)] = {.expires = kNow + 100'000};
  const std::int64_t later = kNow - 5000 + 20'000;
  EXPECT_TRUE(made_anew(later));
  EXPECT_FALSE(made_anew(later + 9999));
  EXPECT_TRUE(made_anew(later + 10'003));
  EXPECT_LT(s.list.size(), 5000u);
}

TEST(MemberList, ALookChangesNothingThatALimitDependsOn) {
  LimitState s = state();
  const LimitState before = s;
  decide(s, {.op = StoreOp::list, .want = kListedMembers, .ttl = 5000}, kNow);
  s.listed = 0;
  s.list.clear();
  EXPECT_EQ(s, before);
  LimitState none;
  EXPECT_EQ(decide(none, {.op = StoreOp::list, .want = kListedMembers}, kNow).list, "");
  EXPECT_EQ(none, LimitState());
}

}  // namespace
}  // namespace bulkhead::shared
