// What acquiring and releasing do when there is no memory: each ends as its header says, and nothing is lost.
#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <stop_token>
#include <utility>
#include <vector>

#include "bulkhead/async_acquire.h"
#include "bulkhead/gate.h"
#include "bulkhead/group.h"
#include "tests/support/allocations.h"
#include "tests/support/callers.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using namespace tests;

class NoMemory : public testing::Test {
 protected:
  void SetUp() override {
    if (!can_fail_allocations()) GTEST_SKIP() << "the sanitizer's operator new does not fail";
  }
};

struct BigHandler {  // too big for the blocks that are kept
  std::array<std::byte, 2000> ballast{};
  std::optional<Reason>* reason;
  int* told;
  void operator()(Result<Permit> r) {
    ++*told;
    if (!r) *reason = r.error().reason;
  }
};

TEST_F(NoMemory, AHandlerThatWouldWaitIsToldThatTheLineIsFull) {
  Gate gate{{.max_concurrent = 1, .max_queue = 4}};
  auto held = gate.try_acquire();
  std::optional<Reason> reason;
  int told = 0;
  without_memory([&] { gate.async_acquire({}, BigHandler{{}, &reason, &told}); });
  EXPECT_EQ(told, 1);
  EXPECT_EQ(reason, Reason::queue_limit);
  EXPECT_EQ(gate.snapshot().rejected(Reason::queue_limit), 1u);
  EXPECT_EQ(gate.snapshot().waiting, 0u);
  gate.async_acquire({}, BigHandler{{}, &reason, &told});  // memory is back
  EXPECT_EQ(gate.snapshot().waiting, 1u);
  held->release();
  EXPECT_EQ(told, 2);
  expect_idle(gate);
}

TEST_F(NoMemory, SmallHandlersUseTheBlocksThatAreThereFirst) {
  Gate gate{{.max_concurrent = 1, .max_queue = 2000}};
  auto held = gate.try_acquire();
  int admitted = 0, rejected = 0;
  without_memory([&] {
    for (int i = 0; i < 1000; ++i)
      gate.async_acquire({}, [&](const Result<Permit>& r) { ++(r ? admitted : rejected); });
  });
  EXPECT_GT(rejected, 0);
  EXPECT_EQ(gate.snapshot().waiting + static_cast<std::uint32_t>(rejected), 1000u);
  held->release();
  EXPECT_EQ(admitted + rejected, 1000);
  expect_idle(gate);
}

TEST_F(NoMemory, ThreadsCoroutinesAndReleasesNeedNone) {
  Gate gate{{.max_concurrent = 2, .max_queue = 4, .measure_service = true, .measure_occupancy = true}};
  without_memory([&] {
    auto a = gate.acquire();
    auto b = gate.try_acquire({.cost = 1, .stop = {}});
    auto c = gate.try_acquire();
    EXPECT_TRUE(a && b && !c);
    gate.resize(1);
    gate.resize_queue(2);
  });
  expect_idle(gate);
}

TEST_F(NoMemory, AHolderIsAdmittedAndNotListed) {
  Gate gate{{.max_concurrent = 4000, .track_holders = true}};
  std::vector<Permit> permits;
  permits.reserve(4000);
  without_memory([&] {
    for (int i = 0; i < 3000; ++i) permits.push_back(*gate.try_acquire({.label = "one"}));
  });
  EXPECT_EQ(gate.in_flight(), 3000u);
  EXPECT_LT(gate.holders().size(), 3000u);
  permits.push_back(*gate.try_acquire({.label = "listed"}));
  EXPECT_EQ(gate.holders().back().label, "listed");
  permits.clear();
  EXPECT_TRUE(gate.holders().empty());
  expect_idle(gate);
}

TEST_F(NoMemory, APermitThatCannotBeToldToStopIsLikeOneThatNeverAsked) {
  Group group{{.total = 2,
               .lend = Lend::revocable(),
               .members = {{.name = "lender", .guaranteed = {.units = 1}, .gate = {.max_queue = 2}},
                           {.name = "borrower", .guaranteed = {.units = 1}}}}};
  auto own = group.member("borrower").try_acquire();
  auto borrowed = group.member("borrower").try_acquire();
  ASSERT_TRUE(own && borrowed);
  std::stop_token token;
  without_memory([&] { token = borrowed->stop_token(); });
  EXPECT_FALSE(token.stop_possible());
  bool lender = false;
  group.member("lender").async_acquire({}, [&](const Result<Permit>& r) { lender = r.has_value(); });
  EXPECT_FALSE(lender);
  borrowed->release();
  EXPECT_TRUE(lender);
  EXPECT_TRUE(own->stop_token().stop_possible());  // memory is back
}

TEST_F(NoMemory, RunStillPassesTheCallersOwnToken) {
  Group group{
      {.total = 1, .lend = Lend::revocable(), .members = {{.name = "a", .guaranteed = {.units = 1}}}}};
  std::stop_source stop;
  bool fired = false;
  without_memory([&] {
    (void)group.member("a").run(
        [&](const std::stop_token& token) {
          stop.request_stop();
          fired = token.stop_requested();
        },
        {.stop = stop.get_token()});
  });
  EXPECT_TRUE(fired);
}

}  // namespace
}  // namespace bulkhead
