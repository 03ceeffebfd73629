// How much work is done under the lock that callers of new tenants need: bounded, however many there are. Counted in nodes
// looked at, not in time.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <thread>

#include "base/sync_point.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/registry.h"
#include "registry/lock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

#if defined(BULKHEAD_SYNC_POINTS)

// Counts the nodes that are looked at while the lock is held, and keeps the most.
struct Steps {
  static inline std::atomic<std::size_t> now{0}, most{0}, all{0};
  Steps() {
    now = most = all = 0;
    base::sync_point_handler.store([](const char* name) {
      if (std::strcmp(name, "registry.locked") == 0) now = 0;
      if (std::strcmp(name, "registry.step") == 0) {
        ++all;
        most = std::max<std::size_t>(most, ++now);
      }
    });
  }
  ~Steps() { base::sync_point_handler.store(nullptr); }
};

// A tenth of what is documented: 100 000 tenants, 1 000 bulkheads. A shard of the table has a 1024th of them, and
// moves as a whole when it grows.
class Bounds : public testing::Test {
 protected:
  static constexpr std::uint32_t kTenants = 100'000, kBulkheads = 1'000;
  static constexpr std::size_t kShard = 2 * (kTenants + kBulkheads) / 1024,
                               kMost = kShard + 2 * registry::kBatch;

  void SetUp() override {
    for (std::uint32_t i = 0; i < kBulkheads; ++i)
      registry.add({.options = {.name = "bulkhead" + std::to_string(i), .histograms = false}});
    registry.define_tenants({.name = "orders",
                             .each = {.max_concurrent = 2, .histograms = false},
                             .max_tenants = kTenants,
                             .idle_after = 60s});
    const Steps steps;
    for (std::uint32_t i = 0; i < kTenants; ++i) (void)*registry.tenant("orders", std::to_string(i));
    EXPECT_LE(Steps::most, kMost);  // creating
  }

  ManualClock clock;
  Registry registry{{.clock = &clock, .seed = 7}};
};

TEST_F(Bounds, NoOperationLooksAtManyNodesUnderTheLock) {
  clock.advance(61s);
  {  // An ordinary request finds all of them idle.
    const Steps steps;
    EXPECT_EQ((*registry.tenant("orders", "new"))->name(), "orders/new");
    EXPECT_LE(Steps::most, kMost);
    EXPECT_LE(Steps::all, kMost + 1024);
  }
  {
    const Steps steps;
    EXPECT_EQ(registry.names().size(),
              registry.snapshot({.list_tenants = 0}).tenants[0].live + kBulkheads + 1);
    EXPECT_LE(Steps::most, registry::kBatch);
  }
  {
    const Steps steps;
    const RegistrySnapshot s = registry.snapshot({.list_tenants = 0});
    EXPECT_EQ(s.bulkheads.size(), kBulkheads + 1);
    EXPECT_EQ(s.tenants[0].sum->members, s.tenants[0].live);
    EXPECT_LE(Steps::most, registry::kBatch);
  }
  {
    const Steps steps;
    registry.update_tenants({.name = "orders",
                             .each = {.max_concurrent = 3, .histograms = false},
                             .max_tenants = kTenants,
                             .idle_after = 60s});
    EXPECT_LE(Steps::most, registry::kBatch);
  }
  clock.advance(61s);
  {
    const Steps steps;
    EXPECT_GT(registry.retire_idle(), kTenants / 2);
    EXPECT_LE(Steps::most, registry::kBatch);
  }
  for (std::uint32_t i = 0; i < 1000; ++i) (void)registry.tenant("orders", std::to_string(i));
  {
    const Steps steps;
    EXPECT_TRUE(registry.remove_tenants("orders"));
    EXPECT_LE(Steps::most, registry::kBatch);
  }
}

#endif

// Counters never fall from one snapshot to the next, although tenants are retired while they are taken.
TEST(Snapshots, NobodyIsMissingAndNobodyCountedTwiceWhileTenantsAreRetired) {
  ManualClock clock;
  Registry registry{{.clock = &clock}};
  registry.define_tenants({.name = "orders", .each = {}, .max_tenants = 10'000, .idle_after = 1s});
  constexpr std::uint64_t kCalls = 2000;
  for (std::uint64_t i = 0; i < kCalls; ++i)
    (void)(*registry.tenant("orders", std::to_string(i)))->execute([] {});
  (void)registry.retire_idle();
  std::atomic<bool> done{false};
  std::thread retiring([&] {
    while (registry.snapshot({.list_tenants = 0}).tenants[0].live > 0) {
      clock.advance(2s);
      (void)registry.retire_idle();
    }
    done = true;
  });
  const auto counted = [](const RegistrySnapshot& s) {
    std::uint64_t n = 0;
    for (const auto& entry : s.bulkheads) n += entry.now.gate.admitted;
    if (s.tenants[0].other) n += s.tenants[0].other->gate.admitted;
    if (s.tenants[0].sum) n += s.tenants[0].sum->now.gate.admitted;
    return n;
  };
  do {
    EXPECT_EQ(counted(registry.snapshot()), kCalls);
    EXPECT_EQ(counted(registry.snapshot({.list_tenants = 0})), kCalls);
  } while (!done);
  retiring.join();
}

}  // namespace
}  // namespace bulkhead
