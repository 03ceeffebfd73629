// server.h - a cpp-httplib server whose requests go through bulkheads.
//
//   bulkhead::http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports"}}});
//   bulkhead::httplib::Server server(guard);
//   server.Get("/reports", [](const auto&, auto& reply) { reply.set_content(report(), "text/plain"); });
//   server.listen("127.0.0.1", 8080);
//   ...
//   if (!server.drain(now() + 20s)) server.stop();    // on SIGTERM, on another thread
//
// Everything else is as in ::httplib::Server. For each request: the guard selects the bulkhead; the thread waits in its
// queue; the handler runs; the place is returned when the whole response is in memory (or when it is written:
// Route::hold_place, and always with a content provider). A status below 500 counts as success, unless the handler calls
// set_verdict() or reject().
// If the client disconnects while its request waits, the request leaves the queue and the handler never runs. If it
//   disconnects while the handler runs, Server::stop_token() fires, if the handler has called it.
// A deadline (http_hints.h) and the bulkhead's execution_timeout hold in the queue and while the handler runs. A handler
//   cannot be cut off, but its stop_token() fires; if it ends after that, the client gets 504.
// Draining: drain() stops accepting, answers requests that run, that wait in a queue or that wait for a thread, and marks
//   the last response of each connection with Connection: close. A connection without a request stays open for
//   `drain_idle`, so that a request that is on its way is answered. All bounds below still hold.
// Bounds: header and body must be complete `read_timeout` after the first byte and within their sizes. A response must be
//   read within `write_timeout`.
// Threads: cpp-httplib uses one thread per connection, also while its request waits. There must be more threads than all
//   bulkheads together can run and queue, or a slow route takes the threads of the others: `threads` 0 creates that many.
//   For the same reason a rejection ends its connection. If the system has fewer threads, listen() serves with those
//   (Server::threads()) and connections wait for them; without any it returns false.
// During a storm of rejections each is held for a while (http_guard.h) on its connection but without its thread: one thread
//   answers and closes all of them.
// The place is taken when the header has been read, before the body.
// This class owns set_pre_routing_handler and set_post_routing_handler, and calls yours while the place is taken. Do not set
//   them through a reference to the base.
// Cost: one thread that watches the connections of waiting requests, and one for held rejections; a request that does not
//   wait costs no allocation beyond those of cpp-httplib.
#pragma once

#include <httplib.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "bulkhead/http_guard.h"

namespace bulkhead::httplib {

struct ServerOptions {
  std::uint32_t threads = 0;  // 0: the sum that the routes' bulkheads run and queue, plus 8; at most 1024
  std::chrono::nanoseconds read_timeout = std::chrono::seconds(30);   // of a request, from its first byte on
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);  // of one write
  std::chrono::nanoseconds keep_alive = std::chrono::seconds(5);      // between requests
  std::size_t max_header_bytes = 64 * 1024;  // all headers; cpp-httplib bounds each line to 8 KiB
  std::size_t max_body_bytes = 1024 * 1024;
  std::chrono::nanoseconds drain_idle = std::chrono::milliseconds(250);  // see "Draining"
};

class Server : public ::httplib::Server {
 public:
  // Throws std::system_error if the system has no file descriptor, or no thread, for what watches and holds connections.
  explicit Server(http::Guard& guard, ServerOptions options = {});
  ~Server() override;

  // Stops accepting and waits until the last connection has ended and listen() is about to return (false, as for a closed
  // socket). True: all have ended. False: `until` came first; the remaining ones are still served, and drain() may be
  // called again. May be called by any thread but those of handlers. Has no effect before listen().
  bool drain(TimePoint until = no_deadline);
  // Waits for running handlers; ends content providers and connections without a request at once. Do not call
  // ::httplib::Server::stop() after drain().
  void stop();

  // That serve connections; fewer than ServerOptions::threads if the system had no more. 0 before listen().
  std::uint32_t threads() const noexcept;

  // These are for handlers, on the thread that serves the request, about this request.
  static const http::Visit& visit();
  // Fires when the client has disconnected or the time is over. The first call starts to watch the connection.
  static std::stop_token stop_token();
  static std::optional<std::string> timeout_to_pass_on();  // see http::pass_on; nullopt: no limit

  // As of Call (bulkhead.h), for the call that this request is; also inside a content provider, which can settle while it
  // streams. On a route without a bulkhead, and on a thread that serves no request: true, and no effect.
  //
  //   reply.set_chunked_content_provider("text/event-stream", [=](std::size_t, auto& sink) {
  //     const auto event = next();
  //     sink.write(event.data(), event.size());
  //     bulkhead::httplib::Server::settle("tokens", tokens_left());
  //     if (is_last(event)) sink.done();
  //     return true;
  //   });
  static bool settle(std::uint32_t units) noexcept;
  static bool settle(std::string_view budget, std::uint32_t units) noexcept;
  [[nodiscard]] static bool try_grow(std::uint32_t units) noexcept;
  [[nodiscard]] static bool try_grow(std::string_view budget, std::uint32_t units) noexcept;

  // The outcome to record for the route's dependency, instead of the one that the status implies. With
  // Outcome::ignored neither breaker nor limiter counts it. Without it, a stream whose client has gone counts as ignored,
  // and one whose content provider returns false as a failure.
  static void set_verdict(Outcome verdict);
  // The response to a rejection by another bulkhead that the handler uses. It says nothing about the dependency of the
  // route, so the verdict becomes ignored.
  static void reject(const Rejection& why, ::httplib::Response& response);

  Server& set_pre_routing_handler(HandlerWithResponse handler);
  Server& set_post_routing_handler(Handler handler);

 private:
  struct Turn;
  struct State;
  bool process_and_close_socket(socket_t sock) override;
  HandlerResponse before(const ::httplib::Request& request, ::httplib::Response& response);
  void after(const ::httplib::Request& request, ::httplib::Response& response);
  bool wait_for_request(const class Connection& connection) const;
  static Turn*& current() noexcept;
  static Call* current_call() noexcept;  // null: none, or not on the thread of a request

  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::httplib
