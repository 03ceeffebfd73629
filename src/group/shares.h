// shares.h - converts shares into whole units.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bulkhead/group.h"

namespace bulkhead::group {

struct Part {
  std::string_view name;
  Share guaranteed, max;
};
struct Quota {
  std::uint32_t guaranteed = 0, max = 0;
  bool max_follows = false;  // a higher total would raise the max
};

// The units of each part. Guarantees in per cent are rounded together (largest remainder): their sum is the sum of the
// per cent of the total, rounded down. Throws std::invalid_argument that names the share that does not fit.
std::vector<Quota> quotas(std::string_view group, std::uint32_t total, const std::vector<Part>& parts);

// The same for a total that a limiter has chosen, of parts that fit another total. Guarantees that add up to more than the
// total shrink in proportion; while the total allows it, each of them keeps a unit. A guarantee is at most the max.
std::vector<Quota> shrunk_quotas(std::uint32_t total, const std::vector<Part>& parts);

}  // namespace bulkhead::group
