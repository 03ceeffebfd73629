// session.h - serves one connection: passes its requests through the guard to the handler, and sends the responses.
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

// Threads: only the connection's executor. run() itself contains what most requests need, because every coroutine that it
// awaits costs a frame.
class Session {
 public:
  Session(boost::asio::ip::tcp::socket socket, http::Guard& guard, const AnyHandler& handler,
          const SessionOptions& options)
      : connection_(std::move(socket), options), guard_(guard), handler_(handler), options_(options) {}

  boost::asio::awaitable<void> run();
  std::stop_token stop();  // of the request in hand
  boost::asio::awaitable<bool> stream(Response head);
  boost::asio::awaitable<bool> write(std::string piece);

 private:
  struct Turn;  // one request and its response
  void arrive(Turn& turn);
  void admit(Turn& turn, Result<Call> entered);
  void conclude(Turn& turn);
  void reject(Turn& turn, const Rejection& why);
  void finish(Turn& turn);
  bool leaving() const noexcept { return options_.drain.stop_requested(); }
  bool is_last() const;
  Response made(const http::Response& from, const Turn& turn) const;

  boost::asio::awaitable<Result<Call>> enter(const http::Visit& visit, Call begun);
  boost::asio::awaitable<Response> call_in_time(Turn& turn);
  boost::asio::awaitable<Response> call_blocking(Turn& turn);
  boost::asio::awaitable<bool> send_piece(std::string bytes);
  boost::asio::awaitable<void> end_stream(Turn& turn);
  boost::asio::awaitable<void> hold();
  boost::asio::awaitable<void> say_no(int status);

  Connection connection_;
  http::Guard& guard_;
  const AnyHandler& handler_;
  const SessionOptions& options_;
  Turn* turn_ = nullptr;                  // the request in hand
  bool rejected_ = false;                 // the last request was
  TimePoint left_at_ = no_deadline;       // when draining began
  std::optional<std::stop_source> stop_;  // of the request in hand, if its handler asked for it
};

}  // namespace bulkhead::beast
