#include "config/sizing.h"

#include <algorithm>
#include <cmath>

namespace bulkhead::config {
namespace {

using std::chrono::nanoseconds;

double seconds(nanoseconds span) { return static_cast<double>(span.count()) / 1e9; }
nanoseconds nanos(double seconds) { return nanoseconds(std::llround(seconds * 1e9)); }

// Rounded up, but not because of the last bit of a product.
std::uint64_t up(double value) { return static_cast<std::uint64_t>(std::max(std::ceil(value - 1e-9), 0.0)); }

// Erlang B of one more place, from that of `places - 1`: every term is between 0 and 1, so nothing overflows.
double next_blocking(double blocking, double load, std::uint64_t places) {
  return load * blocking / (static_cast<double>(places) + load * blocking);
}

double waiting(double blocking, std::uint64_t places, double load) {
  const double c = static_cast<double>(places);
  return load >= c ? 1 : blocking / (1 - load / c * (1 - blocking));
}

// The time that so large a share of the calls exceeds: those that wait have an exponential wait.
double quantile(double waits, double exceeding, double spare_per_second) {
  return waits <= exceeding ? 0 : std::log(waits / exceeding) / spare_per_second;
}

}  // namespace

Size size_for(const SizingInput& in) {
  const double in_flight = in.rate * seconds(in.latency);
  return {.in_flight = in_flight,
          .max_concurrent = std::max<std::uint64_t>(1, up(in_flight * in.buffer)),
          .max_queue = up(in.rate * seconds(in.tolerated_wait))};
}

double erlang_b(std::uint64_t places, double load) {
  double blocking = 1;
  for (std::uint64_t c = 1; c <= places; ++c) blocking = next_blocking(blocking, load, c);
  return blocking;
}

double erlang_c(std::uint64_t places, double load) { return waiting(erlang_b(places, load), places, load); }

Wait wait_of(std::uint64_t places, double rate, nanoseconds latency) {
  const double load = rate * seconds(latency), c = static_cast<double>(places);
  if (load >= c) return {.waits = 1, .endless = true};
  const double waits = erlang_c(places, load), spare = (c - load) / seconds(latency);
  return {.waits = waits, .mean = nanos(waits / spare), .p99 = nanos(quantile(waits, 0.01, spare))};
}

std::uint64_t places_for_p99(double rate, nanoseconds latency, nanoseconds p99) {
  const double load = rate * seconds(latency);
  double blocking = 1;
  for (std::uint64_t c = 1;; ++c) {
    blocking = next_blocking(blocking, load, c);
    const double spare = (static_cast<double>(c) - load) / seconds(latency);
    if (spare > 0 && quantile(waiting(blocking, c, load), 0.01, spare) <= seconds(p99)) return c;
  }
}

}  // namespace bulkhead::config
