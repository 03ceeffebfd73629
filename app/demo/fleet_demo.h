// fleet_demo.h - `bulkhead demo --fleet N`: shops in processes of their own share one limit through a Redis server, while a
// shop is killed, another one is cut off, and the server restarts without its data.
#pragma once

#include <cstdint>

namespace bulkhead::demo {

struct FleetDemoOptions {
  std::uint32_t shops = 0;
  bool json = false;
};

inline constexpr int kMinShops = 3, kMaxShops = 8;

// The exit code: 0; 1 if there is no redis-server, or the dependency saw more calls than its limit; 128 + the signal that
// ended it.
int run_fleet_demo(const FleetDemoOptions& options);

}  // namespace bulkhead::demo
