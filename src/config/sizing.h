// sizing.h - how large a bulkhead should be: Little's law, the queue rule, and Erlang's formula for the wait.
//
//   const Size size = size_for({.rate = 200, .latency = 50ms, .tolerated_wait = 100ms});
//   size.max_concurrent;       // 200/s x 50 ms x 1.5 = 15
//   size.max_queue;            // 100 ms / 5 ms between arrivals = 20
//
// Erlang B and C assume that calls arrive at random (Poisson), take a random time, and wait in one line (C: exponential
// times) or are rejected (B): the usual first guess, too low if arrivals come in bursts.
#pragma once

#include <chrono>
#include <cstdint>

namespace bulkhead::config {

struct SizingInput {
  double rate = 0;  // calls a second
  std::chrono::nanoseconds latency{};
  std::chrono::nanoseconds tolerated_wait{};
  double buffer = 1.5;
};

struct Size {
  double in_flight = 0;  // on average: rate x latency
  std::uint64_t max_concurrent = 0;
  std::uint64_t max_queue = 0;
};
Size size_for(const SizingInput& input);

// The share of arrivals that are rejected because no call may wait, of `places` under `load` calls in flight on average if
// all were admitted. Takes as many steps as there are places.
double erlang_b(std::uint64_t places, double load);

// The share of arrivals that have to wait, of `places` under `load` calls in flight on average; 1 if it is overloaded.
// Stable for any number of places; takes as many steps.
double erlang_c(std::uint64_t places, double load);

struct Wait {
  double waits = 0;                 // the share of calls that have to wait at all
  std::chrono::nanoseconds mean{};  // of all calls
  std::chrono::nanoseconds p99{};
  bool endless = false;  // overloaded: the line grows for ever
};
Wait wait_of(std::uint64_t places, double rate, std::chrono::nanoseconds latency);

// The fewest places for which 99 % of the calls wait no longer than this.
std::uint64_t places_for_p99(double rate, std::chrono::nanoseconds latency, std::chrono::nanoseconds p99);

}  // namespace bulkhead::config
