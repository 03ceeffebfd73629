#include "base/tally.h"

namespace bulkhead::base {

std::uint32_t thread_number() noexcept {
  static constinit std::atomic<std::uint32_t> threads{0};
  constinit static thread_local std::uint32_t mine = 0;
  if (mine == 0) [[unlikely]]
    mine = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return mine;
}

}  // namespace bulkhead::base
