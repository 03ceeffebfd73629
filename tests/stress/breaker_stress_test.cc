// Breakers and rate limiters under everything at once, watched from outside. Nothing here depends on
// timing: what is asserted holds for every interleaving.
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <set>
#include <thread>

#include "bulkhead/breaker.h"
#include "bulkhead/manual_clock.h"
#include "bulkhead/rate_limiter.h"
#include "tests/stress/stress.h"

namespace bulkhead::stress {
namespace {

using namespace std::chrono_literals;
constexpr int kThreads = 4;

// Leases do not expire here, so the probes inside are those the cap counts. A probe of an earlier
// half-open may still be running when the next begins: they are counted by generation.
TEST(BreakerStress, NeverMoreProbesThanTheCapAndNothingIsCountedTwice) {
  ManualClock clock;
  constexpr std::uint32_t cap = 3;
  std::atomic<std::uint64_t> events = 0;
  Breaker breaker({.window_calls = 8,
                   .open_for = 1ms,
                   .half_open_calls = cap,
                   .probe_lease = std::chrono::hours(10'000),
                   .on_transition = [&](const BreakerTransition&) { ++events; },
                   .clock = &clock});
  std::array<std::atomic<std::uint32_t>, 4096> inside{};  // by generation
  std::atomic<std::uint64_t> too_many = 0, rejected = 0, admitted = 0, out_of_order = 0;
  const auto end = end_of_test(1.5);
  {
    Threads threads;
    for (int t = 0; t < kThreads; ++t)
      threads.add([&, t] {
        Dice dice(static_cast<std::uint32_t>(t) + 1);
        std::uint64_t seen = 0;
        while (steady_clock::now() < end) {
          if (dice.one_in(8)) clock.advance(300us);
          const auto pass = breaker.admit();
          if (!pass) {
            ++rejected;
            continue;
          }
          ++admitted;
          if (pass->generation < seen) ++out_of_order;
          seen = pass->generation;
          auto& in = inside[pass->generation % inside.size()];
          if (pass->is_probe() && in.fetch_add(1) + 1 > cap) ++too_many;
          linger(dice);
          const auto verdict = static_cast<Outcome>(dice.one_in(16) ? 2 : dice.below(2));
          if (pass->is_probe()) in.fetch_sub(1);  // before its place is given back
          breaker.complete(*pass, verdict, 1us);
        }
      });
    threads.add([&] {
      Dice dice(99);
      while (steady_clock::now() < end) {
        const auto s = breaker.snapshot();
        if (s.probes_in_flight > cap || s.failures > s.calls || s.calls > 8) ++too_many;
        linger(dice);
      }
    });
  }
  EXPECT_EQ(too_many, 0u);
  EXPECT_EQ(out_of_order, 0u) << "one thread never sees an earlier generation again";
  const auto s = breaker.snapshot();
  EXPECT_EQ(s.rejected, rejected);
  EXPECT_EQ(events, s.generation - 1) << "every change was told once";
  EXPECT_GT(s.opens, 10u);
  EXPECT_GT(admitted, 0u);
}

// Switches, updates and resets beside traffic. Whatever happened, it works afterwards as if new.
TEST(BreakerStress, SurvivesUpdatesModesAndResetsUnderTraffic) {
  ManualClock clock;
  Breaker breaker(
      {.window_calls = 8, .open_for = 1ms, .half_open_calls = 2, .probe_lease = 1ms, .clock = &clock});
  const auto end = end_of_test(1.5);
  {
    Threads threads;
    for (int t = 0; t < kThreads; ++t)
      threads.add([&, t] {
        Dice dice(static_cast<std::uint32_t>(t) + 1);
        while (steady_clock::now() < end) {
          if (dice.one_in(8)) clock.advance(200us);
          if (const auto pass = breaker.admit()) {
            linger(dice);
            if (!dice.one_in(50)) breaker.complete(*pass, static_cast<Outcome>(dice.below(3)), 1us);
          }
        }
      });
    threads.add([&] {
      Dice dice(7);
      while (steady_clock::now() < end) {
        switch (dice.below(4)) {
          case 0:
            breaker.reset();
            break;
          case 1:
            breaker.set_mode(static_cast<BreakerMode>(dice.below(5)));
            break;
          default:
            breaker.update({.window = dice.one_in(2) ? BreakerWindow::time : BreakerWindow::calls,
                            .window_calls = 1 + dice.below(200),
                            .window_time = std::chrono::milliseconds(10 + dice.below(50)),
                            .minimum_calls = 1 + dice.below(20),
                            .failure_rate = 0.1 + 0.1 * dice.below(9),
                            .open_for = 1ms,
                            .half_open_calls = 1 + dice.below(5),
                            .probe_lease = 1ms});
        }
        linger(dice);
      }
    });
  }
  breaker.set_mode(BreakerMode::automatic);
  breaker.update({.window_calls = 10, .open_for = 1s, .half_open_calls = 1});
  breaker.reset();
  for (int i = 0; i < 10; ++i) breaker.complete(breaker.admit().value(), Outcome::failure, 1us);
  EXPECT_EQ(breaker.snapshot().state, BreakerState::open);
  clock.advance(1s);
  breaker.complete(breaker.admit().value(), Outcome::success, 1us);
  EXPECT_EQ(breaker.snapshot().state, BreakerState::closed);
}

// A trip is not missed, however the last results race: with every call failing, it is open once they are
// done.
TEST(BreakerStress, AWindowFullOfFailuresIsAlwaysOpenInTheEnd) {
  const auto end = end_of_test(1);
  std::uint64_t rounds = 0;
  for (; steady_clock::now() < end; ++rounds) {
    const bool by_time = rounds % 2;
    ManualClock clock;
    Breaker breaker({.window = by_time ? BreakerWindow::time : BreakerWindow::calls,
                     .window_calls = 8,
                     .minimum_calls = 8,
                     .failure_rate = 1,
                     .clock = &clock});
    {
      Threads threads;
      for (int t = 0; t < kThreads; ++t)
        threads.add([&] {
          for (int i = 0; i < 2; ++i)
            breaker.complete(breaker.admit().value_or(BreakerPass{}), Outcome::failure, 1us);
        });
    }
    ASSERT_EQ(breaker.snapshot().state, BreakerState::open) << "round " << rounds;
  }
}

// On virtual time that moves in steps: what was taken in all is at most what the bucket held and what flowed
// in, to the token. A thread that sleeps after it has read the clock must not look like a clock that
// stepped back.
TEST(RateLimiterStress, ThreadsTakeNoMoreThanThereIs) {
  ManualClock clock;
  RateLimiter limiter({.rate = 1000, .burst = 50, .clock = &clock});
  const TimePoint start = clock.now();
  std::atomic<std::uint64_t> taken = 0, calls = 0, rejected = 0;
  const auto end = end_of_test(1.5);
  {
    Threads threads;
    for (int t = 0; t < kThreads; ++t)
      threads.add([&, t] {
        Dice dice(static_cast<std::uint32_t>(t) + 1);
        while (steady_clock::now() < end) {
          if (dice.one_in(64)) clock.advance(100us);
          const std::uint32_t cost = dice.one_in(4) ? 1 + dice.below(5) : 1;
          auto ticket = limiter.try_take(cost);
          if (!ticket) {
            ++rejected;
            continue;
          }
          ++calls;
          if (dice.one_in(8) && limiter.cancel(*ticket)) continue;
          taken += cost;
        }
      });
  }
  const auto ms = static_cast<std::uint64_t>((clock.now() - start) / 1ms);
  EXPECT_LE(taken, 50 + ms);
  EXPECT_GE(taken, ms / 2) << "and does not reject what it has";
  const auto s = limiter.snapshot();
  EXPECT_EQ(s.admitted, calls);
  EXPECT_EQ(s.rejected, rejected);
  EXPECT_GT(s.cancelled, 0u);
}

TEST(RateLimiterStress, NoTwoReservationsShareATurn) {
  ManualClock clock;
  RateLimiter limiter({.rate = 1000, .burst = 1, .clock = &clock});
  std::mutex mutex;
  std::set<TimePoint> turns;
  std::uint64_t twice = 0;
  {
    Threads threads;
    for (int t = 0; t < kThreads; ++t)
      threads.add([&] {
        for (int i = 0; i < 5000; ++i) {
          const auto ticket = limiter.reserve({.max_wait = 1h});
          const std::lock_guard lock(mutex);
          if (!ticket || !turns.insert(ticket->at).second) ++twice;
        }
      });
  }
  EXPECT_EQ(twice, 0u);
  EXPECT_EQ(*turns.rbegin() - *turns.begin(), (kThreads * 5000 - 1) * 1ms) << "and none is left out";
}

TEST(RateLimiterStress, SurvivesUpdatesUnderTraffic) {
  ManualClock clock;
  RateLimiter limiter({.rate = 1000, .burst = 50, .clock = &clock});
  const auto end = end_of_test(1);
  {
    Threads threads;
    for (int t = 0; t < kThreads; ++t)
      threads.add([&, t] {
        Dice dice(static_cast<std::uint32_t>(t) + 1);
        while (steady_clock::now() < end) {
          if (dice.one_in(8)) clock.advance(std::chrono::microseconds(dice.below(3000)));
          auto ticket = dice.one_in(2) ? limiter.try_take(1 + dice.below(10))
                                       : limiter.reserve({.cost = 1 + dice.below(10), .max_wait = 5ms});
          if (ticket && dice.one_in(4)) limiter.cancel(*ticket);
        }
      });
    threads.add([&] {
      Dice dice(7);
      while (steady_clock::now() < end) {
        limiter.update({.rate = 1 + dice.below(1'000'000'000), .burst = 1 + dice.below(100)});
        linger(dice);
      }
    });
  }
  // Tokens promised at a thousand million a second stay promised: at ten a second that can be days.
  limiter.update({.rate = 10, .burst = 5});
  clock.advance(10'000h);
  int n = 0;
  while (limiter.try_take()) ++n;
  EXPECT_EQ(n, 5);
}

}  // namespace
}  // namespace bulkhead::stress
