#include "bulkhead/live_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "config/live_config_test.h"
#include "tests/support/no_threads.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using tests::as_text;
using tests::bad_text;
using Kind = ConfigEvent::Kind;
using Outcome = ReloadResult::Outcome;

class LiveConfigTest : public testing::Test {
 protected:
  static BulkheadConfig bulkhead(std::string name, std::uint32_t limit, std::uint32_t queue) {
    return {.options = {.name = std::move(name), .max_concurrent = limit, .max_queue = queue}};
  }
  static BulkheadConfig member(std::string name, double percent) {
    BulkheadConfig b = bulkhead(std::move(name), 1, 5);
    b.group = "pg";
    b.guaranteed = {.percent = percent};
    return b;
  }
  // db, api; checkout and reports in the group pg; tenants "orders".
  static Config shop() {
    Config c;
    c.groups.push_back({.options = {.name = "pg", .total = 100}});
    c.bulkheads = {bulkhead("db", 10, 20), bulkhead("api", 5, 0), member("checkout", 60),
                   member("reports", 40)};
    c.tenants.push_back({.each = bulkhead("orders", 2, 1), .max_tenants = 10});
    return c;
  }
  static std::vector<std::string> text_of(const ConfigPlan& plan) {
    std::vector<std::string> lines;
    for (const PlanLine& line : plan.lines) lines.push_back(to_text(line));
    return lines;
  }
  std::vector<Kind> kinds() {
    std::vector<Kind> all;
    for (const ConfigEvent& e : live.events()) all.push_back(e.kind);
    return all;
  }
  std::uint32_t limit(std::string_view name) { return registry.get(name)->snapshot().gate.max_concurrent; }
  OverrideRequest to(std::string value, std::string path = "bulkheads.db.max_concurrent") {
    return {
        .path = std::move(path), .value = std::move(value), .ttl = 10min, .reason = "sale", .actor = "ann"};
  }

  ManualClock clock;
  Registry registry{{.clock = &clock}};
  ConfigText disk = as_text(shop());
  LiveConfig live{registry, {.file = "shop.yaml", .read = [this] { return disk; }, .ends_overrides = false}};
};

TEST_F(LiveConfigTest, TheFirstFileMakesEverything) {
  const ReloadResult r = live.reload("start");
  ASSERT_EQ(r.outcome, Outcome::applied) << (r.problems.empty() ? "" : r.problems[0].message);
  EXPECT_THAT(registry.names(), ElementsAre("api", "checkout", "db", "orders/*", "reports"));
  EXPECT_EQ(limit("db"), 10u);
  EXPECT_EQ(registry.snapshot().groups[0].find("checkout")->guaranteed, 60u);
  EXPECT_EQ((*registry.tenant("orders", "acme"))->options().max_concurrent, 2u);
  EXPECT_TRUE(live.status().loaded);
  EXPECT_EQ(live.status().revision, 1u);
  EXPECT_EQ(live.status().last_success, clock.now());
}

TEST_F(LiveConfigTest, APlanSaysWhatBecomesWhatAndHow) {
  Config c = shop();
  c.bulkheads[0].options.max_concurrent = 4;
  c.bulkheads[0].options.max_queue = 30;
  c.bulkheads[0].options.breaker = BreakerOptions{};
  c.bulkheads[1].options.isolation = Isolation::threads;
  c.bulkheads[2].guaranteed = {.percent = 30};
  c.bulkheads[2].options.max_wait = 3s;
  c.bulkheads[3] = bulkhead("mail", 1, 0);
  c.tenants[0].max_tenants = 20;
  EXPECT_THAT(text_of(plan(shop(), c)),
              ElementsAre("~ bulkheads.db.max_concurrent: 10 -> 4 (drains)",
                          "~ bulkheads.db.max_queue: 20 -> 30", "~ bulkheads.db.breaker: none -> {}",
                          "~ bulkheads.api.isolation: semaphore -> threads (needs restart)",
                          "~ bulkheads.checkout.guaranteed: 60% -> 30% (drains)",
                          "~ bulkheads.checkout.max_wait: forever -> 3s (needs restart)", "+ bulkheads.mail",
                          "~ tenants.orders.max_tenants: 10 -> 20", "- bulkheads.reports (drains)"));
  EXPECT_EQ(to_text(plan(shop(), shop())), "no changes\n");
}

TEST_F(LiveConfigTest, AReloadChangesTheLivingInPlace) {
  live.reload("start");
  const auto db = registry.get("db");
  auto call = db->acquire();
  Config c = shop();
  c.bulkheads[0].options.max_concurrent = 3;
  c.bulkheads[0].criticality = Priority::critical;
  c.bulkheads[1] = bulkhead("mail", 7, 0);
  // Neither fits beside what is there; both together do.
  c.bulkheads[2].guaranteed = {.percent = 10};
  c.bulkheads[3].guaranteed = {.percent = 90};
  c.tenants[0].each.options.max_concurrent = 9;
  disk = as_text(c);
  const ReloadResult r = live.reload("SIGHUP");
  ASSERT_TRUE(r.ok()) << r.problems[0].message;
  EXPECT_EQ(registry.get("db"), db);
  EXPECT_EQ(limit("db"), 3u);
  EXPECT_EQ(db->snapshot().gate.in_flight, 1u);
  EXPECT_EQ(registry.snapshot().find("db")->criticality, Priority::critical);
  EXPECT_EQ(registry.find("api"), nullptr);
  EXPECT_EQ(limit("mail"), 7u);
  EXPECT_EQ(registry.snapshot().groups[0].find("reports")->guaranteed, 90u);
  EXPECT_EQ(registry.get("orders/*")->options().max_concurrent, 9u);
  EXPECT_EQ(live.events().back().text, "7 changes");
  EXPECT_EQ(live.events().back().actor, "SIGHUP");
}

TEST_F(LiveConfigTest, ABadFileChangesNothingIsToldAndALaterGoodOneWorks) {
  live.reload("start");
  const std::uint64_t revision = live.status().revision;
  disk = bad_text();
  EXPECT_EQ(live.reload("watch").outcome, Outcome::failed);
  EXPECT_FALSE(live.status().last_reload_successful);
  EXPECT_EQ(live.status().problems.at(0).message, "is wrong");
  EXPECT_EQ(live.status().revision, revision);
  EXPECT_EQ(limit("db"), 10u);
  EXPECT_EQ(live.events().back().text, "shop.yaml:3:7: bulkheads.db: is wrong");

  disk = as_text(shop());  // what already runs: nothing to do, and yet all is well again
  EXPECT_EQ(live.reload("watch").outcome, Outcome::unchanged);
  EXPECT_TRUE(live.status().last_reload_successful);
  EXPECT_THAT(live.status().problems, IsEmpty());

  disk = bad_text();
  live.reload("watch");
  Config c = shop();
  c.bulkheads[0].options.max_concurrent = 11;
  disk = as_text(c);
  EXPECT_EQ(live.reload("watch").outcome, Outcome::applied);
  EXPECT_TRUE(live.status().last_reload_successful);
  EXPECT_EQ(limit("db"), 11u);
  EXPECT_THAT(kinds(), ElementsAre(Kind::reload, Kind::reload_failed, Kind::recovered, Kind::reload_failed,
                                   Kind::reload));
  EXPECT_EQ(live.status().failures, 2u);
}

TEST_F(LiveConfigTest, WhatTheRegistryRejectsChangesNothingEither) {
  live.reload("start");
  registry.add({.options = {.name = "mail"}});  // by the program itself
  Config c = shop();
  c.bulkheads[0].options.max_concurrent = 99;
  c.bulkheads.push_back(bulkhead("mail", 1, 0));
  disk = as_text(c);
  const ReloadResult r = live.reload("watch");
  EXPECT_EQ(r.outcome, Outcome::failed);
  EXPECT_THAT(r.problems.at(0).message, HasSubstr("\"mail\": the name is taken"));
  EXPECT_EQ(limit("db"), 10u);
  registry.remove("mail");
  EXPECT_EQ(live.reload("watch").outcome, Outcome::applied);  // the same text, tried anew
  EXPECT_EQ(limit("db"), 99u);
}

TEST_F(LiveConfigTest, AReloadAdaptsAGroupAndAnOverrideBoundsIt) {
  live.reload("start");
  const auto group = [&] { return registry.snapshot().groups.at(0); };
  EXPECT_FALSE(group().adaptive);
  Config c = shop();
  c.groups[0].adaptive = LimiterOptions{.floor = 10, .ceiling = 300};
  disk = as_text(c);
  ASSERT_EQ(live.reload("watch").outcome, Outcome::applied);
  ASSERT_TRUE(group().adaptive);
  EXPECT_EQ(group().adaptive->ceiling, 300u);
  EXPECT_EQ(registry.get("checkout")->options().limiter, registry.get("reports")->options().limiter);
  EXPECT_NE(registry.get("checkout")->options().limiter, nullptr);
  EXPECT_EQ(group().total, 100u);

  EXPECT_TRUE(live.set(to("60", "groups.pg.adaptive.ceiling")).empty());
  EXPECT_EQ(group().total, 60u);
  EXPECT_EQ(group().configured, 100u);
  EXPECT_FALSE(live.set(to("5", "groups.pg.adaptive.ceiling")).empty());  // below the floor
  EXPECT_TRUE(live.revert("groups.pg.adaptive.ceiling", "ann"));
  EXPECT_EQ(group().adaptive->ceiling, 300u);

  disk = as_text(shop());
  ASSERT_EQ(live.reload("watch").outcome, Outcome::applied);
  EXPECT_FALSE(group().adaptive);
  EXPECT_EQ(group().total, 100u);
  EXPECT_EQ(registry.get("checkout")->options().limiter, nullptr);
}

TEST_F(LiveConfigTest, WhatNeedsARestartStaysAndIsTold) {
  live.reload("start");
  Config c = shop();
  c.bulkheads[1].options.isolation = Isolation::threads;
  c.bulkheads[1].options.max_concurrent = 6;
  c.bulkheads[3].group = "";
  c.bulkheads[3].options.max_concurrent = 50;
  c.groups[0].options.keep = 5s;
  c.control = ControlConfig{.listen = "127.0.0.1:1"};
  disk = as_text(c);
  const ReloadResult r = live.reload("watch");
  ASSERT_TRUE(r.ok()) << r.problems[0].message;
  EXPECT_EQ(registry.get("api")->isolation(), Isolation::semaphore);
  EXPECT_EQ(limit("api"), 6u);  // the rest is in force
  EXPECT_EQ(registry.snapshot().find("reports")->group, "pg");
  EXPECT_EQ(registry.snapshot().groups[0].find("reports")->guaranteed, 40u);
  std::vector<std::string> waiting;
  for (const PlanLine& line : live.status().needs_restart) waiting.push_back(line.path);
  EXPECT_THAT(waiting,
              ElementsAre("groups.pg.keep", "bulkheads.api.isolation", "bulkheads.reports.group", "control"));
  EXPECT_FALSE(live.running().control);
  EXPECT_EQ(live.reload("watch").outcome, Outcome::unchanged);
  EXPECT_EQ(live.status().needs_restart.size(), 4u);  // told until it is done

  disk = as_text(shop());
  live.reload("watch");
  EXPECT_THAT(live.status().needs_restart, IsEmpty());
}

TEST_F(LiveConfigTest, BudgetsChangeWithTheFileAndByOverrides) {
  Config c = shop();
  c.bulkheads[0].options.budgets = {{.name = "tokens", .max = 100, .per_call_max = 50}};
  disk = as_text(c);
  live.reload("start");
  const auto budget = [&](std::size_t i = 0) { return registry.get("db")->snapshot().budgets.at(i); };
  EXPECT_EQ(budget().max, 100u);
  auto call = registry.get("db")->acquire({.costs = {{"tokens", 50}}});

  c.bulkheads[0].options.budgets = {{.name = "tokens", .max = 200, .per_call_max = 60},
                                    {.name = "bytes", .max = 7}};
  EXPECT_THAT(
      text_of(plan(live.running(), c)),
      ElementsAre("~ bulkheads.db.budgets.tokens.max: 100 -> 200",
                  "~ bulkheads.db.budgets.tokens.per_call_max: 50 -> 60", "+ bulkheads.db.budgets.bytes"));
  disk = as_text(c);
  EXPECT_EQ(live.reload("watch").outcome, Outcome::applied);
  EXPECT_EQ(budget().max, 200u);
  EXPECT_EQ(budget().in_use, 50u) << "the same budget";
  EXPECT_EQ(budget(1).name, "bytes");

  const auto set = [&](std::string setting, std::string value) {
    return live.set(OverrideRequest{.value = std::move(value),
                                    .ttl = 10min,
                                    .reason = "incident",
                                    .actor = "ann",
                                    .bulkhead = "db",
                                    .setting = std::move(setting)});
  };
  EXPECT_THAT(set("budgets.tokens.max", "90"), IsEmpty());
  EXPECT_EQ(budget().max, 90u);
  EXPECT_EQ(live.overrides().at(0).replaced, "200");
  EXPECT_THAT(set("budgets.tokens.per_call_max", "91").at(0).message, "91 is above max: 90");
  EXPECT_THAT(set("budgets.token.max", "10").at(0).message, "there is no budget \"token\"");
  EXPECT_THAT(set("budgets.tokens.scope", "host").at(0).message, "needs a restart");
  EXPECT_EQ(budget().max, 90u);
  // An operator who lowers max in an incident need not also lower what one call may hold: it is at most max.
  EXPECT_THAT(set("budgets.tokens.max", "10"), IsEmpty());
  EXPECT_EQ(budget().max, 10u);
  EXPECT_EQ(budget().per_call_max, 10u);
  c.bulkheads[0].options.max_queue = 77;
  disk = as_text(c);
  EXPECT_EQ(live.reload("watch").outcome, Outcome::applied) << "with the override in force";
  EXPECT_EQ(budget().max, 10u);
  clock.advance(11min);
  EXPECT_EQ(live.expire(), 1u);
  EXPECT_EQ(budget().max, 200u);
  EXPECT_EQ(budget().per_call_max, 60u);

  c.bulkheads[0].options.budgets.clear();
  disk = as_text(c);
  EXPECT_EQ(live.reload("watch").outcome, Outcome::applied);
  EXPECT_TRUE(registry.get("db")->snapshot().budgets.empty());
}

TEST_F(LiveConfigTest, AnOverrideStandsAboveTheFileForItsTime) {
  live.reload("start");
  EXPECT_THAT(live.set(to("40")), IsEmpty());
  EXPECT_EQ(limit("db"), 40u);
  EXPECT_EQ(live.overrides().at(0).replaced, "10");
  EXPECT_EQ(live.next_expiry(), clock.now() + 10min);
  EXPECT_EQ(live.status().overrides, 1u);

  clock.advance(9min);
  EXPECT_THAT(live.set(to("50")), IsEmpty());  // again: still the file's value is what it replaced
  EXPECT_EQ(live.overrides().at(0).replaced, "10");
  clock.advance(9min);
  EXPECT_EQ(live.expire(), 0u);
  EXPECT_EQ(limit("db"), 50u);
  clock.advance(1min);
  EXPECT_EQ(live.expire(), 1u);
  EXPECT_EQ(limit("db"), 10u);
  EXPECT_EQ(live.next_expiry(), no_deadline);
  EXPECT_EQ(live.events().back().text, "bulkheads.db.max_concurrent: 50 -> 10");

  EXPECT_THAT(live.set(to("9s", "bulkheads.db.execution_timeout")), IsEmpty());
  EXPECT_EQ(registry.get("db")->options().execution_timeout, 9s);
  EXPECT_TRUE(live.revert("bulkheads.db.execution_timeout", "bob"));
  EXPECT_FALSE(live.revert("bulkheads.db.execution_timeout"));
  EXPECT_EQ(registry.get("db")->options().execution_timeout, wait_forever);
  EXPECT_THAT(kinds(),
              ElementsAre(Kind::reload, Kind::set, Kind::set, Kind::expired, Kind::set, Kind::reverted));
}

TEST_F(LiveConfigTest, WhenTheFileChangesThatVerySettingTheFileWins) {
  live.reload("start");
  live.set(to("40"));
  live.set(to("7", "bulkheads.db.max_queue"));
  Config c = shop();
  c.bulkheads[0].options.execution_timeout = 2s;  // another setting of the same bulkhead
  disk = as_text(c);
  live.reload("watch");
  EXPECT_EQ(limit("db"), 40u);
  EXPECT_EQ(live.overrides().size(), 2u);

  c.bulkheads[0].options.max_concurrent = 12;
  disk = as_text(c);
  live.reload("watch");
  EXPECT_EQ(limit("db"), 12u);
  EXPECT_EQ(registry.get("db")->snapshot().gate.max_queue, 7u);
  ASSERT_EQ(live.overrides().size(), 1u);
  EXPECT_EQ(live.events().at(4).kind, Kind::dropped);
  EXPECT_EQ(live.events().at(4).text,
            "bulkheads.db.max_concurrent = 40 of ann (sale) is dropped: the file now says 12");

  disk = bad_text();  // drops nothing
  live.reload("watch");
  EXPECT_EQ(live.overrides().size(), 1u);

  c.bulkheads.erase(c.bulkheads.begin());
  disk = as_text(c);
  live.reload("watch");
  EXPECT_THAT(live.overrides(), IsEmpty());
  EXPECT_EQ(registry.find("db"), nullptr);
}

TEST_F(LiveConfigTest, AnOverrideThatNoLongerFitsIsDropped) {
  Config c = shop();
  c.bulkheads[0].options.adaptive = LimiterOptions{.floor = 2, .ceiling = 100};
  disk = as_text(c);
  live.reload("start");
  ASSERT_THAT(live.set(to("20", "bulkheads.db.adaptive.ceiling")), IsEmpty());
  c.bulkheads[0].options.adaptive->floor = 50;
  disk = as_text(c);
  ASSERT_TRUE(live.reload("watch").ok());
  EXPECT_THAT(live.overrides(), IsEmpty());
  EXPECT_EQ(registry.get("db")->options().adaptive->ceiling, 100u);
}

TEST_F(LiveConfigTest, SaysWhyAnOverrideCannotBe) {
  live.reload("start");
  const auto why = [&](OverrideRequest r) {
    const std::vector<ConfigProblem> problems = live.set(r);
    return problems.empty() ? "" : problems[0].message + " / " + problems[0].hint;
  };
  EXPECT_EQ(why(to("0")), "0 is out of range / give 1 to 268435455");
  EXPECT_EQ(why(to("5", "bulkheads.bd.max_queue")), "there is no bulkhead \"bd\" / did you mean db?");
  EXPECT_EQ(why(to("5", "bulkheads.db.max_que")),
            "there is no setting \"max_que\" / did you mean max_queue?");
  EXPECT_THAT(why(to("5", "bulkheads.db.max_wait")), HasSubstr("no unit"));
  EXPECT_EQ(why(to("threads", "bulkheads.db.isolation")), "needs a restart / change it in the file");
  EXPECT_EQ(why(to("1s", "bulkheads.checkout.max_wait")),
            "of a member of a group needs a restart / change it in the file");
  EXPECT_EQ(why(to("5s", "bulkheads.db.breaker.open_for")), "there is no breaker / add it in the file");
  EXPECT_THAT(why(to("5", "types.database.max_queue")), HasSubstr("cannot be overridden"));
  EXPECT_THAT(why(to("x", "bulkheads.db.type")), HasSubstr("cannot be changed by itself"));
  EXPECT_THAT(why(to("80%", "bulkheads.reports.guaranteed")), HasSubstr("140 of 100"));
  OverrideRequest r = to("5");
  r.ttl = 25h;
  EXPECT_THAT(why(r), HasSubstr("is out of range"));
  r = to("5");
  r.reason.clear();
  EXPECT_THAT(why(r), HasSubstr("has no reason"));
  EXPECT_THAT(live.overrides(), IsEmpty());
  EXPECT_THAT(kinds(), ElementsAre(Kind::reload));
}

// What runs is then neither file: db has a guarantee, but its group needs a restart.
TEST_F(LiveConfigTest, AnOverrideIsNotBlamedForWhatAwaitsARestart) {
  live.reload("start");
  ASSERT_THAT(live.set(to("7", "bulkheads.api.max_concurrent")), IsEmpty());
  Config later = shop();
  later.bulkheads[0].group = "pg";
  later.bulkheads[0].guaranteed = {.percent = 0};
  disk = as_text(later);
  const ReloadResult r = live.reload("ann");
  ASSERT_EQ(r.outcome, Outcome::applied) << r.problems[0].message;
  EXPECT_FALSE(live.status().needs_restart.empty());
  EXPECT_EQ(limit("api"), 7u);  // was not dropped
  EXPECT_THAT(live.set(to("8", "bulkheads.api.max_concurrent")), IsEmpty());
  EXPECT_EQ(limit("api"), 8u);
}

TEST_F(LiveConfigTest, KeepsTheLastEventsAndTellsThemAsTheyCome) {
  std::vector<std::string> told;
  Registry other{{.clock = &clock}};
  LiveConfig brief(other, {.read = [this] { return disk; },
                           .max_events = 3,
                           .on_event = [&](const ConfigEvent& e) { told.emplace_back(to_string(e.kind)); }});
  brief.reload();
  for (const char* value : {"11", "12", "13"}) brief.set(to(value));
  EXPECT_THAT(told, ElementsAre("reload", "set", "set", "set"));
  ASSERT_EQ(brief.events().size(), 3u);
  EXPECT_EQ(brief.events().front().id, 2u);
  EXPECT_EQ(brief.events(3).size(), 1u);
  EXPECT_THAT(text_of(brief.preview()), IsEmpty());  // overrides are no difference to the file
}

TEST_F(LiveConfigTest, AnOverrideOfOneSettingKeepsThatOfAnother) {
  live.reload("start");
  ASSERT_THAT(live.set(to("5")), IsEmpty());
  ASSERT_THAT(live.set(to("7", "bulkheads.db.max_queue")), IsEmpty());
  EXPECT_EQ(limit("db"), 5u);
  EXPECT_EQ(registry.get("db")->options().max_queue, 7u);
  EXPECT_EQ(live.overrides("db").size(), 2u);
  EXPECT_EQ(live.revert_all("db", "ann"), 2u);
  EXPECT_EQ(limit("db"), 10u);
  EXPECT_EQ(registry.get("db")->options().max_queue, 20u);
}

TEST_F(LiveConfigTest, SeveralAreSetTogetherOrNotAtAll) {
  live.reload("start");
  // The guarantee fits only beside the larger total.
  EXPECT_FALSE(live.set({to("110", "groups.pg.total"), to("0", "bulkheads.db.max_concurrent")}).empty());
  EXPECT_EQ(registry.find_group("pg")->total(), 100u);
  EXPECT_THAT(live.overrides(), IsEmpty());
  EXPECT_THAT(live.set({to("110", "groups.pg.total"), to("4")}), IsEmpty());
  EXPECT_EQ(registry.find_group("pg")->total(), 110u);
  EXPECT_EQ(limit("db"), 4u);
}

TEST_F(LiveConfigTest, OneThatDoesNotFitWithoutAnotherEndsWithItAndKeepsNoneFromEnding) {
  Config c = shop();
  c.bulkheads[2].guaranteed = {.units = 60};
  c.bulkheads[3].guaranteed = {.units = 40};
  disk = as_text(c);
  live.reload("start");
  OverrideRequest longer = to("90", "bulkheads.checkout.guaranteed");
  longer.ttl = 1h;
  ASSERT_THAT(live.set(to("130", "groups.pg.total")), IsEmpty());
  ASSERT_THAT(live.set(longer), IsEmpty());  // 130 in all, which 100 cannot give
  ASSERT_THAT(live.set(to("3")), IsEmpty());
  clock.advance(10min);
  EXPECT_EQ(live.expire(), 2u);
  EXPECT_EQ(limit("db"), 10u);
  EXPECT_EQ(registry.find_group("pg")->total(), 100u);
  EXPECT_THAT(live.overrides(), IsEmpty());
  EXPECT_THAT(live.events().back().text, HasSubstr("does not fit any more"));
  EXPECT_EQ(live.events().back().kind, Kind::dropped);
}

TEST_F(LiveConfigTest, BulkheadsOfTheCodeAndTenantsCanBeOverriddenToo) {
  live.reload("start");
  registry.add({.options = {.name = "made.in.code", .max_concurrent = 6}});
  OverrideRequest r{.value = "2", .ttl = 10min, .reason = "sale", .actor = "ann"};
  r.bulkhead = "made.in.code";
  r.setting = "max_concurrent";
  ASSERT_THAT(live.set(r), IsEmpty());
  (void)registry.tenant("orders", "acme");
  r.bulkhead = "orders/acme";
  r.value = "1";
  ASSERT_THAT(live.set(r), IsEmpty());
  EXPECT_EQ(limit("made.in.code"), 2u);
  EXPECT_EQ(limit("orders/acme"), 1u);
  disk = as_text([] {
    Config c = shop();
    c.bulkheads[0].options.max_queue = 21;
    return c;
  }());
  ASSERT_TRUE(live.reload("watch").ok());
  EXPECT_EQ(limit("made.in.code"), 2u);
  r.value = "0";
  EXPECT_FALSE(live.set(r).empty());
  r.setting = "guaranteed";
  r.value = "3";
  EXPECT_FALSE(live.set(r).empty());
  registry.remove("made.in.code");
  EXPECT_EQ(live.overrides().size(), 1u);  // what is not in force is not listed
  clock.advance(10min);
  EXPECT_EQ(live.expire(), 1u);
  EXPECT_EQ(limit("orders/acme"), 2u);
  EXPECT_THAT(kinds(), testing::Contains(Kind::dropped));
}

TEST_F(LiveConfigTest, AnOverrideThatNoThreadWouldEndDoesNotBegin) {
  Registry other{{.clock = &clock}};
  LiveConfig alone(other, {.read = [this] { return disk; }});
  alone.reload();
  {
    const tests::NoThreads none;
    const auto problems = alone.set(to("3"));
    ASSERT_EQ(problems.size(), 1u);
    EXPECT_EQ(problems[0].path, "bulkheads.db.max_concurrent");
    EXPECT_THAT(problems[0].message, HasSubstr("no thread can be made that would end it"));
  }
  EXPECT_EQ(other.get("db")->options().max_concurrent, 10u);
  EXPECT_THAT(alone.overrides(), IsEmpty());
  EXPECT_THAT(alone.set(to("3")), IsEmpty());
  EXPECT_EQ(other.get("db")->options().max_concurrent, 3u);
}

TEST_F(LiveConfigTest, OverridesEndOnTimeByThemselves) {
  Registry other{{.clock = &clock}};
  std::atomic<int> ended{0};
  LiveConfig alone(other, {.read = [this] { return disk; }});
  const ConfigSubscription subscription = alone.subscribe([&](const ConfigEvent& e) {
    if (e.kind == Kind::expired) ++ended;
  });
  alone.reload();
  ASSERT_THAT(alone.set(to("3")), IsEmpty());
  EXPECT_EQ(other.get("db")->options().max_concurrent, 3u);
  clock.advance(10min);
  while (ended == 0) std::this_thread::yield();
  EXPECT_EQ(other.get("db")->options().max_concurrent, 10u);
  EXPECT_THAT(alone.overrides(), IsEmpty());
}

// They used to wait for themselves.
TEST_F(LiveConfigTest, AChangeFromInsideAChangeIsRejected) {
  std::vector<std::string> told;
  Registry other{{.clock = &clock}};
  LiveConfig* inner = nullptr;
  LiveConfig alone(other, {.read = [&] {
                     for (const ConfigProblem& p : inner->set(to("3"))) told.push_back(p.message);
                     EXPECT_FALSE(inner->reload("read").ok());
                     EXPECT_FALSE(inner->revert("bulkheads.db.max_concurrent"));
                     return disk;
                   }});
  inner = &alone;
  EXPECT_TRUE(alone.reload().ok());
  EXPECT_THAT(told, ElementsAre(HasSubstr("from inside a change")));
}

TEST_F(LiveConfigTest, ARegistryFollowsOneFile) {
  EXPECT_THROW(LiveConfig(registry, {}), std::invalid_argument);
  EXPECT_EQ(registry.live_config(), &live);
}

TEST_F(LiveConfigTest, BulkheadsOfTheFileGetHooksAndAJudgeFromTheCode) {
  int admitted = 0, judged = 0;
  registry.attach("db", {.hooks = {.on_admit = [&](const Event&) { ++admitted; }},
                         .judge = [&](const std::exception_ptr&) -> Opinion {
                           ++judged;
                           return bulkhead::Outcome::ignored;
                         }});
  registry.attach("orders", {.hooks = {.on_admit = [&](const Event&) { ++admitted; }}});
  live.reload("start");
  EXPECT_THROW((void)registry.get("db")->execute([]() -> int { throw std::runtime_error("x"); }),
               std::runtime_error);
  EXPECT_EQ(admitted, 1);
  EXPECT_EQ(judged, 1);
  (void)(*registry.tenant("orders", "acme"))->execute([] {});
  EXPECT_EQ(admitted, 2);
  Config c = shop();
  c.bulkheads[0].options.max_queue = 21;  // a reload keeps them
  disk = as_text(c);
  ASSERT_TRUE(live.reload("watch").ok());
  (void)registry.get("db")->execute([] {});
  EXPECT_EQ(admitted, 3);
  EXPECT_TRUE(registry.get("db")->options().hooks.on_admit);
  EXPECT_THROW(registry.attach("api", {}), std::invalid_argument);     // lives
  EXPECT_THROW(registry.attach("orders", {}), std::invalid_argument);  // lives
}

}  // namespace
}  // namespace bulkhead
