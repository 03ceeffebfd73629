// connection.h - HTTP/1.1 messages on a socket, with an end to its patience. Knows no bulkheads.
//
//   connection.next();
//   while (!connection.complete()) connection.take(co_await connection.more());
//   if (connection.problem()) ...                       // no request
//   ... connection.release() ...
//   if (!connection.send(response, head_only)) co_await connection.flush();
//
// In steps, and not as Beast's own composed operations, because these cost more than everything a bulkhead does: a request that
// has arrived is parsed where it lies, and a response that fits into the socket's buffer leaves in one system call,
// without a coroutine frame, a timer or a round through the executor.
//
// Threads: the connection's executor, one thing at a time.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server.h"

namespace bulkhead::beast {

// One timer for all limits of a connection: to set one is a store, unless it is earlier than those before.
class Patience {
 public:
  explicit Patience(
      boost::asio::ip::tcp::socket& socket);  // its operations are cancelled when a limit is over
  ~Patience();
  Patience(const Patience&) = delete;
  Patience& operator=(const Patience&) = delete;

  void limit(std::chrono::nanoseconds time);
  void end() noexcept;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

class Connection {
 public:
  Connection(boost::asio::ip::tcp::socket socket, const SessionOptions& options);

  void next();  // begins with the next request
  bool complete() const noexcept { return done_; }
  boost::asio::awaitable<std::size_t> more();
  void take(std::size_t bytes);
  // Why there is no request: 0, there is one; the status to answer with; or -1, nobody is there to be answered.
  int problem() const noexcept { return problem_; }
  Request release() { return parser_->release(); }
  bool keep_alive() const { return parser_->keep_alive(); }  // says the request, also once it is released
  bool has_more() const noexcept { return buffer_.size() > 0; }

  // False: not all of it is out, go on with flush(), which is false if the client has gone or does not read.
  bool send(Response& response, bool head_only);
  boost::asio::awaitable<bool> flush();
  bool reusable() const noexcept { return keeps_alive_ && !broken_; }  // after the response
  void shutdown() noexcept;
  // For a client that is still sending what nobody wants: without this it would never see why.
  boost::asio::awaitable<void> linger();

  // Calls `gone` when the client closes the connection; until unwatch(), and once.
  void watch(std::function<void()> gone);
  void unwatch();

  const std::string& peer() const noexcept { return peer_; }
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }

 private:
  using Parser = boost::beast::http::request_parser<boost::beast::http::string_body>;
  void parse();
  void fail(boost::beast::error_code error);

  boost::asio::ip::tcp::socket socket_;
  const SessionOptions& options_;
  Patience patience_;
  boost::beast::flat_buffer buffer_;
  std::optional<Parser> parser_;
  boost::beast::error_code error_;  // of the last operation
  bool done_ = false;
  int problem_ = 0;

  std::string out_;       // the head of a response, and its body unless it is large
  std::string body_;      // that one
  std::size_t sent_ = 0;  // of both
  bool broken_ = false, keeps_alive_ = false;
  std::string peer_;
  std::shared_ptr<std::function<void()>> gone_;  // what watch() waits for; expired once unwatched
};

}  // namespace bulkhead::beast
