// checked.h - the options of a resource pool, checked.
#pragma once

#include "bulkhead/resource_pool.h"

namespace bulkhead::detail {

void check_max(std::string_view name, std::uint32_t max);
ResourceSettings checked(ResourceSettings settings, const ResourceOperations& operations);

}  // namespace bulkhead::detail
