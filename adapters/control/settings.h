// settings.h - a bulkhead's settings as a list of names and values, as people would write them.
#pragma once

#include <boost/json/array.hpp>

#include "bulkhead/bulkhead.h"

namespace bulkhead::control {

boost::json::array settings_json(
    const BulkheadOptions& options);  // [{"name": "max_wait", "value": "50ms"} ...]

}  // namespace bulkhead::control
