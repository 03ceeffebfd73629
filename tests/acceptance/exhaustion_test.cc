// Every allocation of an operation fails once, in turn. The operation then throws std::bad_alloc or rejects; nothing it
// had taken stays taken, no task or handler is lost, and the process goes on.
#include <gtest/gtest.h>

#include <coroutine>
#include <functional>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/detail/block_pool.h"
#include "bulkhead/manual_clock.h"
#include "tests/support/allocations.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

// Holds every recycled block, so that the next one has to be allocated.
class NoBlocks {
 public:
  NoBlocks() {
    held_.reserve(1 << 16);
    for (const std::size_t size : sizes)
      for (bool fresh = false; !fresh;)
        fresh = allocations_in([&] { held_.push_back({detail::take_block(size), size}); }) > 0;
  }
  ~NoBlocks() {
    for (const auto& [block, size] : held_) detail::give_block(block, size);
  }
  NoBlocks(const NoBlocks&) = delete;
  NoBlocks& operator=(const NoBlocks&) = delete;

 private:
  static constexpr std::size_t sizes[] = {256, 512};
  struct Held {
    void* block;
    std::size_t size;
  };
  std::vector<Held> held_;
};

// Runs `operation` with one allocation after the other failing; `check` sees what is left after each.
int sweep(const std::function<void()>& operation, const std::function<void(const std::string&)>& check) {
  for (std::uint64_t n = 0;; ++n) {
    const bool failed = [&] {
      const NoBlocks none;
      return fails_at(n, [&] {
        try {
          operation();
        } catch (const std::bad_alloc&) {
        }
      });
    }();
    check("with allocation " + std::to_string(n) + " failing");
    if (!failed) return static_cast<int>(n);
    if (n > 1000) return -1;
  }
}

struct Fire {  // a coroutine that nobody waits for
  struct promise_type {
    Fire get_return_object() noexcept { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() noexcept {}
    void unhandled_exception() noexcept {}  // bad_alloc
  };
};

struct Exhaustion : testing::Test {
  void SetUp() override {
    if (!can_fail_allocations()) GTEST_SKIP() << "a sanitizer's operator new cannot fail";
  }
};

struct PoolExhaustion : Exhaustion {
  // Warm: one thread is up, which allocates as well.
  PoolExhaustion() {
    EXPECT_TRUE(pool.submit([] {}).get());
  }

  void expect_nothing_lost(const std::function<void()>& operation, int at_least) {
    const int allocations = sweep(operation, [&](const std::string& when) {
      until([&] { return pool.gate().in_flight() == 0; });
      ASSERT_EQ(pool.snapshot().gate.waiting, 0u) << when;
      ASSERT_EQ(pool.snapshot().abandoned, 0u) << when;
      ASSERT_TRUE(pool.submit([] {}).get()) << when;
    });
    EXPECT_GE(allocations, at_least);
  }
  ManualClock clock;
  Pool pool{{.max_concurrent = 1, .max_queue = 4, .clock = &clock}};
};

TEST_F(PoolExhaustion, OfPlainWork) {
  expect_nothing_lost([&] { static_cast<void>(pool.submit([] { return 1; }).get()); }, 1);
  expect_nothing_lost([&] { static_cast<void>(pool.post([] {})); }, 1);
}

TEST_F(PoolExhaustion, OfWorkWithLimitsAndAStopToken) {
  const auto stop = std::make_unique<std::stop_source>();
  expect_nothing_lost(
      [&] {
        auto task = pool.submit([](std::stop_token) { return 1; },
                                {.timeout = 1s, .execution_timeout = 1s, .stop = stop->get_token()});
        static_cast<void>(task.get());
      },
      3);
}

TEST_F(PoolExhaustion, OfLargeWorkWithAContinuation) {
  struct Large {
    char bytes[1000];
    int operator()() const { return bytes[0]; }
  };
  std::atomic<int> called = 0;
  expect_nothing_lost([&] { pool.submit(Large()).then([&](auto) { ++called; }); }, 2);
  until([&] { return called > 0; });
}

// The rejection has no block for its numbers: the reason is still there.
TEST_F(PoolExhaustion, OfWorkThatIsRejected) {
  std::atomic<bool> begun = false, go = false;
  auto running = pool.submit([&] {
    begun = true;
    go.wait(false);
  });
  until([&] { return begun.load(); });
  int answers = 0, tried = 0;
  sweep(
      [&] {
        ++tried;
        auto task = pool.submit_or([] { return 1; }, [](const Rejection&) { return 2; });
        auto answer = task.get_for(0s);
        const bool ok = answer ? *answer == 2 : answer.error().reason == Reason::timeout;
        answers += ok;
      },
      [&](const std::string& when) { ASSERT_EQ(pool.snapshot().gate.waiting, 0u) << when; });
  EXPECT_GE(tried, 3) << "the task, its rejection, and none of them";
  EXPECT_EQ(answers, tried - 1) << "only the submission itself may throw";
  go = true;
  go.notify_all();
  EXPECT_TRUE(running.get());
}

TEST_F(PoolExhaustion, OfAThreadToRunIt) {
  int ran = 0;
  sweep(
      [&] {
        Pool fresh{{.name = "a name that is longer than fifteen", .max_concurrent = 2, .max_queue = 2}};
        static_cast<void>(fresh.submit([&] { ++ran; }).get());
      },
      [](const std::string&) {});
  EXPECT_GT(ran, 1) << "also without memory for a thread: on this one";
}

class BulkheadExhaustion : public testing::TestWithParam<Isolation> {
 protected:
  void SetUp() override {
    if (!can_fail_allocations()) GTEST_SKIP() << "a sanitizer's operator new cannot fail";
    bulkhead.emplace(BulkheadOptions{.name = "db",
                                     .isolation = GetParam(),
                                     .max_concurrent = 1,
                                     .max_queue = 2,
                                     .breaker = BreakerOptions{.half_open_calls = 1},
                                     .rate_limit = RateLimiterOptions{.rate = 1, .per = 1h, .burst = 5000},
                                     .clock = &clock});
    EXPECT_TRUE(bulkhead->execute([] {}));
  }
  // Half open: a probe that is lost would keep the next one out.
  void expect_nothing_lost(const std::function<void()>& operation) {
    const int allocations = sweep(operation, [&](const std::string& when) {
      until([&] { return bulkhead->idle(); });
      ASSERT_EQ(bulkhead->snapshot().breaker->probes_in_flight, 0u) << when;
      bulkhead->breaker()->force_half_open();
      ASSERT_TRUE(bulkhead->breaker()->admit()) << when;
      bulkhead->breaker()->force_half_open();
    });
    EXPECT_GE(allocations, 0);
  }
  ManualClock clock;
  std::optional<Bulkhead> bulkhead;
};
INSTANTIATE_TEST_SUITE_P(, BulkheadExhaustion, testing::Values(Isolation::semaphore, Isolation::threads),
                         [](const auto& test) {
                           return test.param == Isolation::semaphore ? "Semaphore" : "Threads";
                         });

TEST_P(BulkheadExhaustion, OfACall) {
  expect_nothing_lost([&] { static_cast<void>(bulkhead->execute([] { return 1; })); });
  expect_nothing_lost([&] {
    static_cast<void>(bulkhead->execute([](std::stop_token stop) { return stop.stop_requested() ? 0 : 1; },
                                        {.execution_timeout = 1s}));
  });
}

TEST_P(BulkheadExhaustion, OfACallWithAHandler) {
  expect_nothing_lost([&] { bulkhead->async_execute([] { return 1; }, {}, [](const Ended<int>&) {}); });
  expect_nothing_lost([&] { bulkhead->async_acquire({}, [](const Result<Call>&) {}); });
}

TEST_P(BulkheadExhaustion, OfACallOfACoroutine) {
  expect_nothing_lost([&] {
    [](Bulkhead& b) -> Fire { static_cast<void>(co_await b.co_execute([] { return 1; })); }(*bulkhead);
  });
  expect_nothing_lost(
      [&] { [](Bulkhead& b) -> Fire { static_cast<void>(co_await b.co_acquire()); }(*bulkhead); });
}

// Without memory to wait for the latency of a fault, the call does not wait.
TEST_F(Exhaustion, OfAHandlerInTheLatencyOfAFault) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .max_concurrent = 1, .clock = &clock}};
  b.inject({.latency = 1s});
  int tried = 0, called = 0, thrown = 0;
  const auto expect_nothing_lost = [&](const std::function<void()>& operation) {
    tried = called = thrown = 0;
    const auto counted = [&] {
      ++tried;
      try {
        operation();
      } catch (const std::bad_alloc&) {
        ++thrown;
      }
    };
    sweep(counted, [&](const std::string& when) {
      clock.advance(2s);
      ASSERT_EQ(called, tried) << when;
      ASSERT_TRUE(b.idle()) << when;
    });
    EXPECT_GE(tried, 2);
    EXPECT_EQ(thrown, 0);
  };
  expect_nothing_lost([&] { b.async_acquire({}, [&](const Result<Call>&) { ++called; }); });
  expect_nothing_lost([&] { b.async_execute([] { return 1; }, {}, [&](const Ended<int>&) { ++called; }); });
}

TEST_F(Exhaustion, OfABreakersUpdateChangesNothing) {
  ManualClock clock;
  Breaker breaker({.window_calls = 2, .minimum_calls = 2, .half_open_calls = 1, .clock = &clock});
  std::uint32_t size = 2;
  sweep([&] { breaker.update({.window_calls = size *= 2, .minimum_calls = 1, .half_open_calls = size}); },
        [&](const std::string& when) {
          breaker.reset();
          breaker.complete(*breaker.admit(), Outcome::success, 1ms);
          ASSERT_EQ(breaker.snapshot().calls, 1u) << when;
        });
}

}  // namespace
}  // namespace bulkhead
