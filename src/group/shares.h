// shares.h - shares in whole units, without losing one.
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
};

// The units of each part. The guarantees in per cent are rounded together, by largest remainder: they add up
// to their sum of per cent of the total, rounded down. std::invalid_argument names what does not fit.
std::vector<Quota> quotas(std::string_view group, std::uint32_t total, const std::vector<Part>& parts);

}  // namespace bulkhead::group
