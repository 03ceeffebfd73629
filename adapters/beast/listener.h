// listener.h - accepts connections and counts them, for the servers of adapters/beast and control.
//
//   OpenConnections open;
//   Listener<tcp> listener(std::move(acceptor), open, {.serve = [&](tcp::socket s) { ... open.connection() ... }});
//   asio::co_spawn(io, listener.run(), asio::detached);
//   asio::post(io, [&] { listener.drain(); });
//   open.wait(until);                                    // the listener and all connections have ended
//
// When accepting fails (no file descriptors, no memory), the listener pauses for 20 ms and tries again. drain() serves the
// connections that the system has accepted already: they would be reset when the listening socket is closed.
//
// Threads: OpenConnections: any. Listener: its constructor any, the rest only the executor of its acceptor.
#pragma once

#include <atomic>
#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "bulkhead/clock.h"
#include "bulkhead/detail/std_mutex.h"

namespace bulkhead::beast {

class OpenConnections {
 public:
  // Counts a connection or a listener until it is destroyed.
  class Token {
   public:
    Token(Token&& other) noexcept : open_(std::exchange(other.open_, nullptr)), listener_(other.listener_) {}
    Token& operator=(Token&&) = delete;
    ~Token() {
      if (open_) open_->end(listener_);
    }

   private:
    friend class OpenConnections;
    Token(OpenConnections& open, bool listener) noexcept : open_(&open), listener_(listener) {}
    OpenConnections* open_;
    bool listener_;
  };

  Token connection() { return begin(false); }
  Token listener() { return begin(true); }
  std::uint32_t connections() const noexcept { return connections_; }
  // True: no listener and no connection is left. False: `until` came first, or stop_waiting() was called.
  bool wait(TimePoint until);
  void stop_waiting() noexcept;

 private:
  Token begin(bool listener);
  void end(bool listener) noexcept;
  bool none() const noexcept BULKHEAD_REQUIRES(mutex_) { return listeners_ == 0 && connections_ == 0; }

  // Invariants: the counts change under mutex_.
  detail::StdMutex mutex_;
  std::condition_variable ended_;
  std::atomic<std::uint32_t> connections_{0};
  std::uint32_t listeners_ BULKHEAD_GUARDED_BY(mutex_) = 0;
  bool stopped_ BULKHEAD_GUARDED_BY(mutex_) = false;
};

template <class Protocol>
class Listener {
 public:
  using Acceptor = boost::asio::basic_socket_acceptor<Protocol>;
  using Socket = typename Protocol::socket;
  struct Hooks {
    std::function<bool()> has_room{};  // false: connections wait in the system's backlog
    std::function<boost::asio::any_io_executor()> executor{};  // of the next connection
    std::function<void(Socket)> serve{};                       // starts to serve it; may throw std::bad_alloc
    // Each failure to accept; `again`: the attempt before it failed, too. Must not throw.
    std::function<void(const boost::system::error_code& error, bool again)> failed{};
  };
  Listener(Acceptor acceptor, OpenConnections& open, Hooks hooks);

  boost::asio::awaitable<void> run() { return accept(open_.listener()); }
  void drain();                                 // serves what the system has accepted, then run() ends
  void close();                                 // at once
  std::uint16_t port() const { return port_; }  // 0: not TCP

 private:
  boost::asio::awaitable<void> accept(OpenConnections::Token token);
  boost::system::error_code begin(Socket socket) noexcept;

  Acceptor acceptor_;
  OpenConnections& open_;
  const Hooks hooks_;
  bool draining_ = false;
  std::uint16_t port_ = 0;
};
extern template class Listener<boost::asio::ip::tcp>;
extern template class Listener<boost::asio::local::stream_protocol>;

// Listens on the address, an IP, or sets `error`.
void listen_on(boost::asio::ip::tcp::acceptor& acceptor, const std::string& address, std::uint16_t port,
               boost::system::error_code& error);

}  // namespace bulkhead::beast
