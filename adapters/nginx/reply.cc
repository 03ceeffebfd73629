#include "reply.h"

#include "grpc.h"
#include "module.h"
#include "phase.h"

namespace bulkhead::nginx {
namespace {

constexpr int kPerRound = 4;

// Replaces a header of that name: a rejection that was redirected may be sent again.
ngx_table_elt_t* header_slot(ngx_http_request_t* r, std::string_view name) noexcept {
  for (ngx_list_part_t* part = &r->headers_out.headers.part; part; part = part->next) {
    auto* const headers = static_cast<ngx_table_elt_t*>(part->elts);
    for (ngx_uint_t i = 0; i < part->nelts; ++i)
      if (view(headers[i].key) == name) return &headers[i];
  }
  return static_cast<ngx_table_elt_t*>(ngx_list_push(&r->headers_out.headers));
}

bool set_header(ngx_http_request_t* r, std::string_view name, std::string_view value) noexcept {
  ngx_table_elt_t* const header = header_slot(r, name);
  if (!header) return false;
  ngx_memzero(header, sizeof *header);
  header->key = copy(r->pool, name);
  header->value = copy(r->pool, value);
  header->hash = header->key.data && header->value.data ? 1 : 0;  // 0: not sent
  return true;
}

http::Response response_of(const Visit& v) {
  return http::rejection(*v.why, {},
                         {.priority = v.priority,
                          .tenants_own = v.tenants_own,
                          .random = static_cast<std::uint32_t>(ngx_random()) << 1,
                          .instance = view(v.request->uri)});
}

ngx_int_t send_text(ngx_http_request_t* r, const LocationConf& location) {
  ngx_str_t text = ngx_null_string;
  if (ngx_http_complex_value(r, location.fallback_text, &text) != NGX_OK) return NGX_ERROR;
  return send(r, {.status = static_cast<int>(location.fallback_status),
                  .headers = {{"Content-Type", std::string(view(location.fallback_type))}},
                  .body = std::string(view(text))});
}

ngx_int_t fall_back(Visit& v, const LocationConf& location) {
  ngx_http_request_t* const r = v.request;
  v.fell_back = true;
  set_header(r, "X-Bulkhead-Reason", to_string(v.why->reason));
  ngx_str_t uri = location.fallback_uri;
  if (uri.len == 0) {
    ngx_http_finalize_request(r, send_text(r, location));
    return NGX_DONE;
  }
  if (uri.data[0] == '@') {
    ngx_http_named_location(r, &uri);
  } else {
    // A page, as for error_page: files answer nothing else.
    if (r->method != NGX_HTTP_HEAD) {
      r->method = NGX_HTTP_GET;
      r->method_name = ngx_http_core_get_method;
    }
    ngx_http_internal_redirect(r, &uri, &r->args);
  }
  ngx_http_finalize_request(r, NGX_DONE);
  return NGX_DONE;
}

// A rejection answered by a fallback of the file's choice only: `fallback_on` may leave rejections out.
bool may_fall_back(const Visit& v, const LocationConf& location) {
  if (!location.has_fallback || v.fell_back) return false;
  return !v.bulkhead || covers(v.bulkhead->options().fallback_on, Cause::Kind::rejected);
}

// Rejections whose time is over, oldest first.
struct Turns {
  Turns() noexcept {
    ngx_queue_init(&queue);
    round.handler = next_round;
  }
  static void next_round(ngx_event_t*);
  void schedule() noexcept {
    round.log = ngx_cycle->log;
    ngx_post_event(&round, &ngx_posted_next_events);
  }
  ngx_queue_t queue;
  ngx_event_t round{};
};
Turns turns;

void send_held(Visit& v) {
  ngx_connection_t* const connection = v.request->connection;
  ngx_http_set_log_request(connection->log, v.request);
  v.held = false;
  engine()->end_hold();
  const ngx_int_t rc = send_rejection(v);
  if (rc != NGX_DONE) ngx_http_finalize_request(v.request, rc);
  ngx_http_run_posted_requests(connection);
}

void Turns::next_round(ngx_event_t*) {
  for (int i = 0; i < kPerRound && !ngx_queue_empty(&turns.queue); ++i) {
    Visit& v = *ngx_queue_data(ngx_queue_head(&turns.queue), Visit, turn);
    ngx_queue_remove(&v.turn);
    v.queued = false;
    send_held(v);
  }
  if (!ngx_queue_empty(&turns.queue)) turns.schedule();
}

void on_hold_over(ngx_event_t* event) {
  auto& v = *static_cast<Visit*>(event->data);
  if (ngx_exiting) return send_held(v);  // the worker may exit before the next round
  ngx_queue_insert_tail(&turns.queue, &v.turn);
  v.queued = true;
  turns.schedule();
}

}  // namespace

ngx_int_t reject(Visit& v, const Rejection& why) {
  v.stage = Visit::Stage::rejected;
  v.why = why;
  if (may_fall_back(v, *v.location)) return send_rejection(v);
  const std::chrono::milliseconds hold = engine()->hold();
  if (hold.count() == 0 || ngx_exiting || !engine()->begin_hold()) return send_rejection(v);
  v.held = true;
  v.timer.handler = on_hold_over;
  ngx_add_timer(&v.timer, static_cast<ngx_msec_t>(hold.count()));
  return suspend(v.request);
}

ngx_int_t send_rejection(Visit& v) {
  ngx_http_request_t* const r = v.request;
  if (may_fall_back(v, *v.location)) return fall_back(v, *v.location);
  const http::Response response = response_of(v);
  if (has_error_page(r, response.status)) {
    for (const http::Header& h : response.headers)
      if (h.name != "Content-Type") set_header(r, h.name, h.value);
    return response.status;
  }
  const bool late = v.deadline <= engine()->clock().now();
  ngx_http_finalize_request(r, send(r, is_grpc(r) ? grpc_response(response, v.why->reason, late) : response));
  return NGX_DONE;
}

bool has_error_page(ngx_http_request_t* r, int status) noexcept {
  const auto* const core =
      static_cast<const ngx_http_core_loc_conf_t*>(ngx_http_get_module_loc_conf(r, ngx_http_core_module));
  if (r->error_page || !core->error_pages) return false;
  const auto* const pages = static_cast<const ngx_http_err_page_t*>(core->error_pages->elts);
  for (ngx_uint_t i = 0; i < core->error_pages->nelts; ++i)
    if (pages[i].status == status) return true;
  return false;
}

ngx_int_t send(ngx_http_request_t* r, const http::Response& from) {
  // nginx would take the part of a body that has not been read for the next request of the connection.
  if (const ngx_int_t rc = ngx_http_discard_request_body(r); rc != NGX_OK) return rc;
  r->headers_out.status = static_cast<ngx_uint_t>(from.status);
  r->headers_out.content_length_n = static_cast<off_t>(from.body.size());
  for (const http::Header& h : from.headers) {
    if (h.name == "Content-Type") {
      r->headers_out.content_type = copy(r->pool, h.value);
      r->headers_out.content_type_len = r->headers_out.content_type.len;
      r->headers_out.content_type_lowcase = nullptr;
    } else if (h.name == "Connection") {
      r->keepalive = 0;
    } else if (!set_header(r, h.name, h.value)) {
      return NGX_HTTP_INTERNAL_SERVER_ERROR;
    }
  }
  const ngx_int_t rc = ngx_http_send_header(r);
  if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) return rc;
  if (from.body.empty()) return ngx_http_send_special(r, NGX_HTTP_LAST);
  ngx_buf_t* const buffer = ngx_create_temp_buf(r->pool, from.body.size());
  if (!buffer) return NGX_ERROR;
  buffer->last = ngx_copy(buffer->last, from.body.data(), from.body.size());
  buffer->last_buf = 1;
  buffer->last_in_chain = 1;
  ngx_chain_t out = {buffer, nullptr};
  return ngx_http_output_filter(r, &out);
}

}  // namespace bulkhead::nginx
