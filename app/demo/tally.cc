#include "app/demo/tally.h"

namespace bulkhead::demo {

std::uint64_t Count::rejected() const noexcept {
  std::uint64_t sum = 0;
  for (const auto n : rejected_by_reason) sum += n;
  return sum;
}

double Count::served_share() const noexcept {
  const auto all = decided();
  return all == 0 ? 1 : static_cast<double>(served) / static_cast<double>(all);
}

Count& Count::operator+=(const Count& other) noexcept {
  calls += other.calls;
  served += other.served;
  failed += other.failed;
  for (std::size_t i = 0; i < kReasons; ++i) rejected_by_reason[i] += other.rejected_by_reason[i];
  wait += other.wait;
  response += other.response;
  return *this;
}

Count& Count::operator-=(const Count& earlier) noexcept {
  calls -= earlier.calls;
  served -= earlier.served;
  failed -= earlier.failed;
  for (std::size_t i = 0; i < kReasons; ++i) rejected_by_reason[i] -= earlier.rejected_by_reason[i];
  wait -= earlier.wait;
  response -= earlier.response;
  return *this;
}

Count Tally::read() const noexcept {
  Count copy;
  copy.calls = calls_.load(std::memory_order_relaxed);
  copy.served = served_.load(std::memory_order_relaxed);
  copy.failed = failed_.load(std::memory_order_relaxed);
  for (std::size_t i = 0; i < kReasons; ++i)
    copy.rejected_by_reason[i] = rejected_[i].load(std::memory_order_relaxed);
  copy.wait = wait_.counts();
  copy.response = response_.counts();
  return copy;
}

}  // namespace bulkhead::demo
