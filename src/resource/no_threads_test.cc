// What becomes of a lease when the system has no thread for a helper: the pool of helpers would let the caller do their work.
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <thread>

#include "bulkhead/resource_pool.h"
#include "tests/support/no_threads.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::NoThreads;
using tests::until;

struct ResourceWithoutThreads : testing::Test {
  ResourceOptions<int> options(std::uint32_t min_idle = 0) {
    return {.name = "db",
            .max = 2,
            .min_idle = min_idle,
            .open =
                [this](const Opening&) {
                  opened_by_caller = opened_by_caller || std::this_thread::get_id() == caller;
                  return 1;
                },
            .backoff = {.initial = 1us, .max = 1us}};
  }
  const std::thread::id caller = std::this_thread::get_id();
  std::atomic<bool> opened_by_caller{false};
};

TEST_F(ResourceWithoutThreads, NoCallOpensAResourceItself) {
  ResourcePool<int> pool(options());
  {
    const NoThreads none;
    const auto lease = pool.acquire({.timeout = 50ms});
    ASSERT_FALSE(lease);
    EXPECT_EQ(lease.error().failure, "no thread to open it");
    EXPECT_FALSE(pool.try_acquire());
    std::optional<bool> served;
    pool.async_acquire({.timeout = 50ms}, [&](const ResourceResult<int>& r) { served = r.has_value(); });
    EXPECT_EQ(served, false);
    EXPECT_GT(NoThreads::failed(), 0);
  }
  EXPECT_FALSE(opened_by_caller);
  until([&] { return pool.acquire({.timeout = 10s}).has_value(); });
  EXPECT_FALSE(opened_by_caller);
  EXPECT_EQ(pool.snapshot().gate.in_flight, 0u);
}

TEST_F(ResourceWithoutThreads, NorDoesMaintenanceThatFindsNoHelper) {
  std::optional<ResourcePool<int>> pool;
  {
    const NoThreads none;
    pool.emplace(options(1));
    EXPECT_FALSE(pool->try_acquire());
  }
  until([&] { return pool->acquire({.timeout = 10s}).has_value(); });
  EXPECT_FALSE(opened_by_caller);
}

}  // namespace
}  // namespace bulkhead
