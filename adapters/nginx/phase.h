// phase.h - where a request takes its place: the precontent phase, after every kind of authorisation (`satisfy any` jumps
// over the rest of the access phase) and before anything that is sent to an upstream.
#pragma once

#include "nginx.h"

namespace bulkhead::nginx {

struct Visit;

ngx_int_t on_precontent(ngx_http_request_t* r);
// From the engine: the visit's turn has come, or it has been rejected.
void resume(Visit& visit);
// The request does nothing until resumed, and ends if its client goes.
ngx_int_t suspend(ngx_http_request_t* r);
// Goes on with the phases of a suspended request.
void go_on(ngx_http_request_t* r);

}  // namespace bulkhead::nginx
