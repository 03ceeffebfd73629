#include "app/demo/scene.h"

#include <fmt/format.h>

#include <cmath>

namespace bulkhead::demo {
namespace {

using Seconds = std::chrono::duration<double>;

}  // namespace

std::uint64_t Scene::per_second(std::uint64_t n) const noexcept {
  return static_cast<std::uint64_t>(std::llround(static_cast<double>(n) / seconds));
}

Scene Watcher::look() {
  readings_.push_back(shop_.read());
  while (readings_.size() > 2 && readings_.back().elapsed - readings_[1].elapsed >= std::chrono::seconds(1))
    readings_.pop_front();
  const Reading& now = readings_.back();
  const Reading& before = readings_.front();

  Scene scene;
  scene.story = &story_;
  scene.bulkheads = bulkheads_;
  scene.now = now;
  scene.seconds = std::max(Seconds(now.elapsed - before.elapsed).count(), 0.1);
  for (std::size_t i = 0; i < kRoutes; ++i) {
    scene.recent[i] = now.routes[i].total;
    if (readings_.size() > 1) scene.recent[i] -= before.routes[i].total;
    if (now.phase != Phase::calm) scene.calm_p99[i] = shop_.result(i, Phase::calm).response.quantile(0.99);
  }
  const nanoseconds act = story_.act();
  scene.elapsed =
      (bulkheads_ == Bulkheads::on ? act : nanoseconds{}) + std::clamp(now.elapsed, nanoseconds{}, act);
  scene.total = 2 * act;
  return scene;
}

std::string headline(const Scene& scene) {
  const Story& story = *scene.story;
  const RouteSpec& slow = story.slow_spec();
  switch (scene.now.phase) {
    case Phase::calm:
      return "A calm day: every route is fast.";
    case Phase::slow:
      return fmt::format("{} has turned slow: its report compares orders with all others.", slow.name);
    case Phase::recovered:
      break;
  }
  return fmt::format("{} is fast again.", slow.name);
}

std::string setting(const Story& story, Bulkheads bulkheads) {
  if (bulkheads == Bulkheads::off)
    return fmt::format("all routes share the {} connections and one line of {}", story.connections,
                       story.line);
  std::string shares;
  for (const RouteSpec& route : story.routes)
    shares += fmt::format("{}{} {}", shares.empty() ? "" : ", ", route.name, route.share);
  return "connections and line divided: " + shares;
}

Remark remark(const Scene& scene) {
  const Story& story = *scene.story;
  std::string suffering;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    const double rejected = 1 - scene.recent[i].served_share();
    if (i != story.slow_route && rejected > 0.05)
      suffering += fmt::format("{}{} ({} rejected)", suffering.empty() ? "" : ", ", story.routes[i].name,
                               cli::percent(rejected));
  }
  const auto& slow = scene.now.routes[story.slow_route];
  const std::string_view name = story.slow_spec().name;
  if (!suffering.empty())
    return {fmt::format("{} holds {} of {} connections. Starving: {}", name, slow.in_flight, scene.now.limit,
                        suffering),
            true};
  const double rejected = 1 - scene.recent[story.slow_route].served_share();
  if (rejected > 0.05)
    return {fmt::format("Only {} is rejected ({}); the other routes are not affected.", name,
                        cli::percent(rejected)),
            false};
  if (slow.in_flight >= slow.limit / 2)
    return {fmt::format("{} holds {} of {} connections.", name, slow.in_flight, scene.now.limit), false};
  return {"All routes are served.", false};
}

}  // namespace bulkhead::demo
