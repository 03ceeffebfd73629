// message.h - a request and its answer, without the network around them.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server.h"

namespace bulkhead::control {

// Who is asking.
struct Caller {
  std::string actor = "anonymous";
  Role role = Role::none;
  bool local = false;    // the unix socket
  std::string denied{};  // not empty: why the token is no good
};

struct Request {
  std::string method, path;  // path: decoded by segments, see `segments`
  std::vector<std::string> segments;
  std::vector<std::pair<std::string, std::string>> query;
  std::string host, origin, fetch_site, authorization, content_type, content_encoding, if_match,
      if_none_match, accept;
  std::string body;
  std::string malformed;  // not empty: why it is no request
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
  bool stream = false;  // the answer is the stream of snapshots
};

struct FieldError {
  std::string pointer{}, message{}, hint{};
  std::uint32_t line = 0, column = 0;
};

// An answer that is an error (RFC 9457); thrown by what cannot go on.
struct Problem {
  unsigned status = 500;
  std::string type{}, detail{};
  std::vector<FieldError> errors{};
  std::vector<std::pair<std::string, std::string>> headers{};
};

// As boost::json::serialize, but numbers are written as people write them: 412.5, not 4.125E2.
std::string text_of(const boost::json::value& value);

Response respond(const boost::json::object& body, unsigned status = 200);
Response respond(std::string body, std::string type, unsigned status = 200);
Response respond(const Problem& problem, std::uint64_t request);
boost::json::object to_json(const Problem& problem, std::uint64_t request);

// 404, with the name that may have been meant, or else where all are listed.
Problem not_known(std::string_view what, std::string_view name, const std::vector<std::string>& known,
                  std::string_view list);

// Splits "/v1/overrides/a%2Fb?dry_run=true" into segments and query. False: not a path of ours, or badly encoded.
bool parse_target(std::string_view target, Request& request);

}  // namespace bulkhead::control
