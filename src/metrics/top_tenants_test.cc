#include "metrics/top_tenants.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <string>

#include "bulkhead/metrics.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using metrics::TopTenants;

class TopTenantsTest : public testing::Test {
 protected:
  struct Count {
    std::uint64_t admitted, rejected;
    bool operator==(const Count&) const = default;
  };

  BulkheadSnapshot& tenant(const std::string& id) {
    for (auto& entry : entries)
      if (entry.tenant_id == id) return entry.now;
    auto& entry = entries.emplace_back();
    entry.tenants = "orders";
    entry.tenant_id = id;
    return entry.now;
  }
  void calls(const std::string& id, std::uint64_t admitted, std::uint64_t rejected = 0) {
    tenant(id).gate.admitted += admitted;
    tenant(id).gate.rejected_by_reason[0] += rejected;
  }
  void retire(const std::string& id) {
    retired.gate.admitted += tenant(id).gate.admitted;
    retired.gate.rejected_by_reason[0] += tenant(id).gate.rejected_by_reason[0];
    std::erase_if(entries, [&](const auto& e) { return e.tenant_id == id; });
  }
  std::map<std::string, Count> look(std::chrono::nanoseconds later = 15s) {
    now += later;
    TopTenants::View view{.live = {}, .retired = &retired};
    for (const auto& entry : entries) view.live.push_back(&entry);
    std::map<std::string, Count> out;
    for (const auto& line : top.update(view, now)) out[line.tenant] = {line.admitted, line.rejected};
    return out;
  }

  std::deque<RegistrySnapshot::Entry> entries;
  BulkheadSnapshot retired;
  TopTenants top{2, 10min};
  TimePoint now{1h};
};

TEST_F(TopTenantsTest, ThoseInFrontHaveTheirOwnTheRestIsOther) {
  for (const auto* id : {"a", "b", "c", "d"}) calls(id, 1);
  calls("c", 100);
  calls("d", 10, 50);
  EXPECT_EQ(look(), (std::map<std::string, Count>{{"c", {0, 0}}, {"d", {0, 0}}, {"other", {114, 50}}}));
  calls("a", 5);
  calls("c", 7, 1);
  EXPECT_EQ(look(), (std::map<std::string, Count>{{"c", {7, 1}}, {"d", {0, 0}}, {"other", {119, 50}}}));
}

TEST_F(TopTenantsTest, ATenantStaysForItsTimeAndThenMakesRoomWithoutAJump) {
  calls("a", 10);
  calls("b", 20);
  look();
  calls("a", 1);
  calls("noisy", 10'000, 10'000);
  auto page = look();
  EXPECT_EQ(page.count("noisy"), 0u) << "a and b have been there for a moment only";
  EXPECT_EQ(page.at("a"), (Count{1, 0}));
  EXPECT_EQ(page.at("other"), (Count{10'030, 10'000}));
  calls("noisy", 1000);
  page = look(10min);
  EXPECT_EQ(page.at("noisy"), (Count{0, 0}));
  EXPECT_EQ(page.at("other"), (Count{11'030, 10'000})) << "what a or b had counted does not come back to it";
  EXPECT_EQ(page.size(), 3u);
}

TEST_F(TopTenantsTest, WhatARetiredTenantCountedIsNotCountedTwice) {
  calls("a", 10);
  look();
  calls("a", 5);
  look();
  calls("a", 2);  // nobody looked before it went
  retire("a");
  const auto page = look();
  EXPECT_EQ(page.at("other"), (Count{12, 0}));
  EXPECT_EQ(page.size(), 1u);
}

TEST_F(TopTenantsTest, AResetDoesNotMakeACounterFall) {
  calls("a", 100);
  look();
  calls("a", 50);
  EXPECT_EQ(look().at("a"), (Count{50, 0}));
  tenant("a") = {};
  calls("a", 3);
  const auto page = look();
  EXPECT_EQ(page.at("a"), (Count{53, 0}));
  EXPECT_EQ(page.at("other"), (Count{100, 0}));
}

TEST_F(TopTenantsTest, OneThatIsCalledOtherIsAmongTheOthersAndSoIsTheOverflow) {
  calls("other", 9);
  calls("", 8);
  const auto page = look();
  EXPECT_EQ(page.size(), 1u);
  EXPECT_EQ(page.at("other"), (Count{17, 0}));
}

TEST_F(TopTenantsTest, OldGloryFades) {
  calls("old", 1000);
  calls("new", 1);
  TopTenants one{1, 1min};
  const auto shown = [&](std::chrono::nanoseconds later) {
    now += later;
    TopTenants::View view;
    for (const auto& entry : entries) view.live.push_back(&entry);
    return one.update(view, now).front().tenant;
  };
  EXPECT_EQ(shown(1s), "old");
  calls("new", 100);
  EXPECT_EQ(shown(2min), "old") << "1000 two half-lives ago are more than 100";
  calls("new", 100);
  EXPECT_EQ(shown(2min), "new");
}

TEST(TenantMetrics, HostileTenantsMakeNoMoreSeries) {
  const auto series = [](Metrics& metrics, int tenants) {
    RegistrySnapshot all;
    all.tenants.emplace_back().name = "orders";
    for (int i = 0; i < tenants; ++i) {
      auto& entry = all.bulkheads.emplace_back();
      entry.tenants = "orders";
      entry.tenant_id = std::string(static_cast<std::size_t>(i % 7), '"') + std::to_string(i);
      entry.name = "orders/" + entry.tenant_id;
      entry.now.gate.admitted = 1;
    }
    std::string page;
    metrics.render(page, all, MetricsFormat::prometheus);
    EXPECT_NE(page.find("bulkhead_admitted_total{bulkhead=\"orders\"} " + std::to_string(tenants) + "\n"),
              std::string::npos)
        << "they count all the same";
    return std::ranges::count(page, '\n');
  };
  Metrics none, ten{{.top_tenants = 10}};
  EXPECT_EQ(series(none, 1000), series(none, 1));
  EXPECT_EQ(series(ten, 1000), series(ten, 10));
}

}  // namespace
}  // namespace bulkhead
