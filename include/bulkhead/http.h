// http.h - maps rejections, failures and timeouts to HTTP responses, the same way for every server.
//
//   bulkhead::Result<bulkhead::Call> call = shop.acquire({.timeout = 50ms});
//   if (!call) send(bulkhead::http::rejection(call.error(), {.retry = 2s}, {.random = random_bits()}));
//   // 503, Retry-After: 3, X-Bulkhead-Reason: queue_limit, Content-Type: application/problem+json, and a JSON body
//
// 429 means that this client has used up its own share, 503 that the server lacks capacity. So a rejection by a tenant's own
// bulkhead is 429, a rejection by a shared bulkhead is 503, and a rate limit is a quota, 429. StatusFor changes this, for
// example to keep rejections out of 5xx alerts.
//
// No clock, no randomness of its own, no dependency on a server. Threads: plain values and functions.
// Cost: a few small allocations per response.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/result.h"

namespace bulkhead::http {

struct Header {
  std::string name, value;
  friend bool operator==(const Header&, const Header&) = default;
};

struct Response {
  int status = 200;
  std::vector<Header> headers{};
  std::string body{};
  bool close = false;  // close the connection after it; Connection: close is among the headers

  std::string_view header(std::string_view name) const noexcept;  // case-sensitive; empty: none
};

// The status for each reason. `deadline` is for a request whose deadline has passed, `deadline_unreachable` for one
// whose deadline would pass before its turn; `execution_timeout` and `failure` are for calls that ran.
struct StatusFor {
  std::uint16_t concurrency_limit = 503, queue_limit = 503, timeout = 503, cancelled = 503, shutdown = 503,
                evicted = 503, draining = 503, holdback = 503;
  std::uint16_t deadline = 504, deadline_unreachable = 503;
  std::uint16_t breaker_open = 503;
  std::uint16_t rate_limit = 429, tenant_limit = 429;
  std::uint16_t execution_timeout = 504, failure = 500;
  // A budget has too few units now; the request asks for more than one call may have.
  std::uint16_t budget_limit = 503, per_call_max = 413;
};

// Who may see the names of bulkheads, which reveal how the service is built.
enum class ExposeNames : std::uint8_t { trusted, always, never };  // trusted: only trusted peers

// A static page to send instead of a rejection.
struct Fallback {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::string body{};
};

struct ResponseOptions {
  StatusFor status_for{};
  ExposeNames expose_names = ExposeNames::trusted;
  // Retry-After, in whole seconds: Rejection::retry_after if it is known, else `retry` times 1, 2 or 4 by priority and at
  // most max_retry; plus a random part of up to half of it, so that clients rejected together do not retry together.
  std::chrono::seconds retry{1}, max_retry{30};
  bool rate_limit_headers =
      false;  // RateLimit-Policy and RateLimit of the IETF draft, if the name may be shown
  bool envoy_overloaded = false;  // x-envoy-overloaded, so that Envoy does not retry
  std::optional<Fallback> fallback{};
};

// The request that was rejected.
struct RejectedRequest {
  Priority priority = Priority::normal;
  bool trusted = false;         // the peer is trusted
  bool tenants_own = false;     // the bulkhead belongs to the client's tenant, see above
  std::uint32_t random = 0;     // 32 random bits, for the jitter
  std::string_view instance{};  // `instance` of the problem document: a trace id, a path; empty: none
};

Response rejection(const Rejection& why, const ResponseOptions& options = {},
                   const RejectedRequest& how = {});

// For calls that ran: `timed_out` 504, else 500. The response does not say what went wrong; log that.
Response failure(bool timed_out, const ResponseOptions& options = {}, std::string_view instance = {});

std::uint16_t status_of(const Rejection& why, const StatusFor& status_for, bool tenants_own = false) noexcept;
std::chrono::seconds retry_after(const Rejection& why, const ResponseOptions& options, Priority priority,
                                 std::uint32_t random) noexcept;  // 0: none is sent

// Whether a status counts as a success of the dependency.
constexpr bool succeeded(int status) noexcept { return status < 500; }

}  // namespace bulkhead::http
