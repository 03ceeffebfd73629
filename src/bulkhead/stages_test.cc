// Every form of call goes through the same stages, and leaves the same behind.
#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "bulkhead/bulkhead.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

BulkheadOptions options(ManualClock& clock) {
  return {
      .name = "db",
      .max_concurrent = 2,
      .max_queue = 0,
      .breaker = BreakerOptions{.window_calls = 4, .minimum_calls = 4, .slow_call = 20ms, .open_for = 100ms},
      .rate_limit = RateLimiterOptions{.rate = 100, .burst = 20},
      .clock = &clock};
}

// Everything that a call leaves behind.
std::string told(Bulkhead& b) {
  const BulkheadSnapshot s = b.snapshot();
  std::ostringstream out;
  out << "gate " << s.gate.in_flight << ' ' << s.gate.max_concurrent << ' ' << s.gate.admitted << ' '
      << s.gate.released << ' ' << s.gate.succeeded << ' ' << s.gate.failed << ' ' << s.gate.occupancy.count()
      << ' ' << s.gate.saturated.count() << " rejected";
  for (const auto n : s.gate.rejected_by_reason) out << ' ' << n;
  out << " would";
  for (const auto n : s.would_reject) out << ' ' << n;
  out << ' ' << s.would_wait << ' ' << s.over_limit << ' ' << s.bypassed;
  if (s.breaker)
    out << " breaker " << to_string(s.breaker->state) << ' ' << s.breaker->generation << ' '
        << s.breaker->calls << ' ' << s.breaker->failures << ' ' << s.breaker->slow << ' ' << s.breaker->late
        << ' ' << s.breaker->rejected << ' ' << s.breaker->probes_in_flight;
  if (s.rate_limit)
    out << " rate " << s.rate_limit->available << ' ' << s.rate_limit->admitted << ' '
        << s.rate_limit->rejected << ' ' << s.rate_limit->cancelled;
  if (s.adaptive)
    out << " adaptive " << s.adaptive->limit << ' ' << s.adaptive->windows << ' ' << s.adaptive->stale << ' '
        << s.adaptive->why.samples;
  out << " wait " << s.wait.count() << " service " << s.service.sum;
  for (std::size_t i = 0; i < s.service.buckets.size(); ++i)
    if (s.service.buckets[i] != 0) out << ' ' << i << ':' << s.service.buckets[i];
  return out.str();
}

enum class Form : std::uint8_t { plain, with_options, handler };

// A bulkhead whose calls have one form, on a clock of its own; driven by the same dice as the other forms.
class Twin {
 public:
  Twin(Form form, std::uint64_t seed) : form_(form), random_(seed) {}

  void step() {
    switch (below(8)) {
      case 0:
        change();
        break;
      case 1:
        clock_.advance(std::chrono::milliseconds(below(40)));
        break;
      default:
        call(0);
    }
  }
  std::string told() { return bulkhead::told(b_) + " | " + answers_; }

 private:
  std::uint64_t below(std::uint64_t n) { return random_() % n; }

  void call(int depth) {
    const auto work = [&]() -> int {
      clock_.advance(std::chrono::microseconds(below(30) * below(1000)));
      if (depth < 3 && below(3) == 0) call(depth + 1);
      if (below(30) == 0) change();
      if (below(6) == 0) throw std::runtime_error("x");
      return depth;
    };
    try {
      const Result<int> result = form_ == Form::plain          ? b_.execute(work)
                                 : form_ == Form::with_options ? b_.execute(work, CallOptions<int>{})
                                                               : handled(work);
      answers_ += result ? "v" : to_string(result.error().reason);
    } catch (const std::runtime_error&) {
      answers_ += "t";
    }
  }

  template <class Work>
  Result<int> handled(const Work& work) {
    std::optional<Ended<int>> ended;
    b_.async_execute(work, {}, [&](Ended<int> answer) { ended.emplace(std::move(answer)); });
    return (*std::move(ended)).get();  // there is no line: the handler has run
  }

  void change() {
    switch (below(10)) {
      case 0:
        return b_.reset_statistics();
      case 1:
        return void(b_.breaker() && (b_.breaker()->reset(), true));
      case 2:
        if (Breaker* breaker = b_.breaker()) breaker->set_mode(static_cast<BreakerMode>(below(5)));
        return;
      case 3:
        return b_.set_draining(below(3) == 0);
      default:
        break;
    }
    BulkheadOptions o = options(clock_);
    o.max_concurrent = static_cast<std::uint32_t>(1 + below(3));
    o.histograms = below(3) != 0;
    o.shadow = below(12) == 0;
    o.enabled = below(12) != 0;
    if (below(4) == 0) o.breaker.reset();
    if (below(4) == 0) o.rate_limit.reset();
    if (below(4) == 0) o.adaptive = LimiterOptions{.floor = 1, .ceiling = 3};
    if (o.breaker && below(4) == 0) o.breaker->window = BreakerWindow::time;
    if (o.breaker && below(4) == 0) o.breaker->window_calls = o.breaker->minimum_calls = 2;
    b_.update(o);
  }

  const Form form_;
  std::mt19937_64 random_;
  ManualClock clock_;
  Bulkhead b_{options(clock_)};
  std::string answers_;
};

TEST(Stages, EveryFormOfCallLeavesTheSameBehind) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    Twin plain(Form::plain, seed), with_options(Form::with_options, seed), handler(Form::handler, seed);
    for (int step = 0; step < 100; ++step) {
      plain.step();
      with_options.step();
      handler.step();
      ASSERT_EQ(plain.told(), with_options.told()) << "seed " << seed << ", step " << step;
      ASSERT_EQ(plain.told(), handler.told()) << "seed " << seed << ", step " << step;
    }
  }
}

TEST(Stages, ACallIsLateForABreakerThatHasBegunAnew) {
  ManualClock clock;
  Bulkhead b{options(clock)};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(b.execute([] {}));  // a window full of good results
  EXPECT_TRUE(b.execute([&] {
    b.breaker()->reset();
    for (int i = 0; i < 8; ++i) EXPECT_TRUE(b.execute([] {}));  // and another one
  }));
  EXPECT_EQ(b.snapshot().breaker->late, 1u);
}

TEST(Stages, ASlowCallInAWindowFullOfGoodOnesCounts) {
  ManualClock clock;
  Bulkhead b{options(clock)};
  for (int i = 0; i < 8; ++i) EXPECT_TRUE(b.execute([] {}));
  EXPECT_TRUE(b.execute([&] { clock.advance(20ms); }));
  EXPECT_EQ(b.snapshot().breaker->slow, 0u);
  EXPECT_TRUE(b.execute([&] { clock.advance(20ms + 1ns); }));
  EXPECT_EQ(b.snapshot().breaker->slow, 1u);
}

TEST(Stages, ACallThatFindsNoPlaceGivesItsTokenBack) {
  ManualClock clock;
  BulkheadOptions o = options(clock);
  o.max_concurrent = 1;
  Bulkhead b{o};
  EXPECT_TRUE(b.execute([] {}));
  EXPECT_TRUE(b.execute([&] {
    const auto rejected = b.execute([] {});
    ASSERT_FALSE(rejected);
    EXPECT_EQ(rejected.error().reason, Reason::concurrency_limit);
  }));
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.rate_limit->admitted, 3u);
  EXPECT_EQ(s.rate_limit->cancelled, 1u);
  EXPECT_EQ(s.rate_limit->available, 18);
  EXPECT_EQ(s.gate.admitted, 2u);
}

TEST(Stages, ACallThatFindsNoPlaceWaitsForOne) {
  Bulkhead b{{.name = "db",
              .max_concurrent = 1,
              .max_queue = 1,
              .breaker = BreakerOptions{},
              .rate_limit = RateLimiterOptions{.rate = 1000}}};
  EXPECT_TRUE(b.execute([] {}));
  std::thread other;
  EXPECT_TRUE(b.execute([&] {
    other = std::thread([&] {
      EXPECT_FALSE(b.execute([] {}, CallOptions<void>{.timeout = 0s}));
      EXPECT_EQ(*b.execute([] { return 7; }), 7);
    });
    while (b.snapshot().gate.waiting == 0) std::this_thread::yield();
  }));
  other.join();
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.admitted, 3u);
  EXPECT_EQ(s.rate_limit->admitted, 4u);
  EXPECT_EQ(s.breaker->calls, 3u);
  EXPECT_EQ(s.wait.count(), 3u);
  EXPECT_EQ(s.wait.buckets[0], 2u);
}

// Can be moved once, into the result, and not out of it.
struct Fragile {
  explicit Fragile(int& n) : moves(&n) {}
  Fragile(Fragile&& other) : moves(other.moves) {
    if (++*moves == 2) throw std::logic_error("moved");
  }
  int* moves;
};

TEST(Stages, ACallGivesItsPlaceBackOnceEvenIfItsResultCannotBeMoved) {
  Bulkhead b{{.name = "db", .max_concurrent = 2, .breaker = BreakerOptions{}}};
  EXPECT_TRUE(b.execute([] {}));
  int moves = 0;
  const auto call = [&] { return b.execute([&] { return Fragile(moves); }); };
  try {
    static_cast<void>(call());
  } catch (const std::logic_error&) {
  }
  const BulkheadSnapshot s = b.snapshot();
  EXPECT_EQ(s.gate.in_flight, 0u);
  EXPECT_EQ(s.gate.admitted, 2u);
  EXPECT_EQ(s.gate.released, 2u);
  EXPECT_EQ(s.gate.underflows, 0u);
  EXPECT_EQ(s.breaker->calls, 2u);
}

}  // namespace
}  // namespace bulkhead
