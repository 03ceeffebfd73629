// Look-ups without a lock while names come, change, go and come back, and tenants are retired under them.
#include "bulkhead/registry.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

TEST(RegistryStress, WhoStaysIsAlwaysFoundAndWhoIsFoundIsAlive) {
  Registry registry;
  const auto stays = registry.add({.options = {.name = "stays", .max_concurrent = 1000}});
  std::atomic<std::uint64_t> calls = 0, comings = 0;
  struct Parcel {
    void exchange(BulkheadUse use) {
      const std::lock_guard lock(mutex);
      std::swap(held, use);
      if (held) {
        EXPECT_FALSE(held->name().empty());
      }
    }
    std::mutex mutex;
    BulkheadUse held;
  } parcel;
  const auto end = end_of_test(1.5);
  {
    Threads threads;
    for (std::uint32_t i = 0; i < 3; ++i)
      threads.add([&, i] {
        Dice dice(i + 1);
        while (steady_clock::now() < end) {
          ASSERT_EQ(registry.find("stays"), stays);
          const std::string name = "n" + std::to_string(dice.below(40));
          if (const auto found = registry.find(name)) {
            ASSERT_EQ(found->name(), name);
            (void)found->execute([] { return 1; });
            ++calls;
          }
          if (auto used = registry.use(name)) {
            linger(dice);  // it may be removed meanwhile
            ASSERT_EQ(used->name(), name);
            (void)used->execute([] { return 1; });
            ++calls;
            if (dice.one_in(4)) parcel.exchange(std::move(used));  // another thread ends it
          }
        }
      });
    for (std::uint32_t i = 0; i < 2; ++i)
      threads.add([&, i] {
        Dice dice(i + 50);
        while (steady_clock::now() < end) {
          const std::string name = "n" + std::to_string(dice.below(40));
          switch (dice.below(5)) {
            case 0:
              try {
                registry.add({.options = {.name = name, .max_concurrent = 1 + dice.below(5)}});
                ++comings;
              } catch (const std::invalid_argument&) {
              }
              break;
            case 1:
              (void)registry.get_or_create(name, "cache");
              break;
            case 2:
            case 3:
              (void)registry.remove(name, TimePoint::min());
              break;
            default:
              try {
                registry.resize(name, 1 + dice.below(5));
              } catch (const std::invalid_argument&) {
              }
          }
        }
      });
    threads.add([&] {
      while (steady_clock::now() < end) {
        const RegistrySnapshot s = registry.snapshot();
        ASSERT_NE(s.find("stays"), nullptr);
        for (const auto& entry : s.bulkheads) ASSERT_EQ(entry.now.name, entry.name);
      }
    });
  }
  EXPECT_GT(calls, 0u);
  EXPECT_GT(comings, 0u);
}

TEST(RegistryStress, NoTenantGoesUnderItsCallerAndNoCallIsForgotten) {
  Registry registry;
  constexpr std::uint32_t kBound = 8;
  const auto options = [](std::uint32_t max) {
    return TenantOptions{
        .name = "t", .each = {.max_concurrent = 1000}, .max_tenants = max, .overflow = {}, .idle_after = 1us};
  };
  registry.define_tenants(options(kBound));
  std::atomic<std::uint64_t> calls = 0, own = 0;
  const auto end = end_of_test(2);
  {
    Threads threads;
    for (std::uint32_t i = 0; i < 4; ++i)
      threads.add([&, i] {
        Dice dice(i + 1);
        std::shared_ptr<Bulkhead> kept;
        std::string kept_name;
        while (steady_clock::now() < end) {
          const std::string id = std::to_string(dice.below(20));
          const auto got = registry.tenant("t", id);
          ASSERT_TRUE(got);
          ASSERT_TRUE((*got)->name() == "t/" + id || (*got)->name() == "t/*");
          if ((*got)->name() != "t/*") ++own;
          (void)(*got)->execute([] { return 1; });
          ++calls;
          {
            const auto used = registry.use_tenant("t", std::to_string(dice.below(20)));
            ASSERT_TRUE(used);
            linger(dice);  // nobody retires it meanwhile
            (void)(*used)->execute([] { return 1; });
            ++calls;
          }
          // One that is held stays the tenant's.
          if (kept) {
            ASSERT_EQ(registry.find(kept_name), kept);
          }
          if (dice.one_in(8)) {
            kept = *got;
            kept_name = kept->name();
          } else if (dice.one_in(4)) {
            kept.reset();
          }
        }
      });
    threads.add([&] {
      while (steady_clock::now() < end) {
        registry.retire_idle();
        std::this_thread::yield();
      }
    });
    Dice dice(77);
    while (steady_clock::now() < end) {
      const RegistrySnapshot s = registry.snapshot();
      ASSERT_LE(s.tenants.at(0).live, kBound);
      ASSERT_LE(s.bulkheads.size(), kBound + 1);
      if (dice.one_in(8)) registry.update_tenants(options(1 + dice.below(kBound)));
    }
  }
  registry.retire_idle();
  std::this_thread::sleep_for(1ms);
  registry.retire_idle();
  const RegistrySnapshot s = registry.snapshot();
  std::uint64_t counted = s.tenants[0].other->gate.admitted;
  for (const auto& entry : s.bulkheads) counted += entry.now.gate.admitted;
  EXPECT_EQ(counted, calls);
  EXPECT_GT(own, 0u);
  EXPECT_GT(s.tenants[0].retired, 0u);
}

}  // namespace
}  // namespace bulkhead::stress
