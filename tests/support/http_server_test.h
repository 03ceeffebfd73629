// http_server_test.h - what the tests of all HTTP servers share: a registry, a guard, a handler that runs until it is let go, and
// what every server must do with it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/http_guard.h"
#include "tests/support/http_client.h"

namespace bulkhead::tests {

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() {
    registry.add({.options = {.name = "slow", .max_concurrent = 1, .max_queue = 2}});
    registry.add({.options = {.name = "strict", .max_concurrent = 1}});
  }
  virtual std::uint16_t port() const = 0;
  virtual bool drain(TimePoint until) = 0;
  static TimePoint in(std::chrono::nanoseconds time) { return std::chrono::steady_clock::now() + time; }
  HttpClient client() const { return HttpClient(port()); }
  Snapshot now(const char* name) { return registry.get(name)->snapshot().gate; }

  void make_guard(http::GuardOptions options) {
    if (options.routes.empty())
      options.routes = {{.path = "/slow", .bulkhead = "slow"}, {.path = "/strict", .bulkhead = "strict"}};
    guard.emplace(registry, std::move(options));
  }

  // The paths are of handlers that count themselves in `running` and answer "held" once `go` is set.
  void a_rejection_says_why(const char* strict) {
    const HttpClient first = client(), second = client(), third = client();
    first.get(strict);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    second.get(strict);
    const std::string rejected = second.read();
    EXPECT_THAT(rejected, testing::StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(rejected, testing::HasSubstr("Retry-After: "));
    EXPECT_THAT(rejected, testing::HasSubstr("X-Bulkhead-Reason: concurrency_limit"));
    EXPECT_THAT(rejected, testing::HasSubstr("application/problem+json"));
    third.get("/health/bulkheads");
    EXPECT_THAT(third.read(), testing::HasSubstr("\"strict\""));
    third.get("/metrics");
    EXPECT_THAT(third.read(), testing::HasSubstr("bulkhead_"));
    registry.get("strict")->set_draining(true);
    third.get(strict);
    EXPECT_THAT(third.read(), testing::AllOf(testing::HasSubstr("Connection: close"),
                                             testing::HasSubstr("X-Bulkhead-Reason: draining")));
    EXPECT_EQ(third.read(), "");
    go = true;
    EXPECT_THAT(first.read(), testing::HasSubstr("held"));
  }

  void a_request_in_line_is_served_in_turn_and_that_of_a_client_that_has_gone_never_runs(const char* slow) {
    HttpClient first = client(), gone = client(), second = client();
    first.get(slow);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    gone.get(slow);
    ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
    second.get(slow);
    ASSERT_TRUE(becomes([&] { return now("slow").waiting == 2; }));
    gone.close();
    ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
    EXPECT_EQ(now("slow").rejected(Reason::cancelled), 1u);
    go = true;
    EXPECT_THAT(first.read(), testing::HasSubstr("held"));
    EXPECT_THAT(second.read(), testing::HasSubstr("held"));
    EXPECT_EQ(running, 2);
    EXPECT_TRUE(becomes([&] { return now("slow").in_flight == 0; }));
  }

  // A byte of a next request hides the end of the connection from a look at what there is to read.
  void a_client_that_has_sent_a_byte_more_and_goes_is_noticed(const char* slow) {
    HttpClient first = client(), gone = client();
    first.get(slow);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    gone.get(slow);
    ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
    gone.send("G");
    gone.close();
    EXPECT_TRUE(becomes([&] { return now("slow").waiting == 0; }));
    go = true;
    EXPECT_THAT(first.read(), testing::HasSubstr("held"));
    EXPECT_EQ(running, 1);
  }

  // Three clients that do not read a large response, and one place.
  void clients_that_do_not_read_hold_no_place(const char* large, const char* page) {
    std::vector<HttpClient> sleepers;
    for (int i = 0; i < 3; ++i) {
      sleepers.push_back(client());
      sleepers.back().get(large);
      ASSERT_TRUE(becomes([&] { return running == i + 1 && now("slow").in_flight == 0; })) << i;
    }
    HttpClient reader = client();
    reader.get(page);
    EXPECT_THAT(reader.read(), testing::HasSubstr("the page"));
  }

  // One request runs, one waits in line, one connection was used, one was not.
  void a_drain_finishes_what_runs_and_what_waits_and_closes_the_rest(const char* slow, const char* page) {
    const HttpClient running_one = client(), waiting = client(), used = client(), unused = client();
    used.get(page);
    EXPECT_THAT(used.read(), testing::HasSubstr("the page"));
    running_one.get(slow);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    waiting.get(slow);
    ASSERT_TRUE(becomes([&] { return now("slow").waiting == 1; }));
    auto drained = std::async(std::launch::async, [this] { return drain(in(std::chrono::seconds(60))); });
    EXPECT_EQ(used.read(), "");
    EXPECT_EQ(unused.read(), "");
    EXPECT_TRUE(becomes([&] { return !client().connected(); }));
    EXPECT_EQ(drained.wait_for(std::chrono::seconds(0)), std::future_status::timeout);
    go = true;
    for (const HttpClient* c : {&running_one, &waiting}) {
      const std::string last = c->read_all();
      EXPECT_THAT(last, testing::HasSubstr("held"));
      EXPECT_THAT(last, testing::HasSubstr("Connection: close"));
    }
    EXPECT_TRUE(drained.get());
    EXPECT_TRUE(drain(in(std::chrono::seconds(0))));
    EXPECT_EQ(now("slow").in_flight, 0u);
  }

  void a_drain_ends_at_its_deadline_and_can_be_tried_again(const char* slow) {
    const HttpClient c = client();
    c.get(slow);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    EXPECT_FALSE(drain(in(std::chrono::milliseconds(30))));
    EXPECT_FALSE(drain(in(std::chrono::seconds(0))));
    go = true;
    EXPECT_THAT(c.read_all(), testing::HasSubstr("held"));
    EXPECT_TRUE(drain(in(std::chrono::seconds(60))));
  }

  // Clients that ask again and again, each on its own connection: every request is answered, and the last answer says
  // that there is no other.
  void no_request_is_cut_by_a_drain_under_load(const char* page) {
    constexpr int kClients = 6;
    std::atomic<int> answered = 0, cut = 0;
    std::vector<std::thread> clients;
    for (int i = 0; i < kClients; ++i)
      clients.emplace_back([&] {
        const HttpClient c = client();
        for (;;) {
          c.get(page);
          const std::string response = c.read();
          if (response.find("the page") == std::string::npos) ++cut;
          ++answered;
          if (response.find("Connection: close") != std::string::npos || response.empty()) return;
        }
      });
    EXPECT_TRUE(becomes([&] { return answered > 20 * kClients; }));
    EXPECT_TRUE(drain(in(std::chrono::seconds(60))));
    for (std::thread& t : clients) t.join();
    EXPECT_EQ(cut, 0);
  }

  // A body of 8 MiB that is read only once the server drains.
  void a_drain_waits_for_a_response_that_is_being_read(const char* large) {
    const HttpClient c = client();
    c.get(large);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    EXPECT_FALSE(drain(in(std::chrono::milliseconds(30))));
    const std::string text = c.read_all();
    EXPECT_EQ(std::count(text.begin(), text.end(), '#'), 8 << 20);
    EXPECT_TRUE(drain(in(std::chrono::seconds(60))));
  }

  // A header that never ends, a body that is too large, and a client that has sent a second request ahead.
  void bounds_hold_while_it_drains(const char* slow, const char* page) {
    const HttpClient loris = client(), big = client(), ahead = client();
    ahead.get(slow);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    ahead.get(page);
    loris.send("GET / HTTP/1.1\r\nX-A: ");
    big.send("POST / HTTP/1.1\r\n");
    EXPECT_FALSE(drain(in(std::chrono::milliseconds(30))));
    big.send("Host: x\r\nContent-Length: 3000000\r\n\r\n");
    EXPECT_THAT(big.read(), testing::StartsWith("HTTP/1.1 413"));
    go = true;
    const std::string both = ahead.read_all();
    EXPECT_THAT(both, testing::HasSubstr("held"));
    EXPECT_THAT(both, testing::HasSubstr("the page"));
    EXPECT_THAT(loris.read_all(), testing::Not(testing::HasSubstr("200")));
    EXPECT_TRUE(drain(in(std::chrono::seconds(60))));
  }

  // /page of each says "the page"; everything is in "strict".
  static http::GuardOptions with_fallbacks() {
    return {.routes = {{.path = "/",
                        .bulkhead = "strict",
                        .responses = {.fallback = http::Fallback{.body = "come back later"}},
                        .cache_for = std::chrono::hours(1)}}};
  }
  void a_cached_or_static_page_is_served_when_there_is_no_place(const char* strict) {
    const HttpClient c = client(), holder = client(), rejected = client(), other = client();
    c.get("/a/page");
    EXPECT_THAT(c.read(), testing::HasSubstr("the page"));
    ASSERT_TRUE(becomes([&] { return now("strict").in_flight == 0; }));  // the response is out before
    holder.get(strict);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    rejected.get("/a/page");
    const std::string cached = rejected.read();
    EXPECT_THAT(cached, testing::HasSubstr("the page"));
    EXPECT_THAT(cached, testing::HasSubstr("X-Bulkhead-Fallback: cached"));
    other.get("/b/page");
    EXPECT_THAT(other.read(), testing::HasSubstr("come back later"));
    go = true;
    holder.read();
  }

  Registry registry;
  std::optional<http::Guard> guard;
  std::atomic<int> running = 0;
  std::atomic<bool> go = false;
};

}  // namespace bulkhead::tests
