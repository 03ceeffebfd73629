#include "bulkhead/rate_limiter.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <stdexcept>

#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

struct RateLimiterTest : testing::Test {
  ManualClock clock;
  RateLimiterOptions options(RateLimiterOptions o) {
    o.name = "mail";
    o.clock = &clock;
    return o;
  }
  static int take_all(RateLimiter& r) {
    int n = 0;
    while (r.try_take()) ++n;
    return n;
  }
};

TEST_F(RateLimiterTest, StartsFullThenGoesAtItsRate) {
  RateLimiter r(options({.rate = 10, .burst = 3}));
  EXPECT_EQ(take_all(r), 3);
  EXPECT_EQ(r.try_take().error().retry_after, 100ms);
  clock.advance(100ms - 1ns);
  EXPECT_EQ(r.try_take().error().retry_after, 1ns);
  clock.advance(1ns);
  EXPECT_EQ(take_all(r), 1);
  clock.advance(1h);
  EXPECT_EQ(take_all(r), 3) << "saves up a burst, no more";
}

TEST_F(RateLimiterTest, WithoutABurstOnePeriodIsTheBurst) {
  RateLimiter r(options({.rate = 5}));
  EXPECT_EQ(take_all(r), 5);
  EXPECT_EQ(r.snapshot().burst, 5u);
}

TEST_F(RateLimiterTest, RetryAfterIsExactlyWhenItWorks) {
  for (const std::uint32_t rate : {1u, 3u, 7u, 999u, 123'457u, 10'000'019u}) {
    RateLimiter r(options({.rate = rate, .burst = 2}));
    for (int i = 0; i < 50; ++i) {
      take_all(r);
      const auto wait = r.try_take().error().retry_after;
      ASSERT_GT(wait, 0ns);
      clock.advance(wait - 1ns);
      ASSERT_FALSE(r.try_take()) << "not a nanosecond earlier, rate " << rate;
      clock.advance(1ns);
      ASSERT_TRUE(r.try_take()) << "rate " << rate;
    }
  }
}

TEST_F(RateLimiterTest, ACostTakesThatManyTokens) {
  RateLimiter r(options({.rate = 10, .burst = 10}));
  EXPECT_TRUE(r.try_take(7));
  EXPECT_EQ(r.try_take(4).error().retry_after, 100ms);
  EXPECT_TRUE(r.try_take(3)) << "a rejection took nothing";
  EXPECT_EQ(r.try_take(0).error().retry_after, 100ms) << "0 counts as 1";
}

TEST_F(RateLimiterTest, ACostAboveTheBurstIsRejectedForEverAndToldSo) {
  RateLimiter r(options({.rate = 10, .burst = 5}));
  for (const std::uint32_t cost : {6u, 1'000'000u, UINT32_MAX}) {
    EXPECT_TRUE(r.try_take(cost).error().never);
    EXPECT_TRUE(r.reserve({.cost = cost, .max_wait = 1000h}).error().never);
  }
  EXPECT_FALSE(r.rejection({.never = true}).retry_after > 0ns);
  EXPECT_TRUE(r.try_take(5));
}

TEST_F(RateLimiterTest, AReservationSaysWhenAndTheNextComesAfterIt) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  EXPECT_EQ(r.reserve({})->at, clock.now());
  EXPECT_EQ(r.reserve({.max_wait = 1s})->at, clock.now() + 100ms);
  EXPECT_EQ(r.reserve({.max_wait = 1s})->at, clock.now() + 200ms);
  EXPECT_EQ(r.reserve({.max_wait = 299ms}).error().retry_after, 300ms);
  EXPECT_NEAR(r.snapshot().available, -2, 1e-6);
  clock.advance(299ms);
  EXPECT_FALSE(r.try_take());
  clock.advance(1ms);
  EXPECT_TRUE(r.try_take());
}

TEST_F(RateLimiterTest, ATimeBeforeTheEpochIsATimeLikeAnyOther) {
  for (const TimePoint start : {TimePoint(-1h), TimePoint(-1s), TimePoint::min()}) {
    ManualClock early{start};
    RateLimiter r{{.name = "mail", .rate = 10, .burst = 2, .clock = &early}};
    EXPECT_EQ(take_all(r), 2) << "it starts full";
    EXPECT_EQ(r.try_take().error().retry_after, 100ms);
    EXPECT_EQ(r.reserve({.max_wait = 100ms})->at, start + 100ms);
    EXPECT_FALSE(r.reserve({.max_wait = 200ms - 1ns}));
    early.advance(200ms - 1ns);
    EXPECT_FALSE(r.try_take());
    early.advance(1ns);
    EXPECT_TRUE(r.try_take());
    early.advance(2s);  // the start at -1 s: across the epoch
    EXPECT_EQ(take_all(r), 2);
  }
}

TEST_F(RateLimiterTest, CancelOfTheLastIsAsIfItHadNeverBeen) {
  RateLimiter r(options({.rate = 10, .burst = 2}));
  auto a = r.try_take(2);
  clock.advance(100ms);
  EXPECT_TRUE(r.cancel(*a));
  EXPECT_EQ(take_all(r), 2);
  EXPECT_FALSE(r.cancel(*a)) << "once";
  EXPECT_EQ(r.snapshot().cancelled, 1u);
}

TEST_F(RateLimiterTest, CancelAfterARefillGivesNothingBack) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  auto a = r.try_take();
  clock.advance(100ms);
  EXPECT_TRUE(r.try_take());
  EXPECT_FALSE(r.cancel(*a)) << "its token has come back by itself, and was taken";
  EXPECT_FALSE(r.try_take());
}

TEST_F(RateLimiterTest, CancelOfATurnThatOthersWaitBehindIsRejected) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  auto a = r.reserve({.max_wait = 1s}), b = r.reserve({.max_wait = 1s}), c = r.reserve({.max_wait = 1s});
  EXPECT_FALSE(r.cancel(*b));
  EXPECT_TRUE(r.cancel(*c)) << "the last one can";
  EXPECT_EQ(r.reserve({.max_wait = 1s})->at, c->at) << "and its turn is free again";
  EXPECT_TRUE(a);
}

TEST_F(RateLimiterTest, CancelAfterALongTimeDoesNotOverfill) {
  RateLimiter r(options({.rate = 10, .burst = 2}));
  auto a = r.try_take(2);
  clock.advance(1h);
  r.cancel(*a);
  EXPECT_EQ(take_all(r), 2);
}

TEST_F(RateLimiterTest, EveryRateIsAcceptedPerSecond) {
  for (const std::uint32_t rate : {1u, 1'000'000'000u, 2'500'000'000u, 4'000'000'000u, 4'294'967'295u}) {
    RateLimiter r(options({.rate = rate, .burst = 1000}));
    std::uint64_t taken = 0;
    for (int i = 0; i < 1000; ++i) {
      while (r.try_take()) ++taken;
      clock.advance(100ns);
    }
    const double most = 1000 + static_cast<double>(rate) * 1e-4;
    EXPECT_LE(static_cast<double>(taken), most + 1) << rate;
    EXPECT_GE(static_cast<double>(taken), 0.92 * most - 1) << rate;
  }
}

TEST_F(RateLimiterTest, CancelAfterAnUpdateIsAsIfTheCallHadNeverBeen) {
  RateLimiter r(options({.rate = 10, .burst = 10}));
  auto a = r.try_take(6);
  r.update({.rate = 1000, .per = 1s, .burst = 100});
  EXPECT_TRUE(r.cancel(*a));
  EXPECT_NEAR(r.snapshot().available, 10, 1e-6) << "tokens of the old bucket, not of the new terms";

  auto b = r.try_take(5);
  r.update({.rate = 20, .burst = 3});  // it would have kept 3 of 10 too
  clock.advance(50ms);
  EXPECT_TRUE(r.cancel(*b));
  EXPECT_EQ(r.snapshot().cancelled, 2u);
  EXPECT_NEAR(r.snapshot().available, 3, 1e-6);
}

TEST_F(RateLimiterTest, CancelAfterAnUpdateGivesNothingBackOnceOthersHaveTaken) {
  RateLimiter r(options({.rate = 10, .burst = 10}));
  auto a = r.try_take(6);
  r.update({.rate = 1000, .burst = 100});
  ASSERT_TRUE(r.try_take());
  EXPECT_FALSE(r.cancel(*a));
  EXPECT_NEAR(r.snapshot().available, 3, 1e-6);
}

TEST_F(RateLimiterTest, CancelAfterTwoUpdatesGivesNothingBackWhereAnEarlierOneDid) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  r.update({.rate = 7, .burst = 2});
  clock.advance(142'857'143ns);
  auto a = r.try_take(2);
  r.update({.rate = 28, .burst = 5});
  EXPECT_TRUE(r.cancel(*a));
  auto b = r.try_take(2);  // the word is now what it was before the cancellation
  r.update({.rate = 7, .burst = 2});
  r.update({.rate = 28, .burst = 5});
  EXPECT_FALSE(r.cancel(*b));
}

TEST_F(RateLimiterTest, AnUpdateThatChangesNothingChangesNothing) {
  RateLimiter r(options({.rate = 10, .burst = 10}));
  auto a = r.try_take(6);
  for (int i = 0; i < 3; ++i) r.update({.rate = 10, .burst = 10});
  EXPECT_TRUE(r.cancel(*a));
  EXPECT_EQ(r.snapshot().available, 10);
}

TEST_F(RateLimiterTest, UpdateKeepsTheTokensThatAreThere) {
  RateLimiter r(options({.rate = 10, .burst = 10}));
  EXPECT_TRUE(r.try_take(6));
  r.update({.rate = 1000, .per = 1s, .burst = 100});
  EXPECT_NEAR(r.snapshot().available, 4, 1e-6) << "a larger bucket is not a fuller one";
  clock.advance(10ms);
  EXPECT_NEAR(r.snapshot().available, 14, 1e-6);
  r.update({.rate = 1, .per = 1min, .burst = 3});
  EXPECT_EQ(take_all(r), 3);
  EXPECT_EQ(r.try_take().error().retry_after, 1min);
  EXPECT_EQ(r.name(), "mail");
}

TEST_F(RateLimiterTest, UpdateKeepsPromises) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  for (int i = 0; i < 3; ++i) (void)r.reserve({.max_wait = 1s});
  r.update({.rate = 100, .burst = 1});
  EXPECT_NEAR(r.snapshot().available, -2, 1e-6);
  EXPECT_EQ(r.try_take().error().retry_after, 30ms);
}

TEST_F(RateLimiterTest, ABadUpdateChangesNothing) {
  RateLimiter r(options({.rate = 10, .burst = 3}));
  EXPECT_THROW(r.update({.rate = 0}), std::invalid_argument);
  EXPECT_EQ(r.snapshot().rate, 10u);
  EXPECT_EQ(take_all(r), 3);
}

TEST_F(RateLimiterTest, TheSlowestAndTheFastest) {
  RateLimiter daily(options({.rate = 1, .per = 24h, .burst = 365}));
  EXPECT_EQ(take_all(daily), 365);
  EXPECT_EQ(daily.try_take().error().retry_after, 24h);
  EXPECT_EQ(daily.reserve({.max_wait = 10000h})->at, clock.now() + 24h);
  RateLimiter fast(options({.rate = 1'000'000'000, .burst = 4'000'000'000}));
  EXPECT_TRUE(fast.try_take(4'000'000'000));
  EXPECT_EQ(fast.try_take().error().retry_after, 1ns);
  EXPECT_EQ(fast.try_take(4'000'000'000).error().retry_after, 4s);
  clock.advance(1us);
  EXPECT_EQ(take_all(fast), 1000);
}

TEST_F(RateLimiterTest, NeverFasterThanAskedAndHardlySlower) {
  for (const std::uint32_t rate : {3u, 700'000'000u, 333'333'333u, 1'999'993u}) {
    RateLimiter r(options({.rate = rate, .burst = 1}));
    ASSERT_TRUE(r.try_take());
    const TimePoint start = clock.now();
    const int n = 10'000;
    for (int i = 0; i < n; ++i) {
      const auto turn = r.reserve({.max_wait = 10000h}, start);
      ASSERT_TRUE(turn);
      const double spent = static_cast<double>((turn->at - start).count()) + 1;  // `at` is in whole ns
      ASSERT_LE((i + 1) * 1e9 / rate, spent) << rate;
      ASSERT_GE(((i + 1) * 1e9 / rate) * (1 + rate / 64e9) + 2, spent) << rate;
    }
  }
}

TEST_F(RateLimiterTest, IdlingForYearsIsFine) {
  RateLimiter r(options({.rate = 10, .burst = 3}));
  for (const auto idle : {24h * 21, 24h * 365, 24h * 365 * 4}) {
    take_all(r);
    clock.advance(idle);
    EXPECT_EQ(take_all(r), 3);
  }
}

TEST_F(RateLimiterTest, AnyTimeOfTheClockIsFine) {
  for (const TimePoint start :
       {TimePoint(0ns), TimePoint(-1h), TimePoint(std::chrono::nanoseconds::max() - 1h),
        TimePoint(std::chrono::nanoseconds::min() + 1h)}) {
    ManualClock then(start);
    RateLimiter r({.rate = 10, .burst = 3, .clock = &then});
    EXPECT_EQ(take_all(r), 3);
    then.advance(100ms);
    EXPECT_EQ(take_all(r), 1);
  }
}

TEST_F(RateLimiterTest, AStepBackOfTheClockCostsAtMostOneRefill) {
  RateLimiter r(options({.rate = 10, .burst = 3}));
  const TimePoint now = clock.now() + 24h * 365;
  EXPECT_TRUE(r.try_take(1, now));
  const TimePoint past = now - 24h;
  EXPECT_EQ(r.try_take(1, past).error().retry_after, 100ms);
  EXPECT_EQ(r.try_take(3, past + 300ms)->at, past + 300ms);
}

TEST_F(RateLimiterTest, TheSnapshotCounts) {
  RateLimiter r(options({.rate = 10, .per = 2s, .burst = 3}));
  take_all(r);
  clock.advance(100ms);
  const auto s = r.snapshot();
  EXPECT_EQ(s.rate, 10u);
  EXPECT_EQ(s.per, 2s);
  EXPECT_EQ(s.burst, 3u);
  EXPECT_NEAR(s.available, 0.5, 1e-6);
  EXPECT_EQ(s.admitted, 3u);
  EXPECT_EQ(s.rejected, 1u);
  clock.advance(1h);
  EXPECT_EQ(r.snapshot().available, 3);
}

TEST_F(RateLimiterTest, TheRejectionSaysWhenToComeBack) {
  RateLimiter r(options({.rate = 10, .burst = 1}));
  take_all(r);
  const Rejection rejection = r.rejection(r.try_take().error());
  EXPECT_EQ(rejection.reason, Reason::rate_limit);
  EXPECT_THAT(rejection.message(), HasSubstr("bulkhead \"mail\" rejected (rate_limit)"));
  EXPECT_THAT(rejection.message(), HasSubstr("retry after 100 ms"));
}

TEST_F(RateLimiterTest, OptionsThatMakeNoSenseAreRejectedWithTheSettingAndTheFix) {
  const auto rejected = [&](RateLimiterOptions o, const char* text) {
    o.name = "mail";
    EXPECT_THAT([&] { RateLimiter{o}; }, ThrowsMessage<std::invalid_argument>(HasSubstr(text)));
  };
  rejected({.rate = 0}, "bulkhead \"mail\": rate limit rate = 0 is out of range: give 1 or more");
  rejected({.per = 0s}, "per = 0 ns is out of range");
  rejected({.per = 24h * 32}, "per");
  rejected({.rate = 1, .per = 25h}, "less than one a day");
  rejected({.rate = 4'000'000'000, .per = 700ms}, "give at most 5 per nanosecond");
  rejected({.rate = 1, .per = 24h, .burst = 366}, "burst = 366 would take 366 days to fill");
  rejected({.rate = 1, .per = 24h, .burst = UINT32_MAX}, "burst");
}

}  // namespace
}  // namespace bulkhead
