// Changes of a group: its total, shares and members.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "bulkhead/group.h"
#include "group/group_test.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

TEST(Group, AMemberCannotBeResizedFromOutside) {
  Group group{halves(Lend::none())};
  EXPECT_THROW(group.member("a").resize(7), std::invalid_argument);
  group.member("a").resize_queue(3);
  EXPECT_EQ(group.member("a").snapshot().max_queue, 3u);
}

TEST(Group, GrowingTheTotalAdmitsThoseWhoWait) {
  Group group{halves(Lend::headroom(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  const Permits held = take(a, 10);
  Caller lender(b), greedy(a);
  group.resize(12);
  EXPECT_TRUE(lender.admitted());
  EXPECT_TRUE(greedy.admitted());
  EXPECT_EQ(group.snapshot().find("a")->guaranteed, 6u);
  expect_balanced(group);
}

TEST(Group, AfterTheTotalShrankNobodyIsAdmittedUntilItFits) {
  Group group{halves(Lend::headroom(0))};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(a, 10);
  group.resize(4);
  EXPECT_EQ(group.snapshot().total, 4u);
  EXPECT_FALSE(a.try_acquire());
  held.resize(4);
  EXPECT_FALSE(a.try_acquire());
  held.clear();
  EXPECT_EQ(take(a, 10).size(), 4u);
  EXPECT_EQ(take(b, 10).size(), 4u);
  expect_balanced(group);
}

TEST(Group, ARaisedGuaranteeIsCalledBackWhenItIsNeeded) {
  Group group{{.total = 10,
               .members = {{.name = "a", .guaranteed = {.units = 2}, .gate = {.max_queue = 9}},
                           {.name = "b", .guaranteed = {.units = 8}}}}};
  Gate &a = group.member("a"), &b = group.member("b");
  Permits held = take(b, 8);
  const Permits own = take(a, 2);
  Caller third(a);
  EXPECT_TRUE(third.pending());
  EXPECT_THROW(group.update("a", {.units = 3}), std::invalid_argument);
  EXPECT_EQ(group.snapshot().find("a")->guaranteed, 2u);
  group.update("b", {.units = 5});
  group.update("a", {.units = 5});
  EXPECT_TRUE(third.pending());
  held.pop_back();
  EXPECT_TRUE(third.admitted());
}

TEST(Group, ALoweredMaxTakesEffectAtOnce) {
  Group group{halves(Lend::headroom(0))};
  Permits held = take(group.member("a"), 10);
  group.update("a", {.units = 5}, {.units = 6});
  held.resize(6);
  EXPECT_FALSE(group.member("a").try_acquire());
  EXPECT_EQ(take(group.member("b"), 9).size(), 4u);
}

TEST(Group, ANewMemberHasItsGuarantee) {
  Group group{
      {.total = 10, .members = {{.name = "a", .guaranteed = {.units = 5}, .gate = {.max_queue = 3}}}}};
  Permits held = take(group.member("a"), 10);
  Gate& b = group.add({.name = "b", .guaranteed = {.units = 3}, .gate = {.max_queue = 3}});
  Caller first(b);
  EXPECT_TRUE(first.pending());
  held.pop_back();
  EXPECT_TRUE(first.admitted());
  EXPECT_THROW(group.add({.name = "b"}), std::invalid_argument);
  EXPECT_THROW(group.add({.name = "c", .guaranteed = {.units = 3}}), std::invalid_argument);
  EXPECT_EQ(group.find("c"), nullptr);
}

TEST(Group, ARemovedMemberLeavesItsUnitsToTheOthers) {
  Group group{halves(Lend::none())};
  Permits b = take(group.member("b"), 2);
  EXPECT_FALSE(group.remove("b", TimePoint::min())) << "it still runs";
  EXPECT_EQ(group.member("b").try_acquire().error().reason, Reason::shutdown);
  {
    const Permits a = take(group.member("a"), 10);
    EXPECT_EQ(a.size(), 8u) << "its guarantee is free at once";
  }
  b.clear();
  EXPECT_TRUE(group.remove("b"));
  EXPECT_FALSE(group.remove("b"));
  EXPECT_EQ(group.find("b"), nullptr);
  EXPECT_EQ(take(group.member("a"), 12).size(), 10u);
  expect_balanced(group);
}

TEST(Group, AClosedMemberLendsEverything) {
  Group group{halves(Lend::none())};
  Caller* waiting = nullptr;
  const Permits a = take(group.member("a"), 5);
  Caller next(group.member("a"));
  waiting = &next;
  EXPECT_TRUE(waiting->pending());
  group.member("b").close();
  EXPECT_TRUE(next.admitted());
}

// Every change of the shape can admit a waiting call, and the hook or handler of that call may change the shape again.
TEST(Group, AHookOrHandlerThatAnotherShapeLetsInMayChangeTheShapeAgain) {
  struct Way {
    const char* name;
    void (*let_in)(Group&);
  };
  const Way ways[] = {
      {"resize", [](Group& g) { g.resize(12); }},
      {"update one", [](Group& g) { g.update("b", {.units = 3}); }},
      {"update all", [](Group& g) { g.update(12, {{.member = "a", .guaranteed = {.units = 6}}}); }},
      {"add", [](Group& g) { g.add({.name = "c"}), g.resize(12); }},
      {"remove", [](Group& g) { g.remove("b"); }},
  };
  for (const auto& [name, let_in] : ways) {
    SCOPED_TRACE(name);
    int hooks = 0, handlers = 0;
    Group* group = nullptr;
    const auto change = [&](int& times) {
      if (!group || ++times > 1) return;
      const std::uint32_t total = group->total();
      group->check(total, {{.member = "a", .guaranteed = {.units = 1}}});
      group->resize(total + 1);
      group->update("a", {.units = 2});
      group->update(total, {{.member = "a", .guaranteed = {.units = 1}}});
      EXPECT_NE(group->find("a"), nullptr);
      EXPECT_EQ(group->snapshot().total, total);
    };
    Group made{
        {.total = 10,
         .lend = Lend::none(),
         .members = {{.name = "a",
                      .guaranteed = {.units = 5},
                      .gate = {.max_queue = 8, .hooks = {.on_admit = [&](const Event&) { change(hooks); }}}},
                     {.name = "b", .guaranteed = {.units = 5}, .gate = {.max_queue = 8}}}}};
    Permits held = take(made.member("a"), 5);
    std::vector<Permit> admitted;
    for (int i = 0; i < 2; ++i)
      made.member("a").async_acquire({}, [&](Result<Permit> r) {
        if (r) admitted.push_back(*std::move(r));
        change(handlers);
      });
    group = &made;
    let_in(made);
    EXPECT_GE(hooks, 1);
    EXPECT_GE(handlers, 1);
    EXPECT_FALSE(admitted.empty());
    made.member("a").close();
    admitted.clear();
    held.clear();
    for (const auto& m : made.snapshot().members) EXPECT_EQ(m.in_flight, 0u) << m.name;
  }
}

// A handler that a change of shape lets in runs when nothing is held that removing another member needs.
TEST(Group, AHandlerThatResizeLetsInMayRemoveAnotherMember) {
  Group group{{.total = 4,
               .lend = Lend::none(),
               .members = {{.name = "a", .guaranteed = {.percent = 50}, .gate = {.max_queue = 8}},
                           {.name = "b", .guaranteed = {.percent = 50}, .gate = {.max_queue = 8}}}}};
  Permits a = take(group.member("a"), 2), b = take(group.member("b"), 2);
  bool removed = false;
  group.member("a").async_acquire({}, [&](Result<Permit> r) {
    ASSERT_TRUE(r);
    b.clear();
    removed = group.remove("b");
  });
  group.member("b").async_acquire({}, [](const Result<Permit>&) {});
  group.resize(8);
  EXPECT_TRUE(removed);
  EXPECT_EQ(group.find("b"), nullptr);
}

}  // namespace
}  // namespace bulkhead
