#include "outcome.h"

#include <algorithm>

#include "grpc.h"
#include "module.h"
#include "reply.h"

namespace bulkhead::nginx {
namespace {

ngx_http_output_header_filter_pt next_filter = nullptr;

bool upstream_is_done(ngx_http_request_t* r) noexcept {
  return r->upstream && r->upstream->state && !r->upstream->cleanup;
}

Outcome verdict_of(ngx_http_request_t* r, ngx_int_t rc) noexcept {
  const ngx_http_upstream_t* const u = r->upstream;
  if (rc == NGX_HTTP_CLIENT_CLOSED_REQUEST || r->headers_out.status == NGX_HTTP_CLIENT_CLOSED_REQUEST)
    return Outcome::ignored;
  if (r->cached) return Outcome::ignored;  // from nginx's cache: the upstream was not called
  // The response broke off, and not because the client went away.
  const bool client_gone = r->connection->error || (u && u->pipe && u->pipe->downstream_error);
  if (u && (rc == NGX_ERROR || rc >= NGX_HTTP_INTERNAL_SERVER_ERROR))
    return client_gone ? Outcome::ignored : Outcome::failure;
  const ngx_uint_t status = u && u->state && u->state->status ? u->state->status : r->headers_out.status;
  if (status == 0) return Outcome::ignored;
  if (u && status == NGX_HTTP_OK && is_grpc(r))
    if (const std::optional<Outcome> said = grpc_verdict(*u)) return *said;
  return http::verdict(static_cast<int>(status));
}

// Decides the outcome when the upstream is done; from now on only the client can be slow.
void decide(Visit& v, ngx_int_t rc) noexcept {
  if (v.outcome) return;
  if (v.timer.timer_set) ngx_del_timer(&v.timer);
  // A passed deadline counts as a client that has disconnected. Otherwise any client could open the breaker with short
  // deadlines.
  const Outcome late = v.late_by_deadline ? Outcome::ignored : Outcome::timeout;
  v.outcome = v.late ? late : verdict_of(v.request, rc);
}

void finish(Visit& v, ngx_int_t rc) noexcept {
  if (!v.call) return;
  decide(v, rc);
  v.call.finish(*v.outcome);
}

void upstream_done(Visit& v, ngx_int_t rc) noexcept {
  if (!v.call) return;
  if (v.location->hold == until_upstream)
    finish(v, rc);
  else
    decide(v, rc);
}

// Called by nginx instead of the upstream module's own, which is called first.
void on_upstream_done(ngx_http_request_t* r, ngx_int_t rc) {
  Visit* const v = find_visit(r);
  if (!v) return;
  v->finalize_upstream(r, rc);
  upstream_done(*v, rc);
}

// The first moment at which the upstream's request exists and its response has begun, or has failed.
ngx_int_t on_header(ngx_http_request_t* r) {
  Visit* const v = r == r->main ? find_visit(r) : nullptr;
  if (v && v->call && r->upstream) {
    ngx_http_upstream_t* const u = r->upstream;
    if (upstream_is_done(r)) {
      upstream_done(*v, NGX_OK);
    } else if (u->cleanup && u->finalize_request != on_upstream_done) {
      v->finalize_upstream = u->finalize_request;
      u->finalize_request = on_upstream_done;
    }
  }
  return next_filter(r);
}

// Ends the upstream's request as nginx does when the client goes, and answers instead.
void on_late(ngx_event_t* event) {
  auto& v = *static_cast<Visit*>(event->data);
  ngx_http_request_t* const r = v.request;
  ngx_connection_t* const connection = r->connection;
  ngx_http_set_log_request(connection->log, r);
  ngx_http_upstream_t* const u = r->upstream;
  if (!u || !u->cleanup) {
    // Nothing to cut. What nginx makes itself counts as late when it ends; a response that only has to be sent, as a file or
    // one from a cache, does not.
    v.late = !r->header_sent;
    return;
  }
  v.late = true;
  ngx_log_error(NGX_LOG_ERR, connection->log, 0, "bulkhead \"%V\": execution_timeout exceeded", &v.name);
  const bool answered = r->header_sent;
  ++r->main->count;  // the cleanup ends the upstream's share of the request, not the request
  (*u->cleanup)(r);
  finish(v, NGX_HTTP_GATEWAY_TIME_OUT);
  const http::Response response = http::failure(true, {}, view(r->uri));
  ngx_http_finalize_request(r, answered                             ? NGX_ERROR
                               : has_error_page(r, response.status) ? response.status
                               : is_grpc(r)
                                   ? send(r, grpc_response(response, Reason::execution_timeout, true))
                                   : send(r, response));
  ngx_http_run_posted_requests(connection);
}

}  // namespace

void watch_execution(Visit& v) {
  v.late = v.late_by_deadline = false;  // those of an earlier upstream are its own
  v.outcome.reset();
  if (v.call.free()) return;  // shadow mode stops no call, although it may have a permit
  std::chrono::nanoseconds limit = v.call.execution_timeout();
  if (v.deadline != no_deadline) {
    const std::chrono::nanoseconds left = v.deadline - engine()->clock().now();
    v.late_by_deadline = left < limit;
    limit = std::min(limit, left);
  }
  if (limit == wait_forever) return;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(limit).count();
  v.timer.handler = on_late;
  ngx_add_timer(&v.timer, static_cast<ngx_msec_t>(std::clamp<decltype(ms)>(ms, 1, 24 * 3600 * 1000)));
}

void leave_location(Visit& v, const LocationConf& to) noexcept {
  if (v.call && (!to.on || view(to.name) != view(v.location->name))) finish(v, NGX_OK);
}

ngx_int_t on_log(ngx_http_request_t* r) {
  if (Visit* const v = r == r->main ? find_visit(r) : nullptr) finish(*v, NGX_OK);
  return NGX_OK;
}

ngx_int_t add_filter(ngx_conf_t*) {
  next_filter = ngx_http_top_header_filter;
  ngx_http_top_header_filter = on_header;
  return NGX_OK;
}

}  // namespace bulkhead::nginx
