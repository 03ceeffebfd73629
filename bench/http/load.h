// load.h - the clients of the storm: clients that retry at once, and clients whose latency is measured.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

namespace bulkhead::bench {

struct Latency {
  double p50 = 0, p90 = 0, p99 = 0;  // ms
};

// /fast, 500 times a second on 16 connections. Counted from the moment a request was due, so that a late one is not
// forgiven.
Latency measure(std::uint16_t port, std::chrono::milliseconds time);

// Asks for /slow on that number of connections, again after each answer, for ever; on a new one where the server
// has ended the old. `rejected` counts the 503s.
void flood(std::uint16_t port, int clients, std::atomic<std::uint64_t>& rejected);

}  // namespace bulkhead::bench
