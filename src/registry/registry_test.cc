#include "bulkhead/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "registry/name_table.h"
#include "registry/names.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

template <class F>
std::string error_of(F&& fn) {
  try {
    fn();
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "no error";
}

class RegistryTest : public testing::Test {
 protected:
  Registration plain(std::string name, std::uint32_t max_concurrent = 2) {
    return {.options = {.name = std::move(name), .max_concurrent = max_concurrent, .max_queue = 4}};
  }
  ManualClock clock;
  Registry registry{{.clock = &clock}};
};

TEST_F(RegistryTest, FindsWhatWasAddedAndNothingElse) {
  const auto db = registry.add(plain("db"));
  registry.add(plain("cache/users"));
  EXPECT_EQ(registry.find("db"), db);
  EXPECT_EQ(registry.get("db").get(), db.get());
  EXPECT_EQ(&db->clock(), &clock);
  EXPECT_EQ(registry.find("cache"), nullptr);
  EXPECT_EQ(registry.find("cache/"), nullptr);
  EXPECT_EQ(registry.find(""), nullptr);
  EXPECT_THAT(registry.names(), ElementsAre("cache/users", "db"));
}

TEST_F(RegistryTest, ANameCanBeTakenOnce) {
  registry.add(plain("db"));
  const std::uint64_t before = registry.revision();
  EXPECT_EQ(error_of([&] { registry.add(plain("db", 9)); }),
            "bulkhead \"db\": the name is taken: remove that one first, update it, or give another name");
  EXPECT_EQ(registry.get("db")->options().max_concurrent, 2u);
  EXPECT_EQ(registry.revision(), before);
}

TEST_F(RegistryTest, NamesWhoeverWasProbablyMeant) {
  EXPECT_EQ(error_of([&] { (void)registry.get("db"); }),
            "registry: there is no bulkhead \"db\": there is none");
  registry.add(plain("payments"));
  registry.add(plain("inventory"));
  EXPECT_EQ(error_of([&] { (void)registry.get("paymnets"); }),
            "registry: there is no bulkhead \"paymnets\": did you mean \"payments\"?");
  EXPECT_EQ(error_of([&] { registry.resize("x", 3); }),
            "registry: there is no bulkhead \"x\": there are \"inventory\", \"payments\"");
}

TEST_F(RegistryTest, RejectsNamesThatCannotBeShown) {
  for (const std::string name :
       {"", "/a", "a/", "a/*", "a\nb", "\x80", "\xc0\xaf", "\xed\xa0\x80", "a\x7f", "\xe2\x80\xa8"})
    EXPECT_THAT(error_of([&] { registry.add(plain(name)); }), HasSubstr("its name ")) << name;
  EXPECT_THAT(error_of([&] { registry.add(plain(std::string(201, 'x'))); }), HasSubstr("longer than 200"));
  registry.add(
      plain("b\xc3\xbc"
            "cher \xf0\x9f\x9a\xa2"));
}

TEST_F(RegistryTest, MakesWhatIsNotThereFromItsType) {
  const auto users = registry.get_or_create("users", "database");
  EXPECT_EQ(users, registry.get_or_create("users", "cache"));  // it is there, whatever its type
  const auto sizes = [](Bulkhead& b) {
    const BulkheadOptions o = b.options();
    return std::tuple(o.max_concurrent, o.max_queue, o.max_wait);
  };
  EXPECT_EQ(sizes(*users), std::tuple(20u, 50u, 5s));
  EXPECT_EQ(sizes(*registry.get_or_create("geo", "external-api")), std::tuple(10u, 20u, 10s));
  EXPECT_EQ(sizes(*registry.get_or_create("hot", "cache")), std::tuple(50u, 100u, 1s));
  EXPECT_THAT(error_of([&] { (void)registry.get_or_create("x", "databse"); }),
              HasSubstr("no type \"databse\": did you mean \"database\"?"));

  registry.define("database", {.max_concurrent = 7});
  EXPECT_EQ(registry.get_or_create("orders", "database")->options().max_concurrent, 7u);
  EXPECT_EQ(users->options().max_concurrent, 20u);
  EXPECT_THAT(error_of([&] { registry.define("bad", {.max_concurrent = 0}); }), HasSubstr("max_concurrent"));
  EXPECT_EQ(registry.snapshot().find("orders")->type, "database");
}

TEST_F(RegistryTest, AnUpdateKeepsTheObjectItsCallsAndItsCounters) {
  const auto db = registry.add(plain("db", 2));
  auto call = db->acquire();
  (void)db->try_acquire()->finish(Outcome::success);
  registry.update("db", {.max_concurrent = 5, .max_queue = 9, .execution_timeout = 3s});
  registry.resize("db", 6);
  registry.resize_queue("db", 10);
  EXPECT_EQ(registry.get("db"), db);
  const BulkheadSnapshot s = db->snapshot();
  EXPECT_EQ(s.gate.in_flight, 1u);
  EXPECT_EQ(s.gate.admitted, 2u);
  EXPECT_EQ(s.gate.max_concurrent, 6u);
  EXPECT_EQ(s.gate.max_queue, 10u);
  EXPECT_EQ(db->options().execution_timeout, 3s);
  EXPECT_EQ(registry.revision(), 4u);

  EXPECT_THAT(error_of([&] { registry.update("db", {.max_concurrent = 0}); }), HasSubstr("max_concurrent"));
  EXPECT_THAT(error_of([&] { registry.update("db", {.fairness = Fairness::barging}); }),
              HasSubstr("fairness"));
  EXPECT_EQ(db->options().max_concurrent, 6u);
  registry.reset("db");
  EXPECT_EQ(db->snapshot().gate.succeeded, 0u);
}

TEST_F(RegistryTest, HooksAndAJudgeAreGivenBeforeABulkheadIsMadeAndNotAfter) {
  int calls = 0;
  const Hooks hooks{.on_admit = [&](const Event&) { ++calls; }};
  registry.attach_to_type("database", {.hooks = hooks});
  const auto users = registry.get_or_create("users", "database");
  (void)users->execute([] {});
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(error_of([&] { registry.attach_to_type("database", {}); }), HasSubstr("\"users\" of it lives"));

  const auto plain_one = registry.add(plain("plain"));
  BulkheadOptions o = plain_one->options();
  o.hooks = hooks;
  EXPECT_THAT(error_of([&] { registry.update("plain", o); }), HasSubstr("hooks cannot be given"));
  EXPECT_FALSE(plain_one->options().hooks.on_admit);
  o = users->options();  // has the ones it was made with
  o.max_queue = 3;
  registry.update("users", o);
  EXPECT_TRUE(users->options().hooks.on_admit);
  EXPECT_EQ(users->options().max_queue, 3u);
}

TEST_F(RegistryTest, RemovalFreesTheNameClosesAndWaitsForItsCalls) {
  auto db = registry.add(plain("db"));
  auto call = db->acquire();
  EXPECT_FALSE(registry.remove("db", clock.now()));  // a call is in flight
  EXPECT_EQ(registry.find("db"), nullptr);
  EXPECT_EQ(db->try_acquire().error().reason, Reason::shutdown);
  EXPECT_TRUE(call->finish(Outcome::success));  // whoever has a handle is safe
  EXPECT_EQ(db->snapshot().gate.succeeded, 1u);
  EXPECT_FALSE(registry.remove("db"));  // there is none

  const auto second = registry.add(plain("db", 7));
  EXPECT_NE(second, db);
  EXPECT_TRUE(second->try_acquire());
  EXPECT_TRUE(registry.remove("db", clock.now()));
}

// Nobody has a handle, only a call that is not over: whoever removes it would wait for itself.
TEST_F(RegistryTest, RemovalDoesNotWaitLongerThanItIsToldEvenIfNobodyHasAHandle) {
  registry.add_group({.name = "pg", .total = 4});
  registry.add({.options = {.name = "a"}, .group = "pg", .guaranteed = {.units = 2}});
  registry.add(plain("b"));
  registry.define_tenants({.name = "t", .each = {}});
  auto a = registry.get("a")->acquire(), b = registry.get("b")->acquire(),
       t = (*registry.tenant("t", "x"))->acquire();
  EXPECT_FALSE(registry.remove("a", clock.now()));
  EXPECT_FALSE(registry.remove("b", clock.now()));
  EXPECT_TRUE(registry.remove_tenants("t"));
  EXPECT_NE(registry.find_group("pg")->find("a"), nullptr);
  for (auto* call : {&a, &b, &t}) EXPECT_TRUE((*call)->finish(Outcome::success));
  registry.add({.options = {.name = "a"}, .group = "pg"});  // the old one has gone by now
}

TEST_F(RegistryTest, AChangeIsMadeAsAWholeOrNotAtAll) {
  registry.add_group({.name = "pg", .total = 10});
  registry.add({.options = {.name = "a"}, .group = "pg", .guaranteed = {.units = 8}});
  const auto old = registry.add(plain("old"));
  RegistryChange change{.types = {{"api", {.max_concurrent = 3}}},
                        .add_groups = {{.name = "cpu", .total = 4}},
                        .resize_groups = {{"pg", 20}},
                        .add = {{.options = {.name = "b"}, .group = "pg", .guaranteed = {.units = 15}},
                                {.options = {.name = "c"}, .group = "cpu", .guaranteed = {.units = 4}}},
                        .update = {{.options = {.name = "a", .execution_timeout = 1s},
                                    .group = "pg",
                                    .guaranteed = {.units = 5},
                                    .criticality = Priority::critical}},
                        .remove = {"old"},
                        .add_tenants = {{.name = "t", .each = {}}}};
  const auto unchanged_by = [&](RegistryChange wrong) {
    const std::string error = error_of([&] { registry.apply(wrong); });
    EXPECT_EQ(error, error_of([&] { registry.check(wrong); }));
    EXPECT_THAT(registry.names(), ElementsAre("a", "old"));
    EXPECT_EQ(registry.find_group("cpu"), nullptr);
    EXPECT_EQ(registry.find_group("pg")->total(), 10u);
    EXPECT_EQ(registry.snapshot().groups[0].find("a")->guaranteed, 8u);
    EXPECT_TRUE(old->try_acquire());
    return error;
  };
  RegistryChange wrong = change;
  wrong.add[0].guaranteed.units = 16;  // 5 + 16 of 20
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("pg"));
  wrong = change;
  wrong.add.push_back(plain("old"));
  wrong.remove.clear();
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("\"old\": the name is taken"));
  wrong = change;
  wrong.update[0].options.fairness = Fairness::barging;
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("fairness"));
  wrong = change;
  wrong.add_tenants[0].max_tenants = 0;
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("max_tenants"));
  wrong = change;
  wrong.remove_groups = {"pg"};
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("group"));
  wrong = change;
  wrong.add[1].options.adaptive = LimiterOptions{};  // no member of a group can
  EXPECT_THAT(unchanged_by(wrong), HasSubstr("adaptive"));

  registry.apply(change);
  EXPECT_THAT(registry.names(), ElementsAre("a", "b", "c", "t/*"));
  const RegistrySnapshot s = registry.snapshot();
  EXPECT_EQ(s.groups[1].find("a")->guaranteed, 5u);
  EXPECT_EQ(s.groups[1].find("b")->guaranteed, 15u);
  EXPECT_EQ(s.groups[0].find("c")->guaranteed, 4u);
  EXPECT_EQ(s.find("a")->criticality, Priority::critical);
  EXPECT_EQ(registry.get("a")->options().execution_timeout, 1s);
  EXPECT_EQ(old->try_acquire().error().reason, Reason::shutdown);
  EXPECT_EQ(registry.get_or_create("x", "api")->options().max_concurrent, 3u);
}

TEST_F(RegistryTest, HandlesOutliveTheRegistry) {
  auto own = std::make_unique<Registry>(RegistryOptions{.clock = &clock});
  own->add_group({.name = "pg", .total = 4});
  const auto a = own->add({.options = {.name = "a"}, .group = "pg", .guaranteed = {.units = 2}});
  const auto b = own->add(plain("b"));
  own.reset();
  EXPECT_TRUE(a->try_acquire());
  EXPECT_TRUE(b->try_acquire());
}

TEST_F(RegistryTest, BulkheadsOfAGroupShareItsTotal) {
  registry.add_group({.name = "pg", .total = 10});
  const auto checkout = registry.add(
      {.options = {.name = "checkout", .max_queue = 3}, .group = "pg", .guaranteed = {.percent = 60}});
  const auto reports = registry.add(
      {.options = {.name = "reports"}, .group = "pg", .guaranteed = {.percent = 40}, .max = {.percent = 50}});
  std::vector<Call> calls;
  while (auto call = checkout->try_acquire()) calls.push_back(*std::move(call));
  EXPECT_EQ(calls.size(), 10u);
  EXPECT_FALSE(reports->try_acquire());
  EXPECT_EQ(checkout->snapshot().gate.max_queue, 3u);
  calls.clear();

  registry.resize_group("pg", 20);
  registry.update_share("reports", {.units = 2}, {.units = 3});
  const RegistrySnapshot s = registry.snapshot();
  ASSERT_EQ(s.groups.size(), 1u);
  EXPECT_EQ(s.groups[0].find("checkout")->guaranteed, 12u);
  EXPECT_EQ(s.groups[0].find("reports")->max, 3u);
  EXPECT_EQ(s.find("reports")->group, "pg");

  registry.update("checkout", {.max_queue = 8, .execution_timeout = 2s});
  EXPECT_EQ(checkout->snapshot().gate.max_queue, 8u);
  EXPECT_THAT(error_of([&] { registry.resize("checkout", 3); }), HasSubstr("group"));
  EXPECT_THAT(error_of([&] { registry.add({.options = {.name = "x"}, .group = "pq"}); }),
              HasSubstr("no group \"pq\": did you mean \"pg\"?"));
  EXPECT_THAT(
      error_of([&] { registry.add({.options = {.name = "x"}, .group = "pg", .guaranteed = {.units = 99}}); }),
      HasSubstr("guarantee"));
  EXPECT_EQ(registry.find("x"), nullptr);
  EXPECT_EQ(registry.find_group("pg")->find("x"), nullptr);
}

TEST_F(RegistryTest, AMemberThatIsRemovedLeavesItsShareAtOnceAndItsGroupWithTheLastHandle) {
  const auto group = registry.add_group({.name = "pg", .total = 10, .lend = Lend::none()});
  auto a = registry.add({.options = {.name = "a"}, .group = "pg", .guaranteed = {.units = 8}});
  EXPECT_THAT(error_of([&] { registry.remove_group("pg"); }), HasSubstr("\"a\" is a member"));
  auto call = a->try_acquire();
  EXPECT_FALSE(registry.remove("a", clock.now()));
  registry.add({.options = {.name = "b"}, .group = "pg", .guaranteed = {.units = 9}});
  EXPECT_TRUE(group->snapshot().find("a")->closed);
  EXPECT_THAT(error_of([&] { registry.add({.options = {.name = "a"}, .group = "pg"}); }),
              HasSubstr("already"));
  call->finish(Outcome::success);
  registry.retire_idle();  // the registry itself lets go of it once its calls are over
  EXPECT_NE(group->snapshot().find("a"), nullptr);
  a.reset();
  EXPECT_EQ(group->snapshot().find("a"), nullptr);
  registry.add({.options = {.name = "a"}, .group = "pg"});
  registry.remove("a");
  registry.remove("b");
  EXPECT_TRUE(registry.remove_group("pg"));
  EXPECT_FALSE(registry.remove_group("pg"));
}

TEST_F(RegistryTest, TheSnapshotTellsOfEverythingAndKeepsNobody) {
  const auto c = registry.add(plain("c"));
  registry.add({.options = {.name = "a"}, .type = "api", .criticality = Priority::critical});
  registry.add(plain("b"));
  (void)c->try_acquire();
  clock.advance(5s);
  RegistrySnapshot s = registry.snapshot();
  ASSERT_EQ(s.bulkheads.size(), 3u);
  EXPECT_EQ(s.bulkheads[0].name, "a");
  EXPECT_EQ(s.bulkheads[2].now.gate.admitted, 1u);
  EXPECT_EQ(s.bulkheads[2].configured.max_queue, 4u);
  EXPECT_EQ(s.find("a")->type, "api");
  EXPECT_EQ(s.find("a")->criticality, Priority::critical);
  EXPECT_EQ(s.find("aa"), nullptr);
  EXPECT_EQ(s.taken, clock.now());
  EXPECT_EQ(s.revision, 3u);
  registry.remove("a");
  const RegistrySnapshot moved = std::move(s);
  EXPECT_EQ(moved.find("a")->now.name, "a");  // although it is gone
}

// A hook that comes back to the registry while it is being changed.
TEST_F(RegistryTest, AChangeMayLetInCallsThatChangeTheRegistry) {
  const auto db = registry.add(plain("db", 1));
  auto first = db->acquire();
  bool made = false;
  db->async_acquire({}, [&](Result<Call> call) {
    made = call && registry.get_or_create("made", "cache") && registry.add(plain("added")) != nullptr;
  });
  registry.resize("db", 2);
  EXPECT_TRUE(made);
  EXPECT_NE(registry.find("made"), nullptr);
}

TEST_F(RegistryTest, TheTableGrowsAndForgetsWithoutLosingAnybody) {
  registry::NameTable table(42);
  for (int round = 0; round < 500; ++round) {
    for (int i = 0; i < 20; ++i)
      table.insert(std::make_unique<registry::Node>("n" + std::to_string(round * 20 + i)));
    for (int i = 0; i < 19; ++i) {
      auto gone = table.take(*table.find("n" + std::to_string(round * 20 + i)).node);
      table.wait();
    }
  }
  EXPECT_EQ(table.size(), 500u);
  // Removed nodes leave no slots behind: 10 000 names would need 20 000 slots. Each of 1024 shards keeps at most 8.
  EXPECT_LE(table.slots(), 8192u);
  for (int n = 0; n < 10'000; ++n)
    EXPECT_EQ(table.find("n" + std::to_string(n)).node != nullptr, n % 20 == 19) << n;
}

// A reader in the middle of a look-up holds the writer, and only the writer.
TEST(ReadersTest, TheWriterWaitsForThoseWhoCameBeforeAndNotForThoseWhoComeLater) {
  registry::Readers readers;
  std::atomic<bool> inside = false, leave = false, waited = false;
  std::thread reader([&] {
    const registry::Readers::Stay stay(readers);
    inside = true;
    while (!leave) std::this_thread::yield();
  });
  while (!inside) std::this_thread::yield();
  std::atomic<bool> stop = false;
  std::vector<std::thread> others;
  for (int i = 0; i < 12; ++i)
    others.emplace_back([&] {
      while (!stop) {
        {
          const registry::Readers::Stay stay(readers);
        }
        std::this_thread::yield();
      }
    });
  std::thread writer([&] {
    readers.wait();
    waited = true;
  });
  for (int i = 0; i < 20; ++i) {
    EXPECT_FALSE(waited);
    std::this_thread::yield();
  }
  leave = true;
  writer.join();
  EXPECT_TRUE(waited);
  stop = true;
  for (auto& t : others) t.join();
  reader.join();
}

TEST(Registry, OneLimiterMovesTheTotalOfAGroupUntilItIsTakenAway) {
  ManualClock clock;
  Registry registry({.clock = &clock});
  registry.apply({.add_groups = {{.name = "pg", .total = 20}},
                  .adapt_groups = {{"pg", LimiterOptions{.floor = 4, .ceiling = 50}}},
                  .add = {{.options = {.name = "a"}, .group = "pg", .guaranteed = {.percent = 50}}}});
  registry.add({.options = {.name = "b"}, .group = "pg"});
  const auto group = [&] { return registry.snapshot().groups.at(0); };
  const auto calls = [&](int n) {
    for (int i = 0; i < n; ++i) {
      std::vector<Call> all;
      for (const char* name : {"a", "b"})
        while (auto call = registry.get(name)->try_acquire()) all.push_back(*std::move(call));
      clock.advance(10ms);
      for (Call& call : all) call.finish(Outcome::success);
    }
  };
  calls(1000);
  ASSERT_TRUE(group().adaptive);
  EXPECT_GT(group().adaptive->windows, 0u);
  EXPECT_GT(group().total, 20u) << group().adaptive->why.text();  // nothing makes calls slower
  EXPECT_EQ(group().configured, 20u);

  registry.resize_group("pg", 30);
  EXPECT_EQ(group().configured, 30u);
  EXPECT_GT(group().total, 30u);
  EXPECT_EQ(registry.find_group("pg")->total(), 30u);
  EXPECT_THAT(error_of([&] { registry.adapt_group("pg", LimiterOptions{.floor = 9, .ceiling = 8}); }),
              HasSubstr("group \"pg\": limiter.ceiling = 8"));
  EXPECT_THAT(error_of([&] { registry.apply({.adapt_groups = {{"pq", LimiterOptions{}}}}); }),
              HasSubstr("did you mean \"pg\""));
  registry.adapt_group("pg", LimiterOptions{.floor = 4, .ceiling = 25});
  EXPECT_LE(group().total, 25u);

  registry.apply({.adapt_groups = {{"pg", std::nullopt}}});
  EXPECT_FALSE(group().adaptive);
  EXPECT_EQ(group().total, 30u);
  EXPECT_EQ(registry.get("a")->options().limiter, nullptr);
  registry.apply({.resize_groups = {{"pg", 12}}});
  calls(1000);
  EXPECT_EQ(group().total, 12u);
  registry.adapt_group("pg", LimiterOptions{.ceiling = 50});
  calls(1000);
  EXPECT_GT(group().total, 12u);
  EXPECT_TRUE(registry.remove("a"));
  EXPECT_TRUE(registry.remove("b"));
  EXPECT_TRUE(registry.remove_group("pg"));
}

TEST(Registry, AChangeThatCannotBeLeavesTheLimiterOfAGroup) {
  Registry registry;
  registry.apply({.add_groups = {{.name = "pg", .total = 20}},
                  .adapt_groups = {{"pg", LimiterOptions{.ceiling = 50}}},
                  .add = {{.options = {.name = "a"}, .group = "pg"}}});
  EXPECT_FALSE(error_of([&] {
                 registry.apply({.adapt_groups = {{"pg", std::nullopt}},
                                 .update = {{.options = {.name = "a"}, .group = "other"}}});
               }).empty());
  EXPECT_TRUE(registry.snapshot().groups.at(0).adaptive);
  EXPECT_NE(registry.get("a")->options().limiter, nullptr);
}

}  // namespace
}  // namespace bulkhead
