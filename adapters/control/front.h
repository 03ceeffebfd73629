// front.h - from what HTTP brought to an answer, without a socket: understood, let in or not, routed.
#pragma once

#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>

#include "routes.h"

namespace bulkhead::control {

using RawRequest = boost::beast::http::request<boost::beast::http::string_body>;

Request understand(const Core& core, const RawRequest& raw, const Caller& caller, std::uint64_t id);

struct Answered {
  Response response{};
  const Route* route = nullptr;  // not null: no answer yet, handle() it on the thread that makes the changes
};
Answered answer_at_once(Core& core, const Request& request);

Response refuse(unsigned status, std::string type, std::string detail);
// What to say about a request that could not be read; without a body: nothing.
Response refusal_of(const boost::system::error_code& error);

}  // namespace bulkhead::control
