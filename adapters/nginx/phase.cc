#include "phase.h"

#include "body.h"
#include "module.h"
#include "outcome.h"
#include "reply.h"
#include "values.h"
#include "visit.h"

namespace bulkhead::nginx {
namespace {

// nginx lets a worker that is to leave exit when no timer is set: a request in line needs one, whatever its own is.
constexpr ngx_msec_t kLongTime = 24 * 3600 * 1000;
void do_nothing(ngx_event_t*) {}

ngx_int_t admit(Visit& v, Call&& call) {
  v.stage = Visit::Stage::admitted;
  v.call = std::move(call);
  v.why.reset();
  watch_execution(v);
  return NGX_DECLINED;  // on with the phase
}

// Reads what the variables of the location say, finds the bulkhead, and takes a place or joins the line.
ngx_int_t enter(Visit& v) {
  ngx_http_request_t* const r = v.request;
  const LocationConf& location = location_conf(r);
  Engine& e = *engine();
  v.location = &location;
  v.priority = read_priority(r, location);
  v.deadline = read_deadline(r, location, e.clock());
  const std::string_view tenant = read_text(r, location.tenant);
  Result<std::shared_ptr<Bulkhead>> found = e.find(view(location.name), tenant, location.tenants);
  if (!found) {
    v.name = location.name;
    return reject(v, found.error());
  }
  v.bulkhead = *std::move(found);
  v.name = location.tenants ? copy(r->pool, v.bulkhead->name()) : location.name;
  v.tenants_own = location.tenants && view(v.name).ends_with(tenant) &&
                  v.name.len == location.name.len + 1 + tenant.size();
  AcquireOptions options{.priority = v.priority,
                         .cost = read_cost(r, location),
                         .deadline = v.deadline,
                         .flow = read_flow(r, location),
                         .label = view(r->uri)};
  if (location.budget.len > 0) options.costs = Costs{Cost(view(location.budget), read_units(r, location))};
  Call begun;
  std::optional<Result<Call>> answer = v.bulkhead->begin_acquire(options, begun);
  if (!answer) {
    v.stage = Visit::Stage::waiting;
    v.joined = e.clock().now();
    v.wait = std::make_shared<Wait>(e, v);
    if (!v.wait->begin(v.bulkhead, std::move(begun), options)) {
      v.timer.handler = do_nothing;
      ngx_add_timer(&v.timer, kLongTime);
      return suspend(r);
    }
    answer = v.wait->take();
    v.wait.reset();
  }
  if (!*answer) return reject(v, answer->error());
  return admit(v, **std::move(answer));
}

}  // namespace

ngx_int_t on_precontent(ngx_http_request_t* r) {
  if (r != r->main) return NGX_DECLINED;  // a subrequest runs in the place of its main request
  const LocationConf& location = location_conf(r);
  Visit* v = find_visit(r);
  if (v && v->location && v->location != &location) {
    leave_location(*v, location);
    if (v->stage == Visit::Stage::rejected && location.on && view(location.name) != view(v->location->name))
      v->stage = Visit::Stage::arrived;  // its fallback has a bulkhead of its own
  }
  if (!location.on || !engine()) return NGX_DECLINED;
  if (!v && !(v = make_visit(r))) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  switch (v->stage) {
    case Visit::Stage::arrived:
      if (needs_body(*v, location)) return read_body(*v);
      return enter(*v);
    case Visit::Stage::reading:  // it could not be read, and this is the error_page
      v->stage = Visit::Stage::arrived;
      return enter(*v);
    case Visit::Stage::waiting:
      return NGX_AGAIN;
    case Visit::Stage::rejected:
      return v->held ? NGX_AGAIN : send_rejection(*v);
    case Visit::Stage::admitted:
      if (v->call && v->outcome) watch_execution(*v);  // another upstream, in the place of the first
      if (v->call) return NGX_DECLINED;
      return enter(*v);  // redirected after its upstream was done, into the same bulkhead again
  }
  return NGX_DECLINED;
}

ngx_int_t suspend(ngx_http_request_t* r) {
  ngx_event_t* const read = r->connection->read;
  if (ngx_handle_read_event(read, 0) != NGX_OK) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  r->read_event_handler = ngx_http_test_reading;
  r->write_event_handler = ngx_http_request_empty_handler;
  // A client that has closed already: epoll has reported that once, and does not report it again.
  if (read->pending_eof || r->connection->error) {
    ngx_post_event(read, &ngx_posted_events);
  }
  return NGX_AGAIN;
}

void go_on(ngx_http_request_t* r) {
  ngx_connection_t* const connection = r->connection;
  ngx_http_set_log_request(connection->log, r);
  r->read_event_handler = ngx_http_block_reading;
  r->write_event_handler = ngx_http_core_run_phases;
  ngx_http_core_run_phases(r);
  ngx_http_run_posted_requests(connection);
}

// The request may end inside, so nothing of the visit is used after go_on() and reject().
void resume(Visit& v) {
  if (!v.wait) return;
  Result<Call> answer = v.wait->take();
  v.wait.reset();
  v.waited = engine()->clock().now() - v.joined;
  if (v.timer.timer_set) ngx_del_timer(&v.timer);
  ngx_connection_t* const connection = v.request->connection;
  if (answer) {
    admit(v, *std::move(answer));
    return go_on(v.request);
  }
  const ngx_int_t rc = reject(v, answer.error());
  if (rc != NGX_AGAIN && rc != NGX_DONE) ngx_http_finalize_request(v.request, rc);
  ngx_http_run_posted_requests(connection);
}

ngx_int_t add_phases(ngx_conf_t* cf) {
  auto* const core =
      static_cast<ngx_http_core_main_conf_t*>(ngx_http_conf_get_module_main_conf(cf, ngx_http_core_module));
  const auto add = [core](ngx_http_phases phase, ngx_http_handler_pt handler) {
    auto* const place = static_cast<ngx_http_handler_pt*>(ngx_array_push(&core->phases[phase].handlers));
    if (place) *place = handler;
    return place != nullptr;
  };
  return add(NGX_HTTP_PRECONTENT_PHASE, on_precontent) && add(NGX_HTTP_LOG_PHASE, on_log) ? NGX_OK
                                                                                          : NGX_ERROR;
}

}  // namespace bulkhead::nginx
