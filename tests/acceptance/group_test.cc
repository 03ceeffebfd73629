// The tests of partitions in Netflix concurrency-limits (AbstractPartitionedLimiterTest) on a group; where theirs
// exceeds the total to honour a guarantee, this must not.
#include "bulkhead/group.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/group/group_test.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace tests;

GroupOptions batch_and_live(std::uint32_t total, Lend lend = Lend::headroom(0)) {
  return {.name = "server",
          .total = total,
          .lend = lend,
          .members = {{.name = "batch", .guaranteed = {.percent = 30}, .gate = {.max_queue = 4}},
                      {.name = "live", .guaranteed = {.percent = 70}, .gate = {.max_queue = 4}}}};
}

TEST(Partition, TheTotalIsAllocatedToTheMembers) {
  Group group{batch_and_live(10)};
  const GroupSnapshot s = group.snapshot();
  EXPECT_EQ(s.find("batch")->guaranteed, 3u);
  EXPECT_EQ(s.find("live")->guaranteed, 7u);
  EXPECT_EQ(s.find("batch")->in_flight, 0u);
  EXPECT_EQ(s.find("live")->in_flight, 0u);
}

TEST(Partition, ExcessCapacityIsUsedWhenTheOthersAreIdle) {
  Group group{batch_and_live(10)};
  const Permits batch = take(group.member("batch"), 10);
  EXPECT_EQ(batch.size(), 10u);
  EXPECT_EQ(group.snapshot().find("batch")->in_flight, 10u);
}

TEST(Partition, RejectsOnceAllLimitsAreReached) {
  Group group{batch_and_live(10)};
  const Permits batch = take(group.member("batch"), 3), live = take(group.member("live"), 7);
  EXPECT_EQ(batch.size() + live.size(), 10u);
  EXPECT_EQ(group.member("batch").try_acquire().error().reason, Reason::concurrency_limit);
  EXPECT_EQ(group.member("live").try_acquire().error().reason, Reason::concurrency_limit);
}

TEST(Partition, AReleaseCountsForItsMember) {
  Group group{batch_and_live(10)};
  auto permit = group.member("batch").try_acquire();
  EXPECT_EQ(group.snapshot().find("batch")->in_flight, 1u);
  permit->release();
  EXPECT_EQ(group.snapshot().find("batch")->in_flight, 0u);
}

TEST(Partition, AnotherTotalKeepsWhatIsBusy) {
  Group group{batch_and_live(10)};
  const Permits batch = take(group.member("batch"), 1);
  group.resize(20);
  const GroupSnapshot s = group.snapshot();
  EXPECT_EQ(s.find("batch")->guaranteed, 6u);
  EXPECT_EQ(s.find("live")->guaranteed, 14u);
  EXPECT_EQ(s.find("batch")->in_flight, 1u);
}

// Theirs is exceedTotalLimitForUnusedBin: batch has borrowed all 10, and live still gets its 7: 17 of 10.
TEST(Partition, AGuaranteeIsNotHonouredByExceedingTheTotal) {
  Group group{batch_and_live(10)};
  Permits batch = take(group.member("batch"), 10);
  Caller live(group.member("live"));
  EXPECT_TRUE(live.pending()) << "it waits for a borrowed unit instead";
  EXPECT_EQ(group.snapshot().in_flight, 10u);
  batch.pop_back();
  EXPECT_TRUE(live.admitted());
  EXPECT_EQ(group.snapshot().in_flight, 10u);
}

TEST(Partition, WithLendNoneTheGuaranteeHoldsAndSoDoesTheTotal) {
  Group group{batch_and_live(10, Lend::none())};
  const Permits batch = take(group.member("batch"), 10), live = take(group.member("live"), 10);
  EXPECT_EQ(batch.size(), 3u);
  EXPECT_EQ(live.size(), 7u);
}

TEST(Partition, ConcurrentMembersStayWithinTheTotal) {
  constexpr std::uint32_t total = 5;
  Group group{batch_and_live(total)};
  std::atomic<std::uint32_t> inside = 0, most = 0;
  {
    std::vector<std::jthread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        Gate& gate = group.member(t % 2 ? "batch" : "live");
        for (int i = 0; i < 2000; ++i)
          if (auto permit = gate.try_acquire()) {
            const std::uint32_t now = ++inside;
            for (std::uint32_t m = most; now > m && !most.compare_exchange_weak(m, now);) {
            }
            if (i % 7 == 0) std::this_thread::yield();
            --inside;
          }
      });
  }
  EXPECT_LE(most, total);
  expect_balanced(group);
}

// Theirs answers for a name it does not know with what is left; here a member exists or it does not.
TEST(Partition, AnUnknownMemberIsAnError) {
  Group group{batch_and_live(10)};
  EXPECT_THROW(group.member("unknown"), std::invalid_argument);
  EXPECT_EQ(group.find("unknown"), nullptr);
}

}  // namespace
}  // namespace bulkhead
