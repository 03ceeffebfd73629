// The half-open threshold combinations that failsafe-go checks, in our words: so many probes, and the
// share of failures among them that opens the breaker again. "a of n successes close it" is "n - a + 1
// of n failures open it"; a threshold of failures alone is one of as many probes. Where the closed state
// has a threshold of its own, it plays no part.
#include <gtest/gtest.h>

#include <optional>
#include <ostream>
#include <string>

#include "bulkhead/breaker.h"
#include "bulkhead/manual_clock.h"

namespace bulkhead {
namespace {

using namespace std::chrono_literals;

struct Combination {
  const char* name;
  std::uint32_t probes, failures_open;  // so many failures of so many probes
  double closed_rate;                   // what must play no part; 0: the same
  std::string results;                  // s, f: undecided until the last one
  BreakerState verdict;
};
void PrintTo(const Combination& c, std::ostream* out) { *out << c.name; }

class HalfOpen : public testing::TestWithParam<Combination> {};

TEST_P(HalfOpen, DecidesAtTheRightResult) {
  const Combination& c = GetParam();
  ManualClock clock;
  const double share = static_cast<double>(c.failures_open) / c.probes;
  Breaker breaker({.window_calls = 10,
                   .failure_rate = c.closed_rate > 0 ? c.closed_rate : share,
                   .open_for = 1s,
                   .half_open_calls = c.probes,
                   .half_open_failure_rate = c.closed_rate > 0 ? share : 0,
                   .clock = &clock});
  for (int i = 0; i < 10; ++i) breaker.complete(breaker.admit().value(), Outcome::failure, 1ms);
  ASSERT_EQ(breaker.snapshot().state, BreakerState::open);
  clock.advance(1s);
  for (std::size_t i = 0; i < c.results.size(); ++i) {
    const auto probe = breaker.admit();
    ASSERT_TRUE(probe && probe->is_probe()) << i;
    ASSERT_EQ(breaker.snapshot().state, BreakerState::half_open) << i;
    breaker.complete(*probe, c.results[i] == 's' ? Outcome::success : Outcome::failure, 1ms);
  }
  EXPECT_EQ(breaker.snapshot().state, c.verdict);
}

constexpr auto open = BreakerState::open, closed = BreakerState::closed;
INSTANTIATE_TEST_SUITE_P(
    FailsafeGo, HalfOpen,
    testing::Values(Combination{"FailureWithDefaults", 1, 1, 0, "f", open},
                    Combination{"FailureWithFailureThreshold", 3, 3, 0, "fff", open},
                    Combination{"FailureWithFailureRatio", 3, 2, 0, "fsf", open},
                    Combination{"FailureWithSuccessAndFailureThresholds", 3, 1, 1, "ssf", open},
                    Combination{"FailureWithSuccessAndFailureRatios", 4, 2, 0.6, "sfsf", open},
                    Combination{"FailureWithSuccessRatio", 3, 2, 0, "fsf", open},
                    Combination{"FailureWithSuccessRatioAndFailureThreshold", 4, 3, 1, "sfff", open},
                    Combination{"FailureWithSuccessThreshold", 3, 1, 0, "sf", open},
                    Combination{"FailureWithSuccessThresholdAndFailureRatio", 3, 1, 0.6, "f", open},
                    Combination{"SuccessWithDefaults", 1, 1, 0, "s", closed},
                    Combination{"SuccessWithFailureRatio", 3, 2, 0, "fss", closed},
                    Combination{"SuccessWithFailureThreshold", 3, 3, 0, "fs", closed},
                    Combination{"SuccessWithSuccessAndFailureRatios", 4, 2, 0.6, "sfss", closed},
                    Combination{"SuccessWithSuccessAndFailureThresholds", 3, 1, 1, "sss", closed},
                    Combination{"SuccessWithSuccessRatio", 3, 2, 0, "fss", closed},
                    Combination{"SuccessWithSuccessRatioAndFailureThreshold", 4, 2, 1, "ssfs", closed},
                    Combination{"SuccessWithSuccessThreshold", 3, 1, 0, "sss", closed},
                    Combination{"SuccessWithSuccessThresholdAndFailureRatio", 2, 1, 0.6, "ss", closed}),
    [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace bulkhead
