// server.h - an HTTP server on Boost.Beast whose requests go through bulkheads.
//
//   http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports"}, ...}});
//   beast::Server server(guard, {.port = 8080},
//                        [](const Request& request, Context&) -> asio::awaitable<Response> {
//                          co_return co_await answer(request);
//                        });
//   server.run();                                     // until stop(), from any thread
//
// Those with an acceptor of their own take serve(), which is one connection:
//
//   asio::co_spawn(executor, beast::serve(std::move(socket), guard, handler, options), asio::detached);
//
// Of each request: the guard says which bulkhead; it waits in line without holding a thread; the handler
//   runs; the place is given back when the response has been written or the client is gone, with success
//   if the status is below 500.
// A client that goes while its request is in line takes it out of the line, and the handler never runs.
//   One that goes while it runs fires Context::stop(), if the handler has asked for it; the place stays
//   taken until the handler has ended. (A client that has sent more than one request ahead is noticed
//   only when a response is written.)
// A deadline (http_hints.h) that passes while the handler runs, or the bulkhead's execution_timeout, cancels the
//   coroutine; the client is told 504.
// Refusals are held while they storm (http_guard.h), each on its own connection; and a connection that
//   was refused comes last: its next request is not even read before everything else that is ready is served.
// Bounds: the header must be complete `read_timeout` after the server began to wait for it, the body
//   `body_timeout` later; headers and bodies have sizes (431, 413), connections a number; a response must
//   be taken within `write_timeout`.
// Blocking handlers run on the threads of their bulkhead (Isolation::threads). On a route without such a
//   bulkhead they run on the thread of the connection, and hold up the others.
// Responses: what says where the body ends is added if the handler has not (prepare_payload() is not needed).
//
// Threads: a connection is served by one thread at a time; handlers of different connections run on all
//   threads of the server. Guard and registry outlive the server.
// Cost: less than a plain Beast server's (docs/benchmarks.md): a request that need not wait costs no allocation
//   beyond the parser's and the handler's, and one that has no deadline no timer.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/http/message.hpp>
#include <boost/beast/http/string_body.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>

#include "bulkhead/http_guard.h"

namespace bulkhead::beast {

using Request = boost::beast::http::request<boost::beast::http::string_body>;
using Response = boost::beast::http::response<boost::beast::http::string_body>;

// What a handler may want to know beside the request.
class Context {
 public:
  TimePoint deadline() const noexcept { return deadline_; }
  // Fires when the client has gone or the deadline has passed. The first call begins to watch the
  // connection.
  std::stop_token stop();
  // For requests to other services: the time that is left, in the header http::timeout_header; nullopt:
  // no limit.
  std::optional<std::string> timeout_to_pass_on() const;
  const http::Visit& visit() const noexcept { return *visit_; }

 private:
  friend class Session;
  TimePoint deadline_ = no_deadline;
  const http::Visit* visit_ = nullptr;
  class Session* session_ = nullptr;  // null: `stop_` it is
  std::stop_token stop_;
};

using Handler = std::function<boost::asio::awaitable<Response>(const Request&, Context&)>;
using BlockingHandler = std::function<Response(const Request&, Context&)>;

struct SessionOptions {
  std::chrono::nanoseconds read_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);
  std::uint32_t max_header_bytes = 8 * 1024;
  std::uint64_t max_body_bytes = 1024 * 1024;
  // A connection that was refused comes last: its next request is read when everything else that is ready has been
  // served, and of such connections so many in a round of the event loop. 0: it comes as any other.
  std::uint32_t refused_per_round = 16;
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one, see Server::port()
  std::uint32_t threads = 1;
  std::uint32_t max_connections = 10'000;  // beyond that they wait in the system's backlog
  SessionOptions session{};
};

boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket, http::Guard& guard, Handler handler,
                                   SessionOptions options = {});
boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket, http::Guard& guard,
                                   BlockingHandler handler, SessionOptions options = {});

class Server {
 public:
  // Listens from here on; std::invalid_argument if it cannot, naming the address.
  Server(http::Guard& guard, ServerOptions options, Handler handler);
  Server(http::Guard& guard, ServerOptions options, BlockingHandler handler);
  ~Server();  // as stop(); handlers that run are destroyed where they wait
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;
  std::uint32_t connections() const noexcept;
  void run();            // serves on this thread and threads-1 more, until stop()
  void stop() noexcept;  // from any thread, also before run()

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::beast
