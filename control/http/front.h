// front.h - from an HTTP request to a response, without a socket: identity, access, route.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include <string>
#include <vector>

#include "access.h"
#include "control/api/routes.h"

namespace bulkhead::control {

using RawRequest = boost::beast::http::request<boost::beast::http::string_body>;

struct Answered {
  Response response{};
  const Route* route = nullptr;  // not null: there is no response yet; call handle() on the worker thread
};

// Between HTTP and the handlers.
struct Front {
  Core& core;
  TokensFile tokens{};
  std::vector<std::string> hosts{};
  Role anonymous = Role::viewer;

  Request understand(const RawRequest& raw, const Caller& caller, std::uint64_t id);
  // The rights that the sender of `authorization` has now.
  Caller identify(const Caller& connection, const std::string& authorization);
  Answered answer_at_once(const Request& request);

 private:
  // Throws a Problem and writes to the journal if the caller may not use the route. Without a route the role viewer is
  // required, so that others do not learn which paths exist.
  void check_access(const Route* route, const Request& request);
  Response page(const Request& request) const;
};

// To a request that could not be read. Without a body: the client has gone, send nothing.
Response parse_error_response(const boost::system::error_code& error);

}  // namespace bulkhead::control
