// httplib.h - the server of the storm on cpp-httplib, whose header is large and only needed here.
#pragma once

#include <cstdint>
#include <functional>

#include "bulkhead/http_guard.h"

namespace bulkhead::bench {

// As the others: /slow has 50 places and takes a second, everything else is fast. Until it is killed.
void serve_httplib(const http::StormOptions& storm, const std::function<void(std::uint16_t)>& tell);

}  // namespace bulkhead::bench
