#include <algorithm>
#include <array>
#include <string>
#include <utility>

#include "base/text.h"
#include "bulkhead/http.h"

namespace bulkhead::http {
namespace {

constexpr std::string_view kReducedCapacity =
    "https://iana.org/assignments/http-problem-types#temporary-reduced-capacity";
constexpr std::string_view kQuotaExceeded = "https://iana.org/assignments/http-problem-types#quota-exceeded";

std::string_view title_of(int status) noexcept {
  switch (status) {
    case 429:
      return "Too Many Requests";
    case 500:
      return "Internal Server Error";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return status < 500 ? "Rejected" : "Server Error";
  }
}

std::string_view type_of(int status) noexcept {
  if (status == 429) return kQuotaExceeded;
  return status == 503 ? kReducedCapacity : "about:blank";
}

struct ProblemDocument {
  int status;
  std::string_view detail, reason, bulkhead, instance;
  std::chrono::seconds retry{};
};

// RFC 9457, without empty members.
std::string to_json(const ProblemDocument& p) {
  std::string out = "{\"type\":";
  base::append_json(out, type_of(p.status));
  const auto text = [&](std::string_view key, std::string_view value) {
    if (value.empty()) return;
    out += ",\"";
    out += key;
    out += "\":";
    base::append_json(out, value);
  };
  text("title", title_of(p.status));
  out += ",\"status\":" + std::to_string(p.status);
  text("detail", p.detail);
  text("reason", p.reason);
  text("bulkhead", p.bulkhead);
  text("instance", p.instance);
  if (p.retry.count() > 0) out += ",\"retry_after\":" + std::to_string(p.retry.count());
  out += "}\n";
  return out;
}

// A name as a string of structured fields: only what may stand there.
std::string quoted(std::string_view name) {
  std::string out = "\"";
  for (const char c : name) {
    if (c < 0x20 || c > 0x7e) continue;
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out += '"';
}

Response problem(const ProblemDocument& what) {
  Response r{.status = what.status};
  r.headers = {{"Content-Type", "application/problem+json"}, {"Cache-Control", "no-store"}};
  r.body = to_json(what);
  return r;
}

// The client should try another instance.
constexpr bool leaves(Reason reason) { return reason == Reason::shutdown || reason == Reason::draining; }

// For clients: no names and no numbers, which would reveal how the service is built.
std::string_view sentence_of(Reason reason) noexcept {
  constexpr std::array<std::string_view, kReasons> kSentences{
      "Too many requests at once.",
      "Too many requests at once, and the queue is full.",
      "The request waited too long in the queue.",
      "The request was cancelled.",
      "The service is shutting down.",
      "The queue is full, and a more important request took the place of this one.",
      "The request's deadline cannot be met.",
      "A dependency fails too often and is not called for a while.",
      "Too many requests per second.",
      "Too many clients at once.",
      "The service accepts no new requests at the moment.",
      "The request needs more of a limited resource than there is.",
      "The service is nearly full, and more important requests are served first.",
      "The request took too long.",
      "An operator rehearses a failure."};
  static_assert(!kSentences.back().empty());
  const auto i = static_cast<std::size_t>(reason);
  return i < kSentences.size() ? kSentences[i] : "Rejected.";
}

}  // namespace

std::string_view Response::header(std::string_view name) const noexcept {
  for (const Header& h : headers)
    if (h.name == name) return h.value;
  return {};
}

std::uint16_t status_of(const Rejection& why, const StatusFor& s, bool tenants_own) noexcept {
  switch (why.reason) {
    case Reason::concurrency_limit:
      return tenants_own ? s.tenant_limit : s.concurrency_limit;
    case Reason::queue_limit:
      return tenants_own ? s.tenant_limit : s.queue_limit;
    case Reason::timeout:
      return tenants_own ? s.tenant_limit : s.timeout;
    case Reason::evicted:
      return tenants_own ? s.tenant_limit : s.evicted;
    case Reason::cancelled:
      return s.cancelled;
    case Reason::shutdown:
      return s.shutdown;
    case Reason::deadline:
      return why.deadline_passed ? s.deadline : s.deadline_unreachable;
    case Reason::breaker_open:
      return s.breaker_open;
    case Reason::rate_limit:
      return s.rate_limit;
    case Reason::tenant_limit:
      return s.tenant_limit;
    case Reason::draining:
      return s.draining;
    case Reason::budget_limit:
      if (why.asked > why.per_call_max && why.max_concurrent > 0) return s.per_call_max;
      return tenants_own ? s.tenant_limit : s.budget_limit;
    case Reason::holdback:
      return tenants_own ? s.tenant_limit : s.holdback;
    case Reason::execution_timeout:
      return s.execution_timeout;
    case Reason::injected_fault:
      break;  // as a call that failed
  }
  return s.failure;
}

std::chrono::seconds retry_after(const Rejection& why, const ResponseOptions& options, Priority priority,
                                 std::uint32_t random) noexcept {
  using std::chrono::seconds;
  // The client does not wait for the response, a retry would be too late as well, or the call has failed.
  if (why.reason == Reason::cancelled || why.reason == Reason::execution_timeout ||
      why.reason == Reason::injected_fault)
    return seconds(0);
  if (why.reason == Reason::deadline && why.deadline_passed) return seconds(0);
  if (why.reason == Reason::budget_limit && why.asked > why.per_call_max) return seconds(0);  // it never fits
  if (leaves(why.reason)) return seconds(1);  // another instance can serve it already
  const bool known = why.retry_after.count() > 0;
  const std::int64_t tier = std::int64_t{1} << std::min(static_cast<unsigned>(priority), 2U);
  const std::int64_t base = known ? std::chrono::ceil<seconds>(why.retry_after).count()
                                  : std::max<std::int64_t>(options.retry.count(), 1) * tier;
  // 0 to base/2 more, in whole seconds; 1 at least, so that even the shortest times are spread over two seconds.
  const std::int64_t spread = std::max<std::int64_t>(base / 2, 1) + 1;
  const std::int64_t jittered = base + static_cast<std::int64_t>(random % static_cast<std::uint64_t>(spread));
  return seconds(
      known ? jittered
            : std::min<std::int64_t>(jittered, std::max<std::int64_t>(options.max_retry.count(), 1)));
}

Response rejection(const Rejection& why, const ResponseOptions& options, const RejectedRequest& how) {
  const int status = status_of(why, options.status_for, how.tenants_own);
  const std::chrono::seconds retry = retry_after(why, options, how.priority, how.random);
  const bool named = options.expose_names == ExposeNames::always ||
                     (options.expose_names == ExposeNames::trusted && how.trusted);
  // A fallback page would keep the client on an instance that does not serve it.
  const bool fallback = options.fallback && !leaves(why.reason) && why.reason != Reason::cancelled;

  Response r;
  if (fallback) {
    r.status = options.fallback->status;
    r.headers = {{"Content-Type", options.fallback->content_type},
                 {"Cache-Control", "no-store"},
                 {"X-Bulkhead-Fallback", "static"}};
    r.body = options.fallback->body;
  } else {
    const std::string message = named ? why.message() : std::string();
    r = problem({.status = status,
                 .detail = named ? std::string_view(message) : sentence_of(why.reason),
                 .reason = to_string(why.reason),
                 .bulkhead = named ? why.name.view() : std::string_view(),
                 .instance = how.instance,
                 .retry = retry});
    if (retry.count() > 0) r.headers.push_back({"Retry-After", std::to_string(retry.count())});
    if (options.envoy_overloaded) r.headers.push_back({"x-envoy-overloaded", "true"});
  }
  r.headers.push_back({"X-Bulkhead-Reason", std::string(to_string(why.reason))});
  if (options.rate_limit_headers && named) {
    const std::string name = quoted(why.name);
    const std::uint32_t left = why.max_concurrent - std::min(why.in_flight, why.max_concurrent);
    r.headers.push_back({"RateLimit-Policy", base::join({name, ";q=", std::to_string(why.max_concurrent),
                                                         ";qu=\"concurrent-requests\""})});
    r.headers.push_back({"RateLimit", base::join({name, ";r=", std::to_string(left)})});
  }
  if (leaves(why.reason)) {
    r.close = true;
    r.headers.push_back({"Connection", "close"});
  }
  return r;
}

Response failure(bool timed_out, const ResponseOptions& options, std::string_view instance) {
  Response r =
      problem({.status = timed_out ? options.status_for.execution_timeout : options.status_for.failure,
               .detail = timed_out ? "The request took too long." : "The request failed.",
               .reason = timed_out ? "execution_timeout" : "failure",
               .bulkhead = {},
               .instance = instance});
  r.headers.push_back({"X-Bulkhead-Reason", timed_out ? "execution_timeout" : "failure"});
  return r;
}

}  // namespace bulkhead::http
