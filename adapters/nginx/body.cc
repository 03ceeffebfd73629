#include "body.h"

#include "grpc.h"
#include "passing.h"

namespace bulkhead::nginx {
namespace {

void on_body(ngx_http_request_t* r) {
  Visit* const v = find_visit(r);
  v->stage = Visit::Stage::arrived;
  r->write_event_handler = ngx_http_core_run_phases;
  ngx_http_core_run_phases(r);
}

}  // namespace

bool needs_body(const Visit& v, const LocationConf& location) noexcept {
  ngx_http_request_t* const r = v.request;
  if (!location.body_first || r->request_body || r->discard_body) return false;
  const bool more = r->stream && !r->stream->in_closed;  // HTTP/2 need not give a length
  if (r->headers_in.content_length_n <= 0 && !r->headers_in.chunked && !more) return false;
  // A gRPC call may be a stream in both directions: its body ends with the call.
  return !is_grpc(r) && buffers_body(r);
}

ngx_int_t read_body(Visit& v) {
  v.stage = Visit::Stage::reading;
  const ngx_int_t rc = ngx_http_read_client_request_body(v.request, on_body);
  if (rc >= NGX_HTTP_SPECIAL_RESPONSE) return rc;
  ngx_http_finalize_request(v.request, NGX_DONE);
  return NGX_DONE;
}

}  // namespace bulkhead::nginx
