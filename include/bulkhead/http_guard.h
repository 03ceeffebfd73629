// http_guard.h - the bulkheads of an HTTP server, without the server: which one a request needs, how
// long it may wait, what it is told if it is refused. The middlewares for Boost.Beast and cpp-httplib
// are this and their server's own ways.
//
//   http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports", .max_timeout = 2s},
//                                           {.path = "/", .bulkhead = "shop"}}});
//   auto visit = guard.arrive({.method = "GET", .target = "/reports/7", .peer = ip, .header = get}, now);
//   if (visit.answer) return send(*visit.answer);                    // /metrics, /health/bulkheads
//   auto call = visit.acquire();                                     // blocks; or visit.bulkhead->async_acquire
//   if (!call) return send(guard.refuse(visit, call.error(), now));  // after guard.hold(now)
//   ...
//   call->finish(http::verdict(status));                             // when the response is out, or the client gone
//
// Routes are prefixes at a '/': "/reports" is "/reports", "/reports/7" and "/reports?x", not
// "/reportsx"; the longest match counts, one with a method before one without. Paths are decoded and
// cleaned of "." and ".." first. A route names a bulkhead of the registry, looked up for each request, so
// that one that was removed refuses (Reason::shutdown) and one that was made anew counts. A route with
// `tenants` gives each tenant its own.
//
// A refusal storm must not become the outage: clients that come back at once after each 503 can keep a
// server so busy refusing that its healthy routes starve. hold() says how long to keep a refusal:
// nothing while refusals are few, then so that no more than `per_second` leave, a few at a time. As each of those
// clients asks again only when it has been refused, that is also how often they ask.
//
// Threads: every member of Guard may be called from any thread; a Visit belongs to one request. The
// registry outlives the guard.
// Cost: arrive() hashes a name and allocates nothing; a refusal makes its response.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/http.h"
#include "bulkhead/http_hints.h"
#include "bulkhead/registry.h"

namespace bulkhead::http {

struct Route {
  std::string path = "/";
  std::string method{};    // empty: any
  std::string bulkhead{};  // of the registry; empty, and no tenants: the route is not protected
  std::string tenants{};   // a set of the registry: a request with a tenant gets that one's
  Priority priority = Priority::normal;
  std::uint32_t cost = 1;
  std::chrono::nanoseconds max_timeout = wait_forever;  // in line and running together
  ResponseOptions responses{};
  // The last good response to each GET is kept this long, and sent instead of a refusal; before
  // responses.fallback. Never those to requests with credentials, or that set cookies, or say private or
  // no-store.
  std::chrono::nanoseconds cache_for{};
};

// More than per_second times max_hold clients at once are refused faster than that: give either
// more.
struct StormOptions {
  std::uint32_t per_second = 1000;  // refusals that leave at most, once `burst` is used up; 0: none is held
  std::uint32_t burst = 100;
  std::uint32_t batch = 4;  // of those that are held, so many leave together
  std::chrono::nanoseconds max_hold = std::chrono::seconds(1);
};

struct GuardOptions {
  std::vector<Route> routes{};
  std::vector<std::string> trusted_peers{};  // see TrustedPeers: whose tenants and priorities are believed
  std::string priority_header = "Priority";
  std::string tenant_header = "X-Tenant-Id";
  bool absolute_deadline = false;                 // see http_hints.h
  std::string metrics_path = "/metrics";          // empty: not here
  std::string health_path = "/health/bulkheads";  // empty: not here
  bool pages_for_trusted_only = false;            // these two
  StormOptions storm{};
  std::size_t cache_entries = 256, cache_entry_bytes = std::size_t{64} * 1024;  // for Route::cache_for
  std::uint64_t seed = 0;  // of the jitter; 0: another one for each guard
};

struct Request {
  std::string_view method, target, peer;
  HeaderLookup header;
  std::int64_t unix_now = 0;  // ms, for GuardOptions::absolute_deadline
};

// One request on its way.
struct Visit {
  const Route* route = nullptr;          // null: none matches
  std::shared_ptr<Bulkhead> bulkhead{};  // null: it is not protected, or answered
  std::optional<Response> answer{};      // it needs no handler: a page of the guard, or a refusal
  bool refused = false;                  // `answer` is a refusal: hold it
  AcquireOptions options{};              // for the bulkhead
  TimePoint deadline = no_deadline;      // for the handler; pass_on() tells the next service
  bool trusted = false, tenants_own = false;
  std::string cache_key{};  // empty: its response is not kept

  Result<Call> acquire() const { return bulkhead->acquire(options); }
};

// What a status says about the dependency.
constexpr CallVerdict verdict(int status) noexcept {
  return succeeded(status) ? CallVerdict::success : CallVerdict::failure;
}

class Guard {
 public:
  // std::invalid_argument if a route, a network or a name is wrong.
  Guard(Registry& registry, GuardOptions options);
  ~Guard();
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  Visit arrive(const Request& request, TimePoint now);
  Response refuse(const Visit& visit, const Rejection& why, TimePoint now);
  // How long the next refusal should be held before it is sent. Counts it.
  std::chrono::nanoseconds hold(TimePoint now) noexcept;
  // A response is on its way: keeps it if the route wants that. `cache_control` and `set_cookie` are its
  // headers.
  void answered(const Visit& visit, int status, std::string_view content_type, std::string_view body,
                std::string_view cache_control, bool set_cookie, TimePoint now);

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
