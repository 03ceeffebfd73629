// http_hints.h - what a request says about itself: how long its sender waits, how important it is, whose
// it is.
//
//   const auto get = [&](std::string_view name) -> std::string_view { return request[name]; };
//   const Hints hints = bulkhead::http::read_hints(get, {.max_timeout = 2s}, peers.trusts(address));
//   call.deadline = arrived + hints.timeout;
//   upstream.set(bulkhead::http::timeout_header, bulkhead::http::pass_on(call.deadline - now));
//
// Deadline, the first of these that is there and makes sense: grpc-timeout,
// x-envoy-expected-rq-timeout-ms, X-Request-Timeout-Ms (ours, relative), X-Request-Deadline (Unix
// milliseconds; only if asked for, because clocks differ). Never longer than the route's own.
// Priority: RFC 9218, u=0 and 1 critical, 2 to 4 normal, 5 to 7 best_effort. Anybody may lower the
// route's, only a trusted peer may raise it. Tenant: from trusted peers only.
//
// Pure; headers are looked up by the caller, without regard to case. Threads: plain values and
// functions. Cost: nothing allocates.
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

inline constexpr std::string_view timeout_header = "X-Request-Timeout-Ms";

// A reference to something called as get(name) that gives the header's value, empty if there is none.
// Not kept.
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
  std::chrono::nanoseconds max_timeout = wait_forever;  // of the route; also for requests that do not say
  bool absolute_deadline = false;                       // believe X-Request-Deadline
  Priority priority = Priority::normal;                 // of the route
  std::string_view priority_header = "Priority";        // empty: nobody is asked
  std::string_view tenant_header = "X-Tenant-Id";
};

struct Hints {
  std::chrono::nanoseconds timeout = wait_forever;  // from the arrival of the request on; 0: it came too late
  Priority priority = Priority::normal;
  std::string_view tenant{};  // empty: none, or not to be believed
};

// unix_now: milliseconds since 1970, for X-Request-Deadline.
Hints read_hints(HeaderLookup get, const HintOptions& options, bool trusted, std::int64_t unix_now = 0);

// The parts, for those with headers of their own. nullopt: not what it should be.
std::optional<std::chrono::nanoseconds> parse_grpc_timeout(std::string_view value) noexcept;
std::optional<std::chrono::nanoseconds> parse_milliseconds(std::string_view value) noexcept;
Priority parse_priority(std::string_view value, Priority otherwise) noexcept;

// What to tell the next service: the milliseconds that are left, rounded down, at least 0. nullopt:
// forever.
std::optional<std::string> pass_on(std::chrono::nanoseconds left);

// Who is believed: addresses and networks ("10.0.0.0/8", "::1", "fd00::/8"). IPv4 in IPv6
// (::ffff:10.1.2.3) is IPv4.
class TrustedPeers {
 public:
  TrustedPeers() = default;  // nobody
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
