// thread_slot.h - a small number that no other running thread has, for arrays with one element per thread.
//
//   Stripe& mine = stripes[base::thread_slot()];       // stripes[kThreadSlots]: shared by threads without a number
//
// A thread keeps its number until it ends; then another thread may get it, and sees what the first one wrote. Threads
// beyond 64 at the same time, and threads that are ending, have no number.
// Cost: a load; the first time a compare-exchange.
#pragma once

#include <cstdint>

namespace bulkhead::base {

inline constexpr std::uint32_t kThreadSlots = 64;

namespace detail {
extern constinit thread_local std::uint32_t my_slot;
std::uint32_t take_thread_slot() noexcept;
}  // namespace detail

// 0 to kThreadSlots - 1; kThreadSlots: none.
inline std::uint32_t thread_slot() noexcept {
  const std::uint32_t slot = detail::my_slot;
  return slot < kThreadSlots ? slot : detail::take_thread_slot();
}

}  // namespace bulkhead::base
