// until.h - waits for what another thread is about to do.
//
//   until([&] { return pool.snapshot().idle == 1; });
//
// The time only keeps a broken build from hanging.
#pragma once

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <source_location>
#include <thread>

namespace bulkhead::tests {

template <class F>
void until(F&& holds, std::source_location where = std::source_location::current()) {
  const auto give_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (!holds()) {
    std::this_thread::yield();
    if (std::chrono::steady_clock::now() < give_up) continue;
    std::fprintf(stderr, "%s:%u: this never happened\n", where.file_name(), where.line());
    std::abort();
  }
}

}  // namespace bulkhead::tests
