// Occupancy and saturation as sums over time: what a snapshot says is what happened, also between two
// snapshots.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

class Occupancy : public testing::Test {
 protected:
  GateOptions options(std::uint32_t limit, std::uint32_t max_queue = 0) {
    return {.name = "measured",
            .max_concurrent = limit,
            .max_queue = max_queue,
            .measure_occupancy = true,
            .clock = &clock_};
  }
  void expect(const Gate& gate, nanoseconds occupancy, nanoseconds saturated) {
    const Snapshot s = gate.snapshot();
    EXPECT_EQ(s.occupancy, occupancy);
    EXPECT_EQ(s.saturated, saturated);
  }
  // A permit that comes when there is one.
  void wait_for(Gate& gate, std::optional<Permit>& permit, const AcquireOptions& options = {}) {
    gate.async_acquire(options, [&permit](Result<Permit> r) {
      if (r) permit = *std::move(r);
    });
  }
  ManualClock clock_;
};

TEST_F(Occupancy, IsNothingUnlessAskedFor) {
  Gate gate{{.name = "plain", .clock = &clock_}};
  auto permit = gate.try_acquire();
  clock_.advance(1s);
  expect(gate, 0s, 0s);
}

TEST_F(Occupancy, SumsTheUnitsInFlightOverTime) {
  Gate gate{options(3)};
  clock_.advance(1s);
  auto one = gate.try_acquire();
  clock_.advance(1s);
  auto two = gate.try_acquire({.cost = 2});
  expect(gate, 1s, 0s);
  clock_.advance(1s);
  expect(gate, 4s, 1s);
  one->release();
  clock_.advance(1s);
  two->release(Outcome::failure);
  clock_.advance(1h);
  expect(gate, 6s, 1s);
}

TEST_F(Occupancy, ASpikeBetweenTwoSnapshotsIsNotLost) {
  Gate gate{options(2)};
  for (int i = 0; i < 1000; ++i) {
    auto a = gate.acquire(), b = gate.acquire();
    clock_.advance(1us);
    a->release();
    b->release();
    clock_.advance(9us);
  }
  expect(gate, 2ms, 1ms);
}

TEST_F(Occupancy, AUnitHandedToTheNextInLineWasNeverAvailable) {
  Gate gate{options(1, 8)};
  auto first = gate.acquire();
  std::optional<Permit> second, third;
  wait_for(gate, second);
  wait_for(gate, third);
  clock_.advance(1s);
  first->release();
  clock_.advance(1s);
  second->release();
  clock_.advance(1s);
  expect(gate, 3s, 3s);
  third->release();
  clock_.advance(1s);
  expect(gate, 3s, 3s);
}

TEST_F(Occupancy, AUnitThatAHeavyCallWaitsForIsAvailable) {
  Gate gate{options(2, 8)};
  auto one = gate.acquire(), two = gate.acquire();
  std::optional<Permit> heavy;
  wait_for(gate, heavy, {.cost = 2});
  clock_.advance(1s);
  one->release();
  clock_.advance(1s);
  expect(gate, 3s, 1s);
  two->release();
  clock_.advance(1s);
  expect(gate, 5s, 2s);
}

TEST_F(Occupancy, ShrinkingBelowWhatIsInFlightSaturatesUntilItIsPaidOff) {
  Gate gate{options(4)};
  auto a = gate.acquire(), b = gate.acquire(), c = gate.acquire();
  clock_.advance(1s);
  gate.resize(1);
  clock_.advance(1s);
  a->release();
  clock_.advance(1s);
  b->release();
  clock_.advance(1s);
  expect(gate, 9s, 3s);  // with one of one in flight it is still saturated
  c->release();
  clock_.advance(1s);
  expect(gate, 9s, 3s);
  auto d = gate.acquire();
  clock_.advance(1s);
  gate.resize(2);
  clock_.advance(1s);
  expect(gate, 11s, 4s);
}

TEST_F(Occupancy, TheCriticalReserveIsNotAvailableToOthers) {
  GateOptions o = options(4);
  o.critical_reserve = 0.5;
  Gate gate{o};
  auto a = gate.acquire(), b = gate.acquire();
  clock_.advance(1s);
  auto c = gate.acquire({.priority = Priority::critical});
  clock_.advance(1s);
  a->release();
  clock_.advance(1s);
  expect(gate, 7s, 3s);  // two of two, one of them critical
  b->release();
  clock_.advance(1s);
  expect(gate, 8s, 3s);
}

TEST_F(Occupancy, AClosedGateCountsUntilItsLastPermit) {
  Gate gate{options(1, 1)};
  auto permit = gate.acquire();
  std::optional<Permit> rejected;
  wait_for(gate, rejected);
  clock_.advance(1s);
  gate.close();
  clock_.advance(1s);
  permit->release();
  clock_.advance(1s);
  EXPECT_FALSE(rejected);
  expect(gate, 2s, 2s);
}

TEST_F(Occupancy, EveryFairnessAndEveryObserverMeasuresTheSame) {
  for (const Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    for (const bool observed : {false, true}) {
      GateOptions o = options(2, 4);
      o.fairness = fairness;
      o.track_holders = o.measure_service = observed;
      Gate gate{o};
      auto a = gate.acquire(), b = gate.acquire();
      std::optional<Permit> c;
      wait_for(gate, c);
      clock_.advance(1s);
      a->release();
      clock_.advance(1s);
      b->fail();
      b->release();
      clock_.advance(1s);
      c.reset();
      clock_.advance(1s);
      expect(gate, 5s, 2s);
    }
  }
}

TEST_F(Occupancy, OfAGroupsMembersIsThatOfWhatTheyAreAllotted) {
  const GateOptions gate{.max_queue = 4, .measure_occupancy = true, .clock = &clock_};
  Group group{{.name = "g",
               .total = 4,
               .members = {{.name = "a", .guaranteed = {.units = 2}, .gate = gate},
                           {.name = "b", .guaranteed = {.units = 2}, .gate = gate}}}};
  Gate& a = group.member("a");
  Gate& b = group.member("b");
  std::vector<Permit> held;
  const auto take = [&](Gate& from) { held.push_back(*from.acquire()); };
  take(a);
  clock_.advance(1s);
  expect(a, 1s, 0s);
  take(a), take(a), take(a);  // two of them lent by b, which has nothing left
  clock_.advance(1s);
  expect(a, 5s, 1s);
  expect(b, 0s, 1s);
  std::optional<Permit> called_back;
  wait_for(b, called_back);
  clock_.advance(1s);
  held.pop_back();  // b has it back
  ASSERT_TRUE(called_back);
  clock_.advance(1s);
  expect(a, 12s, 3s);
  expect(b, 1s, 3s);
  held.clear();
  called_back.reset();
  clock_.advance(1s);
  expect(a, 12s, 3s);
  EXPECT_EQ(b.snapshot().occupancy, 1s);
}

// ---- in a bulkhead ----

class CountingClock final : public Clock {
 public:
  explicit CountingClock(ManualClock& clock) : clock_(clock) {}
  TimePoint now() const noexcept override { return ++looks, clock_.now(); }
  TimePoint glance() const noexcept override { return ++looks, clock_.now(); }
  void wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept override {
    clock_.wait(word, value, until);
  }
  DeadlineDriver& deadlines() noexcept override { return clock_; }
  mutable int looks = 0;

 private:
  ManualClock& clock_;
};

TEST_F(Occupancy, OfABulkheadCostsNoFurtherLookAtTheClock) {
  CountingClock clock(clock_);
  Bulkhead db{{.name = "db", .max_concurrent = 2, .clock = &clock}};
  clock.looks = 0;
  EXPECT_TRUE(db.execute([&] { clock_.advance(1s); }));
  EXPECT_EQ(clock.looks, 2);
  EXPECT_TRUE(db.execute([&] { clock_.advance(1s); }, {.cost = 2, .stop = std::stop_source().get_token()}));
  EXPECT_EQ(clock.looks, 4);
  {
    auto call = db.try_acquire();
    clock_.advance(1s);
    call->finish(Outcome::failure);
  }
  EXPECT_EQ(clock.looks, 6);
  const BulkheadSnapshot s = db.snapshot();
  EXPECT_EQ(s.gate.occupancy, 4s);
  EXPECT_EQ(s.gate.saturated, 1s);
}

TEST_F(Occupancy, OfABulkheadComesWithItsHistograms) {
  Bulkhead without{{.name = "without", .histograms = false, .clock = &clock_}};
  EXPECT_TRUE(without.execute([&] { clock_.advance(1s); }));
  EXPECT_EQ(without.snapshot().gate.occupancy, 0s);

  BulkheadOptions o{.name = "with", .clock = &clock_};
  Bulkhead with{o};
  EXPECT_TRUE(with.execute([&] { clock_.advance(1s); }));
  o.histograms = false;
  with.update(o);  // it goes on, and looks at the clock for itself
  EXPECT_TRUE(with.execute([&] { clock_.advance(1s); }));
  EXPECT_EQ(with.snapshot().gate.occupancy, 2s);
  EXPECT_EQ(with.snapshot().gate.saturated, 2s);
}

TEST_F(Occupancy, IsSetBackWithTheOtherStatistics) {
  Bulkhead db{{.name = "db", .clock = &clock_}};
  auto call = db.acquire();
  clock_.advance(1s);
  db.reset_statistics();
  clock_.advance(1s);
  EXPECT_EQ(db.snapshot().gate.occupancy, 1s);
  EXPECT_EQ(db.snapshot().gate.saturated, 1s);
}

TEST_F(Occupancy, OfAPoolIsThatOfItsThreads) {
  Bulkhead reports{
      {.name = "reports", .isolation = Isolation::threads, .max_concurrent = 2, .clock = &clock_}};
  EXPECT_TRUE(reports.execute([&] { clock_.advance(1s); }));
  EXPECT_TRUE(reports.drain());
  const BulkheadSnapshot s = reports.snapshot();
  EXPECT_EQ(s.gate.occupancy, 1s);
  EXPECT_EQ(s.gate.saturated, 0s);
  EXPECT_EQ(s.pool->gate.occupancy, 1s);
}

}  // namespace
}  // namespace bulkhead
