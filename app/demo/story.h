// story.h - the shop and its script: how often each route is called, how long a call takes, when analytics turns slow.
// Everything about a run except what comes of it.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "app/demo/store.h"
#include "bulkhead/clock.h"

namespace bulkhead::demo {

using std::chrono::nanoseconds;

struct RouteSpec {
  std::string_view name;
  std::uint32_t share;  // connections of its own when there are bulkheads
  double per_second;    // arrivals, Poisson
  nanoseconds service;  // how long a call holds its connection: the median, lognormal
  Ask asks;             // what it asks the database, when it begins and when it ends
};

inline constexpr std::size_t kRoutes = 4;

enum class Phase : std::uint8_t { calm, slow, recovered };
inline constexpr std::size_t kPhases = 3;
std::string_view to_string(Phase phase) noexcept;

struct Story {
  std::array<RouteSpec, kRoutes> routes{{
      {"checkout", 50, 300, std::chrono::milliseconds(45), Ask::basket},
      {"browse", 30, 400, std::chrono::milliseconds(25), Ask::shelf},
      {"analytics", 15, 150, std::chrono::milliseconds(20), Ask::revenue},
      {"admin", 5, 20, std::chrono::milliseconds(40), Ask::latest},
  }};
  std::size_t slow_route = 2;
  double spread = 0.35;  // sigma of the lognormal service times

  std::string database{};  // which it is, for people
  std::string_view database_kind{};
  std::uint32_t connections = kMostConnections;
  std::uint32_t line = 200;  // places to wait, in all; bulkheads divide them like the connections
  nanoseconds max_wait = std::chrono::seconds(1);

  nanoseconds calm{}, slow{}, recovered{};  // the phases of one act
  std::uint64_t seed = 1;

  nanoseconds act() const noexcept { return calm + slow + recovered; }
  Phase phase_at(nanoseconds since_opening) const noexcept;
  const RouteSpec& slow_spec() const noexcept { return routes[slow_route]; }
  std::uint32_t line_of(const RouteSpec& route) const noexcept { return line * route.share / connections; }
};

// Both acts together take `seconds`. With fewer connections there are fewer calls, and the shares are smaller.
Story story_of(double seconds, std::uint64_t seed, std::uint32_t connections = kMostConnections) noexcept;

}  // namespace bulkhead::demo
