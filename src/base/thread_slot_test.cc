#include "base/thread_slot.h"

#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <set>
#include <thread>
#include <vector>

namespace bulkhead::base {
namespace {

TEST(ThreadSlot, NoTwoLivingThreadsHaveTheSameAndThoseBeyondTheLastHaveNone) {
  constexpr int kThreads = 70;
  const std::uint32_t mine = thread_slot();
  std::vector<std::uint32_t> slots(kThreads);
  std::latch all(kThreads);
  {
    std::vector<std::jthread> threads;
    for (std::uint32_t& slot : slots)
      threads.emplace_back([&] {
        slot = thread_slot();
        all.arrive_and_wait();
        if (slot != kThreadSlots) {
          EXPECT_EQ(thread_slot(), slot);
        }
      });
  }
  std::multiset<std::uint32_t> seen(slots.begin(), slots.end());
  seen.insert(mine);
  for (const std::uint32_t slot : seen)
    if (slot != kThreadSlots) {
      EXPECT_EQ(seen.count(slot), 1u) << slot;
    }
  EXPECT_EQ(seen.count(kThreadSlots), seen.size() - kThreadSlots);
  EXPECT_EQ(thread_slot(), mine);
}

TEST(ThreadSlot, ComesBackWhenItsThreadEnds) {
  std::set<std::uint32_t> seen;
  for (int i = 0; i < 200; ++i) std::thread([&] { seen.insert(thread_slot()); }).join();
  EXPECT_EQ(seen.size(), 1u);
  EXPECT_FALSE(seen.contains(kThreadSlots));
}

// A destructor that runs after the slot is given back must not use that of somebody else.
TEST(ThreadSlot, AThreadThatIsEndingHasNone) {
  static std::atomic<std::uint32_t> at_the_end = 0;
  struct Late {
    ~Late() { at_the_end = thread_slot(); }
  };
  std::thread([] {
    static thread_local Late late;  // made before the slot is: destroyed after it is given back
    (void)late;
    EXPECT_LT(thread_slot(), kThreadSlots);
  }).join();
  EXPECT_EQ(at_the_end, kThreadSlots);
}

}  // namespace
}  // namespace bulkhead::base
