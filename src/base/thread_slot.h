// thread_slot.h - a small number that no other living thread has, for arrays with a place for each thread.
//
//   Stripe& mine = stripes[base::thread_slot()];       // stripes[kThreadSlots]: of all who have no number
//
// A thread has the same number until it ends; then the next one may have it, and sees what the last one wrote.
// Threads beyond the first 64 that live at once, and those that are ending, have none.
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
