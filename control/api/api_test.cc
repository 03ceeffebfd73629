#include <sys/stat.h>

#include <atomic>
#include <thread>

#include "bulkhead/resource_pool.h"
#include "control/world_test.h"
#include "handlers.h"

namespace bulkhead::control {
namespace {

using namespace std::chrono_literals;
namespace json = boost::json;

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
  EXPECT_EQ(number(list[1].at("max_concurrent")), 20);
  EXPECT_EQ(number(list[1].at("max_queue")), 10);
  EXPECT_EQ(number(list[1].at("total").at("admitted")), 2);
  EXPECT_TRUE(list[1].at("breaker").is_null());
  EXPECT_EQ(list[2].at("breaker").at("state").as_string(), "closed");
  EXPECT_EQ(reply.header("Cache-Control"), "no-store");

  const Reply detail = w.get("/v1/bulkheads/pay%2Feu");
  ASSERT_EQ(detail.status, 200);
  std::map<std::string, std::string> settings;
  const json::value shown = detail.json();
  for (const auto& s : shown.at("settings").as_array())
    settings[std::string(s.at("name").as_string())] = std::string(s.at("value").as_string());
  EXPECT_EQ(settings["max_concurrent"], "5");
  EXPECT_EQ(settings["max_wait"], "forever");
  EXPECT_TRUE(settings.contains("breaker.open_for"));
  const Reply unknown = w.get("/v1/bulkheads/bd");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_NE(unknown.body.find("did you mean \\\"db\\\"?"), std::string::npos) << unknown.body;
  EXPECT_EQ(w.ask({.method = "HEAD", .path = "/v1/snapshot"}).status, 200);
}

TEST(Control, ShowsPoolsAsTheyAre) {
  Registry registry;
  ResourcePool<int> pool({.name = "orders",
                          .max = 3,
                          .open = [](const Opening&) { return Result<int, std::string>(7); },
                          .maintenance = Maintenance::by_hand});
  const auto attached = registry.attach(pool);
  const auto lease = pool.acquire({});
  ASSERT_TRUE(lease);
  World w;
  w.server = std::make_unique<Server>(registry, w.options);
  const json::value shown = w.get("/v1/snapshot").json().at("pools").as_array().at(0);
  EXPECT_EQ(number(shown.at("used")), 1);
  EXPECT_EQ(number(shown.at("max")), 3);
  EXPECT_EQ(shown.at("name").as_string(), "orders");
}

TEST(Control, APoolThatCannotOpenSaysWhy) {
  Registry registry;
  bool works = false;
  ResourcePool<int> pool({.name = "orders",
                          .max = 3,
                          .open = [&works](const Opening&) -> Result<int, std::string> {
                            if (works) return 7;
                            return Unexpected<std::string>("no route to host");
                          },
                          .maintenance = Maintenance::by_hand});
  const auto attached = registry.attach(pool);
  World w;
  w.server = std::make_unique<Server>(registry, w.options);
  EXPECT_FALSE(pool.acquire({}));
  const json::value failing = w.get("/v1/snapshot").json().at("pools").as_array().at(0);
  EXPECT_EQ(failing.at("failing").as_string(), "no route to host");
  EXPECT_GE(number(failing.at("open_failures")), 1);
  EXPECT_EQ(number(failing.at("timeouts")), 0);
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

TEST(Control, ADenialNamesTheRoleThatIsRequired) {
  World w;
  w.options.anonymous = Role::none;
  const auto denial = [&](const char* method, const char* path) {
    const Reply reply = w.ask({.method = method, .path = path});
    EXPECT_EQ(reply.status, 401);
    return std::string(reply.json().at("detail").as_string());
  };
  EXPECT_TRUE(denial("PUT", "/v1/drains/db").starts_with("the role operator is required"));
  EXPECT_TRUE(denial("POST", "/v1/config/reload").starts_with("the role admin is required"));
  EXPECT_TRUE(denial("GET", "/v1/nothing").starts_with("the role viewer is required"));
}

TEST(Control, ASwitchThatIsMistypedIsSuggested) {
  World w;
  w.options.switches = {{.name = "slow", .title = "Slow", .is_on = [] { return false; }, .set = [](bool) {}}};
  const Reply reply = w.put("/v1/switches/solw", R"({"on": true})");
  EXPECT_EQ(reply.status, 404);
  EXPECT_NE(reply.body.find(R"(did you mean \"slow\"?)"), std::string::npos) << reply.body;
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
      w.ask_local(
           {.method = "PUT", .path = "/v1/overrides/db", .body = R"({"max_concurrent": 2, "reason": "r"})"})
          .status,
      200);

  World second;
  second.options.unix_socket = w.options.unix_socket;
  EXPECT_THROW(second.start(), std::system_error);  // is alive
  w.server.reset();
  EXPECT_FALSE(std::filesystem::exists(w.options.unix_socket));
}

TEST(Control, OnlyASocketThatNobodyListensAtIsReplaced) {
  World w;
  const auto bound = [&](int type) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    w.options.unix_socket.copy(to.sun_path, sizeof to.sun_path - 1);
    const int fd = ::socket(AF_UNIX, type, 0);
    EXPECT_EQ(::bind(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << strerror(errno);
    return fd;
  };
  const int log = bound(SOCK_DGRAM);  // lives, but knows no connections
  EXPECT_THROW(w.start(), std::system_error);
  EXPECT_TRUE(std::filesystem::exists(w.options.unix_socket));
  ::close(log);
  ::unlink(w.options.unix_socket.c_str());
  ::close(bound(SOCK_STREAM));  // killed, say
  EXPECT_EQ(w.ask_local({.path = "/v1/session"}).status, 200);
}

TEST(Control, WhereAnybodyCouldReachItItNeedsTlsAndTokens) {
  World w;
  w.options.listen = "0.0.0.0:0";
  const auto rejected = [&]() -> std::string {
    try {
      w.start();
      return "";
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
  };
  EXPECT_NE(rejected().find("give a certificate"), std::string::npos) << rejected();
  w.options.certificate = "cert.pem";
  EXPECT_NE(rejected().find("only useful together"), std::string::npos);
  w.options.private_key = "key.pem";
  w.options.tokens_file.clear();
  EXPECT_NE(rejected().find("tokens_file"), std::string::npos);
  w.options.listen = "somewhere";
  EXPECT_NE(rejected().find("is not an address and a port"), std::string::npos);
  w.options.listen.clear();
  w.options.unix_socket.clear();
  EXPECT_NE(rejected().find("give at least one"), std::string::npos);
  EXPECT_THROW(Tokens::parse("ann admin abc", "t"), std::invalid_argument);
  EXPECT_THROW(Tokens::parse("ann boss " + sha256_hex("x"), "t"), std::invalid_argument);
  const std::string ann = "ann admin " + sha256_hex("x") + ' ';
  EXPECT_NO_THROW(Tokens::parse(ann + "2028-02-29T23:59:59Z", "t"));
  for (const char* const no_date : {"2027-02-30T00:00:00Z", "2027-02-29T00:00:00Z", "2027-04-31T00:00:00Z"})
    EXPECT_THROW(Tokens::parse(ann + no_date, "t"), std::invalid_argument) << no_date;
}

// Whoever may write it may make himself an admin. Reading it tells only hashes.
TEST(Control, ATokensFileThatOthersMayWriteIsRejected) {
  World w;
  for (const auto& [mode, good] :
       {std::pair{0600, true}, {0644, true}, {0440, true}, {0620, false}, {0602, false}}) {
    ASSERT_EQ(::chmod(w.options.tokens_file.c_str(), static_cast<mode_t>(mode)), 0);
    std::string why;
    try {
      Tokens::load(w.options.tokens_file);
    } catch (const std::invalid_argument& rejected) {
      why = rejected.what();
    }
    EXPECT_EQ(why.empty(), good) << std::oct << mode;
    if (good) continue;
    for (const std::string& part :
         {w.options.tokens_file, std::string(mode == 0620 ? "0620" : "0602"), std::string("chmod 600")})
      EXPECT_NE(why.find(part), std::string::npos) << why;
  }
}

TEST(Control, EveryChangeAndEveryDenialIsInTheAuditFile) {
  World w;
  ASSERT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "ttl": 60, "reason": "because"})").status,
            200);
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
  EXPECT_EQ(number(lines[0].at("before").at("max_concurrent")), 20);
  EXPECT_EQ(number(lines[0].at("after").at("max_concurrent")), 3);
  EXPECT_EQ(lines[0].at("reason").as_string(), "because");
  EXPECT_EQ(lines[1].at("result").as_string(), "denied");
  EXPECT_EQ(lines[1].at("actor").as_string(), "vera");
}

TEST(Control, AnAuditFileThatIsMovedAwayIsBegunAnew) {
  World w;
  const std::string path = w.options.audit_file;
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "reason": "spring"})").status, 200);
  std::filesystem::rename(path, path + ".1");
  EXPECT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 4, "reason": "summer"})").status, 200);
  const auto text = [](const std::string& file) {
    std::ifstream in(file);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  EXPECT_NE(text(path + ".1").find("spring"), std::string::npos);
  EXPECT_EQ(text(path + ".1").find("summer"), std::string::npos);
  EXPECT_NE(text(path).find("summer"), std::string::npos);
  EXPECT_EQ(text(path).find("spring"), std::string::npos);
}

TEST(Control, AnAuditFileThatCannotBeWrittenIsToldOnce) {
  World w;
  w.options.audit_file = "/dev/full";
  for (const char* limit : {"3", "4"})
    EXPECT_EQ(
        w.put("/v1/overrides/db", R"({"reason": "r", "max_concurrent": )" + std::string(limit) + '}').status,
        200);
  const std::string events = w.get("/v1/events").body;
  const std::size_t told = events.find("cannot be written, lines are missing there: No space left");
  EXPECT_NE(told, std::string::npos) << events;
  EXPECT_EQ(events.find("cannot be written", told + 1), std::string::npos) << events;
}

TEST(Control, EveryEventIsToldToTheProgramInOrderAndWhatThatThrowsIsSwallowed) {
  std::vector<json::object> told;
  {
    World w;
    w.options.on_event = [&told](std::string_view line) {
      told.push_back(json::parse(line).as_object());
      throw std::runtime_error("the log is full");
    };
    EXPECT_EQ(w.put("/v1/overrides/db", R"({"max_concurrent": 3, "reason": "r"})").status, 200);
    EXPECT_EQ(w.ask({.method = "PUT", .path = "/v1/overrides/db", .body = "{}", .token = "v"}).status, 403);
    w.server->note("switch", "the lights are on");
  }
  std::vector<std::string> kinds;
  for (std::size_t i = 0; i < told.size(); ++i) {
    EXPECT_EQ(number(told[i].at("id")), static_cast<double>(i + 1));
    kinds.emplace_back(told[i].at("kind").as_string());
  }
  ASSERT_EQ(kinds, (std::vector<std::string>{"start", "override", "denied", "switch", "stop"}));
  EXPECT_EQ(told[1].at("bulkhead").as_string(), "db");
  EXPECT_EQ(told[1].at("reason").as_string(), "r");
  EXPECT_EQ(told[2].at("actor").as_string(), "vera");
  EXPECT_FALSE(told[3].contains("role"));  // no change: an event
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

TEST(Control, ABreakerThatOpensAgainWithinASecondIsCounted) {
  World w;
  w.add({.name = "quick",
         .max_concurrent = 5,
         .breaker =
             BreakerOptions{.window_calls = 10, .minimum_calls = 2, .open_for = 1s, .half_open_calls = 1},
         .clock = &w.clock});
  Core core(w.registry, nullptr, {});
  const auto fail = [&] {
    auto call = w["quick"].try_acquire();
    if (call) call->finish(Outcome::failure);
    return call.has_value();
  };
  core.observer.second();
  EXPECT_TRUE(fail() && fail());
  core.observer.second();
  w.clock.advance(2s);
  EXPECT_TRUE(fail());  // the probe
  core.observer.second();
  core.observer.second();
  w.clock.advance(2s);
  w["quick"].try_acquire()->finish(Outcome::success);
  for (int i = 0; i < 11; ++i) core.observer.second();
  std::vector<std::string> told;
  for (const JournalEntry& e : core.journal.list({}))
    if (e.kind == "breaker") told.push_back(e.text);
  EXPECT_EQ(told, (std::vector<std::string>{"breaker closed -> open (failure_rate)",
                                            "breaker closed (probes_succeeded): it opened 2 times and "
                                            "probed 2 times"}));
  const json::object history = core.observer.history(60, 1, nullptr);
  for (const json::value& change : history.at("changes").as_array())
    EXPECT_NE(change.at("kind"), "breaker") << "its columns show it";
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
  const auto& used = row.at("in_flight").as_array();
  ASSERT_EQ(used.size(), 10u);
  EXPECT_TRUE(used.front().is_null());
  EXPECT_EQ(number(used.back()), 1);
  EXPECT_EQ(row.at("service").at("p99").as_array().size(), 10u);
  EXPECT_EQ(number(row.at("max_concurrent").as_array().at(0).as_array().at(1)), 20);
  EXPECT_EQ(w.get("/v1/history?bulkhead=nobody").status, 404);
}

TEST(Control, AnOverrideLeavesTheConfiguredValueAsTheFileHasIt) {
  World w;
  Core core(w.registry, nullptr, {});
  const auto limits = [&] {
    const json::object now = core.observer.bulkhead("db");
    return std::pair(number(now.at("max_concurrent")), number(now.at("configured_max_concurrent")));
  };
  Operation wanted{.kind = OperationKind::size, .name = "db", .max_queue = 5, .ttl = 1min, .reason = "r"};
  core.operations.apply(wanted);
  EXPECT_EQ(limits(), std::pair(20L, 20L));
  wanted.max_concurrent = 7;
  core.operations.apply(wanted);
  EXPECT_EQ(limits(), std::pair(7L, 20L));
  core.observer.second();
  const std::string name = "db";
  const json::object history = core.observer.history(10, 1, &name);
  EXPECT_EQ(text_of(history.at("bulkheads").at(0).at("configured_max_concurrent")), "[[9,20]]");
  const std::string health = *get_health(core, {}).body, metrics = *get_metrics(core, {}).body;
  EXPECT_NE(health.find(R"("max_concurrent":7,"configured_max_concurrent":20)"), std::string::npos) << health;
  EXPECT_NE(metrics.find("bulkhead_configured_max_concurrent{bulkhead=\"db\"} 20\n"), std::string::npos);
}

// One that has been removed and made anew in the meantime is another one of the same name.
TEST(Control, AGlanceIsAtTheBulkheadThatHasTheNameNow) {
  World w;
  Core core(w.registry, nullptr, {});
  core.observer.second();
  w.registry.remove("db");
  w.add({.name = "db", .max_concurrent = 20});
  core.observer.second();
  {
    const auto call = w["db"].try_acquire();
    core.observer.glance();
  }
  core.observer.second();
  const std::string name = "db";
  const json::object history = core.observer.history(10, 1, &name);
  EXPECT_EQ(number(history.at("bulkheads").as_array().at(0).at("in_flight").as_array().back()), 1);
}

TEST(Control, TheFileIsShownCheckedComparedAndLoaded) {
  World w;
  std::atomic<bool> broken{false};
  std::atomic<int> reads{0};
  std::atomic<std::uint32_t> limit{20};
  const auto text = [&]() -> ConfigText {
    ++reads;
    if (broken)
      return {.problems = {{.file = "/etc/b.yaml",
                            .at = {7, 3},
                            .path = "bulkheads.api",
                            .message = "is wrong",
                            .source = "  api: x"}},
              .text = "broken"};
    Config c;
    c.bulkheads.push_back({.options = {.name = "api", .max_concurrent = limit}});
    return {.config = c, .text = "version: 1 # " + std::to_string(limit)};
  };
  w.live.emplace(w.registry,
                 LiveConfigOptions{.file = "/etc/b.yaml",
                                   .read = text,
                                   .parse =
                                       [](std::string_view body) {
                                         ConfigText t;
                                         if (body != "good")
                                           t.problems = {{.at = {3, 1}, .path = "x", .message = "no"}};
                                         return t;
                                       },
                                   .ends_overrides = false});
  ASSERT_TRUE(w.live->reload("start").ok());
  const std::string first = w.get("/v1/config").header("ETag");
  EXPECT_EQ(first.size(), 10u);
  limit = 30;
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
  EXPECT_EQ(post("/v1/config/reload", "", {"If-Match: \"r0\""}, "a").status, 412);
  EXPECT_EQ(post("/v1/config/reload", R"({"raison": "sale"})", {}, "a").status, 422);
  EXPECT_EQ(w["api"].options().max_concurrent, 20u);
  EXPECT_EQ(post("/v1/config/reload", R"({"reason": "sale"})", {"If-Match: " + first}, "a").status, 200);
  EXPECT_EQ(w["api"].options().max_concurrent, 30u);
  const std::string second = w.get("/v1/config").header("ETag");
  EXPECT_NE(second, first);
  const auto last_audit = [&] { return w.get("/v1/audit").json().at("entries").as_array().at(0); };
  EXPECT_EQ(last_audit().at("reason"), "sale");
  EXPECT_EQ('"' + std::string(last_audit().at("before").as_string()) + '"', first);
  EXPECT_EQ('"' + std::string(last_audit().at("after").as_string()) + '"', second);
  broken = true;
  const Reply rejected = post("/v1/config/reload", "", {}, "a");
  EXPECT_EQ(rejected.status, 422);
  EXPECT_EQ(number(rejected.json().at("errors").as_array()[0].at("line")), 7);
  // Where and what, in one line, whoever tells it.
  const json::value line("/etc/b.yaml:7:3: bulkheads.api: is wrong");
  EXPECT_EQ(last_audit().at("kind"), "reload_failed");
  EXPECT_EQ(last_audit().at("text"), line);
  EXPECT_FALSE(w.live->reload("watch").ok());
  EXPECT_EQ(last_audit().at("actor"), "watch");
  EXPECT_EQ(last_audit().at("text"), line);
  EXPECT_EQ(w.get("/v1/snapshot").json().at("config").at("error"), line);
}

// Whatever is sent, there is an answer or the connection is closed, and the next request is served.
// For ThreadSanitizer: calls, changes, reloads and everything that reads, at once. What is in force at the end is what was
// there at the start.
TEST(Control, CallsReadersAndWritersGoOnAtOnce) {
  World w;
  std::atomic<int> reads{0};
  w.live.emplace(w.registry,
                 LiveConfigOptions{.file = "f.yaml",
                                   .read = [&] { return ConfigText{.text = std::to_string(++reads)}; },
                                   .ends_overrides = false});
  w.start();
  constexpr int kRounds = 40;
  std::atomic<bool> done{false};
  std::vector<std::jthread> threads;
  for (int i = 0; i < 2; ++i)
    threads.emplace_back([&] {
      while (!done) {
        auto call = w["db"].acquire({.timeout = 1ms});
        std::this_thread::sleep_for(100us);  // as long as a call; a rejected one would keep a core busy
      }
    });
  threads.emplace_back([&] {
    for (int i = 0; i < kRounds; ++i) {
      EXPECT_EQ(w.put("/v1/overrides/db",
                      R"({"reason": "r", "max_queue": 5, "max_concurrent": )" + std::to_string(1 + i) + "}")
                    .status,
                200);
      EXPECT_EQ(w.put("/v1/drains/db", R"({"reason": "r"})").status, 200);
      for (const char* const path : {"/v1/drains/db", "/v1/overrides/db"})
        EXPECT_EQ(w.ask({.method = "DELETE", .path = path, .token = "o"}).status, 200);
    }
    done = true;
  });
  threads.emplace_back([&] {
    while (!done)
      for (const char* const path :
           {"/v1/snapshot", "/v1/history?bulkhead=db", "/metrics", "/v1/bulkheads/db", "/v1/audit"})
        EXPECT_EQ(w.get(path).status, 200) << path;
  });
  while (!done) {
    w.live->reload("test");
    w.server->note("switch", "on and off");
    std::this_thread::sleep_for(1ms);
  }
  threads.clear();
  EXPECT_EQ(w["db"].options().max_concurrent, 20u);
  EXPECT_EQ(w["db"].snapshot().gate.max_queue, 10u);
  EXPECT_FALSE(w["db"].snapshot().draining);
  EXPECT_EQ(w["db"].snapshot().gate.in_flight, 0u);
}

}  // namespace
}  // namespace bulkhead::control
