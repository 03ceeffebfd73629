// A payment provider in a bulkhead: 20 calls at once, 500 a second, 800 ms each, and left alone while it fails.
#include <bulkhead/bulkhead.h>

#include <cstdio>

using namespace std::chrono_literals;

namespace {

int pay(int order, const std::stop_token&) { return order <= 5 ? 200 : 503; }  // its time is up: it fires

}  // namespace

int main() {
  bulkhead::Bulkhead payments{{.name = "payments",
                               .max_concurrent = 20,
                               .max_queue = 40,
                               .execution_timeout = 800ms,
                               .breaker = bulkhead::BreakerOptions{.window_calls = 10},
                               .rate_limit = bulkhead::RateLimiterOptions{.rate = 500, .burst = 25}}};

  for (int order = 1; order <= 12; ++order) {
    const bulkhead::Result<int> status =
        payments.execute([&](const std::stop_token& stop) { return pay(order, stop); },
                         {.fallback =
                              [&](const bulkhead::Cause& why) {
                                std::printf("order %d later: %s\n", order, why.message().c_str());
                                return 202;
                              },
                          .priority = bulkhead::Priority::critical,
                          .judge = bulkhead::result_if([](int s) { return s >= 500; })});
    std::printf("order %d: %d\n", order, status.value_or(503));
  }  // 1 to 5 are paid, 6 to 10 fail, then half of the last ten have failed: the breaker is open
}
