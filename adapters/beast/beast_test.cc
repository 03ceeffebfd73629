#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <latch>
#include <thread>

#include "server.h"
#include "tests/support/http_client.h"

namespace bulkhead::beast {
namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

using Client = tests::HttpClient;
using tests::becomes;

class BeastServer : public testing::Test {
 protected:
  BeastServer() {
    registry.add({.options = {.name = "slow", .max_concurrent = 1, .max_queue = 2}});
    registry.add({.options = {.name = "strict", .max_concurrent = 1}});
    registry.add(
        {.options = {.name = "pool", .isolation = Isolation::threads, .max_concurrent = 1, .max_queue = 1}});
  }
  ~BeastServer() override { stop(); }

  template <class H>
  void start(H handler, http::GuardOptions options = {}, ServerOptions server_options = {}) {
    if (options.routes.empty())
      options.routes = {{.path = "/slow", .bulkhead = "slow"},
                        {.path = "/strict", .bulkhead = "strict"},
                        {.path = "/pool", .bulkhead = "pool"}};
    guard.emplace(registry, std::move(options));
    server.emplace(*guard, std::move(server_options), handler);
    thread = std::thread([this] { server->run(); });
  }
  void stop() {
    if (!server) return;
    server->stop();
    thread.join();
    server.reset();
  }
  Client client() { return Client(server->port()); }
  Snapshot now(const char* name) { return registry.get(name)->snapshot().gate; }
  static Response ok(std::string body) {
    Response r(wire::status::ok, 11);
    r.body() = std::move(body);
    r.prepare_payload();
    return r;
  }
  // Runs until let_go() is called.
  asio::awaitable<Response> held(const Request&, Context&) {
    ++running;
    asio::steady_timer pause(co_await asio::this_coro::executor);
    while (!go) {
      pause.expires_after(1ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    co_return ok("held");
  }
  Handler holding() {
    return [this](const Request& r, Context& c) { return held(r, c); };
  }

  Registry registry;
  std::optional<http::Guard> guard;
  std::atomic<int> running = 0;
  std::atomic<bool> go = false;
  std::optional<Server> server;
  std::thread thread;
};

TEST_F(BeastServer, ServesThroughTheBulkheadAndGivesThePlaceBack) {
  start([](const Request& request, Context&) -> asio::awaitable<Response> {
    Response r = ok(std::string(request.target()));
    if (request.target() == "/slow/bad") r.result(500);
    if (request.target() == "/slow/throw") throw std::runtime_error("no");
    co_return r;
  });
  Client c = client();
  for (int i = 0; i < 3; ++i) {
    c.get("/slow/x");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 200"));
  }
  c.get("/slow/bad");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 500"));
  c.get("/slow/throw");
  EXPECT_THAT(c.read(), HasSubstr("X-Bulkhead-Reason: failure"));
  c.get("/else");
  EXPECT_THAT(c.read(), HasSubstr("/else"));
  c.send("GET /slow/last HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(c.read(), "");
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_EQ(now("slow").admitted, 6u);
  EXPECT_EQ(now("slow").failed, 2u);
}

TEST_F(BeastServer, RefusesWithStatusReasonAndRetryAfter) {
  start(holding());
  Client first = client(), second = client();
  first.get("/strict");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  second.get("/strict");
  const std::string refused = second.read();
  EXPECT_THAT(refused, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(refused, HasSubstr("Retry-After: "));
  EXPECT_THAT(refused, HasSubstr("X-Bulkhead-Reason: concurrency_limit"));
  EXPECT_THAT(refused, HasSubstr("application/problem+json"));
  second.get("/health/bulkheads");
  EXPECT_THAT(second.read(), HasSubstr("\"strict\""));
  second.get("/metrics");
  EXPECT_THAT(second.read(), HasSubstr("bulkhead_"));
  registry.get("strict")->set_draining(true);
  second.get("/strict");
  EXPECT_THAT(second.read(), HasSubstr("Connection: close"));
  EXPECT_EQ(second.read(), "");
  go = true;
  EXPECT_THAT(first.read(), HasSubstr("held"));
}

TEST_F(BeastServer, ARequestInLineIsServedInTurnAndThatOfAClientThatHasGoneNeverRuns) {
  start(holding());
  Client first = client(), gone = client(), second = client();
  first.get("/slow");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  gone.get("/slow");
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
  second.get("/slow");
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 2; }));
  gone.close();
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
  EXPECT_EQ(now("slow").rejected(Reason::cancelled), 1u);
  go = true;
  EXPECT_THAT(first.read(), HasSubstr("held"));
  EXPECT_THAT(second.read(), HasSubstr("held"));
  EXPECT_EQ(running, 2);
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0 && server->connections() == 2; }));
}

TEST_F(BeastServer, AClientThatGoesWhileItsRequestRunsFiresTheStopTokenAndThePlaceComesBack) {
  start([this](const Request&, Context& context) -> asio::awaitable<Response> {
    const std::stop_token stop = context.stop();
    ++running;
    asio::steady_timer pause(co_await asio::this_coro::executor);
    while (!stop.stop_requested()) {
      pause.expires_after(1ms);
      co_await pause.async_wait(asio::use_awaitable);
    }
    co_return ok("nobody reads this");
  });
  Client c = client();
  c.get("/slow");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  EXPECT_EQ(now("slow").in_flight, 1u);
  c.close();
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_TRUE(becomes([&] { return server->connections() == 0; }));
}

TEST_F(BeastServer, AClientThatGoesOrSleepsWhileItIsSentTheResponseDoesNotKeepThePlace) {
  start(
      [this](const Request&, Context&) -> asio::awaitable<Response> {
        ++running;
        co_return ok(std::string(64 << 20, 'x'));
      },
      {}, {.session = {.write_timeout = 300ms}});
  Client goes = client();
  goes.get("/slow");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  goes.close();
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  Client sleeps = client();
  sleeps.get("/slow");
  ASSERT_TRUE(becomes([&] { return running == 2; }));
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
}

TEST_F(BeastServer, SlowAndOversizedRequestsAreBounded) {
  start(holding(), {},
        {.session = {
             .read_timeout = 100ms, .body_timeout = 100ms, .max_header_bytes = 512, .max_body_bytes = 100}});
  go = true;
  Client loris = client(), slow_body = client();
  loris.send("GET / HTTP/1.1\r\nX-A: ");
  slow_body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\nabc");
  EXPECT_EQ(loris.read(), "");
  EXPECT_EQ(slow_body.read(), "");
  Client big_header = client();
  big_header.get("/", "X-Big: " + std::string(600, 'x') + "\r\n");
  EXPECT_THAT(big_header.read(), StartsWith("HTTP/1.1 431"));
  Client big_body = client();
  big_body.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 101\r\n\r\n");
  EXPECT_THAT(big_body.read(), StartsWith("HTTP/1.1 413"));
  Client nonsense = client();
  nonsense.send("what?\r\n\r\n");
  EXPECT_THAT(nonsense.read(), StartsWith("HTTP/1.1 400"));
  EXPECT_TRUE(becomes([&] { return server->connections() == 0; }));
}

TEST_F(BeastServer, ADeadlineCancelsTheHandlerAndIsPassedOn) {
  std::string passed_on = "none";
  start([&](const Request& request, Context& context) -> asio::awaitable<Response> {
    passed_on = context.timeout_to_pass_on().value_or("forever");
    asio::steady_timer pause(co_await asio::this_coro::executor,
                             request.target() == "/slow/quick" ? 0ms : 1h);
    co_await pause.async_wait(asio::use_awaitable);
    co_return ok("in time");
  });
  Client c = client();
  c.get("/slow/quick", "X-Request-Timeout-Ms: 3600000\r\n");
  EXPECT_THAT(c.read(), HasSubstr("in time"));
  EXPECT_THAT(passed_on, StartsWith("3599"));
  c.get("/slow/x", "X-Request-Timeout-Ms: 30\r\n");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 504"));
  c.get("/slow/x", "X-Request-Timeout-Ms: 0\r\n");
  EXPECT_THAT(c.read(), HasSubstr("X-Bulkhead-Reason: deadline"));
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_EQ(now("slow").failed, 1u);
}

TEST_F(BeastServer, BlockingHandlersRunOnTheThreadsOfTheirBulkhead) {
  std::latch release(1);
  start(BlockingHandler([&](const Request& request, Context&) {
    if (request.target() == "/pool/wait") {
      ++running;
      release.wait();
    }
    return ok(std::string(request.target()) + " done");
  }));
  Client first = client(), gone = client(), third = client(), other = client();
  first.get("/pool/wait");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  gone.get("/pool/never");
  ASSERT_TRUE(becomes([&] { return now("pool").waiting == 1; }));
  third.get("/pool/x");
  EXPECT_THAT(third.read(), HasSubstr("X-Bulkhead-Reason: queue_limit"));
  other.get("/else");  // the server's own thread is free
  EXPECT_THAT(other.read(), HasSubstr("/else done"));
  gone.close();
  ASSERT_TRUE(becomes([&] { return now("pool").waiting == 0; }));
  release.count_down();
  EXPECT_THAT(first.read(), HasSubstr("/pool/wait done"));
  EXPECT_TRUE(becomes([&] { return now("pool").in_flight == 0; }));
  EXPECT_EQ(now("pool").succeeded, 1u);
}

TEST_F(BeastServer, ACachedResponseIsServedWhenThereIsNoPlace) {
  start(
      [this](const Request& r, Context& c) -> asio::awaitable<Response> {
        if (r.target() == "/page") co_return ok("the page");
        co_return co_await held(r, c);
      },
      {.routes = {{.path = "/",
                   .bulkhead = "strict",
                   .responses = {.fallback = http::Fallback{.body = "come back later"}},
                   .cache_for = 1h}}});
  Client c = client(), holder = client();
  c.get("/page");
  EXPECT_THAT(c.read(), HasSubstr("the page"));
  ASSERT_TRUE(becomes([&] { return now("strict").in_flight == 0; }));  // the response is out before
  holder.get("/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  c.get("/page");
  std::string cached = c.read();
  EXPECT_THAT(cached, HasSubstr("the page"));
  EXPECT_THAT(cached, HasSubstr("X-Bulkhead-Fallback: cached"));
  c.get("/other");
  EXPECT_THAT(c.read(), HasSubstr("come back later"));
  go = true;
  holder.read();
}

TEST_F(BeastServer, InAStormRefusalsLeaveAtTheirPace) {
  start(holding(), {.routes = {{.path = "/", .bulkhead = "strict"}},
                    .storm = {.per_second = 100, .burst = 1, .max_hold = 1s}});
  Client holder = client();
  holder.get("/");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  const auto began = std::chrono::steady_clock::now();
  std::vector<Client> storm;
  for (int i = 0; i < 20; ++i) storm.push_back(client());
  for (Client& c : storm) c.get("/");
  for (Client& c : storm) EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 503"));
  EXPECT_GE(std::chrono::steady_clock::now() - began, 180ms);
  go = true;
  holder.read();
}

TEST_F(BeastServer, AServerThatGoesGivesAllPlacesBack) {
  start(holding(), {}, {.threads = 3});
  std::vector<Client> clients;
  for (int i = 0; i < 3; ++i) clients.push_back(client());
  for (Client& c : clients) c.get("/slow");
  ASSERT_TRUE(becomes([&] { return now("slow").in_flight == 1 && now("slow").waiting == 2; }));
  stop();
  EXPECT_EQ(now("slow").in_flight, 0u);
  EXPECT_EQ(now("slow").waiting, 0u);
}

TEST_F(BeastServer, WhereItCannotListenIsSaid) {
  start(holding());
  EXPECT_THROW(Server(*guard, {.port = server->port(), .threads = 0}, holding()), std::invalid_argument);
  EXPECT_THROW(Server(*guard, {.address = "no address"}, holding()), std::invalid_argument);
}

}  // namespace
}  // namespace bulkhead::beast
