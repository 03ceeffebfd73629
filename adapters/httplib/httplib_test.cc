#include <unistd.h>

#include <functional>
#include <system_error>
#include <thread>
#include <vector>

#include "server.h"
#include "tests/support/descriptor_limit.h"
#include "tests/support/http_server_test.h"
#include "tests/support/no_threads.h"

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
    server->Get("/slow/body", [this](const auto&, auto& response) {
      ++running;
      response.set_content(std::string(8 << 20, '#'), "text/plain");
    });
    server->Get("/slow/stream", [this](const auto&, auto& response) {
      ++running;
      response.set_content_provider(8 << 20, "text/plain", [](std::size_t, std::size_t left, auto& sink) {
        const std::string part(std::min<std::size_t>(left, 64 << 10), '#');
        return sink.write(part.data(), part.size());
      });
    });
    server->Get("/slow/rejected", [](const auto&, auto& response) {
      Gate inner{{.name = "inner", .max_concurrent = 1}};
      const auto held = inner.try_acquire();
      Server::reject(inner.try_acquire().error(), response);
    });
    server->Get("/slow/ignored", [](const auto&, auto& response) {
      Server::set_verdict(Outcome::ignored);
      response.status = 502;
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
  bool drain(TimePoint until) override { return server->drain(until); }

  std::optional<Server> server;
  std::uint16_t bound = 0;
  std::thread thread;
};

TEST_F(HttplibServer, AContentProviderSettlesAsItGoesAndHoldsItsPlaceToTheEnd) {
  registry.add(
      {.options = {.name = "llm", .max_concurrent = 2, .budgets = {{.name = "tokens", .max = 100}}}});
  std::atomic<std::uint32_t> step{0};
  const auto tokens = [&] { return registry.get("llm")->snapshot().budgets.at(0).in_use; };
  start({.routes = {{.path = "/llm", .bulkhead = "llm", .cost = 60, .budget = "tokens"}}}, {},
        [&](Server& s) {
          s.Get("/llm", [&](const auto&, auto& response) {
            response.set_chunked_content_provider(
                "text/event-stream", [&, sent = 0U](std::size_t, auto& sink) mutable {
                  while (step <= sent) std::this_thread::sleep_for(1ms);
                  ++sent;
                  const std::string event = "data: " + std::to_string(sent) + "\n\n";
                  sink.write(event.data(), event.size());
                  EXPECT_TRUE(Server::settle("tokens", 60 - 20 * sent));
                  if (sent == 3) sink.done();
                  return true;
                });
          });
        });
  const Client one = client(), two = client();
  one.get("/llm");
  ASSERT_TRUE(becomes([&] { return tokens() == 60; }));
  two.get("/llm");
  EXPECT_THAT(two.read(), HasSubstr("X-Bulkhead-Reason: budget_limit"));
  for (std::uint32_t i = 1; i <= 2; ++i) {
    step = i;
    ASSERT_TRUE(becomes([&] { return tokens() == 60 - 20 * i; })) << i;
    EXPECT_EQ(now("llm").in_flight, 1u);
  }
  step = 3;
  EXPECT_TRUE(becomes([&] { return now("llm").released == 1; }));
  EXPECT_EQ(tokens(), 0u);
}

// As with Beast: it says nothing about the dependency that the client has gone.
TEST_F(HttplibServer, AStreamWhoseClientGoesIsIgnored) {
  registry.add({.options = {.name = "llm",
                            .max_concurrent = 2,
                            .breaker = BreakerOptions{.window_calls = 10, .minimum_calls = 10}}});
  std::atomic<bool> whole{false};
  start({.routes = {{.path = "/llm", .bulkhead = "llm"}}}, {}, [&](Server& s) {
    s.Get("/llm", [&](const auto&, auto& response) {
      ++running;
      response.set_chunked_content_provider("text/event-stream", [&](std::size_t, auto& sink) {
        if (whole) return sink.done(), true;
        const std::string part(64 << 10, '#');
        return sink.write(part.data(), part.size());
      });
    });
    s.Get("/llm/fails", [&](const auto&, auto& response) {
      response.set_chunked_content_provider("text/event-stream", [](std::size_t, auto&) { return false; });
    });
  });
  const auto breaker = [&] { return *registry.get("llm")->snapshot().breaker; };
  {
    const Client c = client();
    c.get("/llm");
    ASSERT_TRUE(becomes([&] { return running == 1; }));
  }
  EXPECT_TRUE(becomes([&] { return now("llm").released == 1; }));
  EXPECT_EQ(breaker().calls, 0u);
  whole = true;
  const Client c = client();
  c.get("/llm");
  EXPECT_TRUE(becomes([&] { return now("llm").released == 2; }));
  EXPECT_EQ(breaker().calls, 1u);
  EXPECT_EQ(now("llm").failed, 0u);
  const Client other = client();
  other.get("/llm/fails");
  EXPECT_TRUE(becomes([&] { return now("llm").released == 3; }));
  EXPECT_EQ(now("llm").failed, 1u) << "its provider has given up, not its client";
}

TEST(HttplibServerFunctions, OutsideARequestThereIsNothingToSettle) {
  EXPECT_TRUE(Server::settle(1));
  EXPECT_TRUE(Server::settle("tokens", 1));
  EXPECT_TRUE(Server::try_grow(1));
  EXPECT_TRUE(Server::try_grow("tokens", 1));
}

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

TEST_F(HttplibServer, RejectsWithStatusReasonAndRetryAfter) {
  start();
  a_rejection_says_why("/strict/hold");
}

TEST_F(HttplibServer, ARejectionEndsItsConnectionSoThatItsThreadIsFree) {
  start();
  const Client first = client(), second = client();
  first.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  second.get("/strict/hold");
  EXPECT_THAT(second.read(), HasSubstr("Connection: close"));
  EXPECT_EQ(second.read(), "");
}

TEST_F(HttplibServer, InAStormRejectionsLeaveAtTheirPaceAndHoldNoThread) {
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

TEST_F(HttplibServer, WhatHoldsAndWatchesConnectionsHasItsThreadsBeforeTheSystemRunsOutOfThem) {
  start({.storm = {.per_second = 100, .burst = 1, .batch = 2, .max_hold = 1s}});
  const Client holder = client();
  holder.get("/strict/hold");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  const tests::NoThreads none;  // cpp-httplib has its own by now
  std::vector<Client> storm;
  for (int i = 0; i < 5; ++i) storm.push_back(client());
  for (const Client& c : storm) c.get("/strict/hold");
  for (const Client& c : storm) EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 503"));
  Client watched = client(), gone = client();
  watched.get("/slow/watch");
  ASSERT_TRUE(becomes([&] { return running == 2; }));
  gone.get("/slow/page");
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
  gone.close();
  EXPECT_TRUE(becomes([&] { return now("slow").waiting == 0; }));
  watched.close();
  EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_EQ(tests::NoThreads::failed(), 0);
}

TEST_F(HttplibServer, WithoutThreadsOrDescriptorsItCannotBeMade) {
  BULKHEAD_SKIP_WITHOUT_DESCRIPTORS();
  make_guard({});
  for (const int left : {0, 1}) {
    const tests::NoThreads none(left);
    EXPECT_THROW(Server{*guard}, std::system_error) << left;
  }
  std::optional<std::error_code> error;
  try {
    const tests::NoDescriptors none;
    const Server none_left(*guard);
  } catch (const std::system_error& e) {
    error = e.code();
  }
  EXPECT_EQ(error, std::error_code(EMFILE, std::generic_category()));
  EXPECT_NO_THROW(Server{*guard});
}

TEST_F(HttplibServer, ServesWithTheThreadsThatTheSystemHas) {
  make_guard({});
  server.emplace(*guard, ServerOptions{.threads = 8});
  server->Get(".*/page", [](const auto&, auto& response) { response.set_content("the page", "text/plain"); });
  bound = static_cast<std::uint16_t>(server->bind_to_any_port("127.0.0.1"));
  EXPECT_EQ(server->threads(), 0u);
  std::optional<tests::NoThreads> few(3);  // the first is the test's own
  thread = std::thread([this] { server->listen_after_bind(); });
  ASSERT_TRUE(becomes([&] { return server->threads() > 0; }));
  few.reset();
  EXPECT_EQ(server->threads(), 2u);
  EXPECT_EQ(tests::NoThreads::failed(), 1);
  std::vector<Client> clients;
  for (int i = 0; i < 5; ++i) clients.push_back(client());
  for (Client& c : clients) {
    c.get("/slow/page");
    EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 200"));
    c.close();  // its thread is for another
  }
}

TEST_F(HttplibServer, WithoutAThreadToServeWithListenReturnsFalseAndCanBeTriedAgain) {
  make_guard({});
  server.emplace(*guard, ServerOptions{.threads = 8});
  ASSERT_GT(server->bind_to_any_port("127.0.0.1"), 0);
  {
    const tests::NoThreads none;
    EXPECT_FALSE(server->listen_after_bind());
  }
  EXPECT_FALSE(server->is_running());
  EXPECT_EQ(server->threads(), 0u);
  EXPECT_TRUE(server->drain()) << "nothing to wait for";
  server.emplace(*guard, ServerOptions{.threads = 8});
  bound = static_cast<std::uint16_t>(server->bind_to_any_port("127.0.0.1"));
  thread = std::thread([this] { server->listen_after_bind(); });
  EXPECT_TRUE(becomes([&] { return server->threads() == 8; }));
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

TEST_F(HttplibServer, ClientsThatDoNotReadHoldNoPlace) {
  start();
  clients_that_do_not_read_hold_no_place("/slow/large", "/slow/page");
}

TEST_F(HttplibServer, AClientThatHasSentAByteMoreAndGoesIsNoticed) {
  start();
  a_client_that_has_sent_a_byte_more_and_goes_is_noticed("/slow/hold");
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

TEST_F(HttplibServer, ADrainFinishesWhatRunsAndWhatWaitsAndClosesTheRest) {
  start({}, {.drain_idle = 20ms});
  a_drain_finishes_what_runs_and_what_waits_and_closes_the_rest("/slow/hold", "/slow/page");
}

TEST_F(HttplibServer, ADrainEndsAtItsDeadlineAndCanBeTriedAgain) {
  start();
  a_drain_ends_at_its_deadline_and_can_be_tried_again("/slow/hold");
}

TEST_F(HttplibServer, NoRequestIsCutByADrainUnderLoad) {
  start({}, {.drain_idle = 20s});
  no_request_is_cut_by_a_drain_under_load("/else/page");
}

TEST_F(HttplibServer, ADrainWaitsForAResponseThatIsBeingRead) {
  start();
  a_drain_waits_for_a_response_that_is_being_read("/slow/body");
}

TEST_F(HttplibServer, ADrainWaitsForAResponseThatIsBeingProduced) {
  start();
  a_drain_waits_for_a_response_that_is_being_read("/slow/stream");
}

TEST_F(HttplibServer, BoundsHoldWhileItDrains) {
  start({}, {.read_timeout = 1s, .drain_idle = 20s});
  bounds_hold_while_it_drains("/slow/hold", "/else/page");
}

TEST_F(HttplibServer, AResponseThatIsBeingProducedKeepsItsPlace) {
  start();
  Client sleeps = client();
  sleeps.get("/slow/stream");
  ASSERT_TRUE(becomes([&] { return running == 1; }));
  Client next = client();
  next.get("/slow/page");
  ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
  sleeps.close();
  EXPECT_THAT(next.read(), HasSubstr("the page"));
}

TEST_F(HttplibServer, AHandlerSaysWhatItsRequestSaysAboutTheDependency) {
  start();
  const Client c = client();
  c.get("/slow/rejected");
  EXPECT_THAT(c.read(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("X-Bulkhead-Reason: concurrency_limit")));
  c.get("/slow/ignored");
  EXPECT_THAT(c.read(), StartsWith("HTTP/1.1 502"));
  ASSERT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  EXPECT_EQ(now("slow").failed, 0u);
}

TEST_F(HttplibServer, ASetOfTenantsThatWasRemovedIsAnswered) {
  registry.define_tenants({.name = "orders", .each = {.max_concurrent = 1}});
  start({.routes = {{.path = "/", .tenants = "orders"}}});
  registry.remove_tenants("orders");
  const Client c = client();
  c.get("/slow/page");
  EXPECT_THAT(c.read(), AllOf(StartsWith("HTTP/1.1 503"), HasSubstr("X-Bulkhead-Reason: shutdown")));
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
