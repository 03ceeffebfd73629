#include <atomic>
#include <thread>

#include "message.h"
#include "world_test.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

TEST(Changes, AnOverrideChangesTheProcessAndEndsByItself) {
  World w;
  const Reply set = w.put("/v1/overrides/db", R"({"limit": 3, "ttl": "10m", "reason": "incident"})");
  ASSERT_EQ(set.status, 200) << set.body;
  EXPECT_EQ(number(set.json().at("before").at("limit")), 20);
  EXPECT_EQ(number(set.json().at("after").at("limit")), 3);
  EXPECT_EQ(w["db"].snapshot().gate.max_concurrent, 3u);
  const json::value shown = w.get("/v1/overrides/db").json();
  EXPECT_EQ(shown.at("overrides").as_array().at(0).at("by").as_string(), "olga");
  EXPECT_EQ(w.get("/v1/snapshot").json().at("config").at("state").as_string(), "drift");

  w.clock.advance(10min - 1ns);
  EXPECT_EQ(number(w.get("/v1/overrides/db").json().at("limit")), 3);
  w.clock.advance(1ns);
  EXPECT_EQ(number(w.get("/v1/overrides/db").json().at("limit")), 20);
  EXPECT_EQ(w["db"].snapshot().gate.max_concurrent, 20u);
  EXPECT_NE(w.get("/v1/events").body.find("\"expired\""), std::string::npos);
}

TEST(Changes, MetricsTellWhichSettingsWereChangedAndWhenTheyGoBack) {
  World w;
  const std::string family = "\nbulkhead_override_expiry_timestamp_seconds{";
  const auto page = [&] { return w.get("/metrics").body; };
  EXPECT_NE(page().find("\nbulkhead_config_overrides 0\n"), std::string::npos);
  EXPECT_EQ(page().find(family), std::string::npos);
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "queue": 1, "ttl": "10m", "reason": "r"})").status,
            200);
  ASSERT_EQ(w.put("/v1/drains/pay%2Feu", R"({"reason": "r"})").status, 200);
  const std::string changed = page();
  EXPECT_NE(changed.find("\nbulkhead_config_overrides 3\n"), std::string::npos);
  EXPECT_NE(changed.find(family + R"(bulkhead="pay/eu",field="drain"} )"), std::string::npos);
  EXPECT_NE(changed.find(family + R"(bulkhead="db",field="queue"} )"), std::string::npos);
  const std::string limit = family + R"(bulkhead="db",field="limit"} )";
  const std::size_t at = changed.find(limit);
  ASSERT_NE(at, std::string::npos);
  const double now = unix_seconds(std::chrono::system_clock::now());
  EXPECT_NEAR(std::stod(changed.substr(at + limit.size())), now + 600, 60);
  w.clock.advance(10min);
  w.get("/v1/overrides/db");  // sees that the time is over, as the server does every second
  EXPECT_EQ(page().find(limit), std::string::npos);
}

TEST(Changes, WhatWasReplacedComesBackAlsoAfterASecondOverrideAndAtTheEnd) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "queue": 1, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 4, "reason": "r"})").status,
            200);  // queue is no longer overridden
  EXPECT_EQ(w["db"].snapshot().gate.max_queue, 10u);
  const Reply reverted = w.ask({.method = "DELETE", .path = "/v1/overrides/db", .token = "o"});
  ASSERT_EQ(reverted.status, 200);
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_EQ(w.ask({.method = "DELETE", .path = "/v1/overrides/db", .token = "o"}).status, 200);

  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})").status, 200);
  w.server.reset();
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_FALSE(w["db"].snapshot().draining);
}

TEST(Changes, TheFileWinsOverAnOverrideOfTheSameField) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "queue": 1, "reason": "r"})").status, 200);
  BulkheadOptions o = w["db"].options();
  o.max_concurrent = 20;  // as before
  o.max_queue = 50;       // changed
  w["db"].update(o);
  w.server->reloaded(
      {.errors = {}, .changes = {"db.max_queue 10 -> 50"}, .needs_restart = {}, .revision = "2"}, "watch");
  EXPECT_EQ(w["db"].snapshot().gate.max_concurrent, 3u);  // in force again
  EXPECT_EQ(w["db"].snapshot().gate.max_queue, 50u);
  const json::value left = w.get("/v1/overrides/db").json();
  ASSERT_EQ(left.at("overrides").as_array().size(), 1u);
  EXPECT_EQ(left.at("overrides").as_array()[0].at("field").as_string(), "limit");
}

TEST(Changes, ABreakerCanBeForcedAndABulkheadDrained) {
  World w;
  ASSERT_EQ(w.put("/v1/circuits/pay%2Feu/override", R"({"state": "open", "ttl": 60, "reason": "r"})").status,
            200);
  EXPECT_EQ(w["pay/eu"].try_acquire().error().reason, Reason::breaker_open);
  EXPECT_EQ(w.ask({.method = "DELETE", .path = "/v1/circuits/pay%2Feu/override", .token = "o"}).status, 200);
  EXPECT_TRUE(w["pay/eu"].try_acquire());
  EXPECT_EQ(w.put("/v1/circuits/db/override", R"({"state": "open", "reason": "r"})").status,
            409);  // has none

  const Reply drained = w.put("/v1/drains/db", R"({"ttl": "1h", "reason": "r"})");
  ASSERT_EQ(drained.status, 200) << drained.body;
  EXPECT_EQ(w["db"].try_acquire().error().reason, Reason::shutdown);
  w.clock.advance(1h);
  EXPECT_FALSE(w.get("/v1/drains/db").json().at("draining").as_bool());
  EXPECT_TRUE(w["db"].try_acquire());
  EXPECT_EQ(w.put("/v1/overrides/auto", R"({"limit": 3, "reason": "r"})").status,
            409);  // the limiter's business
}

TEST(Changes, ADryRunTellsTheEffectAndDoesNothing) {
  World w;
  std::vector<Result<Call>> running;
  for (int i = 0; i < 7; ++i) running.push_back(w["db"].try_acquire());
  const Reply reply = w.put("/v1/overrides/db?dry_run=true", R"({"limit": 5, "reason": "r"})");
  ASSERT_EQ(reply.status, 200);
  EXPECT_TRUE(reply.json().at("dry_run").as_bool());
  EXPECT_EQ(reply.json().at("effects").as_array().at(0).as_string(),
            "limit 20 -> 5: 7 running calls go on to their end; none is admitted until fewer than 5 run");
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
}

// Nothing can keep an override from ending: not that the breaker or the bulkhead is gone meanwhile.
TEST(Changes, WhatIsForcedOrDrainedEndsAlsoWhenThereIsNothingLeftToPutBack) {
  World w;
  ASSERT_EQ(w.put("/v1/circuits/pay%2Feu/override", R"({"state": "open", "ttl": 60, "reason": "r"})").status,
            200);
  ASSERT_EQ(w.put("/v1/drains/db", R"({"ttl": 60, "reason": "r"})").status, 200);
  ASSERT_EQ(w.put("/v1/overrides/auto", R"({"queue": 3, "ttl": 60, "reason": "r"})").status, 200);
  w["db"].close();
  {
    const std::lock_guard lock(w.mutex);
    w.bulkheads.erase("auto");
    w.bulkheads.erase("pay/eu");
  }
  w.add({.name = "pay/eu", .max_concurrent = 5, .clock = &w.clock});  // of the same name, without a breaker
  w.clock.advance(60s);
  EXPECT_TRUE(w.get("/v1/overrides").json().at("overrides").as_array().empty());
  EXPECT_EQ(w.get("/v1/drains/db").json().at("draining").as_bool(), false);
  const std::string events = w.get("/v1/events").body;
  EXPECT_NE(events.find("there is no breaker any more"), std::string::npos) << events;
  EXPECT_NE(events.find("cannot come back"), std::string::npos) << events;
}

TEST(Changes, AnOperatorsDrainGivesBackWhatTheProgramWasDoing) {
  World w;
  w["db"].set_draining(true);
  const Reply drained = w.put("/v1/drains/db", R"({"ttl": "1m", "reason": "r"})");
  ASSERT_EQ(drained.status, 200) << drained.body;
  const Reply resumed = w.ask({.method = "DELETE", .path = "/v1/drains/db", .token = "o"});
  EXPECT_NE(resumed.body.find("the program itself goes on"), std::string::npos) << resumed.body;
  EXPECT_TRUE(w["db"].snapshot().draining);
}

TEST(Changes, EveryMistakeInABodyIsToldAtOnceWithItsPlace) {
  World w;
  const Reply reply = w.put("/v1/overrides/db", R"({"limit": 0, "tll": 5, "ttl": "15", "reason": " "})");
  ASSERT_EQ(reply.status, 422);
  EXPECT_EQ(reply.header("Content-Type"), "application/problem+json");
  std::map<std::string, std::string> by_pointer;
  const json::value problem = reply.json();
  for (const auto& e : problem.at("errors").as_array())
    by_pointer[std::string(e.at("pointer").as_string())] = text_of(e);
  EXPECT_EQ(by_pointer.size(), 4u) << reply.body;
  EXPECT_NE(by_pointer["/limit"].find("drain it"), std::string::npos);
  EXPECT_NE(by_pointer["/tll"].find("did you mean \\\"ttl\\\"?"), std::string::npos);
  EXPECT_TRUE(by_pointer.contains("/ttl") && by_pointer.contains("/reason"));
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);

  EXPECT_EQ(w.put("/v1/overrides/db", "{").status, 400);
  EXPECT_EQ(w.put("/v1/overrides/db", "[1]").status, 400);
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "reason": "r"})", {"Content-Type: text/plain"}).status,
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
  EXPECT_EQ(w.put("/v1/overrides/nobody", R"({"limit": 3, "reason": "r"})").status, 404);
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

TEST(Changes, NumbersAreTakenAsJsonHasThemAndToldAsTheyAre) {
  World w;
  const auto put = [&](const std::string& fields) {
    return w.put("/v1/overrides/db?dry_run=true", R"({"reason": "r", )" + fields + '}');
  };
  EXPECT_EQ(number(put(R"("limit": 10.0)").json().at("after").at("limit")), 10);
  EXPECT_EQ(number(put(R"("limit": 1e1)").json().at("after").at("limit")), 10);
  for (const char* const wrong : {"10.5", "0.0", "-1", "1e30", "9223372036854775808.0", "\"10\"", "null"})
    EXPECT_EQ(put(R"("limit": )" + std::string(wrong)).status, 422) << wrong;
  EXPECT_NE(put(R"("limit": 10.5)").body.find("10.5 is not a whole number"), std::string::npos);
  for (const auto& [ttl, told] : {std::pair{"1.5", "for 1500 ms: r"},
                                  {"90", "for 90 s: r"},
                                  {"\"1h30m\"", "for 90 m: r"},
                                  {"\"1d\"", "for 24 h: r"}}) {
    const Reply reply = put(R"("limit": 5, "ttl": )" + std::string(ttl));
    EXPECT_NE(reply.body.find(told), std::string::npos) << reply.body;
  }
}

// Which of two values counts would be the parser's choice.
TEST(Changes, AKeyThatStandsTwiceIsRefused) {
  World w;
  const auto refused = [](const Reply& reply, const std::string& key) {
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_NE(reply.body.find("\\\"" + key + "\\\""), std::string::npos) << reply.body;
  };
  refused(w.put("/v1/overrides/db", R"({"limit": 5, "reason": "r", "limit": 6})"), "limit");
  refused(w.put("/v1/overrides/db", R"({"limit": 5, "reason": "\"a\": [{", "l\u0069mit" : 6})"), "limit");
  const auto batch = [&](const std::string& body) {
    return w.ask({.method = "POST", .path = "/v1/batch", .body = body, .token = "o"});
  };
  const auto operation = [](const char* name, const std::string& more) {
    return R"({"method": "PUT", "path": "/v1/drains/)" + std::string(name) + R"(", "body": {"reason": "r"})" +
           more + '}';
  };
  refused(batch(R"({"operations": [)" + operation("db", R"(, "body": {"reason": "s"})") + "]}"), "body");
  EXPECT_FALSE(w["db"].snapshot().draining);
  EXPECT_EQ(batch(R"({"operations": [)" + operation("db", "") + ',' + operation("auto", "") + "]}").status,
            200);
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
}

TEST(Changes, TheLimitOfAGroupsMemberIsTheOneInTheSnapshot) {
  World w;
  Group group{{.name = "shared",
               .total = 10,
               .members = {{.name = "member", .guaranteed = {.units = 6}}, {.name = "other"}},
               .clock = &w.clock}};
  w.add({.name = "member", .gate = &group.member("member"), .clock = &w.clock});
  const std::int64_t limit = w["member"].snapshot().gate.max_concurrent;
  ASSERT_GT(limit, 1);
  EXPECT_EQ(number(w.get("/v1/overrides/member").json().at("limit")), limit);
  EXPECT_EQ(number(w.get("/v1/bulkheads/member").json().at("limit")), limit);
  const json::value queue = w.put("/v1/overrides/member", R"({"queue": 3, "reason": "r"})").json();
  EXPECT_EQ(number(queue.at("before").at("limit")), limit);
  EXPECT_EQ(number(queue.at("after").at("limit")), limit);
  EXPECT_EQ(queue.at("effects").as_array().size(), 1u);
  w.server.reset();
  w.bulkheads.erase("member");
}

TEST(Changes, IfMatchLetsOnlyOneOfManyWritersThrough) {
  World w;
  w.start();
  std::atomic<int> won{0}, stale{0}, other{0};
  std::vector<std::jthread> writers;
  const std::string first = w.get("/v1/overrides/db").header("ETag");
  ASSERT_FALSE(first.empty());
  for (int i = 1; i <= 4; ++i)
    writers.emplace_back([&, i] {
      const Reply r = w.put("/v1/overrides/db", R"({"reason": "race", "limit": )" + std::to_string(i) + "}",
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
  const std::string some = tag_after("PUT", R"({"reason": "r", "limit": 5})");
  EXPECT_NE(some, none);
  EXPECT_NE(tag_after("PUT", R"({"reason": "r", "limit": 5})"), some);
}

TEST(Changes, ADryRunThatIsSpelledWronglyIsNotDoneInEarnest) {
  World w;
  const std::string body = R"({"reason": "r", "limit": 5})";
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

TEST(Changes, ABatchIsDoneAsAWholeOrNotAtAll) {
  World w;
  const auto batch = [&](const std::string& operations) {
    return w.ask({.method = "POST",
                  .path = "/v1/batch",
                  .body = "{\"operations\": [" + operations + "]}",
                  .token = "o"});
  };
  const std::string good =
      R"({"method": "PUT", "path": "/v1/overrides/db", "body": {"limit": 3, "reason": "r"}})";
  const Reply half = batch(
      good +
      R"(, {"method": "PUT", "path": "/v1/circuits/db/override", "body": {"state": "open", "reason": "r"}})");
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

TEST(Changes, WhatABatchDoesNotKnowIsNotPassedOver) {
  World w;
  const auto pointer = [&](const std::string& body) {
    const Reply reply = w.ask({.method = "POST", .path = "/v1/batch", .body = body, .token = "o"});
    EXPECT_EQ(reply.status, 422) << body;
    if (reply.status != 422) return std::string();
    return std::string(reply.json().at("errors").as_array().at(0).at("pointer").as_string());
  };
  const std::string change =
      R"("method": "PUT", "path": "/v1/overrides/db", "body": {"limit": 3, "reason": "r"})";
  EXPECT_EQ(pointer("{\"dry_run\": true, \"operations\": [{" + change + "}]}"), "/dry_run");
  for (const std::string guard : {R"("if-match": "\"old\"")", R"("if_match": 7)"}) {
    const std::string name = guard.substr(1, 8);
    EXPECT_EQ(pointer("{\"operations\": [{" + change + ", " + guard + "}]}"), "/operations/0/" + name);
  }
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
}

}  // namespace
}  // namespace bulkhead::control
