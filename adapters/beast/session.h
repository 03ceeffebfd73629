// session.h - one connection: brings its requests through the guard to the handler, and the responses back.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <optional>
#include <stop_token>
#include <variant>

#include "connection.h"
#include "server.h"

namespace bulkhead::beast {

using AnyHandler = std::variant<Handler, BlockingHandler>;

// Everything below runs on the connection's executor, one thing at a time. What most requests need is in run() itself, because
// every coroutine that it awaits costs a frame.
class Session {
 public:
  Session(boost::asio::ip::tcp::socket socket, http::Guard& guard, const AnyHandler& handler,
          const SessionOptions& options)
      : connection_(std::move(socket), options), guard_(guard), handler_(handler), options_(options) {}

  boost::asio::awaitable<void> run();
  std::stop_token stop();  // of the request in hand

 private:
  struct Turn;  // one request and its response
  void arrive(Turn& turn);
  void admit(Turn& turn, Result<Call> entered);
  void conclude(Turn& turn);
  void refuse(Turn& turn, const Rejection& why);
  Response made(const http::Response& from, const Turn& turn) const;

  boost::asio::awaitable<Result<Call>> enter(const http::Visit& visit, Call begun);
  boost::asio::awaitable<Response> call_in_time(Turn& turn);
  boost::asio::awaitable<Response> call_blocking(Turn& turn);
  boost::asio::awaitable<void> hold();
  boost::asio::awaitable<void> say_no(int status);

  Connection connection_;
  http::Guard& guard_;
  const AnyHandler& handler_;
  const SessionOptions& options_;
  bool refused_ = false;                  // the last request was
  std::optional<std::stop_source> stop_;  // of the request in hand, if its handler asked for it
};

}  // namespace bulkhead::beast
