#include "status.h"

#include "configuration.h"
#include "module.h"
#include "reply.h"

namespace bulkhead::nginx {
namespace {

std::string_view accept_of(ngx_http_request_t* r) noexcept {
  const ngx_list_part_t* part = &r->headers_in.headers.part;
  for (; part; part = part->next) {
    const auto* const headers = static_cast<const ngx_table_elt_t*>(part->elts);
    for (ngx_uint_t i = 0; i < part->nelts; ++i)
      if (view({headers[i].key.len, headers[i].lowcase_key}) == "accept") return view(headers[i].value);
  }
  return {};
}

}  // namespace

ngx_int_t send_status(ngx_http_request_t* r) {
  if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD))) return NGX_HTTP_NOT_ALLOWED;
  if (!engine()) return NGX_HTTP_NOT_FOUND;  // no bulkhead_config
  http::Guard& guard = engine()->guard();
  switch (location_conf(r).status_format) {
    case status_json:
      return send(r, guard.health());
    case status_prometheus:
      return send(r, guard.metrics("text/plain"));
    default:
      return send(r, guard.metrics(accept_of(r)));
  }
}

}  // namespace bulkhead::nginx
