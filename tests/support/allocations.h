// allocations.h - counts the allocations of a piece of code, and lets them fail.
//
//   EXPECT_EQ(allocations_in([&] { gate.acquire(); }), 0u);
//   without_memory([&] { gate.async_acquire({}, handler); });        // every operator new of this thread fails
//
// Linking allocations.cc replaces the global operator new by one that counts. A sanitizer has its own operator new; then
// its hooks count. All threads are counted, so nothing else may run at the same time.
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

// False: the sanitizer has its own operator new, which does not fail.
bool can_fail_allocations() noexcept;

// The memory of this thread, for tests that let the n-th allocation fail.
struct ThreadMemory {
  std::int64_t left = -1;  // allocations that still succeed; negative: all
  bool once = false;       // only one allocation fails, then all succeed
  bool failed = false;     // one has failed
};
ThreadMemory& thread_memory() noexcept;
void fail_allocations(bool fail) noexcept;  // all of this thread

template <class F>
void without_memory(F&& body) {
  fail_allocations(true);
  body();
  fail_allocations(false);
}

// Fault injection: the allocation after the next `n` throws std::bad_alloc, once, whichever thread it is of.
//
//   for (std::uint64_t n = 0; fails_at(n, [&] { pool.submit(work); }); ++n) check_that_nothing_is_lost();
//
// Gives whether there was such an allocation, so the loop ends when the body needs no more than n. The body must
// handle std::bad_alloc, and use no EXPECT_ while it runs. A sanitizer's operator new cannot fail: see can_fail_allocations().
void start_failing(std::uint64_t n) noexcept;
bool stop_failing() noexcept;

template <class F>
bool fails_at(std::uint64_t n, F&& body) {
  start_failing(n);
  body();
  return stop_failing();
}

}  // namespace bulkhead::tests
