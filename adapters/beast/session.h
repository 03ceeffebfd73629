// session.h - one connection: reads requests, brings them through the guard to the handler, writes
// responses.
#pragma once

#include <sys/socket.h>

#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <memory>
#include <stop_token>
#include <string>
#include <variant>

#include "server.h"

namespace bulkhead::beast {

using AnyHandler = std::variant<Handler, BlockingHandler>;

// Everything below runs on the connection's executor, one thing at a time.
class Session {
 public:
  Session(boost::asio::ip::tcp::socket socket, http::Guard& guard, const AnyHandler& handler,
          const SessionOptions& options);

  boost::asio::awaitable<void> run();

  // Calls `gone` when the client closes the connection; until unwatch(), and once.
  void watch(std::function<void()> gone);
  void unwatch();
  std::stop_token stop();

 private:
  struct Turn;  // one request and its response
  boost::asio::awaitable<bool> read(Request& request);
  boost::asio::awaitable<void> respond(Turn& turn);
  boost::asio::awaitable<Result<Call>> enter(const http::Visit& visit);
  boost::asio::awaitable<void> call(Turn& turn);
  boost::asio::awaitable<Response> call_in_time(const Request& request, Context& context);
  boost::asio::awaitable<Response> call_blocking(Turn& turn, Context& context);
  boost::asio::awaitable<void> hold();
  boost::asio::awaitable<bool> write(Response response);

  Response made(const http::Response& from, const Request& request) const;

  boost::beast::tcp_stream stream_;
  boost::beast::flat_buffer buffer_;
  http::Guard& guard_;
  const AnyHandler& handler_;
  const SessionOptions& options_;
  std::string peer_;
  bool refused_ = false;                         // the last request was
  std::shared_ptr<std::function<void()>> gone_;  // what watch() waits for; expired once unwatched
  std::optional<std::stop_source> stop_;         // of the request in hand, if its handler asked for it
};

}  // namespace bulkhead::beast
