// in_order.h - the order in which several gates are taken, so that calls do not wait for each other in a circle. Not for
// direct use; a template so that the model checker in tests/model uses it, too.
#pragma once

#include "bulkhead/detail/language.h"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <utility>

namespace bulkhead::detail {

// Sorts `wanted`, of {gate, cost}, by the address of the gate, and joins entries of the same gate: taken one after the
// other, a call could wait for units that it holds itself. Gives the number of entries left.
template <class Wanted>
std::size_t put_in_order(Wanted* wanted, std::size_t count) noexcept {
  const std::less<> before;
  std::size_t kept = 0;
  for (std::size_t i = 0; i < count; ++i) {
    Wanted next = wanted[i];
    std::size_t at = kept;
    while (at > 0 && before(next.gate, wanted[at - 1].gate)) --at;
    if (at > 0 && wanted[at - 1].gate == next.gate) {
      constexpr std::uint32_t kMost = std::numeric_limits<std::uint32_t>::max();
      std::uint32_t& sum = wanted[at - 1].cost;
      sum = next.cost > kMost - sum ? kMost : sum + next.cost;  // above every limit, so rejected
      continue;
    }
    for (std::size_t j = kept; j > at; --j) wanted[j] = wanted[j - 1];
    wanted[at] = next;
    ++kept;
  }
  return kept;
}

}  // namespace bulkhead::detail
