// Calls of every form against everything that can be done to a bulkhead meanwhile; afterwards every call is
// accounted for.
#include "bulkhead/bulkhead.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;

constexpr std::uint32_t kCap = 4;

BulkheadOptions options(Isolation isolation) {
  return {.name = "db",
          .isolation = isolation,
          .max_concurrent = kCap,
          .max_queue = 8,
          .max_wait = 20ms,
          .execution_timeout = 50ms,
          .breaker =
              BreakerOptions{.window_calls = 20, .minimum_calls = 10, .open_for = 1ms, .half_open_calls = 3},
          .rate_limit = RateLimiterOptions{.rate = 2'000'000, .burst = 1'000'000}};
}

// Every call ends as exactly one of these.
struct Tally {
  std::atomic<std::uint64_t> calls{0}, values{0}, fallbacks{0}, rejections{0}, throws{0}, ignored{0};
  std::atomic<std::uint32_t> inside{0}, peak{0};

  void enter() {
    const std::uint32_t n = ++inside;
    for (std::uint32_t seen = peak; seen < n && !peak.compare_exchange_weak(seen, n);) {
    }
  }
  void count(const Result<int>& result) {
    if (!result)
      ++rejections;
    else if (*result == 1)
      ++values;
    else
      ++fallbacks;
  }
  std::uint64_t ended() const { return values + fallbacks + rejections + throws + ignored; }
};

struct Work {
  Tally* tally;
  bool throws;
  std::uint32_t spin;
  int operator()() const {
    tally->enter();
    for (std::uint32_t i = spin; i > 0; --i) asm volatile("" ::: "memory");
    --tally->inside;
    if (throws) throw std::runtime_error("x");
    return 1;
  }
};

Detached co_call(Bulkhead& b, Tally& tally, Work work, CallOptions<int> call) {
  try {
    tally.count(co_await b.co_execute(work, std::move(call)));
  } catch (const std::runtime_error&) {
    ++tally.throws;
  }
}

class Calls {
 public:
  Calls(Bulkhead& b, Tally& tally) : b_(b), tally_(tally) {}

  void one(Dice& dice) {
    ++tally_.calls;
    CallOptions<int> call;
    if (dice.one_in(3)) call.fallback = [](const Cause&) { return 2; };
    if (dice.one_in(4)) call.priority = Priority::critical;
    if (dice.one_in(8)) call.timeout = 0s;
    if (dice.one_in(8)) call.deadline = steady_clock::now() + 10ms;
    std::stop_source stop;
    if (dice.one_in(8)) call.stop = stop.get_token();
    const Work work{&tally_, dice.one_in(5), dice.below(200)};
    switch (dice.below(5)) {
      case 0:
      case 1:
        try {
          if (dice.one_in(2))
            tally_.count(b_.execute(work, call));
          else
            tally_.count(b_.execute([work](std::stop_token) { return work(); }, call));
        } catch (const std::runtime_error&) {
          ++tally_.throws;
        }
        break;
      case 2:
        b_.async_execute(work, std::move(call), [&tally = tally_](Ended<int> ended) {
          if (ended.threw())
            ++tally.throws;
          else
            tally.count(std::move(ended).get());
        });
        stop.request_stop();
        break;
      case 3:
        co_call(b_, tally_, work, std::move(call));
        stop.request_stop();
        break;
      default:
        if (dice.one_in(2)) {
          ended(b_.acquire(call.acquire()), dice);
        } else {
          // On whichever thread the place comes from.
          b_.async_acquire(call.acquire(), [this](Result<Call> got) {
            thread_local Dice own(static_cast<std::uint32_t>(reinterpret_cast<std::uintptr_t>(&own)));
            ended(std::move(got), own);
          });
        }
    }
  }
  // Calls handed to other threads to end.
  void end_one() {
    Call call;
    {
      const std::lock_guard lock(mutex_);
      if (open_.empty()) return;
      call = std::move(open_.back());
      open_.pop_back();
    }
    --tally_.inside;
    EXPECT_TRUE(call.finish(Outcome::success));
    ++tally_.values;
  }

 private:
  void ended(Result<Call> got, Dice& dice) {
    if (!got) {
      ++tally_.rejections;
      return;
    }
    tally_.enter();
    if (dice.one_in(3)) {
      const std::lock_guard lock(mutex_);
      open_.push_back(*std::move(got));
      return;
    }
    --tally_.inside;
    if (dice.one_in(3)) {
      ++tally_.ignored;  // it dies unfinished
      return;
    }
    EXPECT_TRUE(got->finish(dice.one_in(2) ? Outcome::success : Outcome::failure));
    ++tally_.values;
  }

  Bulkhead& b_;
  Tally& tally_;
  std::mutex mutex_;
  std::vector<Call> open_;
};

class BulkheadStress : public testing::TestWithParam<Isolation> {};
INSTANTIATE_TEST_SUITE_P(, BulkheadStress, testing::Values(Isolation::semaphore, Isolation::threads),
                         [](const auto& test) {
                           return test.param == Isolation::semaphore ? "Semaphore" : "Threads";
                         });

TEST_P(BulkheadStress, EveryCallIsAccountedForWhateverIsDoneMeanwhile) {
  Tally tally;
  Bulkhead b{options(GetParam())};
  Calls calls(b, tally);
  std::atomic<bool> stop = false;
  const auto end = end_of_test(1.5);
  {
    Threads threads;
    for (std::uint32_t i = 0; i < 4; ++i)
      threads.add([&, i] {
        Dice dice(i + 1);
        while (steady_clock::now() < end) {
          calls.one(dice);
          if (dice.one_in(2)) calls.end_one();
        }
      });
    threads.add([&] {
      while (!stop) {
        calls.end_one();
        std::this_thread::yield();
      }
    });
    Dice dice(99);
    while (steady_clock::now() < end) {
      BulkheadOptions o = options(GetParam());
      if (dice.one_in(4)) o.breaker.reset();
      if (dice.one_in(4)) o.rate_limit.reset();
      o.histograms = !dice.one_in(4);
      if (dice.one_in(3)) o.adaptive = LimiterOptions{.floor = 1, .ceiling = kCap};
      o.max_concurrent = 1 + dice.below(kCap);
      o.max_queue = dice.below(8);
      b.update(o);
      b.resize(1 + dice.below(kCap));
      if (Breaker* breaker = b.breaker()) {
        breaker->set_mode(static_cast<BreakerMode>(dice.below(5)));
        if (dice.one_in(2)) breaker->set_mode(BreakerMode::automatic);
      }
      const BulkheadSnapshot s = b.snapshot();
      EXPECT_EQ(s.gate.admitted, s.gate.released + s.gate.permits);
      EXPECT_LE(s.gate.in_flight, kCap);
      if (dice.one_in(4)) b.reset_statistics();
      std::this_thread::sleep_for(1ms);
    }
    // What still waits in line needs those who hold the places.
    while (tally.ended() != tally.calls) std::this_thread::yield();
    stop = true;
  }
  while (b.gate().in_flight() != 0) std::this_thread::yield();
  EXPECT_EQ(tally.ended(), tally.calls);
  EXPECT_EQ(tally.inside, 0u);
  EXPECT_LE(tally.peak, kCap);
  EXPECT_GT(tally.values, 0u);
  EXPECT_GT(tally.rejections, 0u);
  EXPECT_GT(tally.throws, 0u);
  b.update(options(GetParam()));
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.admitted, s.gate.released);
  EXPECT_EQ(s.gate.waiting, 0u);
  EXPECT_EQ(s.gate.underflows, 0u);
  EXPECT_EQ(s.gate.max_concurrent, kCap);
  EXPECT_EQ(s.breaker->probes_in_flight, 0u);
  EXPECT_EQ(s.handler_errors, 0u);
  // No token of a call that was admitted came back, none of one that was not has gone.
  EXPECT_LE(s.rate_limit->available, 1'000'000);
}

// Calls without options or a time limit: more threads than have a stripe for themselves, and settings that change.
TEST(PlainCallStress, EveryCallIsCountedWhateverIsChangedMeanwhile) {
  BulkheadOptions o = options(Isolation::semaphore);
  o.execution_timeout = wait_forever;
  o.breaker->failure_rate = 1;
  Tally tally;
  Bulkhead b{o};
  const auto calls = [&](std::uint32_t seed, TimePoint end) {
    Dice dice(seed);
    while (steady_clock::now() < end) {
      const Work work{&tally, dice.one_in(50), dice.below(100)};
      ++tally.calls;
      try {
        tally.count(b.execute(work));
      } catch (const std::runtime_error&) {
        ++tally.throws;
      }
    }
  };
  const auto many = [&](double seconds, const auto& meanwhile) {
    const auto end = end_of_test(seconds);
    Threads threads;
    for (std::uint32_t i = 1; i <= 6; ++i) threads.add([&, i] { calls(i, end); });
    while (steady_clock::now() < end) meanwhile();
  };
  const auto settled = [&] {
    const BulkheadSnapshot s = b.snapshot();
    EXPECT_EQ(tally.ended(), tally.calls);
    EXPECT_EQ(s.gate.in_flight, 0u);
    EXPECT_EQ(s.gate.admitted, tally.values + tally.throws);
    EXPECT_EQ(s.gate.released, s.gate.admitted);
    EXPECT_EQ(s.gate.failed, tally.throws);
    EXPECT_EQ(s.gate.rejected(), tally.rejections);
    EXPECT_LE(tally.peak, kCap);
    EXPECT_EQ(s.gate.underflows, 0u);
    return s;
  };

  // Nothing but calls: every part has counted each of them.
  many(0.6, [&] {
    const BulkheadSnapshot s = b.snapshot();
    EXPECT_EQ(s.gate.admitted, s.gate.released + s.gate.permits);
    std::this_thread::sleep_for(1ms);
  });
  const BulkheadSnapshot s = settled();
  EXPECT_EQ(s.service.count(), s.gate.admitted);
  EXPECT_EQ(s.wait.count(), s.gate.admitted);
  EXPECT_EQ(s.rate_limit->admitted, tally.calls - s.gate.rejected(Reason::rate_limit));
  EXPECT_EQ(s.gate.occupancy, b.snapshot().gate.occupancy);  // nothing is in flight

  many(0.9, [&] {
    Dice dice(static_cast<std::uint32_t>(steady_clock::now().time_since_epoch().count()));
    BulkheadOptions next = o;
    if (dice.one_in(4)) next.breaker.reset();
    if (dice.one_in(4)) next.rate_limit.reset();
    next.histograms = !dice.one_in(3);
    if (dice.one_in(3)) next.adaptive = LimiterOptions{.floor = 1, .ceiling = kCap};
    if (next.breaker && dice.one_in(3)) next.breaker->window = BreakerWindow::time;
    if (dice.one_in(4)) next.execution_timeout = 10s;
    next.max_concurrent = 1 + dice.below(kCap);
    b.update(next);
    if (Breaker* const breaker = b.breaker(); breaker && dice.one_in(2)) breaker->reset();
    std::this_thread::sleep_for(1ms);
  });
  b.update(o);
  settled();
  EXPECT_GT(tally.throws, 0u);
}

TEST_P(BulkheadStress, ModesChangeUnderTraffic) {
  Tally tally;
  Bulkhead b{options(GetParam())};
  Calls calls(b, tally);
  const auto end = end_of_test(1);
  {
    Threads threads;
    for (std::uint32_t i = 0; i < 3; ++i)
      threads.add([&, i] {
        Dice dice(i + 7);
        while (steady_clock::now() < end) {
          calls.one(dice);
          calls.end_one();
        }
      });
    Dice dice(5);
    while (steady_clock::now() < end) {
      BulkheadOptions o = options(GetParam());
      o.enabled = !dice.one_in(3);
      o.shadow = dice.one_in(3);
      b.update(o);
      std::this_thread::sleep_for(1ms);
    }
  }
  while (tally.ended() != tally.calls) {
    calls.end_one();
    std::this_thread::yield();
  }
  while (b.gate().in_flight() != 0) std::this_thread::yield();
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.admitted, s.gate.released);
  EXPECT_EQ(s.over_limit, 0u);
  EXPECT_EQ(s.breaker->probes_in_flight, 0u);
  EXPECT_EQ(tally.inside, 0u);
}

TEST_P(BulkheadStress, GoesWhileCallsAreInLineAndInFlight) {
  const auto end = end_of_test(1);
  std::uint32_t round = 0;
  do {
    Tally tally;
    BulkheadOptions patient = options(GetParam());
    patient.max_wait = wait_forever;
    auto b = std::make_unique<Bulkhead>(patient);
    Dice dice(++round);
    {
      // They have all asked when it goes, and stand anywhere between their place in line and their end.
      std::vector<Call> held;
      for (std::uint32_t i = 0; i < kCap; ++i)
        if (auto call = b->try_acquire()) held.push_back(*std::move(call));
      for (int i = 0; i < 4; ++i) {
        ++tally.calls;
        const Work work{&tally, dice.one_in(3), dice.below(100)};
        CallOptions<int> call;
        if (dice.one_in(2)) call.fallback = [](const Cause&) { return 2; };
        if (dice.one_in(2))
          co_call(*b, tally, work, call);
        else
          b->async_execute(work, call, [&tally](Ended<int> ended) {
            if (ended.threw())
              ++tally.throws;
            else
              tally.count(std::move(ended).get());
          });
      }
      Threads threads;
      std::atomic<int> asked = 0;
      for (int i = 0; i < 2; ++i)
        threads.add([&, i] {
          ++tally.calls;
          const Work work{&tally, i == 1, 50};
          CallOptions<int> call{.fallback = [](const Cause&) { return 2; }};
          try {
            ++asked;
            tally.count(b->execute(work, call));
          } catch (const std::runtime_error&) {
            ++tally.throws;
          }
        });
      while (asked != 2 || b->gate().snapshot().waiting != 6) std::this_thread::yield();
      b->gate().drain(TimePoint::min());  // they have come to rest in line
      threads.add([&held, n = dice.below(500)] {
        for (std::uint32_t i = n; i > 0; --i) asm volatile("" ::: "memory");
        for (Call& call : held) call.finish(Outcome::success);
      });
      for (std::uint32_t i = dice.below(500); i > 0; --i) asm volatile("" ::: "memory");
      b.reset();
    }
    ASSERT_EQ(tally.ended(), tally.calls);
    ASSERT_EQ(tally.inside, 0u);
  } while (steady_clock::now() < end);
}

}  // namespace
}  // namespace bulkhead::stress
