// What each part of a Bulkhead adds to an empty call that goes through, on one thread.
#include <memory>

#include "bench/parts.h"
#include "bench/rival_gate.h"
#include "bulkhead/bulkhead.h"

namespace bench {
namespace {

Part gate() {
  auto gate = std::make_shared<Contending<GateRival<bulkhead::Fairness::fifo>>>(1000);
  return {std::string(kGate), [gate](std::uint64_t n) { gate->try_calls(n); }};
}

// What every policy needs, and a plain call does not: when the call began, and when it ended.
Part clock() {
  return {"floor: two looks at the clock", [](std::uint64_t n) {
            for (n *= 2; n > 0; --n) {
              const auto now = bulkhead::Clock::steady().now();
              asm volatile("" : : "r"(now.time_since_epoch().count()));
            }
          }};
}

Part execute(std::string name, bulkhead::BulkheadOptions options) {
  options.name = "bench";
  options.max_concurrent = 1000;
  options.max_queue = 1000;
  auto b = std::make_shared<bulkhead::Bulkhead>(std::move(options));
  return {std::move(name), [b](std::uint64_t n) {
            for (; n > 0; --n) static_cast<void>(b->execute([] {}));
          }};
}

}  // namespace

void composition(const Settings& settings, Results& results) {
  const bulkhead::BreakerOptions breaker{};
  const bulkhead::RateLimiterOptions rate{.rate = 1'000'000'000};  // more than one thread can use up
  const bulkhead::LimiterOptions adaptive{.floor = 1000, .ceiling = 2000};
  add_parts(
      settings, results,
      {.workload = "composition",
       .title = "composition, an empty call, 1 thread",
       .unit = "ns",
       .threads = 1,
       .permits = 1000,
       .section = "empty",
       .rows = {}},
      {bare_pair(), clock(), gate(), execute(std::string(kPlainBulkhead), {.histograms = false}),
       execute("  plain + histograms", {.histograms = true}),
       execute("  plain + breaker", {.breaker = breaker, .histograms = false}),
       execute("  plain + rate limit", {.rate_limit = rate, .histograms = false}),
       execute("  plain + adaptive limit", {.adaptive = adaptive, .histograms = false}),
       execute(std::string(kFullBulkhead), {.breaker = breaker, .rate_limit = rate}),
       execute("  full + adaptive limit", {.breaker = breaker, .rate_limit = rate, .adaptive = adaptive})});
}

}  // namespace bench
