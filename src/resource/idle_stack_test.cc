#include "resource/idle_stack.h"

#include <gmock/gmock.h>

#include <random>
#include <semaphore>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace bulkhead::detail {
namespace {

using testing::ElementsAre;

std::vector<std::uint32_t> popped(IdleStack& stack) {
  std::vector<std::uint32_t> numbers;
  while (const ResourceSlot* slot = stack.pop()) numbers.push_back(slot->number);
  return numbers;
}

TEST(IdleStack, TheLastInIsTheFirstOutHoweverDeep) {
  IdleStack stack;
  for (int i = 0; i < 7; ++i) stack.push(stack.grow());
  EXPECT_TRUE(stack.at_least(7));
  EXPECT_FALSE(stack.at_least(8));
  EXPECT_THAT(popped(stack), ElementsAre(6, 5, 4, 3, 2, 1, 0));
  EXPECT_TRUE(stack.empty());
}

#if defined(BULKHEAD_SYNC_POINTS)
std::binary_semaphore about_to_exchange{0}, go_on{0};
thread_local bool stops = false;  // stops at the next exchange, once

TEST(IdleStack, AHeadThatLooksTheSameButLiesOnOthersIsNotBelieved) {
  base::sync_point_handler = [](const char* name) {
    if (std::string_view(name) != "idle_stack.pop.exchange" || !std::exchange(stops, false)) return;
    about_to_exchange.release();
    go_on.acquire();
  };
  IdleStack stack;
  ResourceSlot* slots[5];
  for (ResourceSlot*& slot : slots) slot = &stack.grow();
  for (const int i : {0, 1, 2}) stack.push(*slots[i]);  // 2 lies on 1 and 0, by its `rest`
  ResourceSlot* got = nullptr;
  std::jthread slow([&] {
    stops = true;
    got = stack.pop();
  });
  about_to_exchange.acquire();  // it has read that 1 and 0 are below
  EXPECT_THAT(popped(stack), ElementsAre(2, 1, 0));
  for (const int i : {3, 4, 2}) stack.push(*slots[i]);
  go_on.release();
  slow.join();
  base::sync_point_handler = nullptr;
  EXPECT_EQ(got, slots[2]);
  EXPECT_THAT(popped(stack), ElementsAre(4, 3));
}
#endif

// Any order of pushes, pops and sweeps that keep some, against a vector.
TEST(IdleStack, DoesWhatAVectorDoes) {
  std::mt19937 random(7);
  for (int round = 0; round < 200; ++round) {
    IdleStack stack;
    std::vector<ResourceSlot*> free, model;
    for (int i = 0; i < 9; ++i) free.push_back(&stack.grow());
    for (int step = 0; step < 200; ++step) {
      const auto what = random() % 16;
      if (what < 8 && !free.empty()) {
        stack.push(*free.back());
        model.push_back(free.back());
        free.pop_back();
      } else if (what < 15) {
        ResourceSlot* const slot = stack.pop();
        ASSERT_EQ(slot, model.empty() ? nullptr : model.back());
        if (!slot) continue;
        model.pop_back();
        free.push_back(slot);
      } else {
        IdleStack::Contents taken = stack.take_all();
        ASSERT_TRUE(stack.empty());
        ResourceSlot *first = nullptr, *last = nullptr;
        std::vector<ResourceSlot*> kept;
        while (ResourceSlot* slot = stack.pop(taken)) {
          ASSERT_EQ(slot, model.back());
          model.pop_back();
          if (random() % 3 == 0) {
            free.push_back(slot);
            continue;
          }
          kept.insert(kept.begin(), slot);
          if (last) IdleStack::join(*last, *slot);
          if (!first) first = slot;
          last = slot;
        }
        ASSERT_TRUE(model.empty());
        model = kept;
        if (first) stack.push_chain(*first, *last);
      }
    }
  }
}

// Sweeps included; a slot in two hands at once, or one lost, would be seen.
TEST(IdleStack, EverySlotHasOneOwner) {
  constexpr int kSlots = 7, kThreads = 4, kSteps = 30'000;
  IdleStack stack;
  std::vector<std::atomic<bool>> held(kSlots);
  for (int i = 0; i < kSlots; ++i) stack.push(stack.grow());
  std::atomic<int> twice{0};
  const auto take = [&](const ResourceSlot& slot) { twice += held[slot.number].exchange(true); };
  const auto give = [&](const ResourceSlot& slot) { twice += !held[slot.number].exchange(false); };
  {
    std::vector<std::jthread> threads;
    for (unsigned t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        std::mt19937 random(t);
        std::vector<ResourceSlot*> mine;
        for (int step = 0; step < kSteps; ++step) {
          if (t == 0 && step % 64 == 0) {
            IdleStack::Contents taken = stack.take_all();
            ResourceSlot *first = nullptr, *last = nullptr;
            while (ResourceSlot* slot = stack.pop(taken)) {
              take(*slot);
              give(*slot);
              if (last) IdleStack::join(*last, *slot);
              if (!first) first = slot;
              last = slot;
            }
            if (first) stack.push_chain(*first, *last);
          } else if (random() % 2 && !mine.empty()) {
            give(*mine.back());
            stack.push(*mine.back());
            mine.pop_back();
          } else if (ResourceSlot* slot = stack.pop()) {
            take(*slot);
            mine.push_back(slot);
          }
        }
        for (ResourceSlot* slot : mine) {
          give(*slot);
          stack.push(*slot);
        }
      });
  }
  EXPECT_EQ(twice, 0);
  EXPECT_EQ(popped(stack).size(), kSlots);
}

}  // namespace
}  // namespace bulkhead::detail
