// What the policies add to a call that goes through, beside the bare pair of atomic operations.
#include <atomic>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bench/parts.h"
#include "bulkhead/breaker.h"
#include "bulkhead/rate_limiter.h"

namespace bench {
namespace {

using namespace std::chrono_literals;

// Time is an argument of the policies; reading it is the caller's expense, and not measured here.
constexpr bulkhead::TimePoint some_time{1h};

// One call in `failing` fails, which does not open it; 0: none does.
Part breaker(std::string name, bulkhead::BreakerWindow window, std::uint64_t failing) {
  auto b = std::make_shared<bulkhead::Breaker>(bulkhead::BreakerOptions{.name = "bench", .window = window});
  return {std::move(name), [b, failing](std::uint64_t n) {
            for (; n > 0; --n) {
              const auto pass = b->admit(some_time);
              const bool fails = failing != 0 && n % failing == 0;
              if (pass)
                b->complete(*pass, fails ? bulkhead::Outcome::failure : bulkhead::Outcome::success, 1us,
                            some_time);
            }
          }};
}

Part rejecting_breaker() {
  auto b = std::make_shared<bulkhead::Breaker>(
      bulkhead::BreakerOptions{.name = "bench", .mode = bulkhead::BreakerMode::forced_open});
  return {"breaker, rejection", [b](std::uint64_t n) {
            for (; n > 0; --n) (void)b->admit(some_time);
          }};
}

Part rate_limiter(std::string name, bool full) {
  const std::uint32_t burst = full ? 4'000'000'000 : 1;
  auto r = std::make_shared<bulkhead::RateLimiter>(
      bulkhead::RateLimiterOptions{.name = "bench", .rate = 1'000'000'000, .burst = burst});
  auto now = std::make_shared<std::atomic<std::int64_t>>(0);
  return {std::move(name), [r, now, full](std::uint64_t n) {
            // A later time for each batch, so that the bucket is never empty, or always.
            const auto at =
                bulkhead::TimePoint(std::chrono::nanoseconds(full ? now->fetch_add(1'000'000'000) : 0));
            for (; n > 0; --n) (void)r->try_take(1, at);
          }};
}

}  // namespace

void policies(const Settings& settings, Results& results) {
  for (const unsigned threads : {1u, 2u}) {
    Table table{.workload = "policies",
                .title = "policies, " + std::to_string(threads) + (threads == 1 ? " thread" : " threads"),
                .unit = "ns",
                .threads = threads,
                .permits = 1,
                .section = "empty",
                .rows = {}};
    std::vector<Part> parts;
    parts.push_back(bare_pair());
    parts.push_back(breaker("breaker, closed, last 100 calls", bulkhead::BreakerWindow::calls, 0));
    parts.push_back(breaker("the same, one in ten fails", bulkhead::BreakerWindow::calls, 10));
    parts.push_back(breaker("breaker, closed, time window", bulkhead::BreakerWindow::time, 0));
    parts.push_back(rejecting_breaker());
    parts.push_back(rate_limiter("rate limiter, taken", true));
    parts.push_back(rate_limiter("rate limiter, rejection", false));
    add_parts(settings, results, std::move(table), parts);
  }
}

}  // namespace bench
