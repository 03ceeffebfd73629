// passing.h - how a location passes its requests on: by which of nginx's modules, and whether nginx reads the body first.
#pragma once

#include "nginx.h"

namespace bulkhead::nginx {

// By a proxy_pass without variables.
bool passes_http(ngx_http_request_t* r) noexcept;
// The whole body, before the service gets any of it: proxy_request_buffering, or what it is called in the other modules.
bool buffers_body(ngx_http_request_t* r) noexcept;

}  // namespace bulkhead::nginx
