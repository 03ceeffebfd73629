// handlers.h - the handlers of the routes, and what several of them need.
//
// A handler gets requests that have access. It throws a Problem when it cannot answer. Its route says on which thread it
// runs, see routes.h.
#pragma once

#include <string>
#include <string_view>

#include "routes.h"

namespace bulkhead::control {

// Parameters and bodies; each throws a Problem if they are invalid.
[[noreturn]] void bad_request(std::string detail);
std::size_t number(const Request& r, std::string_view name, std::size_t least, std::size_t most,
                   std::size_t standard);
bool dry_run(const Request& r);
std::string media_type(const Request& r);  // of its body: "application/json"
void need_json(const Request& r);
Body body_of(const BodySpec& spec, const Request& r);

std::string transport(const Request& r);  // "unix" or "tcp"
JournalEntry audit_entry(const Request& r, std::string kind, std::string bulkhead);
Response with_etag(Response response, std::string etag);
// Whether an If-Match or If-None-Match has the tag. "*" has every tag.
bool is_among(std::string_view tags, std::string_view etag);
inline bool matches(std::string_view if_match, std::string_view etag) {
  return if_match.empty() || is_among(if_match, etag);
}

// read_handlers.cc
Handler get_snapshot, get_stream, get_history, get_events, get_audit, get_session, get_openapi;
Handler get_bulkheads, get_bulkhead, get_pools, get_tenants, get_switches;
Handler get_status, get_metrics, get_health, get_livez, get_readyz;

// operation_handlers.cc: overrides, breakers and drains, distinguished by their path; and switches
Handler get_overrides, get_operation, put_operation, delete_operation, post_batch, put_switch;

// config_handlers.cc
Handler get_config, post_validate, get_diff, post_reload;

}  // namespace bulkhead::control
