// What becomes of a lease when memory runs out inside it. The allocations of one thread fail from the n-th on, for every n: each
// call still has one answer, no permit and no resource is lost, and the pool works once there is memory again.
#include <gtest/gtest.h>

#include <atomic>
#include <coroutine>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "base/sync_point.h"
#include "bulkhead/resource_pool.h"
#include "tests/support/allocations.h"
#include "tests/support/until.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using tests::until;

std::int64_t& left() { return tests::thread_memory().left; }

struct Resource {
  int id = 0;
};

ResourceOptions<Resource> options() {
  return {.name = "a pool whose name needs memory of its own",
          .max = 2,
          .open = [](const Opening&) { return Resource{1}; },
          .reset = [](Resource&) { return true; },
          .backoff = {.initial = 1us, .max = 1us}};
}

#if defined(BULKHEAD_SYNC_POINTS)

// What a helper needs to be started counts as one allocation: what the pool of helpers does without memory is its own affair.
class Helpers {
 public:
  Helpers() {
    base::sync_point_handler.store([](const char* name) {
      const std::string_view point = name;
      if (point == "resource.ask_helper") {
        delete new int;
        before = std::exchange(left(), -1);
      } else if (point == "resource.asked_helper") {
        left() = before;
      }
    });
  }
  ~Helpers() { base::sync_point_handler.store(nullptr); }
  Helpers(const Helpers&) = delete;
  Helpers& operator=(const Helpers&) = delete;

 private:
  static inline thread_local std::int64_t before = -1;
};

// Runs body(pool) again and again, with one more allocation each time, until it needs no more than there are.
template <class Body>
void with_ever_more_memory(Body&& body) {
  if (!tests::can_fail_allocations()) GTEST_SKIP() << "the operator new of a sanitizer does not fail";
  const Helpers helpers;
  for (int n = 0;; ++n) {
    SCOPED_TRACE("allocations that succeed: " + std::to_string(n));
    ResourcePool<Resource> pool(options());
    tests::thread_memory().failed = false;
    body(pool, [n] { left() = n; });
    left() = -1;
    until([&] { return pool.snapshot().gate.in_flight == 0; });
    until([&] { return pool.acquire({.timeout = 10s}).has_value(); });
    const bool enough = !tests::thread_memory().failed;
    if (enough) return;
    ASSERT_LT(n, 1000);
  }
}

// The outcome of a call without memory: what it asked for, or one of these.
void expect_stated(const auto& result) {
  if (result) return;
  if (result.error().failed())
    EXPECT_EQ(result.error().failure, "out of memory");
  else
    EXPECT_EQ(result.error().rejection->reason, Reason::timeout);
}

TEST(ResourceWithoutMemory, ABlockingCallSaysSo) {
  with_ever_more_memory([](auto& pool, auto limit) {
    limit();
    auto lease = pool.acquire({.timeout = 5s});
    left() = -1;
    expect_stated(lease);
  });
}

TEST(ResourceWithoutMemory, TryAcquireSaysSo) {
  with_ever_more_memory([](auto& pool, auto limit) {
    limit();
    auto lease = pool.try_acquire();
    left() = -1;
    expect_stated(lease);
  });
}

TEST(ResourceWithoutMemory, AHandlerIsCalledOnce) {
  with_ever_more_memory([](auto& pool, auto limit) {
    std::atomic<int> called{0};
    limit();
    pool.async_acquire({.timeout = 5s}, [&called](ResourceResult<Resource> lease) {
      const std::int64_t before = std::exchange(left(), -1);
      expect_stated(lease);
      ++called;
      left() = before;
    });
    left() = -1;
    until([&] { return called == 1; });
  });
}

TEST(ResourceWithoutMemory, AHandlerInLineIsCalledOnce) {
  with_ever_more_memory([](auto& pool, auto limit) {
    std::atomic<int> called{0};
    auto a = pool.acquire(), b = pool.acquire();
    pool.resize_queue(1);
    limit();
    pool.async_acquire({.timeout = 5s}, [&called](const ResourceResult<Resource>&) { ++called; });
    a->release();
    left() = -1;
    until([&] { return called == 1; });
  });
}

struct Detached {
  struct promise_type {
    Detached get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::abort(); }
  };
};
Detached lease_once(ResourcePool<Resource>& pool, std::int64_t n, std::atomic<int>& answered) {
  left() = n;
  auto lease = co_await pool.co_acquire({.timeout = 5s});
  left() = -1;
  expect_stated(lease);
  if (lease) lease->release();
  ++answered;
}

TEST(ResourceWithoutMemory, ACoroutineIsResumedOnce) {
  with_ever_more_memory([](auto& pool, auto limit) {
    std::atomic<int> answered{0};
    limit();
    const std::int64_t n = std::exchange(left(), -1);
    lease_once(pool, n, answered);
    left() = -1;
    until([&] { return answered == 1; });
  });
}

TEST(ResourceWithoutMemory, AReturnNeverFails) {
  with_ever_more_memory([](auto& pool, auto limit) {
    auto dirty = pool.acquire(), broken = pool.acquire();
    broken->mark_broken();
    limit();
    broken->release();
    dirty->release();
    left() = -1;
    until([&] { return pool.snapshot().cleaning == 0 && pool.snapshot().closing == 0; });
    EXPECT_EQ(pool.snapshot().idle, 1u);
  });
}

#endif  // BULKHEAD_SYNC_POINTS

TEST(ResourceWithoutMemory, AFactoryThatThrowsForWantOfMemoryHasFailed) {
  if (!tests::can_fail_allocations()) GTEST_SKIP() << "the operator new of a sanitizer does not fail";
  auto o = options();
  o.open = [](const Opening&) -> Result<Resource, std::string> {
    struct Failure final : std::exception {
      const char* what() const noexcept override {
        tests::thread_memory().once = true;
        left() = 0;  // only the copy of this text fails
        return "a text that is too long to be kept without memory";
      }
    };
    throw Failure();
  };
  ResourcePool<Resource> pool(std::move(o));
  const auto lease = pool.acquire({.timeout = 5s});
  ASSERT_FALSE(lease);
  EXPECT_TRUE(lease.error().failed());
  EXPECT_EQ(lease.error().failure, "out of memory");
}

}  // namespace
}  // namespace bulkhead
