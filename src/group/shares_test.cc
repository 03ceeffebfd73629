#include "group/shares.h"

#include <gtest/gtest.h>

#include <numeric>
#include <stdexcept>

namespace bulkhead::group {
namespace {

std::vector<std::uint32_t> guarantees(std::uint32_t total, const std::vector<double>& percents) {
  std::vector<Part> parts;
  for (const double p : percents) parts.push_back({"m", {.percent = p}, {.percent = 100}});
  std::vector<std::uint32_t> units;
  for (const Quota& q : quotas("g", total, parts)) units.push_back(q.guaranteed);
  return units;
}
using Units = std::vector<std::uint32_t>;

TEST(Shares, FiftyThirtyFifteenFiveLosesNoUnit) {
  EXPECT_EQ(guarantees(100, {50, 30, 15, 5}), (Units{50, 30, 15, 5}));
  EXPECT_EQ(guarantees(10, {50, 30, 15, 5}), (Units{5, 3, 2, 0}));
  EXPECT_EQ(guarantees(7, {50, 30, 15, 5}), (Units{4, 2, 1, 0}));
  for (std::uint32_t total = 1; total < 2000; ++total) {
    const Units units = guarantees(total, {50, 30, 15, 5});
    EXPECT_EQ(std::accumulate(units.begin(), units.end(), 0u), total);
    for (std::size_t i = 0; i < 4; ++i) {
      const double exact = std::vector<double>{.5, .3, .15, .05}[i] * total;
      EXPECT_LT(std::abs(units[i] - exact), 1.0) << total;
    }
  }
}

TEST(Shares, ThirdsAddUpToAll) {
  EXPECT_EQ(guarantees(100, {100.0 / 3, 100.0 / 3, 100.0 / 3}), (Units{34, 33, 33}));
  EXPECT_EQ(guarantees(10, {33.3, 33.3, 33.4}), (Units{3, 3, 4}));
}

TEST(Shares, LessThanAllIsRoundedDownTogether) {
  EXPECT_EQ(guarantees(10, {25, 25}), (Units{3, 2}));  // half of 10
  EXPECT_EQ(guarantees(9, {25, 25}), (Units{2, 2}));   // half of 9, rounded down
}

TEST(Shares, UnitsAndPerCentMayBeMixed) {
  const auto q =
      quotas("g", 20, {{"a", {.units = 7}, {.units = 9}}, {"b", {.percent = 50}, {.percent = 75}}});
  EXPECT_EQ(q[0].guaranteed, 7u);
  EXPECT_EQ(q[0].max, 9u);
  EXPECT_EQ(q[1].guaranteed, 10u);
  EXPECT_EQ(q[1].max, 15u);
}

TEST(Shares, AMaxIsRoundedUpAndNeverAboveTheTotal) {
  const auto q = quotas("g", 3, {{"a", {}, {.percent = 50}}, {"b", {}, {.units = 900}}});
  EXPECT_EQ(q[0].max, 2u);
  EXPECT_EQ(q[1].max, 3u);
}

TEST(Shares, RoundingDoesNotPutAMaxBelowItsGuarantee) {
  const auto q =
      quotas("g", 3, {{"a", {.percent = 50}, {.percent = 50}}, {"b", {.percent = 50}, {.percent = 50}}});
  EXPECT_EQ(q[0].guaranteed + q[1].guaranteed, 3u);
  EXPECT_GE(q[0].max, q[0].guaranteed);
}

std::string error(std::uint32_t total, const std::vector<Part>& parts) {
  try {
    quotas("db", total, parts);
  } catch (const std::invalid_argument& e) {
    return e.what();
  }
  return "";
}

TEST(Shares, ErrorsNameTheGroupTheMemberAndTheFix) {
  const Share all{.percent = 100};
  EXPECT_EQ(error(10, {{"a", {.units = 7}, all}, {"b", {.units = 4}, all}}),
            "group \"db\": the guarantees add up to 11 of total = 10: lower them, or raise the total");
  EXPECT_EQ(error(10, {{"a", {.percent = 7, .units = 4}, all}}),
            "group \"db\", member \"a\": guaranteed is given in per cent and in units: give one of them");
  EXPECT_EQ(error(10, {{"a", {.percent = 101}, all}}),
            "group \"db\", member \"a\": guaranteed is out of range: give 0 to 100 per cent");
  EXPECT_EQ(error(10, {{"a", {.units = 7}, {.units = 5}}}),
            "group \"db\", member \"a\": max = 5 units is below guaranteed = 7: give at least that");
  EXPECT_EQ(error(10, {{"a", {}, {}}}), "group \"db\", member \"a\": max is 0 units: give at least one");
}

Units shrunk(std::uint32_t total, const std::vector<Part>& parts) {
  Units units;
  for (const Quota& q : shrunk_quotas(total, parts)) units.push_back(q.guaranteed);
  return units;
}

TEST(Shares, GuaranteesThatFitAreNotShrunk) {
  const std::vector<Part> parts{{"a", {.units = 30}, {.percent = 100}},
                                {"b", {.percent = 25}, {.percent = 50}}};
  EXPECT_EQ(shrunk(100, parts), (Units{30, 25}));
  EXPECT_EQ(shrunk(40, parts), (Units{30, 10}));
}

TEST(Shares, GuaranteesAboveTheTotalShrinkInProportion) {
  const std::vector<Part> parts{{"a", {.units = 60}, {.percent = 100}},
                                {"b", {.units = 30}, {.percent = 100}},
                                {"c", {}, {.percent = 50}}};
  EXPECT_EQ(shrunk(30, parts), (Units{20, 10, 0}));
  EXPECT_EQ(shrunk(10, parts), (Units{7, 3, 0}));
  EXPECT_EQ(shrunk(1, parts), (Units{1, 0, 0}));
  for (std::uint32_t total = 1; total < 200; ++total) {
    const Units units = shrunk(total, parts);
    EXPECT_EQ(units[0] + units[1], std::min(total, 90u));
    if (total > 1) {
      EXPECT_GE(units[1], 1u);
    }
    EXPECT_EQ(units[2], 0u);
  }
}

TEST(Shares, EachGuaranteeKeepsAUnitWhileThereIsOneForEach) {
  const std::vector<Part> parts{{"a", {.percent = 90}, {.percent = 100}},
                                {"b", {.percent = 1}, {.percent = 100}},
                                {"c", {.units = 1}, {.percent = 100}}};
  EXPECT_EQ(shrunk(3, parts), (Units{1, 1, 1}));
  EXPECT_EQ(shrunk(10, parts), (Units{8, 1, 1}));
  EXPECT_EQ(shrunk(20, parts), (Units{18, 1, 1}));
}

TEST(Shares, AMaxInUnitsBoundsAGuaranteeThatFollowsTheTotal) {
  const std::vector<Part> parts{{"a", {.percent = 50}, {.units = 10}}, {"b", {}, {.percent = 1}}};
  EXPECT_EQ(shrunk(100, parts), (Units{10, 0}));
  EXPECT_EQ(shrunk_quotas(3, parts)[1].max, 1u);
}

}  // namespace
}  // namespace bulkhead::group
