// serve.h - `bulkhead demo --serve`: the shop under load, with control plane and dashboard, until it is stopped.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace bulkhead::demo {

struct ServeOptions {
  std::string listen{};       // default: 127.0.0.1:9920, or any free port if that is taken
  std::string unix_socket{};  // default: one in a directory of its own
  double seconds = 0;         // 0: until a signal or the key q
  std::uint64_t seed = 1;
  bool slow = false;       // from the start
  bool json = false;       // lines of JSON on standard output: ready, then every event
  std::string postgres{};  // a connection string; empty: SQLite
};

int serve_demo(const ServeOptions& options, std::string_view version);

}  // namespace bulkhead::demo
