// status.h - bulkhead_status: what the bulkheads of this worker do, as Prometheus text or JSON.
#pragma once

#include "nginx.h"

namespace bulkhead::nginx {

enum StatusFormat : ngx_uint_t { status_by_accept, status_prometheus, status_json };

ngx_int_t send_status(ngx_http_request_t* r);

}  // namespace bulkhead::nginx
