// handlers.h - what the routes do, each with a request that may; and what several of them need.
//
// A handler throws a Problem when it cannot answer. Where it runs is its route's business, see routes.h.
#pragma once

#include <string>
#include <string_view>

#include "routes.h"

namespace bulkhead::control {

// Of parameters and bodies: they throw a Problem for what is wrong with them.
[[noreturn]] void bad_request(std::string detail);
std::size_t number(const Request& r, std::string_view name, std::size_t least, std::size_t most,
                   std::size_t standard);
bool dry_run(const Request& r);
std::string media_type(const Request& r);  // of its body: "application/json"
void need_json(const Request& r);
Body body_of(const BodySpec& spec, const Request& r);

std::string transport(const Request& r);  // "unix" or "tcp"
Entry audit_entry(const Request& r, std::string kind, std::string bulkhead);
void tell_reload(Entry& entry, const std::string& file, const ConfigPlan& plan);
Response with_etag(Response response, std::string etag);
// Is the tag in the list of an If-Match or If-None-Match? "*" is every tag.
bool is_among(std::string_view tags, std::string_view etag);
inline bool matches(std::string_view if_match, std::string_view etag) {
  return if_match.empty() || is_among(if_match, etag);
}

// read_handlers.cc
Response get_snapshot(Core& core, const Request& r);
Response get_stream(Core& core, const Request& r);
Response get_history(Core& core, const Request& r);
Response get_bulkheads(Core& core, const Request& r);
Response get_bulkhead(Core& core, const Request& r);
Response get_pools(Core& core, const Request& r);
Response get_tenants(Core& core, const Request& r);
Response get_events(Core& core, const Request& r);
Response get_audit(Core& core, const Request& r);
Response get_session(Core& core, const Request& r);
Response get_openapi(Core& core, const Request& r);
Response get_metrics(Core& core, const Request& r);
Response get_health(Core& core, const Request& r);
Response get_livez(Core& core, const Request& r);
Response get_readyz(Core& core, const Request& r);

// change_handlers.cc: sizes, breakers and drains by the first segment of their path; and switches
Response get_overrides(Core& core, const Request& r);
Response get_change(Core& core, const Request& r);
Response put_change(Core& core, const Request& r);
Response delete_change(Core& core, const Request& r);
Response post_batch(Core& core, const Request& r);
Response get_switches(Core& core, const Request& r);
Response put_switch(Core& core, const Request& r);

// config_handlers.cc
Response get_config(Core& core, const Request& r);
Response post_validate(Core& core, const Request& r);
Response get_diff(Core& core, const Request& r);
Response post_reload(Core& core, const Request& r);

}  // namespace bulkhead::control
