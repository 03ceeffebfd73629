#include <functional>
#include <thread>
#include <vector>

#include "server.h"
#include "tests/support/http_server_test.h"

namespace bulkhead::httplib {
namespace {

using namespace std::chrono_literals;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using tests::becomes;
using Client = tests::HttpClient;

class HttplibServer : public tests::HttpServerTest {
 protected:
  ~HttplibServer() override {
    go = true;
    if (!server) return;
    server->stop();
    thread.join();
  }

  void start(http::GuardOptions options = {}, ServerOptions server_options = {},
             const std::function<void(Server&)>& prepare = {}) {
    make_guard(std::move(options));
    server.emplace(*guard, server_options);
    if (prepare) prepare(*server);
    const auto hold = [this](const ::httplib::Request&, ::httplib::Response& response) {
      ++running;
      while (!go) std::this_thread::sleep_for(1ms);
      response.set_content("held", "text/plain");
    };
    server->Get("/slow/hold", hold);
    server->Get("/strict/hold", hold);
    server->Get(".*/page",
                [](const auto&, auto& response) { response.set_content("the page", "text/plain"); });
    server->Get("/slow/bad", [](const auto&, auto& response) { response.status = 500; });
    server->Get("/slow/throw", [](const auto&, auto&) { throw std::runtime_error("no"); });
    server->Get("/slow/large", [this](const auto&, auto& response) {
      ++running;
      response.set_content(std::string(64 << 20, 'x'), "text/plain");
    });
    server->Get("/slow/watch", [this](const auto&, auto&) {
      const std::stop_token stop = Server::stop_token();
      ++running;
      while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
    });
    server->Get("/slow/time", [](const auto&, auto& response) {
      response.set_content(Server::timeout_to_pass_on().value_or("forever"), "text/plain");
    });
    server->Get("/slow/late", [](const auto&, auto& response) {
      while (std::chrono::steady_clock::now() < Server::visit().deadline) std::this_thread::sleep_for(1ms);
      response.set_content("late", "text/plain");
    });
    server->Post("/slow/post", [](const auto& request, auto& response) {
      response.set_content(request.body, "text/plain");
    });
    bound = static_cast<std::uint16_t>(server->bind_to_any_port("127.0.0.1"));
    thread = std::thread([this] { server->listen_after_bind(); });
    ASSERT_TRUE(becomes([this] { return server->is_running(); }));
  }
  std::uint16_t port() const override { return bound; }

  std::optional<Server> server;
  std::uint16_t bound = 0;
  std::thread thread;
};

TEST_F(HttplibServer, ServesThroughTheBulkheadAndGivesThePlaceBack) {
  start();
  const Client c = client();
  for (int i = 0; i < 3; ++i) {
    c.get("/slow/page");
    EXPECT_THAT(c.read(), HasSubstr("the page"));
  }
  c.get("/slow/bad");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 500"));
  c.get("/slow/throw");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 500"));
  c.get("/slow/missing");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 404"));
  c.get("/else/page");
  EXPECT_THAT(c.read(), HasSubstr("the page"));
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_EQ(now("slow").admitted, 6u);
  EXPECT_EQ(now("slow").failed, 2u);
}

TEST_F(HttplibServer, RefusesWithStatusReasonAndRetryAfter) {
  start();
  a_refusal_says_why("/strict/hold");
}

TEST_F(HttplibServer, ARefusalEndsItsConnectionSoThatItsThreadIsFree) {
  start();
  const Client first = client(), second = client();
  first.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  second.get("/strict/hold");
  EXPECT_THAT(second.read(), HasSubstr("Connection: close"));
  EXPECT_EQ(second.read(), "");
}

TEST_F(HttplibServer, InAStormRefusalsLeaveAtTheirPaceAndHoldNoThread) {
  // Two threads: one runs, and the other one must be free again and again.
  start({.storm = {.per_second = 100, .burst = 1, .batch = 2, .max_hold = 1s}}, {.threads = 2});
  const Client holder = client();
  holder.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  const auto began = std::chrono::steady_clock::now();
  std::vector<Client> storm;
  for (int i = 0; i < 20; ++i) storm.push_back(client());
  for (const Client& c : storm) c.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return now("strict").rejected() == 20; }));
  const Client other = client();  // not behind those who are held
  other.get("/slow/page");
  EXPECT_THAT(other.read(), HasSubstr("the page"));
  for (const Client& c : storm) {
    EXPECT_THAT(c.read(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("Connection: close")));
    EXPECT_EQ(c.read(), "");
  }
  EXPECT_GE(std::chrono::steady_clock::now() - began, 180ms);
}

TEST_F(HttplibServer, OneThatEndsAnswersThoseWhomItHolds) {
  start({.storm = {.per_second = 1, .burst = 1, .batch = 1, .max_hold = 1h}});
  const Client holder = client(), first = client(), held = client();
  holder.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  first.get("/strict/hold");
  EXPECT_THAT(first.read(), StartsWith("HTTP/1.1 503"));
  for (int i = 0; i < 5; ++i) (void)guard->hold(std::chrono::steady_clock::now());  // others: seconds ahead
  held.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return now("strict").rejected() == 2; }));
  go = true;
  holder.read();
  server->stop();
  thread.join();
  server.reset();
  EXPECT_THAT(held.read(), StartsWith("HTTP/1.1 503"));
}

TEST_F(HttplibServer, ARequestInLineIsServedInTurnAndThatOfAClientThatHasGoneNeverRuns) {
  start();
  a_request_in_line_is_served_in_turn_and_that_of_a_client_that_has_gone_never_runs("/slow/hold");
}

TEST_F(HttplibServer, AClientThatGoesWhileItsRequestRunsOrIsAnsweredDoesNotKeepThePlace) {
  start({}, {.write_timeout = 300ms});
  Client watched = client(), goes = client(), sleeps = client();
  watched.get("/slow/watch");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  EXPECT_EQ(now("slow").in_flight, 1u);
  watched.close();
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  goes.get("/slow/large");
  ASSERT_TRUE(becomes([&] { return running == 2; }));
  goes.close();
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  sleeps.get("/slow/large");
  ASSERT_TRUE(becomes([&] { return running == 3; }));
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
}

TEST_F(HttplibServer, SlowAndOversizedRequestsAreBounded) {
  start({}, {.read_timeout = 200ms, .keep_alive = 200ms, .max_header_bytes = 10'000, .max_body_bytes = 100});
  const Client loris = client(), slow_body = client();
  loris.send("GET / HTTP/1.1\r\nX-A: ");
  slow_body.send("POST /slow/post HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc");
  while (!loris.read().empty()) {
  }
  while (!slow_body.read().empty()) {
  }
  const Client big_body = client();  // made now: it has no more time than the others
  big_body.send("POST /slow/post HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n" + std::string(101, 'x'));
  EXPECT_THAT(big_body.read(), StartsWith("HTTP/1.1 413"));
  std::string headers;
  for (int i = 0; i < 30; ++i) headers += "X-" + std::to_string(i) + ": " + std::string(500, 'x') + "\r\n";
  const Client big_header = client();
  big_header.get("/slow/page", headers);
  EXPECT_THAT(big_header.read(), testing::Not(HasSubstr("the page")));
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
}

TEST_F(HttplibServer, ADeadlineCountsAndIsPassedOn) {
  start();
  const Client c = client();
  c.get("/slow/time", "X-Request-Timeout-Ms: 3600000\r\n");
  EXPECT_THAT(c.read(), HasSubstr("3599"));
  c.get("/slow/late", "X-Request-Timeout-Ms: 20\r\n");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 504"));
  EXPECT_TRUE(becomes([&] { return now("slow").failed == 1; }));
  c.get("/slow/time", "X-Request-Timeout-Ms: 0\r\n");
  EXPECT_THAT(c.read(), HasSubstr("X-Bulkhead-Reason: deadline"));
}

TEST_F(HttplibServer, ACachedOrStaticPageIsServedWhenThereIsNoPlace) {
  start(with_fallbacks());
  a_cached_or_static_page_is_served_when_there_is_no_place("/strict/hold");
}

TEST_F(HttplibServer, TheExecutionTimeoutOfTheBulkheadIs504AndFiresTheStopToken) {
  registry.add({.options = {.name = "brief", .max_concurrent = 1, .execution_timeout = 30ms}});
  start({.routes = {{.path = "/", .bulkhead = "brief"}}});
  const Client c = client();
  c.get("/slow/watch");  // until it is stopped
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 504"));
  ASSERT_TRUE(becomes([&] { return now("brief").in_flight == 0; }));
  EXPECT_EQ(now("brief").failed, 1u);
  EXPECT_EQ(registry.get("brief")->snapshot().timed_out, 1u);
}

TEST_F(HttplibServer, TheUsersOwnRoutingHooksStillRun) {
  start({}, {}, [](Server& ours) {
    ours.set_pre_routing_handler([](const auto& request, auto& response) {
      if (request.path != "/slow/mine") return Server::HandlerResponse::Unhandled;
      response.set_content("mine", "text/plain");
      return Server::HandlerResponse::Handled;
    });
    ours.set_post_routing_handler([](const auto&, auto& response) { response.set_header("X-Mine", "1"); });
  });
  const Client c = client();
  c.get("/slow/mine");
  EXPECT_THAT(c.read(), HasSubstr("X-Mine: 1"));
}

}  // namespace
}  // namespace bulkhead::httplib
