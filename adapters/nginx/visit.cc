#include "visit.h"

#include <new>

#include "module.h"

namespace bulkhead::nginx {
namespace {

void end_visit(void* visit) { delete static_cast<Visit*>(visit); }

}  // namespace

Visit::Visit(ngx_http_request_t* r) noexcept : request(r) {
  timer.data = this;
  timer.log = r->connection->log;
}

// The request ends: its client closed while it was in line, or its place has not been given back yet.
Visit::~Visit() {
  if (timer.timer_set) ngx_del_timer(&timer);
  if (queued) {
    ngx_queue_remove(&turn);  // a macro of several statements
  }
  if (held) engine()->end_hold();
  if (wait) wait->abandon();
}

Visit* find_visit(ngx_http_request_t* r) noexcept {
  if (void* const visit = ngx_http_get_module_ctx(r, ngx_http_bulkhead_module))
    return static_cast<Visit*>(visit);
  if (!r->internal && !r->filter_finalize) return nullptr;  // nothing has cleared the context
  for (const ngx_pool_cleanup_t* c = r->pool->cleanup; c; c = c->next) {
    if (c->handler != end_visit) continue;
    ngx_http_set_ctx(r, c->data, ngx_http_bulkhead_module);
    return static_cast<Visit*>(c->data);
  }
  return nullptr;
}

// Not in the request's pool: beside what nginx puts there it would take a second block of 4 KB for each request.
Visit* make_visit(ngx_http_request_t* r) noexcept {
  ngx_pool_cleanup_t* const cleanup = ngx_pool_cleanup_add(r->pool, 0);
  auto* const visit = cleanup ? new (std::nothrow) Visit(r) : nullptr;
  if (!visit) return nullptr;
  cleanup->data = visit;
  cleanup->handler = end_visit;
  ngx_http_set_ctx(r, visit, ngx_http_bulkhead_module);
  return visit;
}

}  // namespace bulkhead::nginx
