// http_guard.h - the server-independent part of an HTTP middleware: chooses the bulkhead of a request, its deadline, and the
// response if it is rejected. The adapters for Boost.Beast and cpp-httplib are built on it.
//
//   bulkhead::http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports", .max_timeout = 2s},
//                                                     {.path = "/", .bulkhead = "shop"}}});
//   const auto get = [&](std::string_view name) -> std::string_view { return request[name]; };
//   auto visit = guard.arrive({.method = "GET", .target = "/reports/7", .peer = ip, .header = get}, now());
//   if (visit.answer) return send(*visit.answer);                    // /metrics, /health/bulkheads
//   auto call = visit.acquire();                                     // blocks; or visit.bulkhead->async_acquire
//   if (!call) return send(guard.reject(visit, call.error(), now()));  // after guard.hold()
//   const auto response = handle();
//   call->finish(bulkhead::http::verdict(response.status));                    // see Route::hold_place
//   send(response);
//
// Routes are prefixes at a '/': "/reports" matches "/reports", "/reports/7" and "/reports?x", not "/reportsx"; the longest
// match has precedence, and a route with a method before one without. Paths are decoded and cleaned of "." and ".." first. A
// route names a bulkhead of the registry, which is looked up for each request: while it is not in the registry, requests are
// rejected (Reason::shutdown). A route with `tenants` gives each tenant its own bulkhead; without that set of tenants in the
// registry, requests are rejected in the same way.
//
// Clients that retry immediately after each 503 can keep a server so busy with rejections that healthy routes starve. hold()
// returns how long to delay a rejection: not at all while rejections are few, then such that at most `per_second` are sent,
// in small batches. As these clients retry only after the response, this also bounds the rate of their requests.
//
// Threads: every member of Guard may be called from any thread; a Visit belongs to one request. The registry must outlive
// the guard.
// Cost: arrive() hashes a name and allocates nothing; a rejection allocates its response.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/http.h"
#include "bulkhead/http_hints.h"
#include "bulkhead/metrics.h"
#include "bulkhead/registry.h"

namespace bulkhead::http {

// How long a request is in flight in the bulkhead.
enum class HoldPlace : std::uint8_t {
  until_handled,  // until the handler has ended and the body is in memory
  until_written,  // until the response has been written, or the client has disconnected
};

struct Request {
  std::string_view method, target, peer;
  HeaderLookup header;
  std::int64_t unix_now = 0;                  // ms, for GuardOptions::absolute_deadline
  std::optional<std::uint64_t> body_bytes{};  // of the body, if it has been read; for Route::bytes_per_unit
};

struct Route {
  std::string path = "/";
  std::string method{};    // empty: any
  std::string bulkhead{};  // of the registry; empty and no tenants: the route is not protected
  std::string tenants{};   // a set of tenants of the registry, for requests with a tenant
  Priority priority = Priority::normal;
  std::uint32_t cost =
      1;  // of each request, unless one of the next three says otherwise; give at most one of them
  // A header with the cost, such as an estimate of tokens. Of trusted peers only (GuardOptions::trusted_peers): other
  // clients could ask for less than they use. Missing or not a number: `cost`.
  std::string cost_header{};
  // Above 0: the cost is the size of the body divided by this, rounded up. The Beast server has read the body by then. The
  // cpp-httplib server has not: it takes Content-Length, and `cost` for a body without it (Transfer-Encoding: chunked).
  std::uint32_t bytes_per_unit = 0;
  // Called for each request, from any thread; Request::body_bytes says whether its body has been read. If it throws: `cost`.
  std::function<std::uint32_t(const Request&)> cost_of{};
  std::string budget{};  // the cost is taken of this budget of the bulkhead (budget.h), and the place costs 1
  std::chrono::nanoseconds max_timeout = wait_forever;  // for waiting and running together
  ResponseOptions responses{};
  // With until_handled a client that reads slowly holds memory and a connection, but does not count as in flight. Use
  // until_written if the bulkhead protects the memory of the responses. A body that is produced while it is written
  // (content providers of cpp-httplib) is in flight until it is written in both cases.
  HoldPlace hold_place = HoldPlace::until_handled;
  // The last successful response to each GET is cached this long, and sent instead of a rejection and of
  // responses.fallback. It is sent only to requests with the same target, tenant, Host and X-Forwarded-Host, -Proto, and the
  // same value of those headers among Accept, Accept-Encoding, Accept-Language and Origin that its Vary names
  // (Accept-Encoding also if it has a Content-Encoding). Not cached: responses to requests with credentials
  // (GuardOptions::credential_headers) or no-store; responses that set a cookie, contain private, no-store, no-cache or
  // must-revalidate, or vary by another header.
  std::chrono::nanoseconds cache_for{};
};

// With more concurrent clients than per_second times max_hold, rejections are sent faster than per_second: raise one of
// them.
struct StormOptions {
  std::uint32_t per_second = 1000;  // most rejections per second, once `burst` is used up; 0: none is delayed
  std::uint32_t burst = 100;
  std::uint32_t batch = 4;  // the number of delayed rejections that are sent together
  std::chrono::nanoseconds max_hold = std::chrono::seconds(1);
};

struct GuardOptions {
  std::vector<Route> routes{};
  std::vector<std::string> trusted_peers{};  // see TrustedPeers: whose tenants and priorities are accepted
  std::string priority_header = "Priority";
  // The tenant chooses the bulkhead of a route with `tenants`, and is the flow of the request in any bulkhead: with
  // flow_queues tenants share it (bulkhead.h).
  std::string tenant_header = "X-Tenant-Id";
  bool absolute_deadline = false;                 // see http_hints.h
  std::string metrics_path = "/metrics";          // empty: none
  std::string health_path = "/health/bulkheads";  // empty: none
  bool pages_for_trusted_only = false;            // restricts these two pages
  StormOptions storm{};
  std::size_t cache_entries = 256, cache_entry_bytes = std::size_t{64} * 1024;  // for Route::cache_for
  // A request with one of these headers is not answered from the cache, and its response is not cached.
  std::vector<std::string> credential_headers = {"Authorization", "Cookie", "Proxy-Authorization",
                                                 "X-Api-Key"};
  MetricsOptions metrics{};  // of the metrics page
  // More data for the metrics page, such as the state of a configuration file (config_metrics.h). Called for each page, from
  // any thread. Process statistics are added if they are missing.
  std::function<MetricsExtras()> metrics_extras{};
  std::uint64_t seed = 0;  // of the jitter; 0: a random one for each guard
};

// One request.
struct Visit {
  const Route* route = nullptr;          // null: none matches
  std::shared_ptr<Bulkhead> bulkhead{};  // null: not protected, or answered already
  std::optional<Response> answer{};      // no handler needed: a page of the guard, or a rejection
  bool rejected = false;                 // `answer` is a rejection: delay it by hold()
  AcquireOptions options{};              // for the bulkhead
  TimePoint deadline = no_deadline;      // for the handler; see pass_on() for the next service
  bool trusted = false, tenants_own = false;
  std::string cache_key{};  // of the response cache; empty: not cached

  Result<Call> acquire() const { return bulkhead->acquire(options); }
};

// The outcome that a status implies.
constexpr Outcome verdict(int status) noexcept {
  return succeeded(status) ? Outcome::success : Outcome::failure;
}

struct HeaderView {
  std::string_view name, value;
};

// The response of a handler, with all headers; a repeated header is listed repeatedly.
struct Answered {
  int status = 200;
  std::span<const HeaderView> headers{};
  std::string_view body{};
};

class Guard {
 public:
  // std::invalid_argument if a route, a network or a name is wrong.
  Guard(Registry& registry, GuardOptions options);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  Visit arrive(const Request& request, TimePoint now);
  Response reject(const Visit& visit, const Rejection& why, TimePoint now);
  // Counts a rejection, and returns how long to delay it.
  std::chrono::nanoseconds hold(TimePoint now) noexcept;
  // After the handler: caches the response if the route allows it. Needed only if visit.cache_key is not empty.
  void answered(const Visit& visit, const Answered& response, TimePoint now);

  const Route* match(std::string_view method, std::string_view target) const;  // null: none
  Response metrics(std::string_view accept);
  Response health();
  Registry& registry() const noexcept;
  const GuardOptions& options() const noexcept;

 private:
  struct State;
  const Route* route_of(std::string_view method, std::string_view path) const noexcept;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::http
