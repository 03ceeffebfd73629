// byte_stream.h - a connection as bytes, with a time limit, whatever carries them: TCP, TLS or a unix socket.
//
// Virtual, so that only byte_stream.cc compiles Boost's templates for each of the three.
// Threads: only that of the event loop.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/buffer.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <chrono>
#include <memory>
#include <string>

namespace boost::asio::ssl {
class context;
}

namespace bulkhead::control {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  virtual boost::asio::awaitable<boost::system::error_code> handshake() = 0;
  virtual boost::asio::awaitable<std::size_t> read_some(boost::asio::mutable_buffer into,
                                                        boost::system::error_code& error) = 0;
  // Both buffers, completely.
  virtual boost::asio::awaitable<boost::system::error_code> write(boost::asio::const_buffer first,
                                                                  boost::asio::const_buffer second = {}) = 0;
  // For all that begins from now on, together.
  virtual void expires_after(std::chrono::milliseconds time) = 0;
  virtual void expires_never() = 0;
  virtual void shutdown() = 0;
  virtual void close() = 0;
};

using Socket = boost::asio::generic::stream_protocol::socket;
using TlsContext = boost::asio::ssl::context;
// std::invalid_argument names the file that cannot be used. TLS 1.2 or later.
// `client_authorities`: clients must present a certificate of one of these; empty: they need none.
std::shared_ptr<TlsContext> load_tls(const std::string& certificate, const std::string& private_key,
                                     const std::string& client_authorities = "");
std::unique_ptr<ByteStream> make_stream(Socket socket,
                                        const std::shared_ptr<TlsContext>& tls);  // null: plain

}  // namespace bulkhead::control
