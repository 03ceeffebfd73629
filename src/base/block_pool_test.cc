#include "bulkhead/detail/block_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <set>
#include <thread>
#include <utility>
#include <vector>

namespace bulkhead::detail {
namespace {

TEST(BlockPool, BlocksInUseDoNotOverlapAndAreAligned) {
  std::vector<std::pair<unsigned char*, std::size_t>> blocks;
  for (std::size_t i = 0; i < 600;
       ++i) {  // more than the static ones; small, exact and too large for a block
    const std::size_t size = i % 3 == 0 ? 24 : i % 3 == 1 ? 512 : 700;
    auto* block = static_cast<unsigned char*>(take_block(size));
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % alignof(std::max_align_t), 0u);
    std::memset(block, static_cast<int>(i % 251), size);
    blocks.emplace_back(block, size);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto [block, size] = blocks[i];
    for (std::size_t b = 0; b < size; ++b) ASSERT_EQ(block[b], i % 251);
    give_block(block, size);
  }
}

TEST(BlockPool, AGivenBlockIsUsedAgain) {
  std::set<void*> seen;
  for (int i = 0; i < 10'000; ++i) {
    void* block = take_block(100);
    seen.insert(block);
    give_block(block, 100);
  }
  EXPECT_LT(seen.size(), 1'000u);  // those that other tests have left, and no more
}

// Blocks travel: taken here, given there.
TEST(BlockPool, BlocksMayBeGivenBackByOtherThreads) {
  constexpr int kThreads = 4;
  std::vector<std::vector<unsigned char*>> baskets(kThreads);
  std::vector<std::thread> threads;
  for (int round = 0; round < 50; ++round) {
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        for (unsigned char* block : baskets[static_cast<std::size_t>(t)]) give_block(block, 300);
        baskets[static_cast<std::size_t>(t)].clear();
        for (int i = 0; i < 100; ++i) {
          auto* block = static_cast<unsigned char*>(take_block(300));
          std::memset(block, t, 300);
          baskets[static_cast<std::size_t>(t)].push_back(block);
        }
      });
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    for (std::size_t t = 0; t < kThreads; ++t)
      for (unsigned char* block : baskets[t])
        for (int b = 0; b < 300; b += 50) ASSERT_EQ(block[b], t);
    std::rotate(baskets.begin(), baskets.begin() + 1, baskets.end());
  }
  for (auto& basket : baskets)
    for (unsigned char* block : basket) give_block(block, 300);
}

}  // namespace
}  // namespace bulkhead::detail
