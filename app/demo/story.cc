#include "app/demo/story.h"

#include <algorithm>

namespace bulkhead::demo {
namespace {

nanoseconds scaled(nanoseconds d, double by) noexcept {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(d.count()) * by));
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
  constexpr std::array<std::string_view, kPhases> kNames{"calm", "slow", "recovered"};
  return kNames[static_cast<std::size_t>(phase)];
}

Phase Story::phase_at(nanoseconds since_opening) const noexcept {
  if (since_opening < calm) return Phase::calm;
  return since_opening < calm + slow ? Phase::slow : Phase::recovered;
}

Story story_of(double seconds, std::uint64_t seed, std::uint32_t connections) noexcept {
  const nanoseconds act = scaled(std::chrono::seconds(1), seconds / 2);
  Story story;
  story.calm = scaled(act, 0.25);
  story.slow = scaled(act, 0.60);
  story.recovered = act - story.calm - story.slow;
  story.seed = seed;

  // The shares are per cents of the connections; what rounding leaves over goes to those that lost most by it.
  std::array<std::uint32_t, kRoutes> rest{};
  std::uint32_t left = connections;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    RouteSpec& route = story.routes[i];
    rest[i] = route.share * connections % kMostConnections;
    route.share = route.share * connections / kMostConnections;
    route.per_second *= static_cast<double>(connections) / kMostConnections;
    left -= route.share;
  }
  for (; left > 0; --left) {
    const auto most = static_cast<std::size_t>(std::ranges::max_element(rest) - rest.begin());
    rest[most] = 0;
    ++story.routes[most].share;
  }
  story.line = 2 * connections;
  story.connections = connections;
  return story;
}

}  // namespace bulkhead::demo
