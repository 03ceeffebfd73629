#include "bulkhead/config_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bulkhead/http_guard.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

TEST(ConfigMetrics, AGuardsPageHasTheStateOfTheFileAndTheOverrides) {
  Registry registry;
  bool good = true;
  const auto read = [&good] {
    ConfigText file;
    file.config.bulkheads.push_back({.options = {.name = "shop", .max_concurrent = 4}});
    if (!good) file.problems.push_back({.path = "bulkheads.shop", .message = "wrong"});
    return file;
  };
  LiveConfig live(registry, {.file = "shop.yaml", .read = read});
  ASSERT_TRUE(live.reload("start").ok());
  ASSERT_TRUE(
      live.set({.path = "bulkheads.shop.max_concurrent", .value = "3", .reason = "sale", .actor = "ann"})
          .empty());
  http::Guard guard(registry, {.metrics_extras = [&live] { return config_metrics(live); }});
  const std::string page = guard.metrics("").body;
  EXPECT_THAT(page, HasSubstr("bulkhead_config_last_reload_successful 1"));
  EXPECT_THAT(page, HasSubstr("source=\"shop.yaml\""));
  EXPECT_THAT(page, HasSubstr("bulkhead_config_overrides 1"));
  EXPECT_THAT(
      page,
      HasSubstr("bulkhead_override_expiry_timestamp_seconds{bulkhead=\"shop\",field=\"max_concurrent\"}"));
  EXPECT_THAT(page, HasSubstr("process_"));
  good = false;
  EXPECT_FALSE(live.reload("again").ok());
  EXPECT_THAT(guard.metrics("").body, HasSubstr("bulkhead_config_last_reload_successful 0"));
}

TEST(ConfigMetrics, TimesOfTheClockBecomeTimesOfTheWall) {
  ManualClock clock;
  Registry registry;
  LiveConfig live(registry, {.file = "x", .read = [] { return ConfigText{}; }, .clock = &clock});
  EXPECT_EQ(config_metrics(live).config->last_success, std::chrono::system_clock::time_point{});
  ASSERT_TRUE(live.reload("start").ok());
  clock.advance(1h);
  const auto ago = std::chrono::system_clock::now() - config_metrics(live).config->last_success;
  EXPECT_NEAR(std::chrono::duration<double>(ago).count(), 3600, 60);
}

}  // namespace
}  // namespace bulkhead
