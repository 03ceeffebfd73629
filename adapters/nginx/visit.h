// visit.h - one request and its place in a bulkhead, from its arrival to the end of the request.
//
// A cleanup of the request's pool ends it. An internal redirect clears the module's context but not the pool, so that
// find_visit() finds it again there. A request holds one place at a time.
#pragma once

#include <memory>
#include <optional>

#include "bulkhead/bulkhead.h"
#include "configuration.h"
#include "nginx.h"
#include "wait.h"

namespace bulkhead::nginx {

struct Visit {
  enum class Stage : std::uint8_t {
    arrived,
    reading,   // the body, before it takes a place
    waiting,   // in line
    admitted,  // it has, or had, a place
    rejected,  // `why` says the reason; held, if `held`
  };

  explicit Visit(ngx_http_request_t* r) noexcept;
  ~Visit();
  Visit(const Visit&) = delete;
  Visit& operator=(const Visit&) = delete;

  ngx_http_request_t* const request;
  const LocationConf* location = nullptr;  // it took its place in
  Stage stage = Stage::arrived;
  Priority priority = Priority::normal;
  bool tenants_own = false;        // the bulkhead is the tenant's own
  bool held = false;               // its rejection waits to be sent
  bool fell_back = false;          // it was sent to the fallback
  bool late = false;               // it took longer than its time,
  bool late_by_deadline = false;   // which its client gave, and not execution_timeout
  std::optional<Outcome> outcome;  // decided by the upstream; the place is kept until the response is out
  ngx_str_t name{};                // of the bulkhead, for the log; in the request's pool
  TimePoint deadline = no_deadline;
  TimePoint joined{};                 // the line
  std::chrono::nanoseconds waited{};  // in line
  ngx_event_t timer{};                // of a held rejection, or of execution_timeout
  ngx_queue_t turn{};                 // among the rejections to be sent, see reply.cc,
  bool queued = false;                // while queued
  void (*finalize_upstream)(ngx_http_request_t*, ngx_int_t) = nullptr;  // nginx's own, see outcome.cc

  std::shared_ptr<Bulkhead> bulkhead;  // destroyed after the call
  std::shared_ptr<Wait> wait;
  std::optional<Rejection> why;
  Call call;
};

Visit* find_visit(ngx_http_request_t* r) noexcept;  // null: none
Visit* make_visit(ngx_http_request_t* r) noexcept;  // null: no memory

}  // namespace bulkhead::nginx
