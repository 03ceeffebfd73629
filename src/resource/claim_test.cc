// A claim whose caller stops waiting before its resource is open.
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "bulkhead/manual_clock.h"
#include "bulkhead/resource_pool.h"

namespace bulkhead {
namespace {

class ClaimOpenElsewhere : public testing::Test {
 protected:
  Claim<int> claim() {
    std::optional<Claim<int>> claim;
    pool.async_claim({}, [&](auto claimed) { claim.emplace(*std::move(claimed)); });
    return *std::move(claim);
  }
  ManualClock clock;
  ResourcePool<int> pool{{.name = "db",
                          .max = 1,
                          .open = [](const Opening&) { return 1; },
                          .maintenance = Maintenance::by_hand,
                          .clock = &clock}};
};

TEST_F(ClaimOpenElsewhere, AHelperOpensItAndKeepsItForTheNextCaller) {
  Claim<int> vacant = claim();
  ASSERT_TRUE(vacant.vacant());
  const ResourceError error =
      std::move(vacant).open_elsewhere([](const Opening&) { return 7; }, Reason::deadline);
  ASSERT_TRUE(error.rejection);
  EXPECT_EQ(error.rejection->reason, Reason::deadline);
  EXPECT_EQ(pool.gate().in_flight(), 1u) << "the place is taken until the resource is open";
  pool.maintain(clock.now());
  EXPECT_EQ(pool.gate().in_flight(), 0u);
  EXPECT_EQ(pool.snapshot().idle, 1u);
  EXPECT_EQ(pool.snapshot().open_failures, 0u);
  const auto lease = pool.try_acquire();
  ASSERT_TRUE(lease);
  EXPECT_EQ(**lease, 7);
}

TEST_F(ClaimOpenElsewhere, AHelperThatCannotOpenItCountsAFailure) {
  const ResourceError error = claim().open_elsewhere(
      [](const Opening&) -> Result<int, std::string> { return Unexpected("no route"); }, Reason::cancelled);
  EXPECT_EQ(error.rejection->reason, Reason::cancelled);
  EXPECT_EQ(pool.snapshot().open_failures, 0u);
  pool.maintain(clock.now());
  EXPECT_EQ(pool.snapshot().open_failures, 1u);
  EXPECT_EQ(pool.snapshot().alive, 0u);
  EXPECT_EQ(pool.gate().in_flight(), 0u);
}

}  // namespace
}  // namespace bulkhead
