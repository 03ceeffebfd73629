#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "access.h"
#include "bulkhead/manual_clock.h"
#include "http_client_test.h"
#include "routes.h"
#include "server.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

// Real bulkheads, as a program that has three of its own would show them.
struct World {
  ManualClock clock;
  std::map<std::string, std::shared_ptr<Bulkhead>, std::less<>> bulkheads;
  std::string directory;
  ServerOptions options;
  std::unique_ptr<Server> server;

  World() {
    add({.name = "db", .max_concurrent = 20, .max_queue = 10, .clock = &clock});
    add({.name = "pay/eu", .max_concurrent = 5, .breaker = BreakerOptions{}, .clock = &clock});
    add({.name = "auto", .max_concurrent = 5, .adaptive = LimiterOptions{}, .clock = &clock});
    std::string pattern = (std::filesystem::temp_directory_path() / "bulkhead-control-XXXXXX").string();
    directory = ::mkdtemp(pattern.data());
    options = {.unix_socket = directory + "/admin.sock",
               .listen = "127.0.0.1:0",
               .tokens_file = directory + "/tokens",
               .instance = "test",
               .version = "1.2.3",
               .audit_file = directory + "/audit.jsonl",
               .clock = &clock};
    std::ofstream(options.tokens_file)
        << "# for tests\nvera viewer " << sha256_hex("v") << "\nolga operator " << sha256_hex("o")
        << "\nann admin " << sha256_hex("a") << " 2999-01-01T00:00:00Z\nold admin " << sha256_hex("x")
        << " 2020-01-01T00:00:00Z\n";
  }
  ~World() {
    server.reset();
    std::filesystem::remove_all(directory);
  }
  void add(const BulkheadOptions& o) { bulkheads[o.name] = std::make_shared<Bulkhead>(o); }
  Bulkhead& operator[](std::string_view name) { return *bulkheads.find(name)->second; }

  Plant plant() {
    return {.snapshot =
                [this] {
                  RegistrySnapshot all;
                  for (const auto& [name, b] : bulkheads)
                    all.bulkheads.push_back({.name = name,
                                             .type = "",
                                             .group = "",
                                             .tenants = "",
                                             .tenant_id = "",
                                             .configured = b->options(),
                                             .now = b->snapshot(),
                                             .bulkhead = b});
                  return all;
                },
            .find =
                [this](std::string_view name) {
                  const auto found = bulkheads.find(name);
                  return found == bulkheads.end() ? nullptr : found->second;
                }};
  }
  Server& start() { return *(server = std::make_unique<Server>(plant(), options)); }
  Reply ask(const Ask& request) {
    if (!server) start();
    Client client = Client::tcp(server->port());
    EXPECT_TRUE(client.send(request.text()));
    return client.read(request.method == "HEAD");
  }
  Reply ask_local(const Ask& request) {
    if (!server) start();
    Client client = Client::local(options.unix_socket);
    EXPECT_TRUE(client.send(request.text()));
    return client.read();
  }
  Reply get(const std::string& path) { return ask({.path = path}); }
  Reply put(const std::string& path, const std::string& body, std::vector<std::string> headers = {}) {
    return ask({.method = "PUT", .path = path, .body = body, .token = "o", .headers = std::move(headers)});
  }
};

std::int64_t number(const json::value& v) { return v.to_number<std::int64_t>(); }

TEST(Control, ShowsWhatTheBulkheadsAreDoing) {
  World w;
  auto one = w["db"].try_acquire(), two = w["db"].try_acquire();
  const Reply reply = w.get("/v1/snapshot");
  ASSERT_EQ(reply.status, 200);
  const json::value all = reply.json();
  EXPECT_EQ(all.at("instance").as_string(), "test");
  EXPECT_EQ(all.at("config").at("state").as_string(), "none");
  const auto& list = all.at("bulkheads").as_array();
  ASSERT_EQ(list.size(), 3u);
  EXPECT_EQ(list[1].at("name").as_string(), "db");
  EXPECT_EQ(number(list[1].at("in_flight")), 2);
  EXPECT_EQ(number(list[1].at("limit")), 20);
  EXPECT_EQ(number(list[1].at("queue_limit")), 10);
  EXPECT_EQ(number(list[1].at("total").at("admitted")), 2);
  EXPECT_TRUE(list[1].at("breaker").is_null());
  EXPECT_EQ(list[2].at("breaker").at("state").as_string(), "closed");
  EXPECT_EQ(reply.header("Cache-Control"), "no-store");

  const Reply detail = w.get("/v1/bulkheads/pay%2Feu");
  ASSERT_EQ(detail.status, 200);
  EXPECT_EQ(detail.json().at("settings").as_array()[1].at("value").as_string(), "5");
  const Reply unknown = w.get("/v1/bulkheads/bd");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("did you mean \\\"db\\\"?"), std::string::npos) << unknown.body;
  EXPECT_EQ(w.ask({.method = "HEAD", .path = "/v1/snapshot"}).status, 200);
}

TEST(Control, AnOverrideChangesTheProcessAndEndsByItself) {
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

TEST(Control, WhatWasReplacedComesBackAlsoAfterASecondOverrideAndAtTheEnd) {
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

TEST(Control, TheFileWinsOverAnOverrideOfTheSameField) {
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

TEST(Control, ABreakerCanBeForcedAndABulkheadDrained) {
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

TEST(Control, ADryRunTellsTheEffectAndDoesNothing) {
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

TEST(Control, EveryMistakeInABodyIsToldAtOnceWithItsPlace) {
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
  EXPECT_EQ(w.put("/v1/overrides/nobody", R"({"limit": 3, "reason": "r"})").status, 404);
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"reason": "r"})").status, 422);
  const Reply wrong_method = w.ask({.method = "PATCH", .path = "/v1/overrides/db", .token = "a"});
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.header("Allow"), "GET, PUT, DELETE");
  EXPECT_EQ(w.get("/v1/nothing").status, 404);
  EXPECT_EQ(w.get("/v1/history?seconds=99999").status, 400);
  EXPECT_EQ(
      w.ask({.method = "PUT", .path = "/v1/overrides/db", .body = std::string(70'000, ' '), .token = "o"})
          .status,
      413);
  EXPECT_EQ(w.ask({.path = "/livez", .headers = {"X: " + std::string(9000, 'x')}}).status, 431);
}

TEST(Control, IfMatchLetsOnlyOneOfManyWritersThrough) {
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
}

TEST(Control, ABatchIsDoneAsAWholeOrNotAtAll) {
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

// What each caller gets from each route, by the table that also makes the OpenAPI document.
TEST(Control, EveryRouteAsksForItsRole) {
  World w;
  w.options.anonymous = Role::none;
  w.start();
  const std::vector<std::pair<std::string, Role>> callers{
      {"", Role::none}, {"v", Role::viewer}, {"o", Role::operator_}, {"a", Role::admin}};
  for (const Route& route : routes()) {
    std::string path(route.path);
    if (const auto at = path.find("{name}"); at != std::string::npos) path.replace(at, 6, "nobody");
    for (const auto& [token, role] : callers) {
      if (path == "/v1/stream" && role >= route.role) continue;  // never ends
      const int status = w.ask({.method = std::string(route.method), .path = path, .token = token}).status;
      const std::string what = std::string(route.method) + ' ' + path + " as " + std::string(to_string(role));
      if (role < route.role)
        EXPECT_EQ(status, role == Role::none ? 401 : 403) << what;
      else
        EXPECT_TRUE(status != 401 && status != 403 && status != 0 && status != 500) << what << ' ' << status;
    }
    EXPECT_EQ(w.ask({.method = std::string(route.method), .path = path, .token = "x"}).status,
              route.role == Role::none ? 200 : 401)
        << path;
    EXPECT_EQ(w.ask({.method = std::string(route.method), .path = path, .token = "?"}).status,
              route.role == Role::none ? 200 : 401)
        << path;
  }
}

TEST(Control, TheUnixSocketIsForItsOwnerAndSaysWhoThatIs) {
  World w;
  w.start();
  struct stat status{};
  ASSERT_EQ(::stat(w.options.unix_socket.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0660u);
  const json::value session = w.ask_local({.path = "/v1/session"}).json();
  EXPECT_EQ(session.at("role").as_string(), "admin");
  EXPECT_TRUE(std::string(session.at("actor").as_string()).starts_with("unix:"));
  EXPECT_EQ(w.get("/v1/session").json().at("role").as_string(), "viewer");
  EXPECT_EQ(
      w.ask_local({.method = "PUT", .path = "/v1/overrides/db", .body = R"({"limit": 2, "reason": "r"})"})
          .status,
      200);

  World second;
  second.options.unix_socket = w.options.unix_socket;
  EXPECT_THROW(second.start(), std::system_error);  // is alive
  w.server.reset();
  EXPECT_FALSE(std::filesystem::exists(w.options.unix_socket));
}

TEST(Control, OtherWebSitesAndOtherNamesAreTurnedAway) {
  World w;
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = "evil.example"}).status, 403);  // DNS rebinding
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .host = "127.0.0.1:1"}).status, 200);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Origin: http://evil.example"}}).status, 403);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Origin: http://localhost"}}).status, 200);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Sec-Fetch-Site: cross-site"}}).status, 403);
  EXPECT_EQ(w.ask({.path = "/v1/snapshot", .headers = {"Sec-Fetch-Site: same-origin"}}).status, 200);
  const Reply audit = w.get("/v1/audit");
  EXPECT_NE(audit.body.find("evil.example"), std::string::npos);
}

TEST(Control, WhereAnybodyCouldReachItItNeedsTlsAndTokens) {
  World w;
  w.options.listen = "0.0.0.0:0";
  const auto refused = [&]() -> std::string {
    try {
      w.start();
      return "";
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
  };
  EXPECT_NE(refused().find("give a certificate"), std::string::npos) << refused();
  w.options.certificate = "cert.pem";
  EXPECT_NE(refused().find("belong together"), std::string::npos);
  w.options.private_key = "key.pem";
  w.options.tokens_file.clear();
  EXPECT_NE(refused().find("tokens_file"), std::string::npos);
  w.options.listen = "somewhere";
  EXPECT_NE(refused().find("is not an address and a port"), std::string::npos);
  w.options.listen.clear();
  w.options.unix_socket.clear();
  EXPECT_NE(refused().find("no way in"), std::string::npos);
  EXPECT_THROW(Tokens::parse("ann admin abc", "t"), std::invalid_argument);
  EXPECT_THROW(Tokens::parse("ann boss " + sha256_hex("x"), "t"), std::invalid_argument);
}

TEST(Control, EveryChangeAndEveryDenialIsInTheAuditFile) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"limit": 3, "ttl": 60, "reason": "because"})").status, 200);
  ASSERT_EQ(w.ask({.method = "PUT", .path = "/v1/overrides/db", .body = "{}", .token = "v"}).status, 403);
  std::ifstream file(w.options.audit_file);
  std::string line;
  std::vector<json::value> lines;
  while (std::getline(file, line)) lines.push_back(json::parse(line));
  ASSERT_EQ(lines.size(), 3u);
  EXPECT_EQ(lines[0].at("kind").as_string(), "start");
  lines.erase(lines.begin());
  EXPECT_EQ(lines[0].at("actor").as_string(), "olga");
  EXPECT_EQ(lines[0].at("action").as_string(), "PUT /v1/overrides/db");
  EXPECT_EQ(number(lines[0].at("before").at("limit")), 20);
  EXPECT_EQ(number(lines[0].at("after").at("limit")), 3);
  EXPECT_EQ(lines[0].at("reason").as_string(), "because");
  EXPECT_EQ(lines[1].at("result").as_string(), "denied");
  EXPECT_EQ(lines[1].at("actor").as_string(), "vera");
}

TEST(Control, ReadinessIsTheProgramsToSay) {
  World w;
  std::atomic<bool> ready{false};
  w.options.not_ready = [&] { return ready ? std::string() : std::string("no file yet"); };
  EXPECT_EQ(w.get("/livez").status, 200);
  EXPECT_EQ(w.get("/readyz").status, 503);
  EXPECT_NE(w.get("/readyz?verbose").body.find("no file yet"), std::string::npos);
  ready = true;
  EXPECT_EQ(w.get("/readyz").status, 200);
  w.server->set_stopping();
  EXPECT_EQ(w.get("/readyz").status, 503);
}

TEST(Control, SlowClientsMakeRoomForOthers) {
  World w;
  w.options.max_connections = 8;
  w.start();
  std::vector<Client> slow;
  for (int i = 0; i < 100; ++i) {
    slow.push_back(Client::tcp(w.server->port()));
    slow.back().send("GET /v1/snapshot HTTP/1.1\r\nHost: loc");
  }
  EXPECT_EQ(w.get("/v1/session").status, 200);
  EXPECT_EQ(w.ask_local({.path = "/v1/session"}).status, 200);
  std::string rest;
  EXPECT_FALSE(slow.front().receive(rest));  // closed
}

TEST(Control, AClientThatDoesNotFinishItsRequestIsClosed) {
  World w;
  w.options.request_timeout = 50ms;
  w.start();
  Client client = Client::tcp(w.server->port());
  client.send("PUT /v1/overrides/db HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
  std::string rest;
  EXPECT_FALSE(client.receive(rest));
}

TEST(Control, TheStreamSendsFramesAndIsBounded) {
  World w;
  w.options.max_streams = 2;
  w.start();
  const auto frames = [](const std::string& text) {
    std::size_t n = 0;
    for (std::size_t at = 0; (at = text.find("event: snapshot\n", at)) != std::string::npos; ++at) ++n;
    return n;
  };
  std::vector<Client> readers;
  for (int i = 0; i < 2; ++i) {
    readers.push_back(Client::tcp(w.server->port()));
    readers.back().send(Ask{.path = "/v1/stream"}.text());
    std::string text;
    while (frames(text) < 1 && readers.back().receive(text)) {
    }
    EXPECT_NE(text.find("Content-Type: text/event-stream"), std::string::npos);
  }
  const Reply third = w.get("/v1/stream");
  EXPECT_EQ(third.status, 503);
  EXPECT_EQ(third.header("Retry-After"), "5");
  std::string text;
  while (frames(text) < 2 && readers[0].receive(text)) {
  }
  const std::size_t data = text.find("data: ") + 6;
  const json::value frame = json::parse(text.substr(data, text.find('\n', data) - data));
  EXPECT_EQ(frame.at("bulkheads").as_array().size(), 3u);
}

TEST(Control, HistoryRemembersThePeakOfEachSecond) {
  World w;
  w.start();
  Client reader = Client::tcp(w.server->port());  // its frames tell that a second has passed
  reader.send(Ask{.path = "/v1/stream"}.text());
  const auto next_second = [&] {
    std::string text;
    while (text.find("event: snapshot\n") == std::string::npos && reader.receive(text)) {
    }
  };
  auto call = w["db"].try_acquire();
  for (int i = 0; i < 3; ++i) next_second();
  const json::value history = w.get("/v1/history?seconds=10&step=1&bulkhead=db").json();
  const auto& row = history.at("bulkheads").as_array().at(0);
  const auto& used = row.at("used").as_array();
  ASSERT_EQ(used.size(), 10u);
  EXPECT_TRUE(used.front().is_null());
  EXPECT_EQ(number(used.back()), 1);
  EXPECT_EQ(row.at("service").at("p99").as_array().size(), 10u);
  EXPECT_EQ(number(row.at("limit").as_array().at(0).as_array().at(1)), 20);
  EXPECT_EQ(w.get("/v1/history?bulkhead=nobody").status, 404);
}

TEST(Control, TheFileIsShownCheckedComparedAndLoaded) {
  World w;
  std::atomic<bool> broken{false};
  const auto plan = [&] {
    ConfigPlan p{.errors = {},
                 .changes = {"db: max_concurrent 20 -> 30"},
                 .needs_restart = {"control.listen"},
                 .revision = "r2"};
    if (broken) p.errors = {{.pointer = "/bulkheads/db", .message = "is wrong", .line = 7, .column = 3}};
    return p;
  };
  std::atomic<int> loads{0};
  w.options.config = {
      .path = "/etc/b.yaml",
      .status = [&] { return ConfigStatus{.valid = true, .revision = loads > 0 ? "r2" : "r1", .error = ""}; },
      .running = [] { return std::string("version: 1\n"); },
      .validate =
          [](const std::string& text) {
            return text == "good" ? std::vector<Diagnostic>{}
                                  : std::vector<Diagnostic>{{.pointer = "/x", .message = "no", .line = 3}};
          },
      .diff = plan,
      .reload = [&] { return ++loads, plan(); }};
  EXPECT_EQ(w.get("/v1/config").header("ETag"), "\"r1\"");
  EXPECT_EQ(w.get("/v1/config/diff").json().at("changes").as_array().size(), 1u);
  const auto post = [&](const std::string& path, const std::string& body, std::vector<std::string> headers,
                        const char* token) {
    return w.ask(
        {.method = "POST", .path = path, .body = body, .token = token, .headers = std::move(headers)});
  };
  EXPECT_TRUE(post("/v1/config/validate", "good", {"Content-Type: application/yaml"}, "v")
                  .json()
                  .at("valid")
                  .as_bool());
  EXPECT_FALSE(post("/v1/config/validate", "bad", {"Content-Type: application/yaml"}, "v")
                   .json()
                   .at("valid")
                   .as_bool());
  EXPECT_EQ(post("/v1/config/reload?dry_run=true", "", {}, "a").status, 200);
  EXPECT_EQ(loads, 0);
  EXPECT_EQ(post("/v1/config/reload", "", {"If-Match: \"r0\""}, "a").status, 412);
  EXPECT_EQ(post("/v1/config/reload", "", {"If-Match: \"r1\""}, "a").status, 200);
  EXPECT_EQ(loads, 1);
  broken = true;
  const Reply refused = post("/v1/config/reload", "", {}, "a");
  EXPECT_EQ(refused.status, 422);
  EXPECT_EQ(number(refused.json().at("errors").as_array()[0].at("line")), 7);
  EXPECT_NE(w.get("/v1/events").body.find("reload_failed"), std::string::npos);
}

// Whatever is sent, there is an answer or the connection is closed, and the next request is served.
TEST(Control, NonsenseIsSurvived) {
  World w;
  w.options.request_timeout = 200ms;
  w.start();
  std::mt19937 random(7);
  const auto any = [&](std::size_t n) {
    return std::uniform_int_distribution<std::size_t>(0, n - 1)(random);
  };
  const std::vector<std::string> seeds{
      Ask{.path = "/v1/snapshot"}.text(),
      Ask{.method = "PUT",
          .path = "/v1/overrides/db?dry_run=true",
          .body = R"({"limit": 5, "queue": 1, "ttl": "5m", "reason": "fuzz"})",
          .token = "o"}
          .text(),
      Ask{.method = "POST",
          .path = "/v1/batch",
          .body = R"({"operations": [{"method": "PUT", "path": "/v1/drains/db", "body": {"reason": "r"}}]})",
          .token = "o"}
          .text(),
      Ask{.path = "/v1/history?seconds=10&step=3&bulkhead=db"}.text()};
  for (int round = 0; round < 300; ++round) {
    std::string text = seeds[any(seeds.size())];
    for (std::size_t edits = 1 + any(6); edits > 0; --edits) {
      const std::size_t at = any(text.size());
      switch (any(4)) {
        case 0:
          text[at] = static_cast<char>(any(256));
          break;
        case 1:
          text.erase(at, 1 + any(20));
          break;
        case 2:
          text.insert(at, text.substr(any(text.size()), any(40)));
          break;
        case 3:
          text.insert(at, std::string(1 + any(3), "\0\r\n%\"{[\\"[any(8)]));
          break;
      }
      if (text.empty()) text = "\r\n";
    }
    Client client = Client::tcp(w.server->port());
    client.send(text);
    client.finish();
    std::string rest;
    while (client.receive(rest)) {
    }
    EXPECT_TRUE(rest.empty() || rest.starts_with("HTTP/1.1 ")) << rest.substr(0, 100);
    EXPECT_EQ(rest.find(" 500 "), std::string::npos) << text << "\n" << rest;
  }
  for (const std::string& body :
       {std::string(5000, '['), std::string("{\"limit\":") + std::string(400, '9') + "}",
        std::string("{\"reason\":\"\\ud800\"}"), std::string("nul")})
    EXPECT_EQ(w.put("/v1/overrides/db", body).status / 100, 4) << body.substr(0, 40);
  EXPECT_EQ(w.get("/v1/session").status, 200);
}

}  // namespace
}  // namespace bulkhead::control
