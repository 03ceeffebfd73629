// Random sequences of takes, reservations, cancellations, waits and updates, on the limiter and on a
// token bucket kept in the plainest way: a number of tokens and the time it was last looked at. Beside
// that, the promise itself: over no stretch of time more than burst + time * rate tokens.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <ostream>
#include <sstream>
#include <vector>

#include "bulkhead/manual_clock.h"
#include "bulkhead/rate_limiter.h"
#include "gate/property_test.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;
using std::chrono::nanoseconds;

enum class Do : std::uint8_t { take, reserve, advance, cancel_last, update };

struct Command {
  Do what{};
  std::uint32_t n = 1;
  std::int64_t ns = 0;
};
std::ostream& operator<<(std::ostream& out, const Command& c) {
  constexpr const char* names[] = {"take", "reserve", "advance", "cancel_last", "update"};
  return out << names[static_cast<int>(c.what)] << "(" << c.n << ", " << c.ns << " ns)\n";
}

rc::Gen<Command> command() {
  return rc::gen::build<Command>(
      rc::gen::set(
          &Command::what,
          rc::gen::weightedElement<Do>(
              {{10, Do::take}, {4, Do::reserve}, {8, Do::advance}, {2, Do::cancel_last}, {1, Do::update}})),
      rc::gen::set(&Command::n, rc::gen::inRange<std::uint32_t>(1, 8)),
      rc::gen::set(&Command::ns, rc::gen::weightedOneOf<std::int64_t>(
                                     {{6, rc::gen::inRange<std::int64_t>(0, 400'000'000)},
                                      {1, rc::gen::inRange<std::int64_t>(0, 86'400'000'000'000 * 30)}})));
}

// Tokens in real numbers. The limiter's interval is rounded up to 1/64 ns, and so is this one's.
struct Model {
  double interval, burst, tokens;
  std::int64_t looked = 0;
  Model(std::uint32_t rate, std::uint32_t b) : burst(b), tokens(b) { set_rate(rate); }
  void set_rate(std::uint32_t rate) { interval = std::ceil(64e9 / rate) / 64; }
  void look(std::int64_t now) {
    tokens = std::min(burst, tokens + static_cast<double>(now - looked) / interval);
    looked = now;
  }
  void update(std::uint32_t rate, std::uint32_t b) {
    tokens = std::min(tokens, static_cast<double>(b));
    burst = b;
    set_rate(rate);
  }
  double wait(double cost) const { return (cost - tokens) * interval; }
};

void check(const std::vector<Command>& commands, std::uint32_t rate, std::uint32_t burst) {
  ManualClock clock;
  RateLimiter limiter({.rate = rate, .burst = burst, .clock = &clock});
  Model model(rate, burst);
  const TimePoint start = clock.now();
  RateTicket last;
  Model without = model;  // what there would be if the last call had never come
  int updates = 0;        // since
  for (const Command& c : commands) {
    std::ostringstream text;
    text << c;
    RC_LOG(text.str());
    const std::int64_t now = (clock.now() - start).count();
    model.look(now);
    without.look(now);
    switch (c.what) {
      case Do::take:
      case Do::reserve: {
        const nanoseconds most = c.what == Do::reserve ? nanoseconds(c.ns) : 0ns;
        const auto taken =
            c.what == Do::take ? limiter.try_take(c.n) : limiter.reserve({.cost = c.n, .max_wait = most});
        if (c.n > burst) {
          RC_ASSERT(!taken && taken.error().never);
          break;
        }
        const double wait = std::max(0.0, model.wait(c.n));
        const double got =
            static_cast<double>((taken ? taken->at - clock.now() : taken.error().retry_after).count());
        RC_ASSERT(std::abs(got - wait) <= 2);  // whole nanoseconds, and the model's own rounding
        if (taken) {
          RC_ASSERT(wait <= static_cast<double>(most.count()) + 2);
          without = model;
          updates = 0;
          model.tokens -= c.n;
          last = *taken;
        } else {
          RC_ASSERT(wait >= static_cast<double>(most.count()) - 2);
        }
        break;
      }
      case Do::advance:
        clock.advance(nanoseconds(c.ns));
        break;
      case Do::cancel_last: {
        const bool undone = last.charge != 0 && updates <= 1;
        RC_ASSERT(limiter.cancel(last) == undone);
        if (undone) model = without;
        break;
      }
      case Do::update:
        updates += c.n * 7 != rate || 1 + c.n % 5 != burst;
        rate = c.n * 7;
        burst = 1 + c.n % 5;
        model.update(rate, burst);
        without.update(rate, burst);
        limiter.update({.rate = rate, .burst = burst});
        break;
    }
    model.look((clock.now() - start).count());
    RC_ASSERT(std::abs(limiter.snapshot().available - model.tokens) < 1e-3 + 2 / model.interval);
  }
}

// A failing sequence shrinks to the shortest; RC_PARAMS="seed=..." repeats a run.
TEST(RateLimiterProperty, DoesWhatATokenBucketDoes) {
  model::check_property([] {
    const auto rate = *rc::gen::element<std::uint32_t>(1, 3, 10, 1000, 999'983);
    const auto burst = *rc::gen::inRange<std::uint32_t>(1, 10);
    check(*rc::gen::scale(2.0, rc::gen::container<std::vector<Command>>(command())), rate, burst);
  });
}

TEST(RateLimiterProperty, OverNoStretchOfTimeMoreThanBurstAndRate) {
  model::check_property([] {
    ManualClock clock;
    const auto rate = *rc::gen::inRange<std::uint32_t>(1, 200'000);
    const auto burst = *rc::gen::inRange<std::uint32_t>(1, 20);
    RateLimiter limiter({.rate = rate, .burst = burst, .clock = &clock});
    struct Start {
      std::int64_t at;
      std::uint32_t cost;
      RateTicket ticket;
    };
    std::vector<Start> starts;
    for (const std::uint32_t step :
         *rc::gen::container<std::vector<std::uint32_t>>(rc::gen::arbitrary<std::uint32_t>())) {
      clock.advance(nanoseconds(step % (3'000'000'000u / rate)));
      const std::uint32_t cost = 1 + step % burst;
      if (const auto t =
              limiter.reserve({.cost = cost, .max_wait = nanoseconds(step % 7 * 1'000'000'000u / rate)}))
        starts.push_back({t->at.time_since_epoch().count(), cost, *t});
      if (step % 5 == 0 && !starts.empty()) {  // a call that did not take place
        const auto who = starts.end() - 1 -
                         static_cast<std::ptrdiff_t>(step / 5 % std::min<std::size_t>(starts.size(), 4));
        if (limiter.cancel(who->ticket)) starts.erase(who);
      }
    }
    std::ranges::sort(starts, {}, &Start::at);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      double sum = 0;
      for (std::size_t j = i; j < starts.size(); ++j) {
        sum += starts[j].cost;
        const double seconds = static_cast<double>(starts[j].at - starts[i].at + 1) * 1e-9;
        RC_ASSERT(sum <= burst + seconds * rate + 1e-6);
      }
    }
  });
}

}  // namespace
}  // namespace bulkhead
