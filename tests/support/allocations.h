// allocations.h - how often a piece of code allocates.
//
//   EXPECT_EQ(allocations_in([&] { gate.acquire(); }), 0u);
//
// A program that links allocations.cc has its global operator new replaced by one that counts; a sanitizer has
// its own, and counts for us. All threads are counted, so nothing else may run meanwhile.
#pragma once

#include <cstdint>

namespace bulkhead::tests {

void start_counting() noexcept;
std::uint64_t stop_counting() noexcept;  // what was allocated since

template <class F>
std::uint64_t allocations_in(F&& body) {
  start_counting();
  body();
  return stop_counting();
}

}  // namespace bulkhead::tests
