// connection.h - HTTP/1.1 messages on a socket, with limits of time. Independent of bulkheads.
//
//   connection.next();
//   while (!connection.complete()) connection.take(co_await connection.more());
//   if (connection.problem()) ...                       // no request
//   ... connection.release() ...
//   if (!connection.send(response, head_only)) co_await connection.flush();
//
// It works in steps instead of Beast's composed operations, because these cost more than a bulkhead does: a request that
// has arrived is parsed in place, and a response that fits into the socket's buffer is sent by one system call, without a
// coroutine frame, a timer or a post to the executor.
//
// Threads: only the connection's executor.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "server.h"
#include "wire.h"

namespace bulkhead::beast {

// One timer for all limits of a connection. Setting a limit is a store, unless it is earlier than the one before.
class Patience {
 public:
  explicit Patience(
      boost::asio::ip::tcp::socket& socket);  // whose operations are cancelled when a limit is over
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
  bool complete() const noexcept { return reader_.done(); }
  boost::asio::awaitable<std::size_t> more();
  void take(std::size_t bytes);
  // 0: there is a request. Else the status to answer with, or -1 if the client has gone.
  int problem() const { return reader_.error() ? status_of(reader_.error()) : 0; }
  Request release() { return reader_.release(); }
  bool keep_alive() const { return reader_.keep_alive(); }  // of the request, also after release()
  bool has_more() const noexcept { return reader_.has_more(); }
  bool has_unread() const;  // bytes in the system's buffer
  // From now on a request must begin within `idle`; one that has begun has the usual time.
  void hurry(std::chrono::nanoseconds idle);

  // False: part of it is not sent yet; call flush(), which returns false if the client has gone or does not read.
  bool send(Response& response, bool head_only);
  // A response in pieces: the head, then bytes as they are. False: as send().
  bool send_head(Response& head);
  bool send_bytes(std::string bytes);
  bool broken() const noexcept { return broken_; }
  void cut() noexcept { keeps_alive_ = false; }  // no further request on this connection
  boost::asio::awaitable<bool> flush();
  bool reusable() const noexcept { return keeps_alive_ && !broken_; }  // after the response
  void shutdown() noexcept;
  // Reads and discards what the client still sends: otherwise the connection is reset, and the client may lose the response.
  boost::asio::awaitable<void> linger();

  // Calls `gone` when the client closes the connection; until unwatch(), and once.
  void watch(std::function<void()> gone);
  void unwatch();

  const std::string& peer() const noexcept { return peer_; }
  boost::asio::any_io_executor executor() { return socket_.get_executor(); }

 private:
  // Watches for the client's end; the timer polls while bytes of its next request are unread.
  struct Watch;
  void look(const std::shared_ptr<Watch>& watch);
  void progress(bool had_header);
  bool write_now();

  boost::asio::ip::tcp::socket socket_;
  const SessionOptions& options_;
  Patience patience_;
  RequestReader reader_;
  boost::beast::error_code error_;                // of the last operation
  bool reading_ = false;                          // next() was called
  std::optional<std::chrono::nanoseconds> idle_;  // see hurry()

  std::string out_;       // the head of a response, and its body unless it is large
  std::string body_;      // that one
  std::size_t sent_ = 0;  // of both
  bool broken_ = false, keeps_alive_ = false;
  std::string peer_;
  std::shared_ptr<Watch> watch_;  // null once unwatched
};

}  // namespace bulkhead::beast
