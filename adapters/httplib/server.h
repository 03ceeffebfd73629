// server.h - a cpp-httplib server whose requests go through bulkheads.
//
//   http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports"}, ...}});
//   bulkhead::httplib::Server server(guard);
//   server.Get("/reports", [](const auto&, auto& reply) { reply.set_content(report(), "text/plain"); });
//   server.listen("127.0.0.1", 8080);
//
// It is a ::httplib::Server in every other way. Of each request: the guard says which bulkhead; the
// thread waits in line; the handler runs; the place is given back when the response has been written or
// the client is gone, with success if the status is below 500.
// A client that goes while its request is in line takes it out of the line, and the handler never runs.
//   One that goes while it runs fires Server::stop_token(), if the handler has asked for it.
// A deadline (http_hints.h) counts in line, and while the handler runs, as does the bulkhead's execution_timeout.
//   A handler cannot be cut off, but its stop_token() fires, and if it ends later the client is told 504.
// Bounds: header and body must be complete `read_timeout` after the first byte and within their sizes; a
//   response must be taken within `write_timeout`.
// Threads: cpp-httplib gives every connection a thread, also while it waits in line. So there must be
//   more of them than all bulkheads together can hold and queue, or the slow route takes the threads of
//   the others: `threads` 0 makes that many. For the same reason a refusal ends its connection.
// Refusals are held while they storm (http_guard.h), each on its own connection but without its thread: one thread
//   answers and closes all of them.
// The place is taken when the header has been read, before the body.
// set_pre_routing_handler and set_post_routing_handler are this class's, and called inside the place; set
//   them here and not through a reference to the base.
// Cost: one thread that watches the connections of requests in line, and one for refusals that are held; a request that
//   need not wait costs no allocation beyond cpp-httplib's own.
#pragma once

#include <httplib.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "bulkhead/http_guard.h"

namespace bulkhead::httplib {

struct ServerOptions {
  std::uint32_t threads = 0;  // 0: what the bulkheads of the routes hold and queue, and 8 more; at most 1024
  std::chrono::nanoseconds read_timeout = std::chrono::seconds(30);   // of a request, from its first byte on
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);  // of one write
  std::chrono::nanoseconds keep_alive = std::chrono::seconds(5);      // between requests
  std::size_t max_header_bytes = 64 * 1024;  // all headers; cpp-httplib bounds each line to 8 KiB
  std::size_t max_body_bytes = 1024 * 1024;
};

class Server : public ::httplib::Server {
 public:
  explicit Server(http::Guard& guard, ServerOptions options = {});
  ~Server() override;

  // Inside a handler: the request in hand.
  static const http::Visit& visit();
  // Fires when the client has gone or the time is up; the first call begins to watch.
  static std::stop_token stop_token();
  static std::optional<std::string> timeout_to_pass_on();  // see http::pass_on; nullopt: no limit

  Server& set_pre_routing_handler(HandlerWithResponse handler);
  Server& set_post_routing_handler(Handler handler);

 private:
  struct Turn;
  struct State;
  bool process_and_close_socket(socket_t sock) override;
  HandlerResponse before(const ::httplib::Request& request, ::httplib::Response& response);
  void after(const ::httplib::Request& request, ::httplib::Response& response);
  static Turn*& current() noexcept;

  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::httplib
