#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/this_coro.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <latch>
#include <thread>

#include "last_in_line.h"
#include "server.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/http_server_test.h"
#include "tests/support/no_threads.h"

namespace bulkhead::beast {
namespace {

namespace asio = boost::asio;
namespace wire = boost::beast::http;
using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::StartsWith;

using Client = tests::HttpClient;
using tests::becomes;

class BeastServer : public tests::HttpServerTest {
 protected:
  BeastServer() {
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
    make_guard(std::move(options));
    server.emplace(*guard, std::move(server_options), handler);
    thread = std::thread([this] { server->run(); });
  }
  void stop() {
    if (!server) return;
    server->stop();
    thread.join();
    server.reset();
  }
  std::uint16_t port() const override { return server->port(); }
  bool drain(TimePoint until) override { return server->drain(until); }
  static Response ok(std::string body) {
    Response r(wire::status::ok, 11);
    r.body() = std::move(body);
    r.prepare_payload();
    return r;
  }
  asio::awaitable<Response> held(const Request& request, Context&) {
    if (request.target().ends_with("/page")) co_return ok("the page");
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
  Handler large(std::size_t size) {
    return [this, size](const Request& request, Context&) -> asio::awaitable<Response> {
      if (request.target() == "/slow/page") co_return ok("the page");
      ++running;
      co_return ok(std::string(size, '#'));
    };
  }
  static asio::awaitable<Response> never(const Request&, Context&) {
    asio::steady_timer pause(co_await asio::this_coro::executor, 1h);
    co_await pause.async_wait(asio::use_awaitable);
    co_return ok("too late");
  }

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

// ---- streams ----

class BeastStream : public BeastServer {
 protected:
  BeastStream() {
    registry.add(
        {.options = {.name = "llm", .max_concurrent = 2, .budgets = {{.name = "tokens", .max = 100}}}});
  }
  void start_stream(Handler handler) {
    start(std::move(handler),
          {.routes = {{.path = "/llm", .bulkhead = "llm", .cost = 60, .budget = "tokens"}}});
  }
  std::uint32_t tokens() { return registry.get("llm")->snapshot().budgets.at(0).in_use; }
  // One event for each step of `go_to`, and the units of the call lowered with it.
  asio::awaitable<Response> events(Context& context) {
    Response head(wire::status::ok, 11);
    head.set(wire::field::content_type, "text/event-stream");
    if (!co_await context.stream(std::move(head))) co_return Response();
    asio::steady_timer pause(co_await asio::this_coro::executor);
    for (std::uint32_t i = 1; i <= 3; ++i) {
      while (step < i) {
        pause.expires_after(1ms);
        co_await pause.async_wait(asio::use_awaitable);
      }
      if (!co_await context.write("data: " + std::to_string(i) + "\n\n")) break;
      EXPECT_TRUE(context.settle("tokens", 60 - 20 * i));
    }
    ended = true;
    co_return Response();
  }
  std::atomic<std::uint32_t> step{0};
  std::atomic<bool> ended{false};
};

TEST_F(BeastStream, AStreamSettlesAsItGoesAndHoldsItsPlaceToTheEnd) {
  start_stream([this](const Request&, Context& c) { return events(c); });
  Client c = client();
  c.get("/llm");
  ASSERT_TRUE(becomes([&] { return tokens() == 60; }));
  for (std::uint32_t i = 1; i <= 2; ++i) {
    step = i;
    ASSERT_TRUE(becomes([&] { return tokens() == 60 - 20 * i; })) << i;
    EXPECT_EQ(now("llm").in_flight, 1u);
  }
  step = 3;
  std::string all;
  while (!all.ends_with("0\r\n\r\n")) all += c.read_some();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(all, HasSubstr("Transfer-Encoding: chunked"));
  EXPECT_THAT(all, HasSubstr("9\r\ndata: 1\n\n\r\n9\r\ndata: 2\n\n\r\n9\r\ndata: 3\n\n\r\n0\r\n\r\n"));
  EXPECT_TRUE(becomes([&] { return now("llm").released == 1; }));
  EXPECT_EQ(tokens(), 0u);
  EXPECT_EQ(now("llm").succeeded, 1u);
  c.get("/llm");  // the connection is usable
  all.clear();
  while (!all.ends_with("0\r\n\r\n")) all += c.read_some();
  EXPECT_THAT(all, StartsWith("HTTP/1.1 200"));
}

TEST_F(BeastStream, ARequestForMoreThanTheBudgetHasIsRejected) {
  start_stream([this](const Request&, Context& c) { return events(c); });
  Client one = client(), two = client();
  one.get("/llm");
  ASSERT_TRUE(becomes([&] { return tokens() == 60; }));
  two.get("/llm");
  EXPECT_THAT(two.read(), HasSubstr("X-Bulkhead-Reason: budget_limit"));
  step = 3;
}

TEST_F(BeastStream, AChunkedRequestCostsWhatItsBodyHas) {
  std::atomic<std::uint32_t> held{0};
  start(
      [&](const Request&, Context& context) -> asio::awaitable<Response> {
        held = tokens();
        EXPECT_TRUE(context.settle("tokens", 0));
        co_return ok("read");
      },
      {.routes = {{.path = "/llm", .bulkhead = "llm", .bytes_per_unit = 10, .budget = "tokens"}}});
  Client c = client();
  c.send(
      "POST /llm HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
      "190\r\n" +
      std::string(400, 'x') + "\r\n15\r\n" + std::string(21, 'y') + "\r\n0\r\n\r\n");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(held, 43u);
}

TEST_F(BeastStream, AClientThatGoesEndsTheStreamAndThePlaceComesBack) {
  start_stream([this](const Request&, Context& context) -> asio::awaitable<Response> {
    Response head(wire::status::ok, 11);
    co_await context.stream(std::move(head));
    while (co_await context.write(std::string(64 << 10, '#'))) {
    }
    ended = true;
    co_return Response();
  });
  {
    Client c = client();
    c.get("/llm");
    ASSERT_TRUE(becomes([&] { return tokens() == 60; }));
  }
  EXPECT_TRUE(becomes([&] { return ended && now("llm").released == 1; }));
  EXPECT_EQ(tokens(), 0u);
  EXPECT_EQ(now("llm").failed, 0u);
}

TEST_F(BeastStream, AHandlerThatThrowsCutsTheStream) {
  start_stream([](const Request&, Context& context) -> asio::awaitable<Response> {
    co_await context.stream(Response(wire::status::ok, 11));
    co_await context.write("part");
    throw std::runtime_error("no");
  });
  Client c = client();
  c.get("/llm");
  std::string all;
  for (std::string part; !(part = c.read_some()).empty();) all += part;
  EXPECT_THAT(all, testing::EndsWith("4\r\npart\r\n")) << "no last chunk";
  EXPECT_TRUE(becomes([&] { return now("llm").released == 1; }));
  EXPECT_EQ(now("llm").failed, 1u);
}

TEST_F(BeastStream, AClientOfHttp10GetsTheWholeAtTheEnd) {
  start_stream([this](const Request&, Context& c) { return events(c); });
  step = 3;
  Client c = client();
  c.send("GET /llm HTTP/1.0\r\n\r\n");
  std::string all;
  for (std::string part; !(part = c.read_some()).empty();) all += part;
  EXPECT_THAT(all, StartsWith("HTTP/1.0 200"));
  EXPECT_THAT(all, testing::EndsWith("\r\n\r\ndata: 1\n\ndata: 2\n\ndata: 3\n\n"));
}

TEST_F(BeastServer, RejectsWithStatusReasonAndRetryAfter) {
  start(holding());
  a_rejection_says_why("/strict");
}

TEST_F(BeastServer, ARequestInLineIsServedInTurnAndThatOfAClientThatHasGoneNeverRuns) {
  start(holding());
  a_request_in_line_is_served_in_turn_and_that_of_a_client_that_has_gone_never_runs("/slow");
  EXPECT_TRUE(becomes([&] { return server->connections() == 0; }));
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

TEST_F(BeastServer, ClientsThatDoNotReadHoldNoPlace) {
  start(large(64 << 20));
  clients_that_do_not_read_hold_no_place("/slow/large", "/slow/page");
}

TEST_F(BeastServer, AClientThatHasSentAByteMoreAndGoesIsNoticed) {
  start(holding());
  a_client_that_has_sent_a_byte_more_and_goes_is_noticed("/slow");
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

TEST_F(BeastServer, AClientThatSendsTooMuchIsToldSo) {
  start(holding());
  Client c = client();
  c.send("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 3000000\r\n\r\n");
  std::thread([&] { c.send(std::string(3'000'000, 'x')); }).join();  // it reads when it has sent all
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 413"));
}

TEST_F(BeastServer, FramesItsResponsesForEveryKindOfRequest) {
  start([](const Request& request, Context&) -> asio::awaitable<Response> {
    Response r(wire::status::ok, 11);
    r.body() = request.target() == "/large" ? std::string(1 << 20, 'x') : "a body";
    if (request.target() == "/chunked") r.chunked(true);
    if (request.target() == "/none") r.result(wire::status::no_content);
    if (request.target() == "/echo") r.body() = request.body();
    co_return r;  // nobody has said how long it is
  });
  Client c = client();
  c.get("/");
  EXPECT_THAT(c.read(), testing::EndsWith("Content-Length: 6\r\n\r\na body"));
  c.get("/chunked");
  EXPECT_THAT(c.read(), HasSubstr("Transfer-Encoding: chunked\r\n\r\n"));
  c.get("/large");
  std::string large = c.read();
  large.erase(0, large.find("HTTP/1.1 200"));  // what was left of the chunks
  EXPECT_THAT(large, HasSubstr("Content-Length: 1048576"));
  c.get("/none");
  EXPECT_THAT(c.read(), testing::EndsWith("HTTP/1.1 204 No Content\r\n\r\n"));
  c.send(
      "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
  EXPECT_THAT(c.read(), testing::EndsWith("abcde"));
  c.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(c.read(), "HTTP/1.1 100 Continue\r\n\r\n");
  c.send("hello");
  EXPECT_THAT(c.read(), testing::EndsWith("hello"));
  // Three at once, and the first byte of a fourth.
  c.send("GET /a HTTP/1.1\r\n\r\nHEAD /b HTTP/1.1\r\n\r\nGET /c HTTP/1.0\r\nConnection: keep-alive\r\n\r\nG");
  std::string three;
  while (!three.ends_with("keep-alive\r\nContent-Length: 6\r\n\r\na body")) {
    const std::string more = c.read();
    ASSERT_NE(more, "") << three;
    three += more;
  }
  c.send("ET /d HTTP/1.0\r\n\r\n");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.0 200"));
  EXPECT_EQ(c.read(), "");
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

TEST_F(BeastServer, TheExecutionTimeoutOfTheBulkheadCancelsTheHandlerAndIsCounted) {
  registry.add({.options = {.name = "brief", .max_concurrent = 1, .execution_timeout = 30ms}});
  registry.add({.options = {.name = "long", .max_concurrent = 1, .execution_timeout = 1h}});
  registry.add(
      {.options = {.name = "watching", .max_concurrent = 1, .execution_timeout = 1ns, .shadow = true}});
  start(
      [&](const Request& request, Context& context) -> asio::awaitable<Response> {
        if (request.target() == "/brief") co_return co_await never(request, context);
        co_return ok(context.timeout_to_pass_on().value_or("forever"));
      },
      {.routes = {{.path = "/brief", .bulkhead = "brief"},
                  {.path = "/long", .bulkhead = "long"},
                  {.path = "/watching", .bulkhead = "watching"}}});
  Client c = client();
  c.get("/brief");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 504"));
  ASSERT_TRUE(becomes([&] { return now("brief").in_flight == 0; }));
  EXPECT_EQ(now("brief").failed, 1u);
  EXPECT_EQ(registry.get("brief")->snapshot().timed_out, 1u);
  c.get("/long");
  EXPECT_THAT(c.read(), HasSubstr("3599"));
  c.get("/long", "X-Request-Timeout-Ms: 1000000\r\n");  // the shorter counts
  EXPECT_THAT(c.read(), HasSubstr("999"));
  c.get("/watching");
  EXPECT_THAT(c.read(), HasSubstr("forever"));
}

TEST_F(BeastServer, ABlockingHandlerThatTakesTooLongIs504AndNotARejection) {
  registry.add({.options = {.name = "brief",
                            .isolation = Isolation::threads,
                            .max_concurrent = 1,
                            .execution_timeout = 30ms}});
  start(BlockingHandler([&](const Request&, Context& context) {
          const std::stop_token stop = context.stop();
          while (!stop.stop_requested()) std::this_thread::sleep_for(1ms);
          return ok("too late");
        }),
        {.routes = {{.path = "/", .bulkhead = "brief"}}});
  Client c = client();
  c.get("/");
  const std::string late = c.read();
  EXPECT_THAT(late, StartsWith("HTTP/1.1 504"));
  EXPECT_THAT(late, testing::Not(HasSubstr("Retry-After")));
  EXPECT_TRUE(becomes([&] { return now("brief").in_flight == 0; }));
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

TEST_F(BeastServer, ACachedOrStaticPageIsServedWhenThereIsNoPlace) {
  start(holding(), with_fallbacks());
  a_cached_or_static_page_is_served_when_there_is_no_place("/hold");
}

// 40 who come last, against one who comes again and again.
TEST(BeastLastInLine, EverybodyElseIsServedBetweenSmallBatches) {
  asio::io_context io;
  int others = 0, last = 0;
  std::vector<int> seen;  // how many of the last had their turn when the others had theirs
  for (int i = 0; i < 40; ++i)
    asio::co_spawn(
        io,
        [&]() -> asio::awaitable<void> {
          co_await LastInLine::turn(io.get_executor(), 16);
          ++last;
        },
        asio::detached);
  std::function<void()> other = [&] {
    ++others;
    seen.push_back(last);
    if (last < 40) asio::post(io, other);
  };
  asio::post(io, other);
  io.run();
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 40);
  for (std::size_t i = 1; i < seen.size(); ++i) EXPECT_LE(seen[i] - seen[i - 1], 16);
}

TEST(BeastLastInLine, AnIoContextThatGoesEndsThoseWhoWait) {
  auto alive = std::make_shared<int>();
  {
    asio::io_context io;
    for (int i = 0; i < 3; ++i)
      asio::co_spawn(
          io, [&io, alive]() -> asio::awaitable<void> { co_await LastInLine::turn(io.get_executor(), 1); },
          asio::detached);
    io.run_one();
    io.run_one();
  }
  EXPECT_EQ(alive.use_count(), 1);
}

TEST_F(BeastServer, InAStormRejectionsLeaveAtTheirPace) {
  start(holding(), {.routes = {{.path = "/", .bulkhead = "strict"}},
                    .storm = {.per_second = 100, .burst = 1, .batch = 2, .max_hold = 1s}});
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

TEST_F(BeastServer, WithoutThreadsItServesWithThoseItHas) {
  {
    const tests::NoThreads after(2);  // that of run(), and one more
    start(holding(), {}, {.threads = 4});
    ASSERT_TRUE(becomes([] { return tests::NoThreads::failed() > 0; }));
  }
  const Client c = client();
  c.get("/slow/page");
  EXPECT_THAT(c.read(), HasSubstr("the page"));
  EXPECT_EQ(server->threads(), 2u);
  stop();
}

TEST_F(BeastServer, ADrainFinishesWhatRunsAndWhatWaitsAndClosesTheRest) {
  start(holding(), {}, {.threads = 2, .session = {.drain_idle = 20ms}});
  a_drain_finishes_what_runs_and_what_waits_and_closes_the_rest("/slow", "/slow/page");
}

TEST_F(BeastServer, ADrainEndsAtItsDeadlineAndCanBeTriedAgain) {
  start(holding());
  a_drain_ends_at_its_deadline_and_can_be_tried_again("/slow");
}

TEST_F(BeastServer, NoRequestIsCutByADrainUnderLoad) {
  start(holding(), {}, {.threads = 2, .session = {.drain_idle = 20s}});
  no_request_is_cut_by_a_drain_under_load("/else/page");
}

TEST_F(BeastServer, ADrainWaitsForAResponseThatIsBeingRead) {
  start(large(8 << 20));
  a_drain_waits_for_a_response_that_is_being_read("/slow/large");
}

TEST_F(BeastServer, BoundsHoldWhileItDrains) {
  start(holding(), {}, {.session = {.read_timeout = 1s, .drain_idle = 20s}});
  bounds_hold_while_it_drains("/slow", "/else/page");
}

TEST_F(BeastServer, RunReturnsWhenItIsDrainedAlsoBefore) {
  start(holding());
  EXPECT_TRUE(server->drain());
  thread.join();  // without stop()
  server->run();
  thread = std::thread([] {});
  make_guard({});
  Server never_run(*guard, {}, holding());
  EXPECT_TRUE(never_run.drain());
  EXPECT_FALSE(Client(never_run.port()).connected());
  never_run.run();
}

TEST_F(BeastServer, AStopEndsTheWaitOfADrain) {
  start(holding());
  const Client c = client();
  c.get("/slow");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  auto drained = std::async(std::launch::async, [this] { return server->drain(); });
  server->stop();
  EXPECT_FALSE(drained.get());
}

TEST_F(BeastServer, AHandlerSaysWhatItsRequestSaysAboutTheDependency) {
  const auto reply = [](const Request& request, Context& context) {
    if (request.target() == "/rejected") {
      Gate inner{{.name = "inner", .max_concurrent = 1}};
      const auto held = inner.try_acquire();
      return context.reject(inner.try_acquire().error());
    }
    Response r = ok("");
    r.result(request.target() == "/fine" ? 404 : 502);
    if (request.target() == "/fine") context.set_verdict(Outcome::failure);
    if (request.target() == "/ignored" || request.target() == "/throws")
      context.set_verdict(Outcome::ignored);
    if (request.target() == "/throws") throw std::runtime_error("no");
    return r;
  };
  for (const auto isolation : {Isolation::semaphore, Isolation::threads}) {
    const auto judged = registry.add({.options = {.name = "judged",
                                                  .isolation = isolation,
                                                  .max_concurrent = 1,
                                                  .breaker = BreakerOptions{.window_calls = 100}}});
    const http::GuardOptions options{.routes = {{.path = "/", .bulkhead = "judged"}}};
    if (isolation == Isolation::threads)
      start(BlockingHandler(reply), options);
    else
      start([reply](const Request& r, Context& c) -> asio::awaitable<Response> { co_return reply(r, c); },
            options);
    const Client c = client();
    const auto failures = [&] {
      EXPECT_TRUE(becomes([&] { return judged->idle(); }));
      return judged->snapshot().breaker->failures;
    };
    c.get("/rejected");
    const std::string rejected = c.read();
    EXPECT_THAT(rejected, StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(rejected, HasSubstr("X-Bulkhead-Reason: concurrency_limit"));
    c.get("/ignored");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 502"));
    c.get("/throws");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 500"));
    EXPECT_EQ(failures(), 0u);
    c.get("/fine");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 404"));
    c.get("/bad");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 502"));
    EXPECT_EQ(failures(), 2u);
    stop();
    registry.remove("judged");
  }
}

TEST_F(BeastServer, ASetOfTenantsThatWasRemovedIsAnswered) {
  registry.define_tenants({.name = "orders", .each = {.max_concurrent = 1}});
  start(holding(), {.routes = {{.path = "/", .tenants = "orders"}}});
  registry.remove_tenants("orders");
  const Client c = client();
  c.get("/");
  const std::string gone = c.read();
  EXPECT_THAT(gone, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(gone, HasSubstr("X-Bulkhead-Reason: shutdown"));
}

TEST_F(BeastServer, APlaceCanBeKeptUntilTheResponseIsWritten) {
  start(large(64 << 20),
        {.routes = {{.path = "/slow", .bulkhead = "slow", .hold_place = http::HoldPlace::until_written}}});
  Client sleeps = client(), next = client();
  sleeps.get("/slow/large");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  next.get("/slow/page");
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
  EXPECT_EQ(now("slow").in_flight, 1u);
  sleeps.close();
  EXPECT_THAT(next.read(), HasSubstr("the page"));
}

// Eight clients for four file descriptors.
TEST(BeastDescriptors, AServerWithoutDescriptorsNeitherSpinsNorEndsAndGoesOnWhenThereAreSome) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  const tests::Served served([](int ready) {
    Registry registry;
    http::Guard guard(registry, {});
    std::atomic<int> told = 0;
    Server* self = nullptr;
    Server server(guard, {.on_accept_failure = [&](const std::string&) { ++told; }},
                  [&](const Request&, Context&) -> asio::awaitable<Response> {
                    Response r(wire::status::ok, 11);
                    r.body() = std::string(self->accept_failures() > 0 ? "failed " : "never failed ") +
                               std::to_string(told) + " told";
                    co_return r;
                  });
    self = &server;
    tests::use_up_descriptors_but(4);
    tests::tell(ready, server.port());
    server.run();
  });
  ASSERT_NE(served.port(), 0);
  std::vector<Client> clients;
  for (int i = 0; i < 8; ++i) clients.emplace_back(served.port());
  for (const Client& c : clients) c.get("/");
  int answered = 0;
  EXPECT_TRUE(becomes([&] {
    answered = static_cast<int>(std::ranges::count_if(clients, &Client::has_answer));
    return answered >= 4;
  }));
  EXPECT_EQ(answered, 4);
  clients[0].read();
  EXPECT_TRUE(becomes([&] {
    clients[0].get("/");
    return clients[0].read().find("failed 1 told") != std::string::npos;
  }));
  const auto before = served.used();
  const TimePoint watched = std::chrono::steady_clock::now() + 500ms;
  while (std::chrono::steady_clock::now() < watched) std::this_thread::sleep_for(10ms);
  EXPECT_LT(served.used() - before, 150ms);
  EXPECT_TRUE(served.alive());
  for (int i = 0; i < 4; ++i) clients[i].close();
  for (int i = 4; i < 8; ++i) EXPECT_THAT(clients[i].read(), HasSubstr("1 told")) << i;
}

TEST_F(BeastServer, WhereItCannotListenIsSaid) {
  start(holding());
  EXPECT_THROW(Server(*guard, {.port = server->port(), .threads = 0}, holding()), std::invalid_argument);
  EXPECT_THROW(Server(*guard, {.address = "no address"}, holding()), std::invalid_argument);
}

}  // namespace
}  // namespace bulkhead::beast
