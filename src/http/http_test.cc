#include "bulkhead/http.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <stdexcept>

#include "bulkhead/http_hints.h"

namespace bulkhead::http {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;
using testing::Not;

Rejection rejected(Reason reason, std::chrono::nanoseconds retry = {}) {
  return {.reason = reason,
          .name = "db",
          .in_flight = 3,
          .max_concurrent = 4,
          .waiting = 1,
          .max_queue = 2,
          .retry_after = retry};
}

Rejection late() {
  Rejection why = rejected(Reason::deadline);
  why.deadline_passed = true;
  return why;
}

struct Row {
  Reason reason;
  int status, tenants_own, late;
  bool retry;
};
const Row rows[] = {
    {Reason::concurrency_limit, 503, 429, 503, true}, {Reason::queue_limit, 503, 429, 503, true},
    {Reason::timeout, 503, 429, 503, true},           {Reason::cancelled, 503, 503, 503, false},
    {Reason::shutdown, 503, 503, 503, true},          {Reason::evicted, 503, 429, 503, true},
    {Reason::deadline, 503, 503, 504, true},          {Reason::breaker_open, 503, 503, 503, true},
    {Reason::rate_limit, 429, 429, 429, true},        {Reason::tenant_limit, 429, 429, 429, true},
    {Reason::draining, 503, 503, 503, true},          {Reason::budget_limit, 503, 429, 503, true},
    {Reason::holdback, 503, 429, 503, true},          {Reason::execution_timeout, 504, 504, 504, false},
    {Reason::injected_fault, 500, 500, 500, false},
};

TEST(HttpRejection, EveryReasonHasItsResponse) {
  static_assert(std::size(rows) == kReasons);
  for (const Row& row : rows) {
    Rejection why = rejected(row.reason);
    SCOPED_TRACE(to_string(row.reason));
    const Response r = rejection(why);
    EXPECT_EQ(r.status, row.status);
    EXPECT_EQ(rejection(why, {}, {.tenants_own = true}).status, row.tenants_own);
    EXPECT_EQ(r.header("X-Bulkhead-Reason"), to_string(row.reason));
    EXPECT_EQ(r.header("Retry-After").empty(), !row.retry);
    EXPECT_EQ(r.header("Content-Type"), "application/problem+json");
    EXPECT_EQ(r.header("Cache-Control"), "no-store");
    EXPECT_THAT(r.body, HasSubstr("\"reason\":\"" + std::string(to_string(row.reason)) + "\""));
    EXPECT_THAT(r.body, HasSubstr("\"status\":" + std::to_string(row.status)));
    EXPECT_EQ(r.close, row.reason == Reason::shutdown || row.reason == Reason::draining);
    EXPECT_EQ(r.header("Connection") == "close", r.close);
    why.deadline_passed = true;
    const Response late = rejection(why);
    EXPECT_EQ(late.status, row.late);
    EXPECT_EQ(late.header("Retry-After").empty(), row.reason == Reason::deadline || !row.retry);
  }
}

TEST(HttpRejection, TheStatusIsTheRoutesToChoose) {
  StatusFor all{.concurrency_limit = 411,
                .queue_limit = 412,
                .timeout = 413,
                .cancelled = 414,
                .shutdown = 415,
                .evicted = 416,
                .draining = 424,
                .holdback = 427,
                .deadline = 417,
                .deadline_unreachable = 418,
                .breaker_open = 419,
                .rate_limit = 420,
                .tenant_limit = 421,
                .execution_timeout = 422,
                .failure = 423,
                .budget_limit = 425,
                .per_call_max = 426};
  const int expected[] = {411, 412, 413, 414, 415, 416, 418, 419, 420, 421, 424, 425, 427, 422, 423};
  for (const Row& row : rows)
    EXPECT_EQ(rejection(rejected(row.reason), {.status_for = all}).status,
              expected[static_cast<std::size_t>(row.reason)]);
  EXPECT_EQ(rejection(late(), {.status_for = all}).status, 417);
  Rejection heavy = rejected(Reason::budget_limit);
  heavy.asked = 11, heavy.per_call_max = 10;
  EXPECT_EQ(rejection(heavy, {.status_for = all}).status, 426);
  EXPECT_EQ(rejection(heavy).status, 413);
  EXPECT_EQ(rejection(heavy).header("Retry-After"), "") << "it never fits";
  EXPECT_EQ(failure(true, {.status_for = all}).status, 422);
  EXPECT_EQ(failure(false, {.status_for = all}).status, 423);
}

TEST(HttpRejection, CallsThatRan) {
  EXPECT_EQ(failure(true).status, 504);
  EXPECT_EQ(failure(false).status, 500);
  EXPECT_EQ(failure(true).header("X-Bulkhead-Reason"), "execution_timeout");
  EXPECT_THAT(failure(false, {}, "trace-1").body, HasSubstr("\"instance\":\"trace-1\""));
  EXPECT_TRUE(succeeded(404));
  EXPECT_TRUE(succeeded(499));
  EXPECT_FALSE(succeeded(500));
}

TEST(HttpRejection, TheProblemsTypeSaysWhoseFaultItIs) {
  EXPECT_THAT(rejection(rejected(Reason::queue_limit)).body, HasSubstr("#temporary-reduced-capacity\""));
  EXPECT_THAT(rejection(rejected(Reason::tenant_limit)).body, HasSubstr("#quota-exceeded\""));
  EXPECT_THAT(rejection(late()).body, HasSubstr("about:blank"));
}

TEST(HttpRejection, RetryAfterIsSpreadBoundedAndNeverBeforeTheTimeThatIsKnown) {
  const auto range = [](const Rejection& why, Priority priority, const ResponseOptions& options = {}) {
    std::int64_t least = 1 << 30, most = 0;
    for (std::uint32_t random = 0; random < 1000; ++random) {
      const std::int64_t s = retry_after(why, options, priority, random).count();
      least = std::min(least, s);
      most = std::max(most, s);
    }
    return std::pair(least, most);
  };
  const Rejection full = rejected(Reason::queue_limit);
  EXPECT_EQ(range(full, Priority::critical), std::pair(1L, 2L));
  EXPECT_EQ(range(full, Priority::normal), std::pair(2L, 3L));
  EXPECT_EQ(range(full, Priority::best_effort), std::pair(4L, 6L));
  EXPECT_EQ(range(full, Priority::best_effort, {.retry = 20s, .max_retry = 30s}), std::pair(30L, 30L));
  EXPECT_EQ(range(rejected(Reason::breaker_open, 59'100ms), Priority::normal), std::pair(60L, 90L));
  EXPECT_EQ(range(rejected(Reason::rate_limit, 1ms), Priority::normal), std::pair(1L, 2L));
  EXPECT_EQ(range(rejected(Reason::shutdown), Priority::best_effort), std::pair(1L, 1L));
  EXPECT_EQ(range(rejected(Reason::draining), Priority::best_effort), std::pair(1L, 1L));
}

TEST(HttpRejection, NamesAreToldToThoseWhoMayKnow) {
  const Rejection why = rejected(Reason::queue_limit);
  const auto told = [&](ExposeNames expose, bool trusted) {
    return rejection(why, {.expose_names = expose, .rate_limit_headers = true}, {.trusted = trusted});
  };
  for (const auto& [expose, trusted] :
       {std::pair(ExposeNames::trusted, true), {ExposeNames::always, false}}) {
    EXPECT_THAT(told(expose, trusted).body, HasSubstr("\"bulkhead\":\"db\""));
    EXPECT_EQ(told(expose, trusted).header("RateLimit-Policy"), "\"db\";q=4;qu=\"concurrent-requests\"");
    EXPECT_EQ(told(expose, trusted).header("RateLimit"), "\"db\";r=1");
  }
  for (const auto& [expose, trusted] : {std::pair(ExposeNames::trusted, false), {ExposeNames::never, true}}) {
    EXPECT_THAT(told(expose, trusted).body, Not(HasSubstr("db")));
    EXPECT_EQ(told(expose, trusted).header("RateLimit"), "");
  }
}

TEST(HttpRejection, ANameCannotBreakOutOfTheJson) {
  Rejection why = rejected(Reason::queue_limit);
  why.name = "a\"b\\\n";
  const Response r = rejection(why, {.expose_names = ExposeNames::always, .rate_limit_headers = true});
  EXPECT_THAT(r.body, HasSubstr(R"("bulkhead":"a\"b\\\u000a")"));
  EXPECT_EQ(r.header("RateLimit"), "\"a\\\"b\\\\\";r=1");
}

TEST(HttpRejection, AFallbackIsSentInsteadButNotByAServerThatEnds) {
  const ResponseOptions options{.envoy_overloaded = true,
                                .fallback = Fallback{.content_type = "text/html", .body = "<p>later"}};
  const Response r = rejection(rejected(Reason::queue_limit), options);
  EXPECT_EQ(r.status, 200);
  EXPECT_EQ(r.body, "<p>later");
  EXPECT_EQ(r.header("Content-Type"), "text/html");
  EXPECT_EQ(r.header("X-Bulkhead-Fallback"), "static");
  EXPECT_EQ(r.header("X-Bulkhead-Reason"), "queue_limit");
  EXPECT_EQ(r.header("Retry-After"), "");
  EXPECT_EQ(rejection(rejected(Reason::shutdown), options).status, 503);
  EXPECT_EQ(rejection(rejected(Reason::shutdown), options).header("x-envoy-overloaded"), "true");
}

// ---- what a request says ----

struct Headers : std::map<std::string, std::string, std::less<>> {
  using map::map;
  std::string_view operator()(std::string_view name) const {
    const auto found = find(name);
    return found == end() ? std::string_view() : found->second;
  }
};

TEST(HttpHints, TheFirstDeadlineThatMakesSenseCountsAndTheRouteCapsIt) {
  Headers all{{"grpc-timeout", "100m"},
              {"x-envoy-expected-rq-timeout-ms", "200"},
              {"X-Request-Timeout-Ms", "300"},
              {"X-Request-Deadline", "1400"}};
  const HintOptions options{.max_timeout = 250ms, .absolute_deadline = true};
  const auto timeout = [&] { return read_hints(all, options, false, 1000).timeout; };
  EXPECT_EQ(timeout(), 100ms);
  all["grpc-timeout"] = "soon";
  EXPECT_EQ(timeout(), 200ms);
  all.erase("x-envoy-expected-rq-timeout-ms");
  EXPECT_EQ(timeout(), 250ms);  // 300, capped
  all["X-Request-Timeout-Ms"] = "-1";
  all["X-Request-Deadline"] = "1100";
  EXPECT_EQ(timeout(), 100ms);
  all["X-Request-Deadline"] = "900";
  EXPECT_EQ(timeout(), 0ms);
  EXPECT_EQ(read_hints(all, {}, false, 1000).timeout, wait_forever);  // not asked for
}

TEST(HttpHints, TimesAreParsedStrictly) {
  EXPECT_EQ(parse_grpc_timeout("1H"), 1h);
  EXPECT_EQ(parse_grpc_timeout("2M"), 2min);
  EXPECT_EQ(parse_grpc_timeout(" 3S"), 3s);
  EXPECT_EQ(parse_grpc_timeout("4u"), 4us);
  EXPECT_EQ(parse_grpc_timeout("5n"), 5ns);
  EXPECT_EQ(parse_grpc_timeout("99999999H"), wait_forever);
  for (const char* bad : {"", "S", "1", "1x", "-1S", "123456789S", "1.5S", "+1S", "1 S"})
    EXPECT_FALSE(parse_grpc_timeout(bad)) << bad;
  EXPECT_EQ(parse_milliseconds("0"), 0ms);
  EXPECT_EQ(parse_milliseconds("9223372036854775807"), wait_forever);
  for (const char* bad : {"", "1s", "-5", "99999999999999999999"})
    EXPECT_FALSE(parse_milliseconds(bad)) << bad;
  EXPECT_EQ(pass_on(1500us), "1");
  EXPECT_EQ(pass_on(-1s), "0");
  EXPECT_EQ(pass_on(wait_forever), std::nullopt);
}

TEST(HttpHints, UrgencyBecomesATierAndOnlyTrustedPeersRaiseIt) {
  const auto tier = [](const char* value) { return parse_priority(value, Priority::normal); };
  for (const char* v : {"u=0", "u=1", "i, u=1", "u=7, u=0"}) EXPECT_EQ(tier(v), Priority::critical) << v;
  for (const char* v : {"", "u=2", "u=4;x=1", "i", "u=8", "u=-1", "u=11", "nonsense"})
    EXPECT_EQ(tier(v), Priority::normal) << v;
  for (const char* v : {"u=5", "u=6", "u=7 , i"}) EXPECT_EQ(tier(v), Priority::best_effort) << v;
  const Headers high{{"Priority", "u=0"}}, low{{"Priority", "u=7"}};
  EXPECT_EQ(read_hints(high, {}, false).priority, Priority::normal);
  EXPECT_EQ(read_hints(high, {}, true).priority, Priority::critical);
  EXPECT_EQ(read_hints(low, {}, false).priority, Priority::best_effort);
  EXPECT_EQ(read_hints(low, {.priority = Priority::critical, .priority_header = ""}, true).priority,
            Priority::critical);
}

TEST(HttpHints, TheTenantIsBelievedOfTrustedPeersOnly) {
  const Headers said{{"X-Tenant-Id", " acme "}};
  EXPECT_EQ(read_hints(said, {}, false).tenant, "");
  EXPECT_EQ(read_hints(said, {}, true).tenant, "acme");
  EXPECT_EQ(read_hints(said, {.tenant_header = "X-Other"}, true).tenant, "");
}

TEST(HttpPeers, AddressesAndNetworksOfBothFamilies) {
  const TrustedPeers peers({"10.0.0.0/9", "192.168.1.7", "::1", "fd00:12::/28", "2001:db8::5:0/112"});
  for (const char* yes :
       {"10.127.255.255", "10.0.0.1", "::ffff:10.1.2.3", "192.168.1.7", "::1", "0:0:0:0:0:0:0:1",
        "fd00:12:3::9", "fd00:1f::1", "2001:db8::5:77", "fd00:12::1%eth0"})
    EXPECT_TRUE(peers.trusts(yes)) << yes;
  for (const char* no : {"10.128.0.0", "192.168.1.8", "::2", "fd00:22::1", "2001:db8::6:0", "", "x", "10.0.0",
                         "10.0.0.0.1", "1::2::3", "10.0.0.256"})
    EXPECT_FALSE(peers.trusts(no)) << no;
  EXPECT_FALSE(TrustedPeers().trusts("127.0.0.1"));
  EXPECT_TRUE(TrustedPeers({"0.0.0.0/0"}).trusts("8.8.8.8"));
  EXPECT_FALSE(TrustedPeers({"0.0.0.0/0"}).trusts("2001::1"));
  for (const char* bad : {"10.0.0.0/33", "::/129", "host", "10.0.0.0/", "10.0.0.0/x"})
    EXPECT_THROW(TrustedPeers({bad}), std::invalid_argument) << bad;
}

}  // namespace
}  // namespace bulkhead::http
