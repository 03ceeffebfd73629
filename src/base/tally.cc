#include "base/tally.h"

namespace bulkhead::base::detail {

std::uint32_t number_thread() noexcept {
  static constinit std::atomic<std::uint32_t> threads{0};
  return number_of_thread = threads.fetch_add(1, std::memory_order_relaxed) + 1;
}

}  // namespace bulkhead::base::detail
