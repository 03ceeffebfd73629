// The variables for logs and headers: $bulkhead, $bulkhead_reason, $bulkhead_wait, $bulkhead_priority,
// $bulkhead_time_left.
#include <cstdio>

#include "bulkhead/http_hints.h"
#include "module.h"
#include "visit.h"

namespace bulkhead::nginx {
namespace {

ngx_int_t set(ngx_http_variable_value_t* to, ngx_http_request_t* r, std::string_view text) noexcept {
  const ngx_str_t kept = copy(r->pool, text);
  if (!kept.data) return NGX_ERROR;
  to->data = kept.data;
  to->len = static_cast<unsigned>(kept.len) & 0xfffffff;
  to->valid = 1;
  to->no_cacheable = 1;
  to->not_found = 0;
  return NGX_OK;
}

ngx_int_t absent(ngx_http_variable_value_t* to) noexcept {
  to->not_found = 1;
  return NGX_OK;
}

Visit* visit_of(ngx_http_request_t* r) noexcept {
  Visit* const v = find_visit(r->main);
  return v && v->location ? v : nullptr;
}

ngx_int_t get_name(ngx_http_request_t* r, ngx_http_variable_value_t* to, uintptr_t) {
  const Visit* const v = visit_of(r);
  return v ? set(to, r, view(v->name)) : absent(to);
}

// The reason of a rejection, or "execution_timeout"; none for requests that were admitted.
ngx_int_t get_reason(ngx_http_request_t* r, ngx_http_variable_value_t* to, uintptr_t) {
  const Visit* const v = visit_of(r);
  if (v && v->late) return set(to, r, "execution_timeout");
  return v && v->why ? set(to, r, to_string(v->why->reason)) : absent(to);
}

// Seconds, like $request_time.
ngx_int_t get_wait(ngx_http_request_t* r, ngx_http_variable_value_t* to, uintptr_t) {
  const Visit* const v = visit_of(r);
  if (!v) return absent(to);
  const auto waited = v->wait ? engine()->clock().now() - v->joined : v->waited;
  char text[32];
  const int n = std::snprintf(text, sizeof text, "%.3f", std::chrono::duration<double>(waited).count());
  return set(to, r, {text, static_cast<std::size_t>(n)});
}

ngx_int_t get_priority(ngx_http_request_t* r, ngx_http_variable_value_t* to, uintptr_t) {
  const Visit* const v = visit_of(r);
  return v ? set(to, r, to_string(v->priority)) : absent(to);
}

// The milliseconds that are left of bulkhead_deadline, for a header to the upstream.
ngx_int_t get_time_left(ngx_http_request_t* r, ngx_http_variable_value_t* to, uintptr_t) {
  const Visit* const v = visit_of(r);
  const auto left = v ? http::pass_on(v->deadline, engine()->clock().now()) : std::nullopt;
  return left ? set(to, r, *left) : absent(to);
}

}  // namespace

ngx_int_t add_variables(ngx_conf_t* cf) {
  const std::pair<ngx_str_t, ngx_http_get_variable_pt> all[] = {
      {literal("bulkhead"), get_name},
      {literal("bulkhead_reason"), get_reason},
      {literal("bulkhead_wait"), get_wait},
      {literal("bulkhead_priority"), get_priority},
      {literal("bulkhead_time_left"), get_time_left}};
  for (const auto& [name, get] : all) {
    ngx_str_t copied = name;
    ngx_http_variable_t* const variable = ngx_http_add_variable(cf, &copied, NGX_HTTP_VAR_NOCACHEABLE);
    if (!variable) return NGX_ERROR;
    variable->get_handler = get;
  }
  return NGX_OK;
}

}  // namespace bulkhead::nginx
