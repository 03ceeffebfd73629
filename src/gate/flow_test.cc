// Fairness between flows, case by case; gate_property_test.cc compares long sequences with a model.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <deque>
#include <map>
#include <numeric>
#include <optional>
#include <random>
#include <set>
#include <stdexcept>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bulkhead/gate.h"
#include "bulkhead/manual_clock.h"
#include "gate/flow_queues.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using detail::FlowHand;

// Calls of named flows in line of one gate, and in which order they are answered.
class Line {
 public:
  explicit Line(GateOptions options) : gate(std::move(options)) {}
  ~Line() {
    gate.close();
    for (Call& call : calls) call.permit.reset();
  }
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  void join(const std::string& flow, AcquireOptions o = {}) {
    o.flow = flow_of(flow);
    const std::size_t call = calls.size();
    calls.push_back({.name = flow});
    gate.async_acquire(o, [this, call](Result<Permit> r) {
      if (r) {
        calls[call].permit = *std::move(r);
        running.push_back(call);
        order += calls[call].name + " ";
      } else {
        calls[call].rejected = r.error().reason;
      }
    });
  }
  void finish_one() {  // the call that has run longest
    const std::size_t call = running.front();
    running.pop_front();
    calls[call].permit->release();
  }
  std::string served(std::size_t n) {  // the flows of the next n
    order.clear();
    for (std::size_t i = 0; i < n; ++i) finish_one();
    return order;
  }
  std::size_t rejected(const std::string& flow, Reason reason) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(calls, [&](const auto& c) { return c.name == flow && c.rejected == reason; }));
  }
  std::size_t in_line(const std::string& flow) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(calls, [&](const auto& c) { return c.name == flow && c.waits(); }));
  }

  struct Call {
    std::string name;
    std::optional<Permit> permit{};
    std::optional<Reason> rejected{};
    bool waits() const { return !permit && !rejected; }
  };
  std::deque<Call> calls;
  std::deque<std::size_t> running;
  std::string order;
  Gate gate;
};

GateOptions one_at_a_time(std::uint32_t max_queue = 20'000, std::uint32_t hand = 1) {
  return {.name = "flows", .max_queue = max_queue, .flow_queues = 64, .flow_hand = hand};
}

// ---- hands ----

TEST(FlowHand, DealsDifferentQueuesAndTheSameEveryTime) {
  for (std::uint64_t flow = 0; flow < 2000; ++flow)
    for (const auto& [queues, hand] : {std::pair{1u, 1u}, {4u, 4u}, {5u, 2u}, {64u, 4u}, {1024u, 16u}}) {
      const FlowHand dealt(flow, 7, queues, hand);
      const std::set<std::uint32_t> different(dealt.begin(), dealt.end());
      ASSERT_EQ(different.size(), hand);
      ASSERT_LT(*different.rbegin(), queues);
      ASSERT_TRUE(std::ranges::equal(dealt, FlowHand(flow, 7, queues, hand)));
    }
}

TEST(FlowHand, DealsEveryQueueAndEveryPairAsOften) {
  std::array<int, 8> queues{};
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> pairs;
  for (std::uint64_t flow = 0; flow < 56'000; ++flow) {
    const FlowHand dealt(flow, 1, 8, 2);
    ++pairs[{dealt.queue[0], dealt.queue[1]}];
    for (const std::uint32_t q : dealt) ++queues[q];
  }
  ASSERT_EQ(pairs.size(), 56u);
  for (const auto& [pair, n] : pairs) EXPECT_NEAR(n, 1000, 150);  // five standard deviations
  for (const int n : queues) EXPECT_NEAR(n, 14'000, 600);
}

TEST(FlowHand, AQuietFlowHardlyEverFindsItsWholeHandTakenByNoisyOnes) {
  int taken_by_one = 0, taken_by_five = 0, untouched = 0;
  constexpr int kSeeds = 20'000;
  for (int seed = 0; seed < kSeeds; ++seed) {
    const auto hand = [&](const char* name) {
      return FlowHand(flow_of(name), static_cast<std::uint64_t>(seed), 64, 4);
    };
    std::set<std::uint32_t> noisy;
    const auto left = [&] {
      return std::ranges::count_if(hand("quiet"), [&](std::uint32_t q) { return !noisy.contains(q); });
    };
    for (const std::uint32_t q : hand("noisy 1")) noisy.insert(q);
    taken_by_one += left() == 0;
    untouched += left() == 4;
    for (const char* name : {"noisy 2", "noisy 3", "noisy 4", "noisy 5"})
      for (const std::uint32_t q : hand(name)) noisy.insert(q);
    taken_by_five += left() == 0;
  }
  EXPECT_LE(taken_by_one, 2);                             // 1 in 635'376
  EXPECT_NEAR(untouched, 0.767 * kSeeds, 0.02 * kSeeds);  // C(60,4) / C(64,4)
  EXPECT_LT(taken_by_five, 0.01 * kSeeds);                // below C(20,4) / C(64,4) = 0.76 %
}

TEST(Flow, NamesBecomeKeys) {
  static_assert(flow_of("a") != flow_of("b"));
  static_assert(flow_of("") != 0);
  EXPECT_EQ(flow_of("tenant 17"), flow_of(std::string("tenant ") + "17"));
}

// ---- waiting ----

// How long a quiet call waits when a noisy flow has `backlog` calls in line and each takes a millisecond.
std::chrono::nanoseconds quiet_wait(std::uint32_t backlog, std::uint32_t noisy_flows) {
  ManualClock clock;
  GateOptions o = one_at_a_time(20'000, 4);
  o.clock = &clock;
  Line line{o};
  line.join("noisy 0");
  for (std::uint32_t i = 0; i < backlog; ++i) line.join("noisy " + std::to_string(i % noisy_flows));
  for (int i = 0; i < 5; ++i) {  // it has been busy for a while
    clock.advance(1ms);
    line.finish_one();
  }
  line.join("quiet");
  const TimePoint came = clock.now();
  const auto& quiet = line.calls.back();
  while (quiet.waits()) {
    clock.advance(1ms);
    line.finish_one();
  }
  EXPECT_TRUE(quiet.permit);
  return clock.now() - came;
}

TEST(Flow, AQuietFlowsWaitDoesNotDependOnTheNoisyOnesBacklog) {
  const auto wait = quiet_wait(10, 1);
  EXPECT_LE(wait, 5ms);  // one call of each queue of the noisy hand at most, and the one that runs
  EXPECT_EQ(quiet_wait(1000, 1), wait);
  EXPECT_EQ(quiet_wait(10'000, 1), wait);
}

TEST(Flow, NorWithSeveralNoisyOnes) {
  const auto wait = quiet_wait(100, 3);
  EXPECT_LE(wait, 13ms);
  EXPECT_EQ(quiet_wait(10'000, 3), wait);
}

TEST(Flow, WithoutFlowQueuesAllWaitInOneLine) {
  Line line{{.max_queue = 100}};
  line.join("noisy");
  for (int i = 0; i < 3; ++i) line.join("noisy");
  line.join("quiet");
  EXPECT_EQ(line.served(4), "noisy noisy noisy quiet ");
}

TEST(Flow, FlowsTakeTurns) {
  Line line{one_at_a_time()};
  line.join("a");
  for (const char* flow : {"a", "a", "a", "a", "b", "b", "c"}) line.join(flow);
  std::string order = line.served(7);
  // The first three are one of each, the next two one of each that is left, then the last two of a.
  const auto sorted = [&](std::size_t from, std::size_t n) {
    std::string part = order.substr(2 * from, 2 * n);
    std::vector<char> flows;
    for (const char c : part)
      if (c != ' ') flows.push_back(c);
    std::ranges::sort(flows);
    return std::string(flows.begin(), flows.end());
  };
  EXPECT_EQ(sorted(0, 3), "abc");
  EXPECT_EQ(sorted(3, 2), "ab");
  EXPECT_EQ(sorted(5, 2), "aa");
}

TEST(Flow, TurnsAreByCost) {
  GateOptions o = one_at_a_time();
  o.max_concurrent = 3;
  Line line{o};
  line.join("first", {.cost = 3});
  for (int i = 0; i < 20; ++i) line.join("heavy", {.cost = 3});
  for (int i = 0; i < 60; ++i) line.join("light");
  std::map<std::string, int> units;
  for (int i = 0; i < 41; ++i) {
    line.order.clear();
    line.finish_one();
    for (std::size_t at = 0; (at = line.order.find("heavy", at)) != std::string::npos; ++at)
      units["heavy"] += 3;
    for (std::size_t at = 0; (at = line.order.find("light", at)) != std::string::npos; ++at)
      units["light"] += 1;
    EXPECT_LE(std::abs(units["heavy"] - units["light"]), 4) << i;
  }
  EXPECT_GE(units["heavy"], 27);
}

TEST(Flow, IsFirstInFirstOutAndAHeavyCallIsNotOvertakenInItsFlow) {
  GateOptions o = one_at_a_time();
  o.max_concurrent = 2;
  Line line{o};
  line.join("b");
  line.join("b");
  line.join("a", {.cost = 2});
  line.join("a");  // would fit when one is free
  line.finish_one();
  EXPECT_TRUE(line.calls[2].waits());
  EXPECT_TRUE(line.calls[3].waits());
  line.finish_one();
  EXPECT_TRUE(line.calls[2].permit);
  EXPECT_TRUE(line.calls[3].waits());
}

// The calls of one flow, numbered, in the order in which they are served; after each the next of `joins` joins.
std::vector<int> served_alone(const std::string& flow, std::uint32_t hand, int calls) {
  Gate gate{one_at_a_time(20'000, hand)};
  std::deque<Permit> running;
  std::vector<int> order;
  running.push_back(*gate.try_acquire());
  for (int i = 0; i < calls; ++i)
    gate.async_acquire({.flow = flow_of(flow)}, [&, i](Result<Permit> r) {
      order.push_back(i);
      running.push_back(*std::move(r));
    });
  while (!running.empty()) {
    Permit first = std::move(running.front());
    running.pop_front();
    first.release();
  }
  return order;
}

TEST(Flow, IsFirstInFirstOutWhateverTheHand) {
  std::vector<int> in_order(12);
  std::iota(in_order.begin(), in_order.end(), 0);
  for (const std::uint32_t hand : {1u, 2u, 4u, 16u}) {
    int wrong = 0;
    for (int flow = 0; flow < 200; ++flow)
      wrong += served_alone("flow " + std::to_string(flow), hand, 12) != in_order;
    EXPECT_EQ(wrong, 0) << "hand " << hand;
  }
}

TEST(Flow, CallsOfFlowsThatAreEachAloneAreServedInOrderOfArrival) {
  for (const std::uint32_t hand : {2u, 4u, 16u}) {
    Line line{one_at_a_time(100, hand)};
    std::string expected;
    line.join("x");
    for (int i = 0; i < 16; ++i) {
      const std::string flow = "flow " + std::to_string(i * 7 % 16);
      line.join(flow);
      expected += flow + " ";
    }
    EXPECT_EQ(line.served(16), expected) << "hand " << hand;
  }
}

// Whoever leaves, is evicted or comes back in between, and however few queues many flows share.
TEST(Flow, IsFirstInFirstOutAmongOthersThatComeAndLeave) {
  std::mt19937 dice(1);  // NOLINT: the same every time
  const auto below = [&](std::uint32_t n) { return static_cast<std::uint32_t>(dice() % n); };
  for (int round = 0; round < 60; ++round) {
    const std::uint32_t queues = 1 + below(8), hand = 1 + below(std::min(queues, 4u));
    const std::uint32_t flows = round % 3 == 0 ? 400 : 9;
    Gate gate{{.max_concurrent = 3, .max_queue = 300, .flow_queues = queues, .flow_hand = hand}};
    std::map<std::uint64_t, int> last;  // of each flow, the call served last
    std::deque<Permit> running;
    std::deque<std::stop_source> stops;
    for (int call = 0; call < 3000; ++call) {
      const std::uint64_t flow = below(3) == 0 ? 1 : below(flows);
      stops.emplace_back();
      gate.async_acquire({.cost = 1 + below(3), .stop = stops.back().get_token(), .flow = flow},
                         [&, flow, call](Result<Permit> r) {
                           if (!r) return;
                           running.push_back(*std::move(r));
                           ASSERT_LT(last[flow], call + 1) << "flow " << flow;
                           last[flow] = call + 1;
                         });
      if (below(4) == 0) stops[below(static_cast<std::uint32_t>(stops.size()))].request_stop();
      if (below(3) != 0 && !running.empty()) {
        Permit done = std::move(running.front());
        running.pop_front();
        done.release();
      }
    }
    while (!running.empty()) {
      Permit done = std::move(running.front());
      running.pop_front();
      done.release();
    }
  }
}

TEST(Flow, AHeavyCallIsReachedHoweverManyLightOnesComeInOtherFlows) {
  GateOptions o = one_at_a_time();
  o.max_concurrent = 2;
  Line line{o};
  line.join("light");
  line.join("light");
  line.join("heavy", {.cost = 2});
  const auto& heavy = line.calls[2];
  int overtaken = 0;
  for (; heavy.waits() && overtaken < 100; ++overtaken) {
    line.join("light");
    line.finish_one();
  }
  EXPECT_LE(overtaken, 4);
}

TEST(Flow, AFlowSavesUpNothingWhileItIsAway) {
  Line line{one_at_a_time()};
  line.join("a");
  for (int i = 0; i < 50; ++i) line.join("a");
  line.served(20);
  for (int i = 0; i < 10; ++i) line.join("b");  // it was not owed twenty turns
  const std::string order = line.served(10);
  EXPECT_EQ(std::ranges::count(order, 'b'), 5);
}

TEST(Flow, NobodyOwesAnythingOnceTheLineWasEmpty) {
  GateOptions o = one_at_a_time();
  o.max_concurrent = 10;
  Line line{o};
  line.join("a", {.cost = 10});
  line.join("a", {.cost = 10});  // from the line, for ten units
  line.finish_one();
  line.finish_one();
  line.join("x", {.cost = 10});
  for (int i = 0; i < 4; ++i) line.join("a", {.cost = 10}), line.join("b", {.cost = 10});
  const std::string order = line.served(4);
  EXPECT_EQ(std::ranges::count(order, 'a'), 2) << order;
}

TEST(Flow, WhoLeavesTheLineHasUsedNothing) {
  ManualClock clock;
  GateOptions o = one_at_a_time();
  o.clock = &clock;
  Line line{o};
  line.join("x");
  for (int i = 0; i < 3; ++i) line.join("b");
  std::stop_source stop;
  for (int i = 0; i < 50; ++i) line.join("a", {.stop = stop.get_token()});
  for (int i = 0; i < 50; ++i) line.join("a", {.timeout = 1ms});
  for (int i = 0; i < 3; ++i) line.join("a");
  stop.request_stop();
  clock.advance(1ms);
  EXPECT_EQ(line.rejected("a", Reason::cancelled), 50u);
  EXPECT_EQ(line.rejected("a", Reason::timeout), 50u);
  const std::string order = line.served(4);
  EXPECT_EQ(std::ranges::count(order, 'a'), 2) << order;
}

TEST(Flow, CallsThatNameNoneAreOneFlow) {
  GateOptions o = one_at_a_time();
  Line line{o};
  line.join("x");
  std::vector<Permit> unnamed;
  for (int i = 0; i < 5; ++i)
    line.gate.async_acquire({}, [&](Result<Permit> r) {
      if (r) line.order += "- ", r->release();
    });
  for (int i = 0; i < 2; ++i) line.join("a");
  EXPECT_LE(line.served(1).find("a"), 2u);
}

// ---- tiers, the full line, time ----

TEST(Flow, TiersComeBeforeFlows) {
  Line line{one_at_a_time()};
  line.join("x");
  line.join("b", {.priority = Priority::best_effort});
  for (int i = 0; i < 3; ++i) line.join("n");
  for (int i = 0; i < 2; ++i) line.join("c", {.priority = Priority::critical});
  EXPECT_EQ(line.served(6), "c c n n n b ");
}

TEST(Flow, AQuietFlowGetsAPlaceInAFullLineAndANoisyOneCannotTakeItBack) {
  Line line{one_at_a_time(10, 4)};
  line.join("noisy");
  for (int i = 0; i < 20; ++i) line.join("noisy");
  EXPECT_EQ(line.in_line("noisy"), 10u);
  EXPECT_EQ(line.rejected("noisy", Reason::queue_limit), 10u);

  for (int i = 0; i < 3; ++i) line.join("quiet");
  EXPECT_EQ(line.in_line("quiet"), 3u);
  EXPECT_EQ(line.rejected("noisy", Reason::evicted), 3u);
  EXPECT_EQ(line.gate.snapshot().rejected(Reason::evicted), 3u);
  EXPECT_TRUE(line.calls[1].waits()) << "the newest go first";

  for (int i = 0; i < 20; ++i) line.join("noisy");
  EXPECT_EQ(line.in_line("quiet"), 3u);
  EXPECT_EQ(line.rejected("noisy", Reason::queue_limit), 30u);
  EXPECT_EQ(line.gate.snapshot().waiting, 10u);
}

TEST(Flow, FlowsThatWantAllEndUpWithEqualPartsOfTheLine) {
  Line line{one_at_a_time(12, 1)};
  line.join("x");
  for (const char* flow : {"a", "b", "c"})
    for (int i = 0; i < 30; ++i) line.join(flow);
  for (int round = 0; round < 20; ++round)
    for (const char* flow : {"a", "b", "c"}) line.join(flow);
  for (const char* flow : {"a", "b", "c"}) EXPECT_EQ(line.in_line(flow), 4u) << flow;
}

TEST(Flow, ALowerTierMakesRoomFirstAndItsLongestQueueDoes) {
  Line line{one_at_a_time(6, 1)};
  line.join("x");
  for (int i = 0; i < 2; ++i) line.join("normal");
  for (int i = 0; i < 3; ++i) line.join("many", {.priority = Priority::best_effort});
  line.join("few", {.priority = Priority::best_effort});
  line.join("normal");
  EXPECT_EQ(line.rejected("many", Reason::evicted), 1u);
  EXPECT_EQ(line.in_line("few"), 1u);
  EXPECT_EQ(line.in_line("normal"), 3u);
  line.join("few", {.priority = Priority::best_effort});  // one more than the others would have
  EXPECT_EQ(line.rejected("few", Reason::queue_limit), 1u);
}

TEST(Flow, WhoWillNotWaitEvictsNobody) {
  Line line{one_at_a_time(4, 1)};
  line.join("noisy");
  for (int i = 0; i < 4; ++i) line.join("noisy");
  line.join("quiet", {.timeout = 0ns});
  EXPECT_EQ(line.rejected("quiet", Reason::timeout), 1u);
  EXPECT_EQ(line.in_line("noisy"), 4u);
}

TEST(Flow, ADeadlineIsJudgedByTheWaitOfItsOwnFlow) {
  ManualClock clock;
  GateOptions o = one_at_a_time(2000, 1);
  o.clock = &clock;
  o.measure_service = true;
  Line line{o};
  line.join("noisy");
  clock.advance(1ms);
  line.finish_one();
  line.join("noisy");
  for (int i = 0; i < 1000; ++i) line.join("noisy");
  line.join("quiet", {.deadline = clock.now() + 10ms});
  line.join("noisy", {.deadline = clock.now() + 10ms});
  EXPECT_EQ(line.in_line("quiet"), 1u);
  EXPECT_EQ(line.rejected("noisy", Reason::deadline), 1u);
}

TEST(Flow, ResizeAndCloseReachEveryQueue) {
  GateOptions o = one_at_a_time(2000, 2);
  o.max_concurrent = 4;
  Line line{o};
  line.join("x", {.cost = 4});
  for (int i = 0; i < 40; ++i) line.join("flow " + std::to_string(i), {.cost = i % 2 == 0 ? 4u : 1u});
  line.gate.resize(2);
  EXPECT_EQ(line.gate.snapshot().rejected(Reason::concurrency_limit), 20u);
  EXPECT_EQ(line.gate.snapshot().waiting, 20u);
  line.gate.resize(9);
  EXPECT_EQ(line.gate.snapshot().in_flight, 9u);
  line.gate.close();
  EXPECT_EQ(line.gate.snapshot().rejected(Reason::shutdown), 15u);
}

TEST(Flow, ServesThreadsToo) {
  for (const Fairness fairness : {Fairness::fifo, Fairness::barging, Fairness::adaptive}) {
    GateOptions o = one_at_a_time();
    o.fairness = fairness;
    Gate gate{o};
    std::optional<Permit> held = *gate.acquire();
    std::vector<std::jthread> threads;
    std::atomic<int> ran{0};
    for (std::uint64_t i = 0; i < 4; ++i)
      threads.emplace_back([&, i] { ran += gate.acquire({.flow = i % 2}).has_value(); });
    while (gate.snapshot().waiting != 4) std::this_thread::yield();
    held.reset();
    threads.clear();
    EXPECT_EQ(ran, 4);
  }
}

#if defined(__cpp_exceptions)
TEST(Flow, BadSettingsAreNamed) {
  const auto text = [](const GateOptions& o) -> std::string {
    try {
      const Gate gate{o};
      return "";
    } catch (const std::invalid_argument& e) {
      return e.what();
    }
  };
  EXPECT_EQ(text({.name = "db", .flow_queues = 5000}),
            "bulkhead \"db\": flow_queues = 5000 is out of range: give 0 to 1024");
  EXPECT_EQ(text({.name = "db", .flow_queues = 2}),
            "bulkhead \"db\": flow_hand = 4 is out of range: give 1 to 2");
  EXPECT_EQ(text({.name = "db", .flow_queues = 64, .flow_hand = 0}),
            "bulkhead \"db\": flow_hand = 0 is out of range: give 1 to 16");
  EXPECT_EQ(text({.name = "db", .flow_hand = 0}), "");
}
#endif

}  // namespace
}  // namespace bulkhead
