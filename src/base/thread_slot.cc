#include "base/thread_slot.h"

#include <atomic>
#include <bit>

namespace bulkhead::base {
namespace {

constinit std::atomic<std::uint64_t> taken{0};  // a bit for each number
constinit thread_local bool ending = false;

struct GiveBack {
  ~GiveBack() {
    ending = true;  // destructors of other thread-local objects may run after this one
    const std::uint64_t mine = std::uint64_t{1} << detail::my_slot;
    detail::my_slot = kThreadSlots;
    taken.fetch_and(~mine,
                    std::memory_order_release);  // the next thread with this number sees what this one wrote
  }
};

}  // namespace

constinit thread_local std::uint32_t detail::my_slot = kThreadSlots;

std::uint32_t detail::take_thread_slot() noexcept {
  static_assert(kThreadSlots == 64);
  if (ending) return kThreadSlots;
  std::uint64_t seen = taken.load(std::memory_order_relaxed);
  std::uint32_t slot = 0;
  do {
    slot = static_cast<std::uint32_t>(std::countr_one(seen));
    if (slot == kThreadSlots) return slot;
    // Acquire: pairs with the release above.
  } while (!taken.compare_exchange_weak(seen, seen | std::uint64_t{1} << slot, std::memory_order_acquire,
                                        std::memory_order_relaxed));
  my_slot = slot;
  static thread_local GiveBack at_the_end;
  (void)at_the_end;
  return slot;
}

}  // namespace bulkhead::base
