#include "app/demo/story.h"

namespace bulkhead::demo {
namespace {

nanoseconds scaled(nanoseconds d, double by) noexcept {
  return nanoseconds(static_cast<std::int64_t>(static_cast<double>(d.count()) * by));
}

}  // namespace

std::string_view to_string(Phase phase) noexcept {
  constexpr std::array<std::string_view, kPhases> names{"calm", "slow", "recovered"};
  return names[static_cast<std::size_t>(phase)];
}

Phase Story::phase_at(nanoseconds since_opening) const noexcept {
  if (since_opening < calm) return Phase::calm;
  return since_opening < calm + slow ? Phase::slow : Phase::recovered;
}

nanoseconds Story::slow_service() const noexcept { return scaled(slow_spec().service, slowdown); }

Story story_of(double seconds, std::uint64_t seed) noexcept {
  const nanoseconds act = scaled(std::chrono::seconds(1), seconds / 2);
  Story story;
  story.calm = scaled(act, 0.25);
  story.slow = scaled(act, 0.60);
  story.recovered = act - story.calm - story.slow;
  story.seed = seed;
  return story;
}

}  // namespace bulkhead::demo
