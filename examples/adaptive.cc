// A limit that finds the capacity of a dependency by itself, here one of 50 slots on virtual time.
#include <bulkhead/limiter.h>

#include <algorithm>
#include <chrono>
#include <cstdio>

using namespace std::chrono_literals;

int main() {
  bulkhead::Gate search{{.name = "search", .max_concurrent = 20}};
  bulkhead::AdaptiveLimiter limiter{search, {.floor = 2, .ceiling = 500}};

  bulkhead::TimePoint now{1h};
  while (now < bulkhead::TimePoint{1h + 1min}) {
    // Callers fill the gate; beyond 50 of them the dependency only makes them wait longer than 10 ms.
    const std::uint32_t in_flight = search.snapshot().max_concurrent;
    const std::chrono::nanoseconds round_trip = 200us * std::max(50u, in_flight);

    auto call = limiter.admitted(now - round_trip, in_flight);
    now += round_trip / in_flight;
    limiter.completed(call, now, bulkhead::Outcome::success);
  }

  const bulkhead::LimiterSnapshot s = limiter.snapshot();
  std::printf("%u of %u to %u\n%s\n", s.settled, s.floor, s.ceiling, s.change.text().c_str());
  return s.settled >= 40 && s.settled <= 75 ? 0 : 1;
}
