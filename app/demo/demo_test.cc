#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "app/demo/phases.h"
#include "app/demo/report.h"
#include "app/demo/viewer.h"

namespace bulkhead::demo {
namespace {

using ::testing::HasSubstr;

// `served` of a hundred calls, each answered after `ms`.
Count count_of(std::uint64_t served, std::uint64_t ms) {
  Tally tally;
  for (std::uint64_t i = 0; i < 100; ++i) {
    tally.call();
    i < served ? tally.serve(ms * 1'000'000) : tally.reject(Reason::queue_limit);
  }
  return tally.read();
}

Results results_of(std::uint64_t served, std::uint64_t ms) {
  Results results{.story = story_of(24, 1), .without = {}, .with = {}};
  for (std::size_t i = 0; i < kRoutes; ++i) {
    results.without.counts[i] = {count_of(100, 40), count_of(20, 900), count_of(100, 40)};
    results.with.counts[i] = {count_of(100, 40), count_of(served, ms), count_of(100, 40)};
  }
  results.with.counts[2][1] = count_of(3, 3000);  // the slow one may suffer as it likes
  return results;
}

TEST(Phases, ASwitchIsFollowedByOneTableOfBeforeAndAfter) {
  using namespace std::chrono_literals;
  const TimePoint start{};
  Phases::Counts counts{};
  const auto happens = [&](std::uint64_t served, std::uint64_t ms) {
    for (Count& count : counts) count += count_of(served, ms);
  };
  const Phases::Setting calm{}, slow{.slow = true}, open{.slow = true, .bulkheads = false};
  Phases phases(story_of(24, 1), start, calm, counts);
  happens(100, 40);
  EXPECT_EQ(phases.look(start + 60s, calm, counts, {}), "") << "nothing was switched";
  EXPECT_EQ(phases.look(start + 60s, slow, counts, {}), "") << "too early to compare";
  happens(30, 900);
  const std::string table = phases.look(start + 70s, slow, counts, {});
  EXPECT_THAT(
      table,
      HasSubstr("Before: analytics quick, bulkheads on (60s). After: analytics slow, bulkheads on (10s)."));
  EXPECT_THAT(table, HasSubstr(" checkout       100 %   30.0 %        0 %   70.0 %      42 ms   865 ms\n"));
  EXPECT_EQ(phases.look(start + 90s, slow, counts, {}), "") << "once";

  // A phase that ends early has its table then. Calls count in the phase in which they ended.
  EXPECT_EQ(phases.look(start + 100s, open, counts, {}), "");
  happens(10, 40);
  EXPECT_THAT(phases.look(start + 104s, calm, counts, {}), HasSubstr("30.0 %   10.0 %"));
}

TEST(Report, ClaimsIsolationOnlyWhenTheNumbersShowIt) {
  EXPECT_TRUE(isolated(results_of(100, 41)));
  EXPECT_THAT(conclusion({}, results_of(100, 41)),
              HasSubstr("100 % of their calls served instead of 20.0 %"));
  EXPECT_FALSE(isolated(results_of(98, 41)));    // too many rejected
  EXPECT_FALSE(isolated(results_of(100, 400)));  // served, but late
  EXPECT_THAT(conclusion({}, results_of(98, 41)), HasSubstr("does not show isolation"));
}

TEST(Report, FitsItsWidth) {
  for (const std::size_t columns : {40u, 60u, 79u, 80u, 200u}) {
    std::istringstream lines(report_table({}, results_of(100, 41), columns));
    for (std::string line; std::getline(lines, line);) EXPECT_LE(cli::width(line), columns);
  }
}

Scene busy_scene(const Story& story) {
  Scene scene;
  scene.story = &story;
  for (std::size_t i = 0; i < kRoutes; ++i) {
    scene.now.routes[i] = {.total = {}, .in_flight = 100, .waiting = 200, .limit = 100};
    scene.recent[i] = count_of(50, 999);
  }
  scene.now.in_flight = scene.now.limit = 100;
  return scene;
}

TEST(Table, FitsItsWidthAndAlignsItsColumns) {
  const Story story = story_of(24, 1);
  for (const cli::Style style : {cli::Style{}, cli::Style{.colour = true, .utf8 = true}}) {
    for (std::size_t columns = 46; columns <= 200; ++columns) {
      std::istringstream lines(table_text(style, busy_scene(story), columns));
      std::string line;
      std::getline(lines, line);
      const std::size_t wide = cli::width(line);
      EXPECT_LE(wide, columns);
      while (std::getline(lines, line)) EXPECT_EQ(cli::width(line), wide) << columns << '\n' << line;
    }
  }
}

TEST(Remark, NamesThoseWhoStarve) {
  const Story story = story_of(24, 1);
  Scene scene = busy_scene(story);
  EXPECT_TRUE(remark(scene).bad);
  EXPECT_THAT(remark(scene).text, HasSubstr("Starving: checkout (50.0 % rejected), browse"));
  for (std::size_t i = 0; i < kRoutes; ++i)
    if (i != story.slow_route) scene.recent[i] = count_of(100, 40);
  EXPECT_FALSE(remark(scene).bad);
  EXPECT_THAT(remark(scene).text, HasSubstr("Only analytics is rejected"));
}

TEST(Story, TheTwoActsTakeTheTimeGiven) {
  for (const double seconds : {4.0, 24.0, 600.0}) {
    const Story story = story_of(seconds, 1);
    EXPECT_NEAR(std::chrono::duration<double>(2 * story.act()).count(), seconds, 1e-6);
    EXPECT_EQ(story.phase_at({}), Phase::calm);
    EXPECT_EQ(story.phase_at(story.calm), Phase::slow);
    EXPECT_EQ(story.phase_at(story.calm + story.slow), Phase::recovered);
  }
}

TEST(Story, SharesAddUpToTheWholeHoweverManyConnectionsThereAre) {
  for (std::uint32_t n = kFewestConnections; n <= kMostConnections; ++n) {
    const Story story = story_of(24, 1, n);
    std::uint32_t connections = 0, line = 0;
    for (const RouteSpec& route : story.routes) {
      EXPECT_GE(route.share, 1u);
      connections += route.share, line += story.line_of(route);
    }
    EXPECT_EQ(connections, n);
    EXPECT_EQ(story.connections, n);
    EXPECT_EQ(line, story.line);
  }
  EXPECT_EQ(story_of(24, 1, 96).routes[2].share, 14u) << "14.4";
}

TEST(Stores, TheReportThatIsSlowIsARealQueryAndCanBeStopped) {
  const auto store = open_store("");
  EXPECT_EQ(store->kind(), "sqlite") << store->about();
  const auto pool = store->pool("one", 1, {});
  std::unique_ptr<Held> held;
  pool->acquire([&](ConnectionPool::Answer answer) { held = *std::move(answer); });
  ASSERT_TRUE(held) << "the pool is warm";
  for (const Ask ask : {Ask::basket, Ask::shelf, Ask::revenue, Ask::latest}) {
    const auto said = held->ask(ask, 7, {});
    EXPECT_TRUE(said) << said.error().text;
  }
  EXPECT_TRUE(held->ask(Ask::pairs, 10, {}));
  std::stop_source stop;
  std::jthread stopper([&] { stop.request_stop(); });
  const auto said = held->ask(Ask::pairs, 8000, stop.get_token());
  ASSERT_FALSE(said) << "32 million comparisons";
  EXPECT_TRUE(said.error().stopped) << said.error().text;
  EXPECT_EQ(pool->snapshot().used, 1u);
  held.reset();
  EXPECT_EQ(pool->snapshot().idle, 1u);
}

TEST(Shop, AnAbandonedShopClosesAtOnce) {
  const auto store = open_store("");
  const auto started = std::chrono::steady_clock::now();
  {
    Shop shop(story_of(600, 1), *store, Bulkheads::on);
    while (shop.read().in_flight == 0) std::this_thread::yield();
  }
  EXPECT_LT(std::chrono::steady_clock::now() - started, std::chrono::seconds(60));
}

}  // namespace
}  // namespace bulkhead::demo
