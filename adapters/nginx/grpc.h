// grpc.h - gRPC calls that pass through grpc_pass: their rejections, and what their status says about the service.
//
// HTTP says 200 for every gRPC response; the status is in a header of its own, at the end of the response, or at its beginning
// if there is nothing else. The codes are those of adapters/grpc/status.h.
#pragma once

#include <optional>

#include "bulkhead/http.h"
#include "bulkhead/judge.h"
#include "nginx.h"

namespace bulkhead::nginx {

// A call that its client names so, over HTTP/2, where the service need not be one that speaks HTTP.
bool is_grpc(ngx_http_request_t* r) noexcept;

// The response of headers only that a gRPC client understands, instead of `from`. `late`: its deadline has passed.
http::Response grpc_response(const http::Response& from, Reason reason, bool late);

// What the upstream's status says; none: it sent none.
std::optional<Outcome> grpc_verdict(const ngx_http_upstream_t& upstream) noexcept;

}  // namespace bulkhead::nginx
