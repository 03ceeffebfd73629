// What a bulkhead measures: histograms, counters, and their reset.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

TEST(Bulkhead, HistogramsOfWaitAndServiceTimes) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .max_concurrent = 1, .max_queue = 1, .clock = &clock}};
  std::optional<Call> waited;
  {
    auto first = b.acquire();
    b.async_acquire({}, [&](Result<Call> call) { waited = *std::move(call); });
    clock.advance(100ms);
    first->finish(Outcome::success);
  }
  clock.advance(400ms);
  waited->finish(Outcome::success);
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.wait.count(), 2u);
  EXPECT_EQ(s.wait.buckets[0], 1u);
  EXPECT_NEAR(static_cast<double>(s.wait.quantile(1)), 100e6, 5e6);
  EXPECT_EQ(s.service.count(), 2u);
  EXPECT_NEAR(static_cast<double>(s.service.quantile(0.5)), 100e6, 5e6);
  EXPECT_NEAR(static_cast<double>(s.service.quantile(1)), 400e6, 20e6);
}

TEST(Bulkhead, HistogramsSwitchedOnLaterKnowNothingOfEarlierCalls) {
  Bulkhead b{{.name = "db", .histograms = false}};
  EXPECT_TRUE(b.execute([] {}));
  b.update({.name = "db"});
  EXPECT_EQ(b.snapshot().wait.count(), 0u);
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.snapshot().wait.count(), 1u);
  EXPECT_EQ(b.snapshot().service.count(), 1u);
}

TEST(Bulkhead, HistogramsOfASharedGateAreOfItsOwnCalls) {
  Gate gate{{.name = "db", .max_concurrent = 2}};
  Bulkhead b{{.gate = &gate}};
  {
    const auto others = gate.acquire();
  }
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.snapshot().wait.count(), 1u);
}

TEST(Bulkhead, WithoutHistogramsNoneAreKept) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .histograms = false, .clock = &clock}};
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.snapshot().wait.count(), 0u);
  EXPECT_EQ(b.snapshot().service.count(), 0u);
}

TEST(Bulkhead, ResetOfStatisticsForgetsWhatWasAndKeepsWhatIs) {
  ManualClock clock;
  Bulkhead b{{.name = "db", .max_concurrent = 2, .clock = &clock}};
  auto in_flight = b.acquire();
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_EQ(b.execute([] {}, {.cost = 2}).error().reason, Reason::concurrency_limit);
  EXPECT_THROW(static_cast<void>(b.execute([] { throw 1; })), int);
  b.reset_statistics();
  BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.in_flight, 1u);
  EXPECT_EQ(s.gate.admitted, s.gate.released + s.gate.permits);
  EXPECT_EQ(s.gate.released, 0u);
  EXPECT_EQ(s.gate.rejected(), 0u);
  EXPECT_EQ(s.service.count(), 0u);
  EXPECT_EQ(s.rejection_rate(), 0);
  in_flight->finish(Outcome::failure);
  s = b.snapshot();
  EXPECT_EQ(s.gate.released, 1u);
  EXPECT_EQ(s.gate.failed, 1u);
  EXPECT_EQ(s.gate.admitted, 1u);
  EXPECT_EQ(s.service.count(), 1u);
}

TEST(Bulkhead, ResetOfStatisticsIsForItsBudgetsToo) {
  ManualClock clock;
  Bulkhead b{{.name = "db",
              .max_concurrent = 2,
              .measure_occupancy = true,
              .budgets = {{.name = "tokens", .max = 10}},
              .clock = &clock}};
  auto in_flight = b.acquire({.costs = {{"tokens", 6}}});
  clock.advance(10ms);
  EXPECT_TRUE(b.execute([] {}, {.costs = {{"tokens", 4}}}));
  EXPECT_FALSE(b.execute([] {}, {.costs = {{"tokens", 5}}}));
  b.reset_statistics();
  const auto tokens = [&] { return b.snapshot().budgets.at(0); };
  EXPECT_EQ(tokens().in_use, 6u);
  EXPECT_EQ(tokens().admitted, 1u) << "the call in flight";
  EXPECT_EQ(tokens().rejected, 0u);
  EXPECT_EQ(tokens().occupancy, 0ns);
  clock.advance(10ms);
  EXPECT_EQ(tokens().occupancy, 60ms);
  EXPECT_TRUE(b.execute([] {}, {.costs = {{"tokens", 4}}}));
  EXPECT_EQ(tokens().admitted, 2u);
}

}  // namespace
}  // namespace bulkhead
