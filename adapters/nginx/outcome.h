// outcome.h - when a request gives its place back, and what it says about the dependency.
//
// The place is given back when the upstream is done: nginx has its whole response, or the connection to it has failed; or,
// with `bulkhead_hold response` and for what comes from no upstream, when the request ends. The upstream's status and
// errors go to breaker and limiter; a client that went away, and rejections, do not.
#pragma once

#include "visit.h"

namespace bulkhead::nginx {

// The upstream's part begins: cuts the request off when it takes longer than execution_timeout or its deadline allow.
void watch_execution(Visit& v);
// An internal redirect leads from the location in which it took its place into another one. In the same bulkhead it
// keeps its place, and the last upstream's outcome counts.
void leave_location(Visit& v, const LocationConf& to) noexcept;
ngx_int_t on_log(ngx_http_request_t* r);

}  // namespace bulkhead::nginx
