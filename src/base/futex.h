// futex.h - parks a thread on a 32-bit word, with an absolute monotonic deadline.
#pragma once

#include <atomic>
#include <cstdint>
#include <limits>

#include "bulkhead/clock.h"

namespace bulkhead::base {

// Sleeps while *word == value, until `until`. May return early.
void futex_wait(const std::atomic<std::uint32_t>& word, std::uint32_t value, TimePoint until) noexcept;

// Wakes up to this many threads that sleep on this address. The word is not accessed, so it may be destroyed: at worst a
// thread that reuses the address wakes up spuriously.
void futex_wake(const std::atomic<std::uint32_t>* word,
                int threads = std::numeric_limits<int>::max()) noexcept;

}  // namespace bulkhead::base
