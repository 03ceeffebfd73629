// routes.h - the table of all routes: dispatch, required roles and the OpenAPI document come from it.
#pragma once

#include <boost/json/object.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "body.h"
#include "core.h"
#include "message.h"

namespace bulkhead::control {

struct Answer {
  unsigned status;
  std::string_view schema;  // of components/schemas; "": no body; "text/plain" and the like: another type
  std::string_view about;
};

enum class Where : std::uint8_t {
  loop,    // on the event loop: quick, and changes nothing
  worker,  // on the thread that makes changes
};

using Handler = Response(Core& core, const Request& request);

struct Route {
  std::string_view method, path;  // "/v1/overrides/{name}"
  Role role{};                    // the least that is required; none: no access check
  Where where{};
  Handler* handle{};
  std::string_view about;
  std::vector<Answer> answers{};
  std::vector<std::string_view> query{};
  const BodySpec* body = nullptr;
  bool body_optional = false;
  bool etag = false;  // its 200 and 412 have one
};

const std::vector<Route>& routes();

// The route of a request. Throws a Problem: 404, or 405 with the allowed methods.
const Route& find_route(const Request& request);
// Calls the handler; an exception becomes a response.
Response handle(Core& core, const Route& route, const Request& request) noexcept;

// api/schemas.json. Objects are open, because fields may be added; a required field is always present.
extern const std::string_view kResponseSchemas;
boost::json::object openapi(const Core& core);

}  // namespace bulkhead::control
