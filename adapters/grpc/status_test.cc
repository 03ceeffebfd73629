// The status and the pushback of each reason.
#include "status.h"

#include <gtest/gtest.h>

#include <chrono>

namespace bulkhead::grpc {
namespace {

using namespace std::chrono_literals;
using ::grpc::StatusCode;

constexpr auto kFull = StatusCode::RESOURCE_EXHAUSTED;
constexpr auto kGone = StatusCode::UNAVAILABLE;
constexpr auto kLate = StatusCode::DEADLINE_EXCEEDED;
constexpr auto kOut = StatusCode::ABORTED;  // of a reason that is configured

struct Row {
  Reason reason;
  StatusCode code, late;
  bool again, again_late;  // a retry makes sense
  StatusCode StatusFor::* setting;
};
constexpr Row kRows[] = {
    {Reason::concurrency_limit, kFull, kFull, true, true, &StatusFor::concurrency_limit},
    {Reason::queue_limit, kFull, kFull, true, true, &StatusFor::queue_limit},
    {Reason::timeout, kFull, kLate, true, false, &StatusFor::timeout},
    {Reason::cancelled, StatusCode::CANCELLED, StatusCode::CANCELLED, false, false, &StatusFor::cancelled},
    {Reason::shutdown, kGone, kGone, true, true, &StatusFor::shutdown},
    {Reason::evicted, kFull, kFull, true, true, &StatusFor::evicted},
    {Reason::deadline, kFull, kLate, true, false, &StatusFor::deadline_unreachable},
    {Reason::breaker_open, kGone, kGone, true, true, &StatusFor::breaker_open},
    {Reason::rate_limit, kFull, kFull, true, true, &StatusFor::rate_limit},
    {Reason::tenant_limit, kFull, kFull, true, true, &StatusFor::tenant_limit},
    {Reason::draining, kGone, kGone, true, true, &StatusFor::draining},
    {Reason::budget_limit, kFull, kLate, true, false, &StatusFor::budget_limit},
    {Reason::holdback, kFull, kFull, true, true, &StatusFor::holdback},
    {Reason::execution_timeout, kLate, kLate, false, false, &StatusFor::execution_timeout},
    {Reason::injected_fault, kGone, kGone, true, true, &StatusFor::injected_fault},
};

TEST(GrpcStatus, EveryReasonHasItsStatusPushbackAndSetting) {
  static_assert(std::size(kRows) == kReasons);
  for (const Row& row : kRows) {
    SCOPED_TRACE(to_string(row.reason));
    EXPECT_EQ(code_of(row.reason, {}), row.code);
    EXPECT_EQ(code_of(row.reason, {}, true), row.late);
    const Rejection why{.reason = row.reason, .name = "db"};
    EXPECT_EQ(pushback_of(why) > 0ms, row.again);
    EXPECT_EQ(pushback_of(why, {}, {.late = true}) > 0ms, row.again_late);
    StatusFor changed;
    changed.*row.setting = kOut;
    EXPECT_EQ(code_of(row.reason, changed), kOut);
    for (const Row& other : kRows)
      if (other.reason != row.reason) {
        EXPECT_EQ(code_of(other.reason, changed), other.code);
      }
  }
  StatusFor changed;
  changed.deadline = kOut;
  for (const Row& row : kRows)
    EXPECT_EQ(code_of(row.reason, changed, true) == kOut,
              row.late == kLate && row.reason != Reason::execution_timeout);
}

TEST(GrpcStatus, ARetryMakesNoSenseForMoreThanABudgetAllowsACall) {
  EXPECT_EQ(pushback_of({.reason = Reason::budget_limit, .name = "db", .asked = 9, .per_call_max = 8}), -1ms);
  EXPECT_GT(pushback_of({.reason = Reason::budget_limit, .name = "db", .asked = 8, .per_call_max = 8}), 0ms);
}

TEST(GrpcStatus, ThePushbackIsWhatTheRejectionKnowsElseByPriorityWithAJitter) {
  const Rejection why{.reason = Reason::queue_limit, .name = "db"};
  EXPECT_EQ(pushback_of(why), 400ms);
  EXPECT_EQ(pushback_of(why, {}, {.priority = Priority::critical}), 200ms);
  EXPECT_EQ(pushback_of(why, {}, {.priority = Priority::best_effort}), 800ms);
  EXPECT_EQ(pushback_of(why, {}, {.random = 0xffffffff}), 599ms);
  EXPECT_EQ(pushback_of({.reason = Reason::rate_limit, .name = "db", .retry_after = 1500us}), 2ms);
}

}  // namespace
}  // namespace bulkhead::grpc
