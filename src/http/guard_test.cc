#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <stdexcept>

#include "bulkhead/http_guard.h"
#include "bulkhead/manual_clock.h"
#include "http/pacer.h"

namespace bulkhead::http {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

class HttpGuard : public testing::Test {
 protected:
  HttpGuard() {
    registry.add({.options = {.name = "shop", .max_concurrent = 1}});
    registry.add({.options = {.name = "reports", .max_concurrent = 1, .max_queue = 1}});
    registry.define_tenants({.name = "orders", .each = {.max_concurrent = 1}, .max_tenants = 1});
    registry.define_tenants(
        {.name = "strict", .each = {.max_concurrent = 1}, .max_tenants = 1, .at_bound = AtBound::reject});
  }
  Visit arrive(Guard& guard, std::string_view target,
               std::map<std::string, std::string, std::less<>> headers = {},
               std::string_view peer = "9.9.9.9", std::string_view method = "GET") {
    const auto get = [&](std::string_view name) -> std::string_view {
      const auto found = headers.find(name);
      return found == headers.end() ? std::string_view() : found->second;
    };
    return guard.arrive({.method = method, .target = target, .peer = peer, .header = get}, now);
  }
  Registry registry;
  TimePoint now{1h};
};

TEST_F(HttpGuard, TheLongestRouteAtASlashCountsAndAMethodBeforeNone) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop"},
                                    {.path = "/reports", .bulkhead = "reports"},
                                    {.path = "/reports", .method = "DELETE", .bulkhead = "shop", .cost = 2},
                                    {.path = "/open"}}});
  const auto name = [&](std::string_view method, std::string_view target) {
    const Route* route = guard.match(method, target);
    return route ? route->path + (route->method.empty() ? "" : " " + route->method) : "none";
  };
  EXPECT_EQ(name("GET", "/"), "/");
  EXPECT_EQ(name("GET", "/reports"), "/reports");
  EXPECT_EQ(name("GET", "/reports/7?x=1"), "/reports");
  EXPECT_EQ(name("GET", "/reports?x=/y"), "/reports");
  EXPECT_EQ(name("GET", "/reportsx"), "/");
  EXPECT_EQ(name("DELETE", "/reports/7"), "/reports DELETE");
  EXPECT_EQ(name("OPTIONS", "*"), "none");
  for (const char* disguised :
       {"/%72eports", "//reports//7", "/./reports", "/x/../reports/7", "/x/%2e%2E/reports", "/../reports",
        "http://h/reports/7", "http://h/x/..//reports?x", "/reports%2f7", "/reports/./"})
    EXPECT_EQ(name("GET", disguised), "/reports") << disguised;
  for (const char* other : {"/x?to=http://h/reports", "http://reports", "http://h?/reports", "/reports/..",
                            "/%", "/%7", "/%zz", "/.reports"})
    EXPECT_EQ(name("GET", other), "/") << other;
  EXPECT_EQ(arrive(guard, "/open").bulkhead, nullptr);
  EXPECT_EQ(arrive(guard, "/reports/1").bulkhead->name(), "reports");
}

TEST_F(HttpGuard, WhatIsWrongIsSaidWhenItIsMade) {
  const auto problem = [&](GuardOptions options) -> std::string {
    try {
      const Guard guard(registry, std::move(options));
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
    return "none";
  };
  EXPECT_EQ(problem({.routes = {{.path = "x"}}}),
            "http: route \"x\": path must begin with '/': give \"/orders\"");
  EXPECT_THAT(problem({.routes = {{.path = "/x", .bulkhead = "shp"}}}),
              HasSubstr("there is no bulkhead \"shp\""));
  EXPECT_THAT(problem({.routes = {{.path = "/x", .tenants = "ordres"}}}),
              HasSubstr("there is no set of tenants \"ordres\""));
  EXPECT_THAT(problem({.trusted_peers = {"localhost"}}), HasSubstr("trusted_peers: \"localhost\""));
  EXPECT_THAT(problem({.routes = {{.path = "/x", .cost = 0}}}), HasSubstr("cost = 0"));
  EXPECT_THAT(problem({.routes = {{.path = "/x", .cost_header = "X-Tokens", .bytes_per_unit = 1}}}),
              HasSubstr("more than one of cost_header, bytes_per_unit and cost_of"));
}

TEST_F(HttpGuard, ARequestGetsItsDeadlineAndPriority) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop", .max_timeout = 2s}},
                         .trusted_peers = {"10.0.0.0/8"}});
  EXPECT_EQ(arrive(guard, "/").deadline, now + 2s);
  const Visit visit = arrive(guard, "/", {{"X-Request-Timeout-Ms", "50"}, {"Priority", "u=0"}}, "10.1.1.1");
  EXPECT_EQ(visit.options.deadline, now + 50ms);
  EXPECT_EQ(visit.options.priority, Priority::critical);
  EXPECT_EQ(arrive(guard, "/", {{"Priority", "u=0"}}).options.priority, Priority::normal);
}

TEST_F(HttpGuard, ARouteTakesItsCostFromAHeaderTheSizeOrACallback) {
  Guard guard(registry,
              {.routes = {{.path = "/header", .bulkhead = "shop", .cost = 3, .cost_header = "X-Tokens"},
                          {.path = "/size", .bulkhead = "shop", .cost = 3, .bytes_per_unit = 1000},
                          {.path = "/call",
                           .bulkhead = "shop",
                           .cost = 3,
                           .cost_of =
                               [](const Request& r) {
                                 if (r.method == "POST") throw std::runtime_error("no idea");
                                 return static_cast<std::uint32_t>(r.target.size());
                               }}},
               .trusted_peers = {"10.0.0.0/8"}});
  const auto cost = [&](std::string_view target, std::map<std::string, std::string, std::less<>> headers = {},
                        std::string_view peer = "10.1.1.1", std::string_view method = "GET") {
    return arrive(guard, target, std::move(headers), peer, method).options.cost;
  };
  EXPECT_EQ(cost("/header", {{"X-Tokens", " 16000 "}}), 16'000u);
  EXPECT_EQ(cost("/header", {{"X-Tokens", "16000"}}, "1.2.3.4"), 3u) << "a stranger could ask for less";
  for (const char* wrong : {"", " ", "many", "-1", "1.5", "16000x"})
    EXPECT_EQ(cost("/header", {{"X-Tokens", wrong}}), 3u) << wrong;
  EXPECT_EQ(cost("/header", {{"X-Tokens", "0"}}), 1u);
  EXPECT_EQ(cost("/header", {{"X-Tokens", "99999999999999999999999"}}), 0xffff'ffffu);
  EXPECT_EQ(cost("/header"), 3u);

  EXPECT_EQ(cost("/size", {{"Content-Length", "1000"}}, "1.2.3.4"), 1u);
  EXPECT_EQ(cost("/size", {{"Content-Length", "1001"}}, "1.2.3.4"), 2u);
  EXPECT_EQ(cost("/size", {{"Content-Length", "0"}}), 1u);
  EXPECT_EQ(cost("/size", {{"Content-Length", "18446744073709551615"}}), 0xffff'ffffu);
  EXPECT_EQ(cost("/size"), 3u);

  EXPECT_EQ(cost("/call?x=1234"), 12u);
  EXPECT_EQ(cost("/call", {}, "1.2.3.4", "POST"), 3u);
}

// A server that has read the body knows its size, also without Content-Length.
TEST_F(HttpGuard, TheSizeOfABodyThatHasBeenReadIsTheCost) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop", .cost = 3, .bytes_per_unit = 1000}}});
  const auto cost = [&](std::optional<std::uint64_t> body_bytes, std::string_view length) {
    const auto get = [&](std::string_view name) { return name == "Content-Length" ? length : ""; };
    const Request request{
        .method = "POST", .target = "/", .peer = "9.9.9.9", .header = get, .body_bytes = body_bytes};
    return guard.arrive(request, now).options.cost;
  };
  EXPECT_EQ(cost(5001, ""), 6u);
  EXPECT_EQ(cost(0, ""), 1u);
  EXPECT_EQ(cost(5000, "1000"), 5u);
  EXPECT_EQ(cost(std::nullopt, "2000"), 2u);
  EXPECT_EQ(cost(std::nullopt, ""), 3u);
}

TEST_F(HttpGuard, ATenantIsTheFlowOfItsRequests) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop"}, {.path = "/own", .tenants = "orders"}},
                         .trusted_peers = {"10.0.0.0/8"}});
  EXPECT_EQ(arrive(guard, "/", {{"X-Tenant-Id", "acme"}}, "10.0.0.1").options.flow, flow_of("acme"));
  EXPECT_EQ(arrive(guard, "/own", {{"X-Tenant-Id", "acme"}}, "10.0.0.1").options.flow, flow_of("acme"));
  EXPECT_EQ(arrive(guard, "/", {}, "10.0.0.1").options.flow, 0u);
  EXPECT_EQ(arrive(guard, "/", {{"X-Tenant-Id", "acme"}}, "1.2.3.4").options.flow, 0u)
      << "a stranger could take another turn with each name";
}

TEST_F(HttpGuard, TenantsHaveTheirOwnAndTheirOwnIs429) {
  Guard guard(registry, {.routes = {{.path = "/", .tenants = "orders"},
                                    {.path = "/strict", .bulkhead = "shop", .tenants = "strict"}},
                         .trusted_peers = {"10.0.0.0/8"}});
  Visit acme = arrive(guard, "/", {{"X-Tenant-Id", "acme"}}, "10.0.0.1");
  EXPECT_EQ(acme.bulkhead->name(), "orders/acme");
  auto held = acme.acquire();
  ASSERT_TRUE(held);
  EXPECT_EQ(guard.reject(acme, acme.acquire().error(), now).status, 429);
  // There is room for one: the others share a bulkhead, and that it is full is not their fault.
  Visit other = arrive(guard, "/", {{"X-Tenant-Id", "other"}}, "10.0.0.1");
  EXPECT_EQ(other.bulkhead->name(), "orders/*");
  auto shared = other.acquire();
  EXPECT_EQ(guard.reject(other, other.acquire().error(), now).status, 503);
  // A stranger's word does not count.
  EXPECT_EQ(arrive(guard, "/", {{"X-Tenant-Id", "acme"}}).bulkhead->name(), "orders/*");
  EXPECT_EQ(arrive(guard, "/strict", {{"X-Tenant-Id", "acme"}}).bulkhead->name(), "shop");

  const Visit first = arrive(guard, "/strict", {{"X-Tenant-Id", "a"}}, "10.0.0.1");
  const Visit second = arrive(guard, "/strict", {{"X-Tenant-Id", "b"}}, "10.0.0.1");
  ASSERT_TRUE(second.answer);
  EXPECT_TRUE(second.rejected);
  EXPECT_EQ(second.answer->status, 429);
  EXPECT_EQ(second.answer->header("X-Bulkhead-Reason"), "tenant_limit");
}

TEST_F(HttpGuard, ABulkheadThatWasRemovedRejects) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop"}}});
  registry.remove("shop");
  const Visit gone = arrive(guard, "/");
  ASSERT_TRUE(gone.answer);
  EXPECT_EQ(gone.answer->status, 503);
  EXPECT_TRUE(gone.answer->close);
  registry.add({.options = {.name = "shop", .max_concurrent = 1}});
  EXPECT_TRUE(arrive(guard, "/").bulkhead);
}

TEST_F(HttpGuard, ServesHealthAndMetrics) {
  Guard guard(registry, {.trusted_peers = {"10.0.0.0/8"}});
  EXPECT_THAT(arrive(guard, "/metrics").answer->body, HasSubstr("bulkhead_"));
  EXPECT_THAT(std::string(arrive(guard, "/metrics").answer->header("Content-Type")), HasSubstr("text/plain"));
  EXPECT_THAT(arrive(guard, "/health/bulkheads?x").answer->body, HasSubstr("\"shop\""));
  EXPECT_FALSE(arrive(guard, "/metrics", {}, "1.1.1.1", "POST").answer);
  Guard closed(registry, {.health_path = "", .pages_for_trusted_only = true});
  EXPECT_FALSE(arrive(closed, "/metrics").answer);
  EXPECT_FALSE(arrive(closed, "/health/bulkheads").answer);
}

TEST_F(HttpGuard, TheLastGoodResponseIsServedInsteadOfARejection) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop", .cache_for = 10s}},
                         .cache_entries = 2,
                         .cache_entry_bytes = 48});
  const Rejection full{.reason = Reason::queue_limit, .name = "shop"};
  const auto served = [&](std::string_view target,
                          std::map<std::string, std::string, std::less<>> headers = {}) {
    return guard.reject(arrive(guard, target, std::move(headers)), full, now);
  };
  const auto good = [&](std::string_view target, std::string_view body, int status = 200,
                        std::string_view control = "", bool cookie = false) {
    std::vector<HeaderView> headers{{"Content-Type", "text/css"}, {"Connection", "keep-alive"}};
    if (!control.empty()) headers.push_back({"cache-control", control});
    if (cookie) headers.push_back({"Set-Cookie", "id=1"});
    guard.answered(arrive(guard, target), {.status = status, .headers = headers, .body = body}, now);
  };
  EXPECT_EQ(served("/a").status, 503);
  good("/a", "old");
  good("/a", "new");
  now += 3s;
  const Response r = served("/a");
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "new");
  EXPECT_EQ(r.header("Content-Type"), "text/css");
  EXPECT_EQ(r.header("Age"), "3");
  EXPECT_EQ(r.header("X-Bulkhead-Fallback"), "cached");
  EXPECT_EQ(r.header("Connection"), "");
  EXPECT_EQ(served("/a?x").status, 503);
  // Not to those who have shown who they are, nor what was meant for one, failed, or is too large.
  EXPECT_EQ(served("/a", {{"Cookie", "id=1"}}).status, 503);
  EXPECT_EQ(served("/a", {{"Authorization", "Bearer x"}}).status, 503);
  EXPECT_EQ(served("/a", {{"X-Api-Key", "x"}}).status, 503);
  EXPECT_EQ(served("/a", {{"Cache-Control", "max-age=0, no-store"}}).status, 503);
  good("/b", "x", 500);
  good("/b", "x", 200, "max-age=3, private");
  good("/b", "x", 200, "no-store");
  good("/b", "x", 200, "No-Cache=\"X\"");
  good("/b", "x", 200, "max-age=0,Must-Revalidate");
  good("/b", "x", 200, "", true);
  good("/b", std::string(48, 'x'));
  EXPECT_EQ(served("/b").status, 503);
  EXPECT_EQ(guard.reject(arrive(guard, "/a"), {.reason = Reason::shutdown, .name = "shop"}, now).status, 503);
  // Bounded: the oldest goes.
  good("/c", "c");
  good("/d", "d");
  EXPECT_EQ(served("/a").status, 503);
  EXPECT_EQ(served("/d").body, "d");
  now += 10s;
  EXPECT_EQ(served("/d").body, "d");
  now += 1ns;
  EXPECT_EQ(served("/d").status, 503);
}

class HttpGuardCache : public HttpGuard {
 protected:
  using Headers = std::map<std::string, std::string, std::less<>>;
  void keep(const Headers& request, std::vector<HeaderView> headers, std::string_view body) {
    guard.answered(arrive(guard, "/a", request), {.headers = headers, .body = body}, now);
  }
  // What a request that is rejected gets instead; empty: a rejection.
  std::string kept(const Headers& request) {
    const Rejection full{.reason = Reason::queue_limit, .name = "shop"};
    const Response r = guard.reject(arrive(guard, "/a", request), full, now);
    return r.status == 200 ? std::string(r.header("Content-Encoding")) + r.body : "";
  }
  Guard guard{
      registry,
      {.routes = {{.path = "/", .bulkhead = "shop", .cache_for = 10s}}, .credential_headers = {"Cookie"}}};
};

TEST_F(HttpGuardCache, AnotherHostsResponseIsNeverServed) {
  keep({{"Host", "a.example"}}, {}, "a's");
  EXPECT_EQ(kept({{"Host", "a.example"}}), "a's");
  EXPECT_EQ(kept({{"Host", "b.example"}}), "");
  EXPECT_EQ(kept({{"Host", "a.example"}, {"X-Forwarded-Host", "b.example"}}), "");
}

TEST_F(HttpGuardCache, ABodyIsServedWithItsEncodingAndOnlyToThoseWhoAcceptIt) {
  keep({{"Accept-Encoding", "gzip"}}, {{"Content-Encoding", "gzip"}}, " bytes");
  EXPECT_EQ(kept({{"Accept-Encoding", "gzip"}}), "gzip bytes");
  EXPECT_EQ(kept({}), "");
  EXPECT_EQ(kept({{"Accept-Encoding", "br"}}), "");
}

TEST_F(HttpGuardCache, AResponseIsServedWhereTheHeadersThatItsVaryNamesAreTheSame) {
  const std::vector<HeaderView> vary{{"Vary", "accept-language"}, {"Vary", " Accept ,Host"}};
  keep({{"Accept-Language", "de"}, {"Accept", "text/html"}}, vary, "hallo");
  keep({{"Accept-Language", "en"}, {"Accept", "text/html"}}, vary, "hello");
  EXPECT_EQ(kept({{"Accept-Language", "de"}, {"Accept", "text/html"}}), "hallo");
  EXPECT_EQ(kept({{"Accept-Language", "en"}, {"Accept", "text/html"}, {"Accept-Encoding", "br"}}), "hello");
  EXPECT_EQ(kept({{"Accept-Language", "en"}, {"Accept", "text/xml"}}), "");
  // The values of two headers are not taken for one another.
  EXPECT_EQ(kept({{"Accept-Language", "text/html"}, {"Accept", "de"}}), "");
  now += 1s;
  keep({}, {}, "no longer varies");
  EXPECT_EQ(kept({{"Accept-Language", "de"}, {"Accept", "text/html"}}), "no longer varies");
}

TEST_F(HttpGuardCache, AResponseThatVariesByAnythingElseIsNotKept) {
  keep({}, {{"Vary", "*"}}, "x");
  keep({}, {{"Vary", "Accept, X-Plan"}}, "x");
  keep({}, {{"Cache-Control", "max-age=5"}, {"Cache-Control", "private"}}, "x");
  EXPECT_EQ(kept({}), "");
}

TEST_F(HttpGuardCache, WhichHeadersAreCredentialsIsTheUsersChoice) {
  keep({{"Authorization", "Basic x"}}, {}, "same for all");
  EXPECT_EQ(kept({{"Authorization", "Basic y"}}), "same for all");
  EXPECT_EQ(kept({{"Cookie", "x"}}), "");
}

TEST_F(HttpGuard, ASetOfTenantsThatWasRemovedIsRejectedWithAReason) {
  Guard guard(registry, {.routes = {{.path = "/", .tenants = "orders"}}});
  registry.remove_tenants("orders");
  const Visit gone = arrive(guard, "/");
  ASSERT_TRUE(gone.answer);
  EXPECT_TRUE(gone.rejected);
  EXPECT_EQ(gone.answer->status, 503);
  EXPECT_EQ(gone.answer->header("X-Bulkhead-Reason"), "shutdown");
  EXPECT_TRUE(gone.answer->close);
  registry.define_tenants({.name = "orders", .each = {.max_concurrent = 1}});
  EXPECT_TRUE(arrive(guard, "/").bulkhead);
}

TEST_F(HttpGuard, TheMetricsPageHasTheTopTenantsAndTheStateOfTheConfiguration) {
  Guard guard(registry,
              {.trusted_peers = {"10.0.0.0/8"}, .metrics = {.top_tenants = 5}, .metrics_extras = [] {
                 return MetricsExtras{.config = ConfigState{.source = "shop.yaml"}};
               }});
  (void)(*registry.tenant("orders", "acme"))->acquire();
  const std::string page = arrive(guard, "/metrics").answer->body;
  EXPECT_THAT(page, HasSubstr("bulkhead_config_last_reload_successful 1"));
  EXPECT_THAT(page, HasSubstr("source=\"shop.yaml\""));
  EXPECT_THAT(page, HasSubstr("acme"));
  EXPECT_THAT(page, HasSubstr("process_"));
  Guard plain(registry, {});
  EXPECT_THAT(arrive(plain, "/metrics").answer->body, testing::Not(HasSubstr("acme")));
}

// wait_forever from now on is no_deadline, and not a time that has passed.
TEST_F(HttpGuard, ARequestWithoutALimitHasNoDeadline) {
  Guard guard(registry, {.routes = {{.path = "/", .bulkhead = "shop"}}});
  EXPECT_EQ(arrive(guard, "/").deadline, no_deadline);
  EXPECT_EQ(pass_on(no_deadline, now), std::nullopt);
  EXPECT_EQ(pass_on(now + 1500us, now), "1");
  EXPECT_EQ(pass_on(now - 1h, now), "0");
  EXPECT_EQ(saturating_add(now, wait_forever), no_deadline);
  EXPECT_EQ(saturating_add(TimePoint::min(), wait_forever), TimePoint::min() + wait_forever);
  EXPECT_EQ(saturating_add(TimePoint::min(), -1ns), TimePoint::min());
  EXPECT_EQ(saturating_add(now, -2h), TimePoint{-1h});
  EXPECT_EQ(saturating_add(no_deadline, 0ns), no_deadline);
  auto call = registry.get("shop")->acquire({.deadline = saturating_add(now, wait_forever)});
  EXPECT_TRUE(call);
}

TEST(HttpPacer, FewRejectionsLeaveAtOnceAndAStormLeavesOneByOne) {
  RejectionPacer pacer({.per_second = 1000, .burst = 3, .batch = 1, .max_hold = 100ms}, 1);
  const TimePoint now{1h};
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pacer.hold(now), 0ns) << i;
  const auto expect = [](std::chrono::nanoseconds held, std::chrono::nanoseconds at) {
    EXPECT_GE(held, at);
    EXPECT_LE(held, at + 500us);  // the jitter
  };
  for (int i = 1; i <= 100; ++i) expect(pacer.hold(now), i * 1ms);
  for (int i = 0; i < 10; ++i) expect(pacer.hold(now), 100ms);  // no later than that
  expect(pacer.hold(now + 50ms), 51ms);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(pacer.hold(now + 1s), 0ns) << i;
  RejectionPacer off({.per_second = 0}, 1);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(off.hold(now), 0ns);
}

// 450 clients in virtual time who ask again when they are rejected.
TEST(HttpPacer, HoweverManyComeBackAtOnceTheirRejectionsLeaveAtTheirRateInSmallBatches) {
  RejectionPacer pacer({.per_second = 1000, .burst = 10, .batch = 4, .max_hold = 1s}, 7);
  std::multiset<TimePoint> due;
  for (int i = 0; i < 450; ++i) due.insert(TimePoint{1h});
  std::map<TimePoint, int> left;  // how many leave at each moment
  std::map<std::int64_t, int> in_second;
  while (due.begin()->time_since_epoch() < 1h + 10s) {
    const TimePoint now = *due.begin();
    due.erase(due.begin());
    const TimePoint leaves = now + pacer.hold(now);
    ++left[leaves];
    ++in_second[(leaves.time_since_epoch() - 1h) / 1s];
    due.insert(leaves);
  }
  EXPECT_LE(in_second[0], 1000 + 10 + 4);
  for (int second = 1; second < 9; ++second) EXPECT_NEAR(in_second[second], 1000, 4) << second;
  left.erase(left.begin());  // the burst
  std::set<std::chrono::nanoseconds> gaps;
  for (auto a = left.begin(), b = std::next(a); b != left.end(); ++a, ++b) {
    EXPECT_LE(a->second, 4);
    gaps.insert(b->first - a->first);
  }
  EXPECT_GT(gaps.size(), 10u);  // not in step
}

}  // namespace
}  // namespace bulkhead::http
