// series.h - how many series a scrape of these bulkheads will be.
#pragma once

#include <cstddef>

#include "bulkhead/config.h"

namespace bulkhead::config {

inline constexpr std::size_t kManySeries =
    10'000;  // of one process: beyond, think of what the server has to keep

// Counted on a page of such bulkheads, made and thrown away. Tenants that come later add none.
std::size_t series_of(Config config);

}  // namespace bulkhead::config
