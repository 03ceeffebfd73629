#include "base/tally.h"

namespace bulkhead::base::detail {

ThreadNumber number_thread() noexcept {
  static constinit std::atomic<std::uint32_t> threads{0};
  const std::uint32_t number = threads.fetch_add(1, std::memory_order_relaxed) + 1;
  return number_of_thread = {.number = number, .stripe = number % kOwnStripes};
}

}  // namespace bulkhead::base::detail
