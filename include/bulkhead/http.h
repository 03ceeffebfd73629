// http.h - what an HTTP client is told when a call was refused, failed or took too long: one mapping for
// every server.
//
//   bulkhead::Result<bulkhead::Call> call = shop.acquire({.timeout = 50ms});
//   if (!call) send(bulkhead::http::refusal(call.error(), route, {.random = random()}));
//   // 503, Retry-After: 3, X-Bulkhead-Reason: queue_limit, Content-Type: application/problem+json,
//   {"type": ...}
//
// The line between 503 and 429: 429 says that this client has used up its own share, 503 that the server
// lacks capacity and the client did nothing wrong. So what a tenant's own bulkhead refuses is 429, what
// one that all share refuses is 503, and a rate limit is a quota, 429. Those who want their 5xx alerts
// clean change it: StatusFor.
//
// Pure: no clock, no randomness of its own, nothing of a server. Threads: plain values and functions.
// Cost: a handful of small allocations per response.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/rejection.h"

namespace bulkhead::http {

struct Header {
  std::string name, value;
  friend bool operator==(const Header&, const Header&) = default;
};

struct Response {
  int status = 200;
  std::vector<Header> headers{};
  std::string body{};
  bool close = false;  // the connection ends with it; Connection: close is among the headers

  std::string_view header(std::string_view name) const noexcept;  // of this exact spelling; empty: none
};

// The status for each reason. `deadline` is for a request that is late already, `deadline_unreachable`
// for one that would be when its turn came; `execution_timeout` and `failure` for calls that ran.
struct StatusFor {
  std::uint16_t concurrency_limit = 503, queue_limit = 503, timeout = 503, cancelled = 503, shutdown = 503,
                evicted = 503;
  std::uint16_t deadline = 504, deadline_unreachable = 503;
  std::uint16_t breaker_open = 503;
  std::uint16_t rate_limit = 429, tenant_limit = 429;
  std::uint16_t execution_timeout = 504, failure = 500;
};

// Names of bulkheads tell strangers how the service is built.
enum class ExposeNames : std::uint8_t { trusted, always, never };  // trusted: to trusted peers

// Sent instead of a refusal: a page that is better than none.
struct Fallback {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
};

struct ResponseOptions {
  StatusFor status_for{};
  ExposeNames expose_names = ExposeNames::trusted;
  // Retry-After, in whole seconds: what the rejection knows, else `retry` times 1, 2 or 4 by priority;
  // with up to half as much again at random, so that those refused together do not come back together.
  // What is not known stays below max_retry.
  std::chrono::seconds retry{1}, max_retry{30};
  bool rate_limit_headers =
      false;                      // RateLimit-Policy and RateLimit of the IETF draft, if the name may be told
  bool envoy_overloaded = false;  // x-envoy-overloaded: neighbouring Envoys do not retry
  std::optional<Fallback> fallback{};
};

struct Refused {
  Priority priority = Priority::normal;
  bool trusted = false;         // the peer is
  bool tenants_own = false;     // the bulkhead is the client's own, see above
  bool late = false;            // its deadline has passed: tells the two meanings of Reason::deadline apart
  std::uint32_t random = 0;     // 32 random bits, for the jitter
  std::string_view instance{};  // what the problem's `instance` says: a trace id, a path; empty: none
};

Response refusal(const Rejection& why, const ResponseOptions& options = {}, const Refused& how = {});

// For calls that ran: `timed_out` 504, else 500. What went wrong is for the log, not for the client.
Response failure(bool timed_out, const ResponseOptions& options = {}, std::string_view instance = {});

std::uint16_t status_of(Reason reason, const StatusFor& status_for, bool tenants_own = false,
                        bool late = false) noexcept;
std::chrono::seconds retry_after(const Rejection& why, const ResponseOptions& options, Priority priority,
                                 std::uint32_t random) noexcept;  // 0: none is sent

// What counts as success of the dependency.
constexpr bool succeeded(int status) noexcept { return status < 500; }

}  // namespace bulkhead::http
