// types.h - the types that exist without being defined: for the registry, and for the configuration, which lets a file
// change them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"

namespace bulkhead::registry {

// In the order of the documentation; the options have no name.
std::vector<std::pair<std::string, BulkheadOptions>> built_in_types();

}  // namespace bulkhead::registry
