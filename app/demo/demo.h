// demo.h - `bulkhead demo`: the shop whose analytics turns slow, without bulkheads and then with them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bulkhead::demo {

struct DemoOptions {
  double seconds = 24;
  std::uint64_t seed = 1;
  bool json = false;
  bool plain = false;
  bool no_colour = false;
  std::string postgres{};  // a connection string; empty: SQLite
};

inline constexpr double kMinSeconds = 4, kMaxSeconds = 600;

// The exit code: 0, or 128 + the signal that ended it.
int run_demo(const DemoOptions& options, std::string_view version);

}  // namespace bulkhead::demo
