// message.h - a request and its response, independent of the network.
#pragma once

#include <boost/json/object.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "control/server.h"
#include "control/state/json_text.h"
#include "control/state/problem.h"

namespace bulkhead::control {

// The sender of a request.
struct Caller {
  std::string actor = "anonymous";
  Role role = Role::none;
  bool local = false;    // the unix socket
  std::string denied{};  // not empty: why the token is not accepted
};

struct Request {
  std::string method, path;  // path: decoded by segments, see `segments`
  std::vector<std::string> segments;
  std::vector<std::pair<std::string, std::string>> query;
  std::string host, origin, fetch_site, authorization, content_type, content_encoding, if_match,
      if_none_match, accept, accept_encoding;
  std::string body;
  std::string malformed;  // not empty: why the request is invalid
  Caller caller;
  std::uint64_t id = 0;

  const std::string* parameter(std::string_view name) const noexcept;
  bool changes() const noexcept { return method != "GET" && method != "HEAD"; }
};

struct Response {
  unsigned status = 200;
  std::string type = "application/json";
  std::shared_ptr<const std::string> body;
  std::vector<std::pair<std::string, std::string>> headers;
  bool stream = false;  // send the stream of snapshots instead of a body
};

Response respond(const boost::json::object& body, unsigned status = 200);
Response respond(std::string body, std::string type, unsigned status = 200);
Response respond(const Problem& problem, std::uint64_t request);

// Splits "/v1/overrides/a%2Fb?dry_run=true" into segments and query. False: not a path, or badly encoded.
bool parse_target(std::string_view target, Request& request);

}  // namespace bulkhead::control
