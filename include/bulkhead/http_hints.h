// http_hints.h - reads deadline, priority and tenant of a request from its headers.
//
//   const auto get = [&](std::string_view name) -> std::string_view { return request[name]; };
//   const auto hints = bulkhead::http::read_hints(get, {.max_timeout = 2s}, peers.trusts(ip));
//   const auto deadline = bulkhead::saturating_add(arrived, hints.timeout);   // a plain sum may overflow
//   if (auto left = bulkhead::http::pass_on(deadline, now())) upstream[bulkhead::http::kTimeoutHeader] = *left;
//
// Deadline: the first valid one of grpc-timeout, x-envoy-expected-rq-timeout-ms, X-Request-Timeout-Ms (relative) and
// X-Request-Deadline (Unix milliseconds; only with HintOptions::absolute_deadline, because clocks differ). Never later than
// max_timeout of the route. Priority: RFC 9218, u=0 and 1 critical, 2 to 4 normal, 5 to 7 best_effort. Every client may lower
// the priority of the route, only a trusted peer may raise it. Tenant: from trusted peers only.
//
// Pure functions; the caller looks headers up, case-insensitively. Threads: plain values and functions. Cost: nothing
// allocates.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "bulkhead/gate.h"

namespace bulkhead::http {

inline constexpr std::string_view kTimeoutHeader = "X-Request-Timeout-Ms";

// A reference to a callable get(name) that returns the value of a header, empty if absent. It is not stored.
class HeaderLookup {
 public:
  template <class F>
    requires std::is_invocable_r_v<std::string_view, const F&, std::string_view>
  HeaderLookup(const F& get) noexcept  // implicit, like a std::function
      : object_(std::addressof(get)), get_([](const void* object, std::string_view name) -> std::string_view {
          return (*static_cast<const F*>(object))(name);
        }) {}
  std::string_view operator()(std::string_view name) const { return get_(object_, name); }

 private:
  const void* object_;
  std::string_view (*get_)(const void*, std::string_view);
};

struct HintOptions {
  std::chrono::nanoseconds max_timeout = wait_forever;  // of the route; also for requests without a deadline
  bool absolute_deadline = false;                       // accept X-Request-Deadline
  Priority priority = Priority::normal;                 // of the route
  std::string_view priority_header = "Priority";        // empty: ignored
  std::string_view tenant_header = "X-Tenant-Id";
};

struct Hints {
  std::chrono::nanoseconds timeout = wait_forever;  // from the arrival of the request; 0: it arrived too late
  Priority priority = Priority::normal;
  std::string_view tenant{};  // empty: none, or the peer is not trusted
};

// unix_now: milliseconds since 1970, for X-Request-Deadline.
Hints read_hints(HeaderLookup get, const HintOptions& options, bool trusted, std::int64_t unix_now = 0);

// The parsers, for servers with other headers. nullopt: not valid.
std::optional<std::chrono::nanoseconds> parse_grpc_timeout(std::string_view value) noexcept;
std::optional<std::chrono::nanoseconds> parse_milliseconds(std::string_view value) noexcept;
Priority parse_priority(std::string_view value, Priority otherwise) noexcept;

// The value of the header for the next service: the milliseconds left, rounded down, at least 0. nullopt: no deadline.
std::optional<std::string> pass_on(std::chrono::nanoseconds left);
std::optional<std::string> pass_on(TimePoint deadline, TimePoint now);

// Trusted addresses and networks ("10.0.0.0/8", "::1", "fd00::/8"). IPv4 in IPv6 (::ffff:10.1.2.3) is IPv4.
class TrustedPeers {
 public:
  TrustedPeers() = default;  // none
  explicit TrustedPeers(
      const std::vector<std::string>& networks);  // std::invalid_argument naming the wrong one
  bool trusts(std::string_view address) const noexcept;

 private:
  struct Network {
    std::array<std::uint8_t, 16> bits;
    unsigned prefix;
  };
  std::vector<Network> networks_;
};

}  // namespace bulkhead::http
