// Call::settle() and Call::try_grow(), of calls acquired in every way.
#include <gtest/gtest.h>

#include <chrono>
#include <coroutine>
#include <exception>
#include <optional>

#include "bulkhead/bulkhead.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

BulkheadOptions weighted() { return {.name = "b", .max_concurrent = 10, .max_queue = 4}; }

TEST(CallSettle, GivesUnitsBackAndAdmitsWhoFits) {
  Bulkhead b{weighted()};
  Call call = *b.acquire({.cost = 10});
  std::optional<Call> waiting;
  b.async_acquire({.cost = 4}, [&](Result<Call> admitted) {
    if (admitted) waiting = *std::move(admitted);
  });
  EXPECT_TRUE(call.settle(7));
  EXPECT_FALSE(waiting);
  EXPECT_FALSE(call.try_grow(1)) << "somebody waits";
  EXPECT_TRUE(call.settle(6));
  ASSERT_TRUE(waiting);
  EXPECT_TRUE(waiting->settle(1)) << "also of a call that waited";
  EXPECT_TRUE(call.try_grow(3));
  EXPECT_EQ(b.snapshot().gate.in_flight, 10u);
  EXPECT_EQ(b.snapshot().gate.permits, 2u);
  call.finish(Outcome::success);
  EXPECT_FALSE(call.settle(0));
  EXPECT_FALSE(call.try_grow(1));
  waiting->finish(Outcome::success);
  EXPECT_TRUE(b.idle());
}

TEST(CallSettle, ACallOfNothingIsInFlightUntilItIsFinished) {
  Bulkhead b{weighted()};
  Call call = *b.acquire({.cost = 3});
  EXPECT_TRUE(call.settle(0));
  EXPECT_FALSE(b.idle());
  EXPECT_EQ(b.snapshot().gate.permits, 1u);
  call.finish(Outcome::failure);
  EXPECT_TRUE(b.idle());
  EXPECT_EQ(b.snapshot().gate.failed, 1u);
}

struct Started {
  struct promise_type {
    Started get_return_object() { return {}; }
    std::suspend_never initial_suspend() noexcept { return {}; }
    std::suspend_never final_suspend() noexcept { return {}; }
    void return_void() {}
    void unhandled_exception() { std::terminate(); }
  };
};

Started take(Bulkhead& b, std::optional<Call>& got) {
  auto acquiring = b.co_acquire({.cost = 5});
  auto call = co_await acquiring;
  if (call) got = *std::move(call);
}

TEST(CallSettle, OfACoroutineThatWaited) {
  Bulkhead b{weighted()};
  Call busy = *b.acquire({.cost = 8});
  std::optional<Call> got;
  take(b, got);
  EXPECT_FALSE(got);
  busy.settle(5);
  ASSERT_TRUE(got);
  EXPECT_TRUE(got->settle(2));
  EXPECT_EQ(b.gate().in_flight(), 7u);
}

TEST(CallSettle, WithoutAPlaceThereIsNothingToSettle) {
  BulkheadOptions off = weighted();
  off.enabled = false;
  Bulkhead b{off};
  Call call = *b.acquire({.cost = 10});
  EXPECT_TRUE(call.settle(3));
  EXPECT_TRUE(call.try_grow(100));
  EXPECT_EQ(b.gate().in_flight(), 0u);
  call.finish(Outcome::success);
  EXPECT_FALSE(call.settle(0));
}

}  // namespace
}  // namespace bulkhead
