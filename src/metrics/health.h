// health.h - the same as a page for people and programs that are not Prometheus: one JSON document.
#pragma once

#include <string>

#include "metrics/catalogue.h"

namespace bulkhead::metrics {

void write_health(std::string& out, const Page& page);

}  // namespace bulkhead::metrics
