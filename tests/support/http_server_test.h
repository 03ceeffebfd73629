// http_server_test.h - what the tests of all HTTP servers share: a registry, a guard, a handler that runs until it is let go, and
// what every server must do with it.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

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
  HttpClient client() const { return HttpClient(port()); }
  Snapshot now(const char* name) { return registry.get(name)->snapshot().gate; }

  void make_guard(http::GuardOptions options) {
    if (options.routes.empty())
      options.routes = {{.path = "/slow", .bulkhead = "slow"}, {.path = "/strict", .bulkhead = "strict"}};
    guard.emplace(registry, std::move(options));
  }

  // The paths are of handlers that count themselves in `running` and answer "held" once `go` is set.
  void a_refusal_says_why(const char* strict) {
    const HttpClient first = client(), second = client(), third = client();
    first.get(strict);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    second.get(strict);
    const std::string refused = second.read();
    EXPECT_THAT(refused, testing::StartsWith("HTTP/1.1 503"));
    EXPECT_THAT(refused, testing::HasSubstr("Retry-After: "));
    EXPECT_THAT(refused, testing::HasSubstr("X-Bulkhead-Reason: concurrency_limit"));
    EXPECT_THAT(refused, testing::HasSubstr("application/problem+json"));
    third.get("/health/bulkheads");
    EXPECT_THAT(third.read(), testing::HasSubstr("\"strict\""));
    third.get("/metrics");
    EXPECT_THAT(third.read(), testing::HasSubstr("bulkhead_"));
    registry.get("strict")->set_draining(true);
    third.get(strict);
    EXPECT_THAT(third.read(), testing::HasSubstr("Connection: close"));
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

  // /page of each says "the page"; everything is in "strict".
  static http::GuardOptions with_fallbacks() {
    return {.routes = {{.path = "/",
                        .bulkhead = "strict",
                        .responses = {.fallback = http::Fallback{.body = "come back later"}},
                        .cache_for = std::chrono::hours(1)}}};
  }
  void a_cached_or_static_page_is_served_when_there_is_no_place(const char* strict) {
    const HttpClient c = client(), holder = client(), refused = client(), other = client();
    c.get("/a/page");
    EXPECT_THAT(c.read(), testing::HasSubstr("the page"));
    ASSERT_TRUE(becomes([&] { return now("strict").in_flight == 0; }));  // the response is out before
    holder.get(strict);
    ASSERT_TRUE(becomes([&] { return running == 1; }));
    refused.get("/a/page");
    const std::string cached = refused.read();
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
