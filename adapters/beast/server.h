// server.h - an HTTP server on Boost.Beast whose requests go through bulkheads.
//
//   using namespace bulkhead::beast;
//   bulkhead::http::Guard guard(registry, {.routes = {{.path = "/reports", .bulkhead = "reports"}}});
//   Handler handler = [](const Request& request, Context&) -> asio::awaitable<Response> {
//     co_return co_await answer(request);
//   };
//   Server server(guard, {.port = 8080}, handler);
//   server.run();                                       // until drain() or stop(), from any thread
//   ...
//   if (!server.drain(now() + 20s)) server.stop();      // on SIGTERM, on another thread
//
// A program with its own acceptor calls serve() for each connection:
//
//   asio::co_spawn(io, serve(std::move(client), guard, handler), asio::detached);
//
// For each request: the guard selects the bulkhead; the request waits in its queue without a thread; the handler runs; the
//   place is returned when the handler has ended (or when the response is written: Route::hold_place). A status below 500
//   counts as success, unless the handler calls Context::set_verdict() or Context::reject().
// If the client disconnects while its request waits, the request leaves the queue and the handler never runs. If it
//   disconnects while the handler runs, Context::stop() fires, if the handler has called it; the place stays taken until
//   the handler has ended. A client that has already sent part of its next request is noticed within 50 ms.
// When a deadline (http_hints.h) or the bulkhead's execution_timeout passes while the handler runs, the coroutine is
//   cancelled, and the client gets 504.
// During a storm of rejections each is held for a while on its connection (http_guard.h). A connection whose request was
//   rejected comes last: its next request is read after everything else that is ready was served.
// Draining: drain() stops accepting, answers requests that run or wait, and marks the last response of each connection with
//   Connection: close. A connection without a request stays open for SessionOptions::drain_idle, so that a request that is
//   on its way is answered. Connections that the system has accepted are served, too. All bounds below still hold.
// Bounds: the header must be complete `read_timeout` after the server began to wait for it, the body `body_timeout` later.
//   Headers, bodies (431, 413) and the number of connections are bounded. A response must be read within `write_timeout`.
//   When the process has no file descriptors left, accepting pauses until there are some (accept_failures(),
//   ServerOptions::on_accept_failure).
// Blocking handlers run on the threads of their bulkhead (Isolation::threads). On a route without such a bulkhead they run
//   on the thread of the connection and delay the others.
// Streams: a coroutine handler can send its response while it makes it, such as server-sent events, and settle what its
//   call holds of a budget as it goes. The place is held until the stream has ended:
//     Response head(boost::beast::http::status::ok, 11);
//     head.set(boost::beast::http::field::content_type, "text/event-stream");
//     if (!co_await context.stream(std::move(head))) co_return Response();
//     while (auto event = co_await next()) {
//       if (!co_await context.write("data: " + *event + "\n\n")) break;      // the client has gone
//       context.settle("tokens", tokens_left());
//     }
//     co_return Response();                                                  // not sent: the stream is the response
//
// Responses: Content-Length is added if the handler has set nothing that says where the body ends.
//
// Threads: one thread at a time serves a connection; handlers of different connections run on all threads of the server.
//   Guard and registry must outlive the server.
// Cost: less than a plain Beast server (docs/benchmarks.md): a request that does not wait costs no allocation beyond those
//   of parser and handler, and one without a deadline no timer.
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

// What a handler can learn and decide beside the request.
class Context {
 public:
  TimePoint deadline() const noexcept { return deadline_; }
  // Fires when the client has disconnected or the deadline has passed. The first call starts to watch the connection.
  std::stop_token stop();
  // The time that is left, for the header http::kTimeoutHeader of requests to other services; nullopt: no limit.
  std::optional<std::string> timeout_to_pass_on() const;
  const http::Visit& visit() const noexcept { return *visit_; }
  // The outcome to record for the route's dependency, instead of the one that the status implies. With
  // Outcome::ignored neither breaker nor limiter counts it. A request that took too long is always a failure.
  void set_verdict(Outcome verdict) noexcept { verdict_ = verdict; }
  // The response to a rejection by another bulkhead that the handler uses. It says nothing about the dependency of the
  // route, so the verdict becomes ignored.
  //
  //   auto rows = db.run([&] { return query(); });
  //   if (!rows) co_return context.reject(rows.error());
  Response reject(const Rejection& why);

  // As of Call (bulkhead.h), for the call that this request is. On a route without a bulkhead: true, and no effect.
  bool settle(std::uint32_t units) noexcept;
  bool settle(std::string_view budget, std::uint32_t units) noexcept;
  [[nodiscard]] bool try_grow(std::uint32_t units) noexcept;
  [[nodiscard]] bool try_grow(std::string_view budget, std::uint32_t units) noexcept;

  // For coroutine handlers. stream() sends the head of the response, write() a piece of its body; the stream ends when
  // the handler returns. False: the client has gone, or has read nothing for write_timeout; return soon. Such a request
  // counts as ignored, unless set_verdict() is called. A handler that throws, or whose time is over, ends the connection
  // in the middle of the stream, so that the client notices. Pieces for an HTTP/1.0 client are sent together at the end.
  boost::asio::awaitable<bool> stream(Response head);
  boost::asio::awaitable<bool> write(std::string piece);

 private:
  friend class Session;
  Call* call_ = nullptr;            // null: none, or
  RunningCall* running_ = nullptr;  // on a thread of the bulkhead
  http::Guard* guard_ = nullptr;
  std::optional<Outcome> verdict_{};
  TimePoint deadline_ = no_deadline;
  const http::Visit* visit_ = nullptr;
  class Session* session_ = nullptr;  // null: stop() returns `stop_`
  std::stop_token stop_;
};

using Handler = std::function<boost::asio::awaitable<Response>(const Request&, Context&)>;
using BlockingHandler = std::function<Response(const Request&, Context&)>;

// Converts a response of the library.
Response to_response(const http::Response& from);

struct SessionOptions {
  std::chrono::nanoseconds read_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds body_timeout = std::chrono::seconds(30);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(30);
  std::uint32_t max_header_bytes = 8 * 1024;
  std::uint64_t max_body_bytes = 1024 * 1024;
  // A connection whose request was rejected comes last. At most this many of them continue per round of the event loop.
  // 0: they are treated as all others.
  std::uint32_t rejected_per_round = 16;
  // When it fires, the connection drains, see above. A Server sets its own.
  std::stop_token drain{};
  // How long a connection without a request stays open once it drains.
  std::chrono::nanoseconds drain_idle = std::chrono::milliseconds(250);
};

struct ServerOptions {
  std::string address = "127.0.0.1";
  std::uint16_t port = 0;  // 0: a free one, see Server::port()
  std::uint32_t threads = 1;
  std::uint32_t max_connections = 10'000;  // beyond that they wait in the system's backlog
  // Called on a thread of the server when accepting begins to fail (no file descriptors, no memory), once until it
  // succeeds again.
  std::function<void(const std::string& why)> on_accept_failure{};
  SessionOptions session{};
};

boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket, http::Guard& guard, Handler handler,
                                   SessionOptions options = {});
boost::asio::awaitable<void> serve(boost::asio::ip::tcp::socket socket, http::Guard& guard,
                                   BlockingHandler handler, SessionOptions options = {});

class Server {
 public:
  // Listens when it returns. std::invalid_argument naming the address if it cannot.
  Server(http::Guard& guard, ServerOptions options, Handler handler);
  Server(http::Guard& guard, ServerOptions options, BlockingHandler handler);
  ~Server();  // as stop(); handlers that run are destroyed where they wait
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;
  std::uint32_t connections() const noexcept;
  std::uint64_t accept_failures() const noexcept;  // attempts
  std::uint32_t threads()
      const noexcept;  // that run() has; fewer than the options say if the system had no more
  // Serves on this thread and threads-1 more, or as many as the system has, until stop(), or until drain() has ended the
  // last connection.
  void run();
  // Stops accepting and waits for the end of the last connection. True: all have ended. False: `until` came first; the
  // remaining ones are still served, drain() may be called again, and stop() cuts them. May be called by any thread but
  // those of the server, also before run(), which then returns at once.
  bool drain(TimePoint until = no_deadline);
  void stop() noexcept;  // by any thread, also before run(); cuts all connections

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bulkhead::beast
