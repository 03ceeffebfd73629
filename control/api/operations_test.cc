#include <algorithm>
#include <atomic>
#include <thread>

#include "control/world_test.h"
#include "message.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

TEST(Operations, AnOverrideChangesTheProcessAndEndsByItself) {
  World w;
  const Reply set = w.put("/v1/overrides/db", R"({"max_concurrent": 3, "ttl": "10m", "reason": "incident"})");
  ASSERT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(number(set.json().at("before").at("max_concurrent")), 20);
  EXPECT_EQ(number(set.json().at("after").at("max_concurrent")), 3);
  EXPECT_EQ(w["db"].snapshot().gate.max_concurrent, 3u);
  const json::value shown = w.get("/v1/overrides/db").json();
  EXPECT_EQ(shown.at("overrides").as_array().at(0).at("by").as_string(), "olga");
  EXPECT_EQ(w.get("/v1/snapshot").json().at("config").at("state").as_string(), "drift");

  w.clock.advance(10min - 1ns);
  EXPECT_EQ(number(w.get("/v1/overrides/db").json().at("max_concurrent")), 3);
  w.clock.advance(1ns);
  EXPECT_EQ(number(w.get("/v1/overrides/db").json().at("max_concurrent")), 20);
  EXPECT_EQ(w["db"].snapshot().gate.max_concurrent, 20u);
  EXPECT_NE(w.get("/v1/events").body.find("\"expired\""), std::string::npos);
}

TEST(Operations, AnOverrideWithTheSameValueSaysThatOnlyItsEndChanges) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "ttl": "15m", "reason": "r"})").status, 200);
  w.clock.advance(1min);
  const Reply again = w.put("/v1/overrides/db", R"({"max_concurrent": 3, "ttl": "2m", "reason": "r"})");
  EXPECT_EQ(again.json().at("text").as_string(),
            "unchanged (max_concurrent 3, max_queue 10); now ends in 2 m instead of 14 m: r");
}

TEST(Operations, MetricsTellWhichSettingsWereChangedAndWhenTheyGoBack) {
  World w;
  const std::string family = "\nbulkhead_override_expiry_timestamp_seconds{";
  const auto page = [&] { return w.get("/metrics").body; };
  EXPECT_NE(page().find("\nbulkhead_config_overrides 0\n"), std::string::npos);
  EXPECT_EQ(page().find(family), std::string::npos);
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "max_queue": 1, "ttl": "10m", "reason": "r"})")
                .status,
            200);
  ASSERT_EQ(w.put("/v1/drains/pay%2Feu", R"({"reason": "r"})").status, 200);
  const std::string changed = page();
  EXPECT_NE(changed.find("\nbulkhead_config_overrides 3\n"), std::string::npos);
  EXPECT_NE(changed.find(family + R"(bulkhead="pay/eu",field="drain"} )"), std::string::npos);
  EXPECT_NE(changed.find(family + R"(bulkhead="db",field="max_queue"} )"), std::string::npos);
  const std::string limit = family + R"(bulkhead="db",field="max_concurrent"} )";
  const std::size_t at = changed.find(limit);
  ASSERT_NE(at, std::string::npos);
  const double now = unix_seconds(std::chrono::system_clock::now());
  EXPECT_NEAR(std::stod(changed.substr(at + limit.size())), now + 600, 60);
  w.clock.advance(10min);
  w.get("/v1/overrides/db");  // sees that the time is over, as the server does every second
  EXPECT_EQ(page().find(limit), std::string::npos);
}

TEST(Operations, WhatWasReplacedComesBackAlsoAfterASecondOverrideAndAtTheEnd) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "max_queue": 1, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 4, "reason": "r"})").status, 200);
  EXPECT_EQ(w["db"].snapshot().gate.max_queue, 1u);  // is overridden as before
  const Reply reverted = w.ask({.method = "DELETE", .path = "/v1/overrides/db", .token = "o"});
  ASSERT_EQ(reverted.status, 200);
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_EQ(w.ask({.method = "DELETE", .path = "/v1/overrides/db", .token = "o"}).status, 200);

  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})").status, 200);
  w.server.reset();
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_FALSE(w["db"].snapshot().draining);
}

// A registry that follows a file with one bulkhead, "api", and a set of tenants, "orders".
struct FileWorld : World {
  Config file;
  bool broken = false;

  FileWorld() {
    file.bulkheads.push_back({.options = {.name = "api", .max_concurrent = 20, .max_queue = 10}});
    file.tenants.push_back(
        {.each = {.options = {.name = "orders", .max_concurrent = 4}}, .max_tenants = 2, .idle_after = 60s});
    live.emplace(
        registry,
        LiveConfigOptions{.file = "shop.yaml", .read = [this] { return text(); }, .ends_overrides = false});
    EXPECT_TRUE(live->reload("start").ok());
  }
  ~FileWorld() { server.reset(); }
  ConfigText text() const {
    if (broken)
      return {
          .problems = {{.file = "shop.yaml", .at = {7, 3}, .path = "bulkheads.api", .message = "is wrong"}},
          .text = "broken"};
    std::string all;
    for (const Setting& s : settings(file)) all += s.path + "=" + s.value + "\n";
    return {.config = file, .text = all};
  }
  std::string state() { return std::string(get("/v1/snapshot").json().at("config").at("state").as_string()); }
};

TEST(Operations, TheFileWinsOverAnOverrideOfTheSameFieldAndTheOthersStay) {
  FileWorld w;
  ASSERT_EQ(w.put("/v1/overrides/api", R"({"max_concurrent": 3, "max_queue": 1, "reason": "r"})").status,
            200);
  w.file.bulkheads[0].options.max_queue = 50;
  ASSERT_TRUE(w.live->reload("watch").ok());
  EXPECT_EQ(w["api"].snapshot().gate.max_concurrent, 3u);
  EXPECT_EQ(w["api"].snapshot().gate.max_queue, 50u);
  const json::value left = w.get("/v1/overrides/api").json();
  ASSERT_EQ(left.at("overrides").as_array().size(), 1u);
  EXPECT_EQ(left.at("overrides").as_array()[0].at("field").as_string(), "max_concurrent");
  const std::string events = w.get("/v1/events").body;
  EXPECT_NE(events.find("loaded shop.yaml"), std::string::npos) << events;
  EXPECT_NE(events.find("is dropped"), std::string::npos) << events;
}

TEST(Operations, AReloadOfSomethingElseKeepsWhatOperatorsHaveSet) {
  FileWorld w;
  ASSERT_EQ(w.put("/v1/overrides/api", R"({"max_concurrent": 3, "ttl": "10m", "reason": "r"})").status, 200);
  w.file.tenants[0].max_tenants = 5;
  ASSERT_TRUE(w.live->reload("watch").ok());
  EXPECT_EQ(w["api"].snapshot().gate.max_concurrent, 3u);
  EXPECT_EQ(w.state(), "drift");
  w.broken = true;
  EXPECT_FALSE(w.live->reload("watch").ok());
  EXPECT_EQ(w.state(), "invalid");
  EXPECT_NE(w.get("/metrics").body.find("\nbulkhead_config_last_reload_successful 0\n"), std::string::npos);
  w.clock.advance(10min);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
  EXPECT_EQ(w["api"].snapshot().gate.max_concurrent, 20u);
}

TEST(Operations, AServerThatDoesNotKnowTheFileOfItsRegistryIsRejected) {
  FileWorld w;
  EXPECT_THROW(Server(w.registry, {.unix_socket = w.directory + "/other.sock"}), std::invalid_argument);
  Registry other;
  EXPECT_THROW(Server(other, *w.live, {.unix_socket = w.directory + "/other.sock"}), std::invalid_argument);
  const Server without(other, {.unix_socket = w.directory + "/other.sock"});
  EXPECT_THROW(LiveConfig(other, {}), std::invalid_argument);  // that of the server
}

TEST(Operations, TheControlSectionOfTheFileIsUsedOrToldOf) {
  FileWorld w;
  w.file.control = ControlConfig{.unix_socket = w.directory + "/file.sock", .instance = "of the file"};
  World fresh;
  LiveConfig live(fresh.registry, {.file = "shop.yaml", .read = [&] { return w.text(); }});
  ASSERT_TRUE(live.reload("start").ok());
  {
    const Server server(fresh.registry, live);
    EXPECT_TRUE(std::filesystem::exists(w.directory + "/file.sock"));
  }
  std::vector<std::string> told;
  const Server server(fresh.registry, live,
                      {.unix_socket = w.directory + "/mine.sock",
                       .on_event = [&](std::string_view line) { told.emplace_back(line); }});
  ASSERT_FALSE(told.empty());
  EXPECT_NE(told.front().find("control: of shop.yaml has no effect"), std::string::npos) << told.front();
}

TEST(Operations, ATenantThatIsOverriddenOrDrainedIsNotRetiredMeanwhile) {
  FileWorld w;
  for (const char* const id : {"acme", "zenith"}) (void)w.registry.tenant("orders", id);
  ASSERT_EQ(
      w.put("/v1/overrides/orders%2Facme", R"({"max_concurrent": 1, "ttl": "10m", "reason": "r"})").status,
      200);
  ASSERT_EQ(w.put("/v1/drains/orders%2Fzenith", R"({"ttl": "10m", "reason": "r"})").status, 200);
  for (int i = 0; i < 3; ++i) {
    w.clock.advance(61s);
    EXPECT_EQ(w.registry.retire_idle(), 0u);
  }
  EXPECT_EQ(w["orders/acme"].options().max_concurrent, 1u);
  EXPECT_TRUE(w["orders/zenith"].snapshot().draining);
  w.clock.advance(10min);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
  EXPECT_EQ(w["orders/acme"].options().max_concurrent, 4u);
  for (int i = 0; i < 3; ++i) {
    w.clock.advance(61s);
    (void)w.registry.retire_idle();
  }
  EXPECT_EQ(w.registry.find("orders/acme"), nullptr);
  EXPECT_EQ(w.registry.find("orders/zenith"), nullptr);
}

TEST(Operations, WhatWasRemovedIsNotListedAnyMore) {
  FileWorld w;
  (void)w.registry.tenant("orders", "acme");
  ASSERT_EQ(w.put("/v1/overrides/orders%2Facme", R"({"max_concurrent": 1, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/drains/orders%2Facme", R"({"reason": "r"})").status, 200);
  w.file.tenants.clear();
  ASSERT_TRUE(w.live->reload("watch").ok());
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
  EXPECT_EQ(w.state(), "in_sync");
  const std::string events = w.get("/v1/events").body;
  EXPECT_NE(events.find("the bulkhead was removed"), std::string::npos) << events;
  EXPECT_NE(events.find("drain ends: the bulkhead was removed"), std::string::npos) << events;
}

TEST(Operations, TheOpenApiDocumentListsEverySettingThatCanBeOverridden) {
  World w;
  w.live.emplace(w.registry, LiveConfigOptions{.ends_overrides = false});
  const json::value document = w.get("/v1/openapi.json").json();
  const auto& schemas = document.at("components").at("schemas");
  const auto& fields = schemas.at("Override").at("properties").at("field").at("enum").as_array();
  const auto listed = [&](std::string_view name) {
    return std::ranges::any_of(fields, [&](const json::value& field) { return field.as_string() == name; });
  };
  for (const char* const name : {"max_concurrent", "max_queue", "breaker", "drain"})
    EXPECT_TRUE(listed(name)) << name;
  EXPECT_FALSE(listed("isolation")) << "a change needs a restart";
  ASSERT_TRUE(
      w.live->set({.value = "2s", .reason = "r", .actor = "a", .bulkhead = "db", .setting = "max_wait"})
          .empty());
  const json::value overrides = w.get("/v1/bulkheads/db").json().at("overrides");
  ASSERT_EQ(overrides.as_array().size(), 1u);
  EXPECT_TRUE(listed(overrides.as_array().at(0).at("field").as_string()))
      << overrides.as_array().at(0).at("field").as_string();
}

TEST(Operations, AFullDiskStopsNoChangeAndIsTold) {
  World w;
  w.options.audit_file = "/dev/full";
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})").status, 200);
  EXPECT_EQ(w["db"].options().max_concurrent, 3u);
  const std::string events = w.get("/v1/events").body, told = "cannot be written";
  const std::size_t first = events.find(told);
  ASSERT_NE(first, std::string::npos) << events;
  EXPECT_EQ(events.find(told, first + 1), std::string::npos) << events;  // once
  EXPECT_NE(w.get("/metrics").body.find("\nbulkhead_audit_lost_total 3\n"),
            std::string::npos);  // and the start
}

TEST(Operations, ABreakerCanBeForcedAndABulkheadDrained) {
  World w;
  ASSERT_EQ(w.put("/v1/breakers/pay%2Feu", R"({"state": "open", "ttl": 60, "reason": "r"})").status, 200);
  EXPECT_EQ(w["pay/eu"].try_acquire().error().reason, Reason::breaker_open);
  EXPECT_EQ(w.ask({.method = "DELETE", .path = "/v1/breakers/pay%2Feu", .token = "o"}).status, 200);
  EXPECT_TRUE(w["pay/eu"].try_acquire());
  EXPECT_EQ(w.put("/v1/breakers/db", R"({"state": "open", "reason": "r"})").status,
            409);  // has none

  const Reply drained = w.put("/v1/drains/db", R"({"ttl": "1h", "reason": "r"})");
  ASSERT_EQ(drained.status, 200) << drained.body;
  EXPECT_EQ(w["db"].try_acquire().error().reason, Reason::draining);
  w.clock.advance(1h);
  EXPECT_FALSE(w.get("/v1/drains/db").json().at("draining").as_bool());
  EXPECT_TRUE(w["db"].try_acquire());
  EXPECT_EQ(w.put("/v1/overrides/auto", R"({"max_concurrent": 3, "reason": "r"})").status,
            409);  // the limiter's business
}

TEST(Operations, AFaultIsInjectedOnlyWhereItIsAllowedAndEndsByItself) {
  const std::string body = R"({"latency": "2s", "error": 1, "ttl": "1m", "reason": "drill"})";
  {
    World w;
    const Reply off = w.put("/v1/faults/db", body);
    EXPECT_EQ(off.status, 409) << off.body;
    EXPECT_NE(off.body.find("control.allow_faults: true"), std::string::npos) << off.body;
    EXPECT_FALSE(w["db"].fault());
    EXPECT_FALSE(w.get("/v1/faults/db").json().at("allowed").as_bool());
  }
  World w;
  w.options.allow_faults = true;
  EXPECT_EQ(w.ask({.method = "PUT", .path = "/v1/faults/db", .body = body, .token = "v"}).status, 403);
  const Reply planned = w.put("/v1/faults/db?dry_run=true", body);
  EXPECT_EQ(planned.json().at("text").as_string(), "fault: latency 2 s, error 100 % for 1 m: drill");
  EXPECT_FALSE(w["db"].fault());
  ASSERT_EQ(w.put("/v1/faults/db", body).status, 200);
  ASSERT_TRUE(w["db"].fault());
  EXPECT_EQ(w["db"].fault()->latency, 2s);
  EXPECT_EQ(w["db"].try_acquire().error().reason, Reason::injected_fault);
  const json::value shown = w.get("/v1/bulkheads/db").json().at("overrides").as_array().at(0);
  EXPECT_EQ(shown.at("field").as_string(), "fault");
  EXPECT_EQ(shown.at("to").as_string(), "latency 2 s, error 100 %");
  const std::string audit = w.get("/v1/audit").body;
  EXPECT_NE(audit.find("fault: latency 2 s, error 100 % for 1 m: drill"), std::string::npos) << audit;

  w.clock.advance(1min);
  EXPECT_TRUE(w["db"].try_acquire()) << "without the server, too";
  EXPECT_EQ(w.get("/v1/faults/db").json().at("overrides").as_array().size(), 0U);
  EXPECT_NE(w.get("/v1/audit").body.find("fault ends, its time is over"), std::string::npos);

  ASSERT_EQ(w.put("/v1/faults/db", body).status, 200);
  EXPECT_EQ(w.ask({.method = "DELETE", .path = "/v1/faults/db", .token = "o"}).status, 200);
  EXPECT_FALSE(w["db"].fault());
  ASSERT_EQ(w.put("/v1/faults/db", body).status, 200);
  w.server.reset();
  EXPECT_FALSE(w["db"].fault()) << "it ends with the server";
}

TEST(Operations, AFaultNeedsAnEndAndSomethingToDo) {
  World w;
  w.options.allow_faults = true;
  const auto said = [&](const std::string& fields) {
    const Reply reply = w.put("/v1/faults/db", '{' + fields + R"(, "reason": "r"})");
    return std::to_string(reply.status) + ' ' + reply.body;
  };
  EXPECT_NE(said(R"("latency": 1)").find("422"), std::string::npos);
  EXPECT_NE(said(R"("latency": 1)").find("/ttl"), std::string::npos);
  EXPECT_NE(said(R"("latency": 1, "ttl": "2h")").find("is not a duration from 1s to 1h"), std::string::npos);
  EXPECT_NE(said(R"("latency": "2m", "ttl": 60)").find("is not a duration from 0 to 1m"), std::string::npos);
  EXPECT_NE(said(R"("error": 10, "ttl": 60)").find("10 % is 0.1"), std::string::npos);
  EXPECT_NE(said(R"("ttl": 60)").find("is missing, and so is error"), std::string::npos);
  EXPECT_NE(said(R"("error": 0, "ttl": 60)").find("409"), std::string::npos);
  EXPECT_FALSE(w["db"].fault());
}

TEST(Operations, ADryRunTellsTheEffectAndDoesNothing) {
  World w;
  std::vector<Result<Call>> running;
  for (int i = 0; i < 7; ++i) running.push_back(w["db"].try_acquire());
  const Reply reply = w.put("/v1/overrides/db?dry_run=true", R"({"max_concurrent": 5, "reason": "r"})");
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.json().at("dry_run").as_bool());
  EXPECT_EQ(reply.json().at("effects").as_array().at(0).as_string(),
            "max_concurrent 20 -> 5: 7 running calls continue; none is admitted until fewer than 5 run");
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
}

// Nothing can keep an override from ending: not that the breaker or the bulkhead is gone meanwhile.
TEST(Operations, WhatIsForcedOrDrainedEndsAlsoWhenThereIsNothingLeftToPutBack) {
  World w;
  ASSERT_EQ(w.put("/v1/breakers/pay%2Feu", R"({"state": "open", "ttl": 60, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/drains/db", R"({"ttl": 60, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/overrides/auto", R"({"max_queue": 3, "ttl": 60, "reason": "r"})").status, 200);
  w["db"].close();
  w.registry.remove("auto");
  w.registry.remove("pay/eu");
  w.add({.name = "pay/eu", .max_concurrent = 5});  // of the same name, without a breaker
  w.clock.advance(60s);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
  EXPECT_EQ(w.get("/v1/drains/db").json().at("draining").as_bool(), false);
  const std::string events = w.get("/v1/events").body;
  EXPECT_NE(events.find("the bulkhead has no breaker any more"), std::string::npos) << events;
  EXPECT_NE(events.find("the bulkhead was removed"), std::string::npos) << events;
}

TEST(Operations, AnOperatorsDrainGivesBackWhatTheProgramWasDoing) {
  World w;
  w["db"].set_draining(true);
  const Reply drained = w.put("/v1/drains/db", R"({"ttl": "1m", "reason": "r"})");
  ASSERT_EQ(drained.status, 200) << drained.body;
  const Reply resumed = w.ask({.method = "DELETE", .path = "/v1/drains/db", .token = "o"});
  EXPECT_NE(resumed.body.find("still draining: the program drains it"), std::string::npos) << resumed.body;
  EXPECT_TRUE(w["db"].snapshot().draining);
}

TEST(Operations, EveryMistakeInABodyIsToldAtOnceWithItsPlace) {
  World w;
  const Reply reply =
      w.put("/v1/overrides/db", R"({"max_concurrent": 0, "tll": 5, "ttl": "15", "reason": " "})");
  ASSERT_EQ(reply.status, 422);
  EXPECT_EQ(reply.header("Content-Type"), "application/problem+json");
  std::map<std::string, std::string> by_pointer;
  const json::value problem = reply.json();
  for (const auto& e : problem.at("errors").as_array())
    by_pointer[std::string(e.at("pointer").as_string())] = text_of(e);
  EXPECT_EQ(by_pointer.size(), 4u) << reply.body;
  EXPECT_NE(by_pointer["/max_concurrent"].find("drain it"), std::string::npos);
  EXPECT_NE(by_pointer["/tll"].find("did you mean \\\"ttl\\\"?"), std::string::npos);
  EXPECT_TRUE(by_pointer.contains("/ttl") && by_pointer.contains("/reason"));
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);

  EXPECT_EQ(w.put("/v1/overrides/db", "{").status, 400);
  EXPECT_EQ(w.put("/v1/overrides/db", "[1]").status, 400);
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "reason": "r"})", {"Content-Type: text/plain"})
                .status,
            415);
  for (const auto& [type, status] :
       {std::pair{"APPLICATION/Json ; charset=utf-8", 200}, {"application/jsonp", 415}})
    EXPECT_EQ(w.ask({.method = "PUT",
                     .path = "/v1/drains/db?dry_run=true",
                     .body = R"({"reason": "r"})",
                     .token = "o",
                     .headers = {std::string("Content-Type: ") + type}})
                  .status,
              status)
        << type;
  for (const char* const reason : {R"(two\nlines)", R"(\u001b[2J)", R"(\u007f)", ""})
    EXPECT_EQ(w.put("/v1/drains/db?dry_run=true", std::string(R"({"reason": ")") + reason + "\"}").status,
              422)
        << reason;
  // Limits are in characters, as the schema's are, and durations are written as it says.
  const auto drained = [&](const std::string& fields) {
    return w.put("/v1/drains/db?dry_run=true", '{' + fields + '}').status;
  };
  std::string umlauts;
  for (int i = 0; i < 500; ++i) umlauts += "\u00e4";
  EXPECT_EQ(drained(R"("reason": ")" + umlauts + '"'), 200);
  EXPECT_EQ(drained(R"("reason": ")" + umlauts + "x\""), 422);
  for (const auto& [ttl, status] : {std::pair{"1.5h", 200},
                                    {"1h30m", 200},
                                    {"1d", 200},
                                    {"1500ms", 200},
                                    {"30m1h", 422},
                                    {"1d1s", 422},
                                    {"forever", 422},
                                    {".5m", 422},
                                    {"1e3s", 422},
                                    {"0x9s", 422},
                                    {"-5s", 422},
                                    {"infs", 422},
                                    {".s", 422},
                                    {"5", 422}})
    EXPECT_EQ(drained(R"("reason": "r", "ttl": ")" + std::string(ttl) + '"'), status) << ttl;
  EXPECT_EQ(w.put("/v1/overrides/nobody", R"({"max_concurrent": 3, "reason": "r"})").status, 404);
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"reason": "r"})").status, 422);
  const Reply wrong_method = w.ask({.method = "PATCH", .path = "/v1/overrides/db", .token = "a"});
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.header("Allow"), "GET, HEAD, PUT, DELETE");
  EXPECT_EQ(w.get("/v1/nothing").status, 404);
  EXPECT_EQ(w.get("/v1/history?seconds=99999").status, 400);
  EXPECT_EQ(
      w.ask({.method = "PUT", .path = "/v1/overrides/db", .body = std::string(70'000, ' '), .token = "o"})
          .status,
      413);
  EXPECT_EQ(w.ask({.path = "/livez", .headers = {"X: " + std::string(9000, 'x')}}).status, 431);
}

TEST(Operations, NumbersAreTakenAsJsonHasThemAndToldAsTheyAre) {
  World w;
  const auto put = [&](const std::string& fields) {
    return w.put("/v1/overrides/db?dry_run=true", R"({"reason": "r", )" + fields + '}');
  };
  EXPECT_EQ(number(put(R"("max_concurrent": 10.0)").json().at("after").at("max_concurrent")), 10);
  EXPECT_EQ(number(put(R"("max_concurrent": 1e1)").json().at("after").at("max_concurrent")), 10);
  for (const char* const wrong : {"10.5", "0.0", "-1", "1e30", "9223372036854775808.0", "\"10\"", "null"})
    EXPECT_EQ(put(R"("max_concurrent": )" + std::string(wrong)).status, 422) << wrong;
  EXPECT_NE(put(R"("max_concurrent": 10.5)").body.find("10.5 is not a whole number"), std::string::npos);
  for (const auto& [ttl, told] : {std::pair{"1.5", "for 1500 ms: r"},
                                  {"90", "for 90 s: r"},
                                  {"\"1h30m\"", "for 90 m: r"},
                                  {"\"1d\"", "for 24 h: r"}}) {
    const Reply reply = put(R"("max_concurrent": 5, "ttl": )" + std::string(ttl));
    EXPECT_NE(reply.body.find(told), std::string::npos) << reply.body;
  }
}

// Which of two values counts would be the parser's choice.
TEST(Operations, AKeyThatStandsTwiceIsRejected) {
  World w;
  const auto rejected = [](const Reply& reply, const std::string& key) {
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_NE(reply.body.find("\\\"" + key + "\\\""), std::string::npos) << reply.body;
  };
  rejected(w.put("/v1/overrides/db", R"({"max_concurrent": 5, "reason": "r", "max_concurrent": 6})"),
           "max_concurrent");
  rejected(
      w.put("/v1/overrides/db", R"({"max_concurrent": 5, "reason": "\"a\": [{", "max_c\u006fncurrent" : 6})"),
      "max_concurrent");
  const auto batch = [&](const std::string& body) {
    return w.ask({.method = "POST", .path = "/v1/batch", .body = body, .token = "o"});
  };
  const auto operation = [](const char* name, const std::string& more) {
    return R"({"method": "PUT", "path": "/v1/drains/)" + std::string(name) + R"(", "body": {"reason": "r"})" +
           more + '}';
  };
  rejected(batch(R"({"operations": [)" + operation("db", R"(, "body": {"reason": "s"})") + "]}"), "body");
  EXPECT_FALSE(w["db"].snapshot().draining);
  EXPECT_EQ(batch(R"({"operations": [)" + operation("db", "") + ',' + operation("auto", "") + "]}").status,
            200);
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
}

TEST(Operations, TheLimitOfAGroupsMemberIsTheOneInTheSnapshot) {
  World w;
  Group group{{.name = "shared",
               .total = 10,
               .members = {{.name = "member", .guaranteed = {.units = 6}}, {.name = "other"}},
               .clock = &w.clock}};
  w.add({.name = "member", .gate = &group.member("member")});
  const std::int64_t limit = w["member"].snapshot().gate.max_concurrent;
  ASSERT_GT(limit, 1);
  EXPECT_EQ(number(w.get("/v1/overrides/member").json().at("max_concurrent")), limit);
  EXPECT_EQ(number(w.get("/v1/bulkheads/member").json().at("max_concurrent")), limit);
  const json::value queue = w.put("/v1/overrides/member", R"({"max_queue": 3, "reason": "r"})").json();
  EXPECT_EQ(number(queue.at("before").at("max_concurrent")), limit);
  EXPECT_EQ(number(queue.at("after").at("max_concurrent")), limit);
  EXPECT_EQ(queue.at("effects").as_array().size(), 1u);
  w.server.reset();
  w.registry.remove("member");
}

TEST(Operations, IfMatchLetsOnlyOneOfManyWritersThrough) {
  World w;
  w.start();
  std::atomic<int> won{0}, stale{0}, other{0};
  std::vector<std::jthread> writers;
  const std::string first = w.get("/v1/overrides/db").header("ETag");
  ASSERT_FALSE(first.empty());
  for (int i = 1; i <= 4; ++i)
    writers.emplace_back([&, i] {
      const Reply r =
          w.put("/v1/overrides/db", R"({"reason": "race", "max_concurrent": )" + std::to_string(i) + "}",
                {"If-Match: " + first});
      (r.status == 200 ? won : r.status == 412 ? stale : other)++;
      if (r.status != 412) return;
      EXPECT_EQ(r.json().at("name").as_string(), "db");  // what it is now, and how to refer to it
      EXPECT_NE(r.header("ETag"), first);
    });
  writers.clear();
  EXPECT_EQ(won, 1);
  EXPECT_EQ(stale, 3);
  EXPECT_EQ(other, 0);
  const std::string next = w.get("/v1/bulkheads/db").header("ETag");
  EXPECT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})", {"If-Match: \"no\", " + next}).status, 200);
  EXPECT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})", {"If-Match: " + next}).status, 412);
  EXPECT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})", {"If-Match: *"}).status, 200);
  // To take back what is not there is no change; to prolong what is there is one.
  const auto tag_after = [&](const char* method, const char* body) {
    return w.ask({.method = method, .path = "/v1/overrides/db", .body = body, .token = "o"}).header("ETag");
  };
  const std::string none = tag_after("DELETE", "");
  EXPECT_EQ(tag_after("DELETE", ""), none);
  const std::string some = tag_after("PUT", R"({"reason": "r", "max_concurrent": 5})");
  EXPECT_NE(some, none);
  EXPECT_NE(tag_after("PUT", R"({"reason": "r", "max_concurrent": 5})"), some);
}

TEST(Operations, ADryRunThatIsSpelledWronglyIsNotDoneInEarnest) {
  World w;
  const std::string body = R"({"reason": "r", "max_concurrent": 5})";
  for (const char* const query :
       {"?dryrun=true", "?dry-run", "?dry_run=yes", "?dry_run=true&dry_run=false"}) {
    EXPECT_EQ(w.put(std::string("/v1/overrides/db") + query, body).status, 400) << query;
    const Reply batch = w.ask({.method = "POST",
                               .path = "/v1/batch",
                               .body = R"({"operations": [{"method": "PUT", "path": "/v1/overrides/db)" +
                                       std::string(query) + R"(", "body": )" + body + "}]}",
                               .token = "o"});
    EXPECT_EQ(batch.status, 422) << query;
    EXPECT_EQ(batch.json().at("errors").as_array()[0].at("pointer").as_string(), "/operations/0/path");
  }
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
}

TEST(Operations, ABatchIsDoneAsAWholeOrNotAtAll) {
  World w;
  const auto batch = [&](const std::string& operations) {
    return w.ask({.method = "POST",
                  .path = "/v1/batch",
                  .body = "{\"operations\": [" + operations + "]}",
                  .token = "o"});
  };
  const std::string good =
      R"({"method": "PUT", "path": "/v1/overrides/db", "body": {"max_concurrent": 3, "reason": "r"}})";
  const Reply half = batch(
      good + R"(, {"method": "PUT", "path": "/v1/breakers/db", "body": {"state": "open", "reason": "r"}})");
  EXPECT_EQ(half.status, 409);
  EXPECT_EQ(half.json().at("errors").as_array()[0].at("pointer").as_string(), "/operations/1");
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  const Reply wrong =
      batch(good + R"(, {"method": "PUT", "path": "/v1/drains/db", "body": {"ttl": "x", "reason": "r"}})");
  EXPECT_EQ(wrong.status, 422);
  EXPECT_EQ(wrong.json().at("errors").as_array()[0].at("pointer").as_string(), "/operations/1/body/ttl");
  EXPECT_EQ(batch(good + ", " + good).status, 422);
  EXPECT_EQ(batch(R"({"method": "POST", "path": "/v1/config/reload"})").status, 422);
  EXPECT_EQ(batch("").status, 422);

  const Reply whole =
      batch(good + R"(, {"method": "PUT", "path": "/v1/drains/pay%2Feu", "body": {"reason": "r"}})");
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(w["db"].options().max_concurrent, 3u);
  EXPECT_TRUE(w["pay/eu"].snapshot().draining);
}

TEST(Operations, WhatABatchDoesNotKnowIsNotPassedOver) {
  World w;
  const auto pointer = [&](const std::string& body) {
    const Reply reply = w.ask({.method = "POST", .path = "/v1/batch", .body = body, .token = "o"});
    EXPECT_EQ(reply.status, 422) << body;
    if (reply.status != 422) return std::string();
    return std::string(reply.json().at("errors").as_array().at(0).at("pointer").as_string());
  };
  const std::string change =
      R"("method": "PUT", "path": "/v1/overrides/db", "body": {"max_concurrent": 3, "reason": "r"})";
  EXPECT_EQ(pointer("{\"dry_run\": true, \"operations\": [{" + change + "}]}"), "/dry_run");
  for (const std::string guard : {R"("if-match": "\"old\"")", R"("if_match": 7)"}) {
    const std::string name = guard.substr(1, 8);
    EXPECT_EQ(pointer("{\"operations\": [{" + change + ", " + guard + "}]}"), "/operations/0/" + name);
  }
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
}

}  // namespace
}  // namespace bulkhead::control
