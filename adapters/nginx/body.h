// body.h - reads the request's body before the request takes a place: a client that sends it slowly holds memory, but
// no place.
#pragma once

#include "visit.h"

namespace bulkhead::nginx {

bool needs_body(const Visit& v, const LocationConf& location) noexcept;
ngx_int_t read_body(Visit& v);

}  // namespace bulkhead::nginx
