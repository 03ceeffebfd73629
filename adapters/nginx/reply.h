// reply.h - what a rejected request is answered, and when.
//
// The answer is the library's (bulkhead/http.h), unless the location has a fallback or an error_page for its status.
// In a storm of rejections each is held, see bulkhead_storm; of those whose time is over, a few are sent in each round of
// the event loop, after everything else that is ready.
#pragma once

#include "bulkhead/http.h"
#include "visit.h"

namespace bulkhead::nginx {

// What a phase handler returns: NGX_AGAIN, if the rejection is held; else as send_rejection().
ngx_int_t reject(Visit& v, const Rejection& why);
// Sends it: NGX_DONE, or the status that nginx is to answer.
ngx_int_t send_rejection(Visit& v);
// What content handlers return.
ngx_int_t send(ngx_http_request_t* r, const http::Response& from);
// Whether nginx has an error_page for this status here, which it then is to send.
bool has_error_page(ngx_http_request_t* r, int status) noexcept;

}  // namespace bulkhead::nginx
