#include "observer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

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
  const auto told = w.events("breaker");
  ASSERT_EQ(told.size(), 2u);
  EXPECT_EQ(told[0].text, "breaker closed -> open (failure_rate)");
  EXPECT_EQ(told[1].text, "breaker open -> half_open -> closed (probes_succeeded)");
  for (const JournalEntry& entry : told) EXPECT_TRUE(entry.automatic);
  EXPECT_EQ(told[0].ended, WallTime{});
  EXPECT_EQ(told[1].began, told[0].began);
  EXPECT_GE(told[1].ended, told[1].began) << "the time of day does not follow the clock of the test";
  EXPECT_DOUBLE_EQ(told[1].peak, 6. / 8) << "six of eight calls were rejected";
  std::ifstream file(w.audit);
  const std::string text(std::istreambuf_iterator<char>(file), {});
  EXPECT_NE(text.find("\"text\":\"breaker closed -> open (failure_rate)\""), std::string::npos) << text;
  EXPECT_NE(text.find("-> closed (probes_succeeded)\""), std::string::npos) << text;
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
}

}  // namespace
}  // namespace bulkhead::control
