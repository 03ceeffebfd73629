#include "observer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "bulkhead/resource_pool.h"
#include "control/sample_test.h"
#include "tests/support/temp_directory.h"

namespace bulkhead::control {
namespace {

namespace json = boost::json;

// An observer whose seconds the test makes.
struct Watched : Sample {
  const tests::TempDirectory directory;
  const std::string audit = (directory.path() / "audit.jsonl").string();
  LiveConfig live{registry, {.ends_overrides = false}};
  Operations operations{live};
  Journal journal{audit};
  ServerOptions options{.instance = "test"};
  Observer observer{live, operations, journal, options};

  void seconds(int n) {
    for (int i = 0; i < n; ++i) {
      clock.advance(std::chrono::seconds(1));
      observer.second();
    }
  }
  // The events of one kind, or all.
  std::vector<JournalEntry> events(std::string_view kind = "") {
    std::vector<JournalEntry> found;
    for (const JournalEntry& entry : journal.list({.newest = 1000}))
      if (kind.empty() || entry.kind == kind) found.push_back(entry);
    return found;
  }
  std::string symptom() {
    const json::object status = observer.status();
    const json::array& findings = status.at("verdict").at("findings").as_array();
    return findings.empty() ? "" : std::string(findings[0].at("symptom").as_string());
  }
};

TEST(Observer, RejectionsAreOneEventAtTheirBeginAndOneAtTheirEnd) {
  Watched w;
  w.seconds(1);
  {
    std::vector<Result<Call>> held;
    for (int i = 0; i < 20; ++i) held.push_back(w["db"].try_acquire());
    for (int s = 0; s < 5; ++s) {
      for (int i = 0; i < 4; ++i) EXPECT_FALSE(w["db"].try_acquire());
      w.seconds(1);
    }
    EXPECT_EQ(w.events("rejecting").size(), 1u);
    EXPECT_EQ(w.events("full").size(), 1u);
    EXPECT_EQ(w.symptom(), "full") << "it is not known what a call usually takes";
    const json::object status = w.observer.status();
    EXPECT_FALSE(status.at("bulkheads").at(1).at("since").is_null());
    EXPECT_EQ(status.at("bulkheads").at(1).at("rejected").to_number<int>(), 20);
  }
  w.seconds(9);
  EXPECT_TRUE(w.events("recovered").empty());
  w.seconds(3);
  const auto over = w.events("recovered");
  ASSERT_EQ(over.size(), 2u);
  for (const JournalEntry& entry : over) {
    EXPECT_EQ(entry.bulkhead, "db");
    EXPECT_GE(entry.ended, entry.began);
    EXPECT_GT(entry.peak, 0);
  }
  EXPECT_EQ(w.symptom(), "rejecting") << "of the last minute";
  w.seconds(60);
  EXPECT_EQ(w.symptom(), "");
  std::ifstream file(w.audit);
  std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("\"kind\":\"rejecting\""), std::string::npos) << "in the file, too";
  EXPECT_NE(text.find("\"peak\":"), std::string::npos);
}

TEST(Observer, OneRejectionInAThousandIsNoEvent) {
  Watched w;
  w.seconds(1);
  for (int s = 0; s < 5; ++s) {
    for (int i = 0; i < 1000; ++i) EXPECT_TRUE(w["db"].try_acquire());
    std::vector<Result<Call>> held;
    for (int i = 0; i < 20; ++i) held.push_back(w["db"].try_acquire());
    EXPECT_FALSE(w["db"].try_acquire());
    held.clear();
    w.seconds(1);
  }
  EXPECT_TRUE(w.events().empty()) << w.events()[0].text;
}

// Calls of 20 ms for a minute, then calls of 2 s that fill it.
TEST(Observer, LearnsWhatACallTakesAndSeesThatTheDependencyIsSlow) {
  Watched w;
  const auto run = [&](std::chrono::milliseconds time) {
    auto call = w["db"].try_acquire();
    w.clock.advance(time);
    call->finish(Outcome::success);
  };
  w.seconds(1);
  for (int s = 0; s < 30; ++s) {
    for (int i = 0; i < 10; ++i) run(std::chrono::milliseconds(20));
    w.observer.second();
  }
  for (int s = 0; s < 6; ++s) {
    std::vector<Result<Call>> held;
    for (int i = 0; i < 20; ++i) held.push_back(w["db"].try_acquire());
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(w["db"].try_acquire());
    w.clock.advance(std::chrono::seconds(2));
    for (auto& call : held) call->finish(Outcome::success);
    auto again = w["db"].try_acquire();
    w.observer.second();
  }
  EXPECT_EQ(w.symptom(), "slow-dependency");
  const json::object status = w.observer.status();
  const std::string sentence(status.at("verdict").at("sentence").as_string());
  EXPECT_NE(sentence.find("db rejects "), std::string::npos) << sentence;
  EXPECT_NE(sentence.find(", was 21 ms"), std::string::npos) << sentence;
}

TEST(Observer, AReserveThatIsFreeIsNotFull) {
  Watched w;
  w.add({.name = "kept", .max_concurrent = 20, .max_queue = 2, .critical_reserve = 0.5});
  std::vector<Result<Call>> held;
  for (int i = 0; i < 10; ++i) held.push_back(w["kept"].try_acquire());
  for (int i = 0; i < 2; ++i) w["kept"].async_acquire({}, [](Result<Call> call) { EXPECT_FALSE(call); });
  for (int s = 0; s < 6; ++s) {
    for (int i = 0; i < 4; ++i) EXPECT_FALSE(w["kept"].try_acquire());
    w.seconds(1);
  }
  EXPECT_EQ(w.symptom(), "reserve");
  EXPECT_TRUE(w.events("full").empty()) << w.events("full")[0].text;
  const json::object history = w.observer.history(5, 1, nullptr);
  for (const json::value& b : history.at("bulkheads").as_array())
    if (b.at("name") == "kept") {
      EXPECT_EQ(b.at("in_flight").as_array().back().to_number<int>(), 10);
    }
  w["kept"].close();
}

TEST(Observer, APoolThatCannotConnectIsAnEventAndTheVerdict) {
  Watched w;
  bool works = false;
  ResourcePool<int> pool({.name = "orders",
                          .max = 3,
                          .open = [&works](const Opening&) -> Result<int, std::string> {
                            if (works) return 7;
                            return Unexpected<std::string>("no route to host");
                          },
                          .maintenance = Maintenance::by_hand});
  const auto attached = w.registry.attach(pool);
  EXPECT_FALSE(pool.acquire({}));
  w.seconds(2);
  ASSERT_EQ(w.events("pool_down").size(), 1u);
  EXPECT_EQ(w.symptom(), "pool-down");
}

TEST(Observer, APoolShowsTheCallsThatWaitAtTheBulkheadAroundIt) {
  Watched w;
  ResourcePool<int> pool({.name = "connections",
                          .max = 20,
                          .open = [](const Opening&) { return Result<int, std::string>(7); },
                          .maintenance = Maintenance::by_hand});
  const auto attached = w.registry.attach(pool, "db");
  std::vector<Result<Call>> held;
  for (int i = 0; i < 20; ++i) held.push_back(w["db"].try_acquire());
  for (int i = 0; i < 3; ++i) w["db"].async_acquire({}, [](Result<Call> call) { EXPECT_FALSE(call); });
  const json::object all = w.observer.snapshot(0);
  const json::value& shown = all.at("pools").at(0);
  EXPECT_EQ(shown.at("waiting"), 0);
  EXPECT_EQ(shown.at("bulkhead"), "db");
  EXPECT_EQ(shown.at("bulkhead_waiting"), 3);
  w["db"].close();
}

TEST(Observer, AnAdaptiveGroupShowsItsTotalAndTellsOfLargeChanges) {
  Watched w;
  w.registry.apply({.add_groups = {{.name = "shared", .total = 50}},
                    .add = {{.options = {.name = "member"}, .group = "shared"}}});
  w.seconds(1);
  const auto group = [&] { return w.observer.snapshot(0).at("groups").at(0).as_object(); };
  EXPECT_FALSE(group().contains("why"));
  w.registry.adapt_group("shared", LimiterOptions{.floor = 4, .ceiling = 50});
  w.seconds(1);
  EXPECT_EQ(group().at("floor").to_number<int>(), 4);
  EXPECT_EQ(group().at("ceiling").to_number<int>(), 50);
  EXPECT_TRUE(w.events("adaptive").empty());
  w.registry.adapt_group("shared", LimiterOptions{.floor = 4, .ceiling = 20});
  w.seconds(1);
  EXPECT_EQ(group().at("total").to_number<int>(), 20);
  EXPECT_EQ(group().at("configured_total").to_number<int>(), 50);
  const auto events = w.events("adaptive");
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].bulkhead, "shared");
  EXPECT_NE(events[0].text.find("total 50 -> 20: limit 50 -> 20"), std::string::npos) << events[0].text;
}

TEST(Observer, ABreakerThatOpensAndClosesSurvivesInTheFileWithItsBeginItsEndAndItsPeak) {
  Watched w;
  w.add({.name = "quick",
         .max_concurrent = 5,
         .breaker = BreakerOptions{.window_calls = 10,
                                   .minimum_calls = 2,
                                   .open_for = std::chrono::seconds(3),
                                   .half_open_calls = 1}});
  const auto run = [&](Outcome outcome) {
    auto call = w["quick"].try_acquire();
    if (call) call->finish(outcome);
    return call.has_value();
  };
  w.seconds(1);
  EXPECT_TRUE(run(Outcome::failure) && run(Outcome::failure));
  w.seconds(1);
  for (int i = 0; i < 6; ++i) EXPECT_FALSE(run(Outcome::success));
  w.seconds(3);
  EXPECT_TRUE(run(Outcome::success)) << "the probe";
  w.seconds(1);
  EXPECT_EQ(w.events("breaker").size(), 1u) << "it may open again";
  w.seconds(10);
  const auto told = w.events("breaker");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].text, "breaker closed -> open (failure_rate)");
  EXPECT_EQ(told[1].text, "breaker closed (probes_succeeded): it opened once and probed once");
  for (const JournalEntry& entry : told) EXPECT_TRUE(entry.automatic);
  EXPECT_EQ(told[0].ended, WallTime{});
  EXPECT_EQ(told[1].began, told[0].began);
  EXPECT_GE(told[1].ended, told[1].began) << "the time of day does not follow the clock of the test";
  EXPECT_DOUBLE_EQ(told[1].peak, 6. / 8) << "six of eight calls were rejected";
  std::ifstream file(w.audit);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("\"text\":\"breaker closed -> open (failure_rate)\""), std::string::npos) << text;
  EXPECT_NE(text.find("breaker closed (probes_succeeded)"), std::string::npos) << text;
}

TEST(Observer, ABreakerThatFlapsIsOneEpisode) {
  Watched w;
  w.add({.name = "flaps",
         .max_concurrent = 5,
         .breaker = BreakerOptions{.window_calls = 4,
                                   .minimum_calls = 2,
                                   .open_for = std::chrono::seconds(1),
                                   .half_open_calls = 1}});
  const auto run = [&](Outcome outcome) {
    if (auto call = w["flaps"].try_acquire()) call->finish(outcome);
  };
  w.seconds(1);
  for (int s = 0; s < 60; ++s) {  // it closes and opens, each second
    run(Outcome::success);
    for (int i = 0; i < 3; ++i) run(Outcome::failure);
    w.seconds(1);
  }
  EXPECT_EQ(w.events("breaker").size(), 1u);
  run(Outcome::success);
  w.seconds(12);
  ASSERT_EQ(w.events("breaker").size(), 2u);
  const std::string text = w.events("breaker")[1].text;
  EXPECT_EQ(text, "breaker closed (probes_succeeded): it opened 60 times and probed 60 times");
}

TEST(Observer, BurstsAreNotFine) {
  Watched w;
  w.registry.add({.options = {.name = "checkout", .max_concurrent = 2}, .criticality = Priority::critical});
  for (int s = 0; s < 30; ++s) {
    for (int i = 0; i < 20; ++i) EXPECT_TRUE(w["checkout"].try_acquire());
    if (s % 5 == 0) {  // one second of five: no episode
      const auto one = w["checkout"].try_acquire(), two = w["checkout"].try_acquire();
      for (int i = 0; i < 3; ++i) EXPECT_FALSE(w["checkout"].try_acquire());
    }
    w.seconds(1);
  }
  EXPECT_TRUE(w.events("rejecting").empty());
  EXPECT_EQ(w.symptom(), "rejecting");
  const json::object status = w.observer.status();
  const json::object& verdict = status.at("verdict").as_object();
  EXPECT_EQ(verdict.at("severity"), "critical") << verdict.at("sentence");
  EXPECT_TRUE(verdict.at("fine").as_array().empty());
  EXPECT_FALSE(verdict.at("findings").at(0).at("since").is_null());
  EXPECT_NE(std::string(verdict.at("sentence").as_string()).find("(concurrency_limit)"), std::string::npos)
      << verdict.at("sentence");
}

TEST(Observer, EveryBulkheadIsJudgedAndSomeHaveAnHourOfHistory) {
  Watched w;
  w.options.history_bulkheads = 5;
  w.registry.define_tenants({.name = "uploads", .each = {.max_concurrent = 2}, .max_tenants = 9});
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(w.registry.tenant("uploads", std::to_string(i)));
  w.seconds(1);
  const auto with_history = [&] {
    std::string names;
    const json::object history = w.observer.history(300, 1, nullptr);
    for (const json::value& b : history.at("bulkheads").as_array())
      names += std::string(b.at("name").as_string()) + ' ';
    return names;
  };
  EXPECT_EQ(with_history(), "auto db pay/eu uploads/* uploads/0 ");
  w.add({.name = "aa", .max_concurrent = 2});
  for (int i = 0; i < 20; ++i) w.add({.name = "z" + std::to_string(i), .max_concurrent = 2});
  w.seconds(1);
  EXPECT_EQ(with_history(), "aa auto db pay/eu uploads/* ") << "bulkheads come before tenants";
  for (int s = 0; s < 100; ++s) {
    const auto one = w["z19"].try_acquire(), two = w["z19"].try_acquire();
    for (int i = 0; i < 3; ++i) EXPECT_FALSE(w["z19"].try_acquire());
    w.seconds(1);
  }
  ASSERT_EQ(w.events("rejecting").size(), 1u);
  EXPECT_EQ(w.events("rejecting")[0].bulkhead, "z19");
  const json::object status = w.observer.status();
  EXPECT_EQ(status.at("verdict").at("findings").at(0).at("subject"), "z19");
  EXPECT_EQ(status.at("bulkheads").as_array().size(), 25u) << "all but the tenants";
  const std::string z19 = "z19";
  const json::object history = w.observer.history(300, 1, &z19);
  std::size_t seconds = 0;
  for (const json::value& n : history.at("bulkheads").at(0).at("in_flight").as_array())
    seconds += !n.is_null();
  EXPECT_EQ(seconds, 60u) << "the last minute, for the verdict";
}

TEST(Observer, WhatIsRemovedDuringATroubleHasAnEnd) {
  Watched w;
  const auto fails = [](const Opening&) -> Result<int, std::string> {
    return Unexpected<std::string>("no route to host");
  };
  std::optional<ResourcePool<int>> pool;
  pool.emplace(
      ResourceOptions<int>{.name = "orders", .max = 3, .open = fails, .maintenance = Maintenance::by_hand});
  auto attached = w.registry.attach(*pool);
  EXPECT_FALSE(pool->acquire({}));
  const auto reject = [&](std::string_view name) {
    for (int s = 0; s < 3; ++s) {
      std::vector<Result<Call>> held;
      for (int i = 0; i < 30; ++i) held.push_back(w[name].try_acquire());
      w.seconds(1);
    }
  };
  reject("db");
  reject("auto");
  EXPECT_EQ(w.events("rejecting").size(), 2u);
  EXPECT_EQ(w.events("pool_down").size(), 1u);
  EXPECT_TRUE(w.events("recovered").empty());
  w.registry.remove("db", w.clock.now());
  attached = {};
  w.seconds(1);
  std::vector<std::string> ends;
  for (const JournalEntry& entry : w.events("recovered"))
    ends.push_back(entry.bulkhead + ": " + entry.text.substr(0, entry.text.find(" (for")));
  EXPECT_EQ(ends, (std::vector<std::string>{"db: rejecting ends: the bulkhead was removed",
                                            "orders: pool_down ends: the pool was removed"}));
  w.observer.stop();
  EXPECT_EQ(w.events("recovered").size(),
            w.events("rejecting").size() + w.events("full").size() + w.events("pool_down").size());
  const JournalEntry last = w.events("recovered").back();
  EXPECT_NE(last.text.find(" ends: the process stops (for "), std::string::npos) << last.text;
  EXPECT_EQ(last.bulkhead, "auto");
  EXPECT_GE(last.ended, last.began);
}

TEST(Observer, AFrameHasAllEventsSinceTheLastOne) {
  Watched w;
  w.seconds(1);
  for (int i = 0; i < 300; ++i) w.journal.add({.kind = "note", .text = "event " + std::to_string(i) + "."});
  w.seconds(1);
  for (const int i : {0, 150, 299})
    EXPECT_NE(w.observer.frame()->find("event " + std::to_string(i) + "."), std::string::npos) << i;
  w.seconds(1);
  EXPECT_EQ(w.observer.frame()->find("event 299."), std::string::npos) << "once";
}

TEST(Observer, CallsThatFailAreAnEventAndTheVerdictSaysSinceWhen) {
  Watched w;
  w.seconds(1);
  for (int s = 0; s < 4; ++s) {
    for (int i = 0; i < 10; ++i) w["db"].try_acquire()->finish(i < 4 ? Outcome::failure : Outcome::success);
    w.seconds(1);
  }
  ASSERT_EQ(w.events("failing").size(), 1u);
  EXPECT_EQ(w.events("failing")[0].text, "calls fail: 40 % of them");
  EXPECT_EQ(w.symptom(), "failing");
  const json::object status = w.observer.status();
  EXPECT_FALSE(status.at("verdict").at("findings").at(0).at("since").is_null());
  for (const json::value& row : status.at("bulkheads").as_array())
    if (row.at("name") == "db") {
      EXPECT_EQ(row.at("state"), "failing");
      EXPECT_FALSE(row.at("since").is_null());
    }
  w.seconds(21);
  ASSERT_EQ(w.events("recovered").size(), 1u);
  EXPECT_DOUBLE_EQ(w.events("recovered")[0].peak, 0.4);
}

TEST(Observer, ANestedBulkheadIsNotCountedAgain) {
  Watched w;
  w.add({.name = "database", .max_concurrent = 50, .nested = true});
  w.seconds(1);
  for (int s = 0; s < 3; ++s) {
    for (int i = 0; i < 10; ++i) {
      auto outer = w["db"].try_acquire(), inner = w["database"].try_acquire();
      EXPECT_TRUE(outer && inner);
    }
    w.seconds(1);
  }
  const json::object status = w.observer.status();
  const std::string sentence(status.at("verdict").at("sentence").as_string());
  EXPECT_EQ(sentence, "All is well: 4 bulkheads, 10 calls/s, none rejected.");
}

TEST(Observer, TenantsAboveTheListedNumberAreNeitherSampledNorSent) {
  Watched w;
  constexpr std::uint32_t kTenants = 3000;
  w.registry.define_tenants({.name = "uploads", .each = {.max_concurrent = 2}, .max_tenants = kTenants});
  for (std::uint32_t i = 0; i < kTenants; ++i) {
    const auto tenant = w.registry.tenant("uploads", std::to_string(i));
    ASSERT_TRUE(tenant && (*tenant)->try_acquire());
  }
  w.seconds(2);
  EXPECT_EQ(w.observer.windows().size(), 4u) << "those of the sample, and the overflow";
  EXPECT_LT(w.observer.frame()->size(), 20'000u);
}

TEST(Observer, TheListedTenantsAreBoundedOverAllSets) {
  Watched w;
  w.options.listed_tenants = 50;
  for (int set = 0; set < 20; ++set) {
    const std::string name = "set" + std::to_string(set);
    w.registry.define_tenants({.name = name, .each = {.max_concurrent = 2}, .max_tenants = 20});
    for (int i = 0; i < 20; ++i) ASSERT_TRUE(w.registry.tenant(name, std::to_string(i)));
  }
  w.seconds(1);
  const json::object all = w.observer.snapshot(0);
  std::size_t tenants = 0;
  for (const json::value& b : all.at("bulkheads").as_array())
    tenants += b.as_object().contains("tenant") && !b.at("tenant").as_string().empty();
  EXPECT_GT(tenants, 0u);
  EXPECT_LE(tenants, 50u);
}

TEST(Observer, TheLastMinuteDoesNotContainWhatHappenedBefore) {
  Watched w;
  w.seconds(1);
  std::vector<Result<Call>> held;
  for (int i = 0; i < 20; ++i) held.push_back(w["db"].try_acquire());
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(w["db"].try_acquire());
  held.clear();
  w.seconds(1);
  const auto of_db = [&] {
    for (const MetricsWindow& window : w.observer.windows())
      if (window.bulkhead == "db") return window;
    return MetricsWindow{};
  };
  EXPECT_EQ(of_db().rejected, 7u);
  EXPECT_EQ(of_db().requests, 27u);
  w.seconds(60);
  EXPECT_EQ(of_db().rejected, 0u);
  EXPECT_EQ(of_db().seconds, 60);
  const json::object status = w.observer.status();
  for (const json::value& row : status.at("bulkheads").as_array())
    if (row.at("name") == "db") {
      EXPECT_EQ(row.at("rejected"), 0);
      EXPECT_EQ(row.at("total").at("rejected"), 7);
      EXPECT_EQ(row.at("total").at("calls"), 27);
    }
}

}  // namespace
}  // namespace bulkhead::control
