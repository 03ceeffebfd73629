#include "shared/share.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <vector>

namespace bulkhead::shared {
namespace {

LimitState table(std::uint32_t limit, const std::vector<MemberState>& members) {
  LimitState s{.known = true, .limit = limit};
  for (std::size_t i = 0; i < members.size(); ++i) s.members["m" + std::to_string(i)] = members[i];
  return s;
}

std::vector<std::uint32_t> shares(const LimitState& s, std::int64_t slot = 0) {
  std::vector<std::uint32_t> all;
  for (std::size_t i = 0; i < s.members.size(); ++i)
    all.push_back(share_of(s.members.at("m" + std::to_string(i)), s, slot));
  return all;
}

using Shares = std::vector<std::uint32_t>;

TEST(Share, NeedsThatFitAreMetAndTheRestStaysForBursts) {
  EXPECT_EQ(shares(table(20, {{.need = 5, .slack = 2}, {.need = 3, .slack = 1}})), (Shares{7, 4}));
}

TEST(Share, SlackIsCutInProportion) {
  EXPECT_EQ(shares(table(11, {{.need = 5, .slack = 4}, {.need = 3, .slack = 2}})), (Shares{7, 4}));
}

TEST(Share, NeedsThatDoNotFitAreLeveled) {
  EXPECT_EQ(shares(table(10, {{.need = 2}, {.need = 9}, {.need = 9}})), (Shares{2, 4, 4}));
}

TEST(Share, WeightsCount) {
  EXPECT_EQ(shares(table(12, {{.need = 20, .weight = 1}, {.need = 20, .weight = 3}})), (Shares{3, 9}));
}

// The ties of members are random numbers. However these lie, the units go around: each member gets the same share of the time slots,
// and none waits longer than one round.
RC_GTEST_PROP(Share, UnitsThatCannotBeDividedGoAroundEvenly, ()) {
  const auto n = *rc::gen::inRange<std::uint32_t>(2, 20);
  const auto limit = *rc::gen::inRange<std::uint32_t>(1, n);
  std::mt19937 random(*rc::gen::arbitrary<std::uint32_t>());
  std::vector<MemberState> members;
  for (std::uint32_t i = 0; i < n; ++i)
    members.push_back({.need = 3, .tie = static_cast<std::uint32_t>(random())});
  const LimitState s = table(limit, members);
  const auto first = *rc::gen::inRange<std::int64_t>(0, 400'000'000);
  std::vector<std::uint32_t> turns(n), waits(n);
  for (std::int64_t slot = first; slot < first + n; ++slot) {
    const Shares now = shares(s, slot);
    for (std::size_t i = 0; i < n; ++i) {
      turns[i] += now[i];
      waits[i] = now[i] > 0 ? 0 : waits[i] + 1;
      RC_ASSERT(waits[i] <= (n + limit - 1) / limit);
    }
  }
  for (const std::uint32_t t : turns) RC_ASSERT(t == limit);
}

RC_GTEST_PROP(Share, IsNeverMoreThanTheLimitNorThanWhatIsAskedFor, ()) {
  const auto limit = *rc::gen::inRange<std::uint32_t>(1, 200);
  std::vector<MemberState> members(*rc::gen::inRange<std::size_t>(1, 30));
  std::uint32_t tie = 7;
  for (MemberState& m : members) {
    m.need = *rc::gen::inRange<std::uint32_t>(0, 40);
    m.slack = *rc::gen::inRange<std::uint32_t>(0, 10);
    m.weight = *rc::gen::inRange<std::uint32_t>(1, 6);
    m.tie = tie += 104'729;
  }
  const LimitState s = table(limit, members);
  const Shares all = shares(s, *rc::gen::inRange<std::int64_t>(0, 1000));
  const std::uint64_t sum = std::accumulate(all.begin(), all.end(), std::uint64_t{0});
  RC_ASSERT(sum <= limit);
  std::uint64_t needs = 0;
  for (const MemberState& m : members) needs += m.need;
  if (needs >= limit) RC_ASSERT(sum == limit);
  for (std::size_t i = 0; i < all.size(); ++i) {
    RC_ASSERT(all[i] <= members[i].need + members[i].slack);
    // Max-min: whoever gets less than it needs has, per weight, as much as anybody, to within the unit that is left over.
    if (needs > limit && all[i] < members[i].need)
      for (std::size_t j = 0; j < all.size(); ++j)
        RC_ASSERT((all[i] + 1.0) / members[i].weight >= (all[j] - 1.0) / members[j].weight - 1e-9);
  }
}

}  // namespace
}  // namespace bulkhead::shared
