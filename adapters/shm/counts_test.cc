// Each test is one interleaving of two processes, forced by what they ask between their steps.
#include "adapters/shm/counts.h"

#include <gtest/gtest.h>

#include <memory>
#include <utility>

namespace bulkhead::shm {
namespace {

class CountsOfABudget : public testing::Test {
 protected:
  CountsOfABudget() {
    limit_->weighed = 1;
    limit_->most = 1000;
    limit_->high = 2;
  }
  std::uint64_t in_use() const { return Counts::held(*limit_); }

  std::unique_ptr<Limit> limit_ = std::make_unique<Limit>();
  Counts one_{*limit_, token_of(0, 1)}, two_{*limit_, token_of(1, 1)};
};

TEST_F(CountsOfABudget, AreExact) {
  EXPECT_TRUE(one_.take(999, 0, 1));
  EXPECT_FALSE(two_.take(2, 0, 1));
  EXPECT_TRUE(two_.take(1, 0, 1));
  EXPECT_FALSE(one_.take(1, 0, 1));
  EXPECT_EQ(in_use(), 1000u);
  one_.give_back(500);
  EXPECT_FALSE(two_.take(500, 100, 1)) << "100 are reserved";
  EXPECT_TRUE(two_.take(400, 100, 1));
  EXPECT_EQ(one_.held_by_owner(), 499u);
  EXPECT_EQ(two_.held_by_owner(), 401u);
  two_.give_back_everything();
  one_.give_back(4'000'000'000);  // more than it holds
  EXPECT_EQ(in_use(), 0u);
}

TEST_F(CountsOfABudget, ACallThatFoundRoomBeforeAnotherTookItWithdraws) {
  bool between = false;
  EXPECT_FALSE(one_.take_if(600, 1, [&] {
    if (!std::exchange(between, true)) {
      EXPECT_TRUE(two_.take(600, 0, 1));
    }
    return 1000u;
  }));
  EXPECT_EQ(in_use(), 600u);
  EXPECT_EQ(one_.held_by_owner(), 0u);
}

TEST_F(CountsOfABudget, ALimitThatIsLoweredMeanwhileIsSeen) {
  int looks = 0;
  EXPECT_FALSE(one_.take_if(600, 1, [&] { return ++looks == 1 ? 1000u : 500u; }));
  EXPECT_EQ(in_use(), 0u);
}

// Both have added theirs before either looks: neither may stay, and the next look is right.
TEST_F(CountsOfABudget, TwoThatSeeEachOtherLookAgain) {
  int looks = 0;
  EXPECT_TRUE(one_.take_if(600, 1, [&] {
    if (++looks == 1) {
      EXPECT_TRUE(two_.take(600, 0, 1));
    }
    if (looks == 2) two_.give_back(600);  // it has seen the first one, too
    return 1000u;
  }));
  EXPECT_GT(looks, 2);
  EXPECT_EQ(in_use(), 600u);
}

TEST_F(CountsOfABudget, UnitsOfAnEarlierOwnerOfTheSlotAreNotThisOnes) {
  Counts before(*limit_, token_of(0, 7));
  EXPECT_TRUE(before.take(300, 0, 1));
  EXPECT_EQ(one_.held_by_owner(), 0u);
  one_.give_back(300);
  EXPECT_EQ(one_.held_by_owner(), 0u);
}

}  // namespace
}  // namespace bulkhead::shm
