// sockets.h - the listening sockets of the control plane, and the user at the other end of a unix socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <cstdint>
#include <string>

#include "access.h"

namespace bulkhead::control {

// The file of a unix socket that this process has created. Removes it, unless another process has put its own there.
class SocketFile {
 public:
  SocketFile() = default;
  ~SocketFile() { remove(); }
  SocketFile(const SocketFile&) = delete;
  SocketFile& operator=(const SocketFile&) = delete;
  void created(const std::string& path) noexcept;
  void remove() noexcept;

 private:
  std::string path_;
  std::uint64_t device_ = 0, inode_ = 0;
};

// Both throw std::system_error naming the option. A socket file without a listener is replaced; one with a listener is an
// error. Of processes that start at once on one path, one gets it; it holds PATH.lock meanwhile.
boost::asio::local::stream_protocol::acceptor open_local(boost::asio::io_context& io,
                                                         const ServerOptions& options, SocketFile& file);
boost::asio::ip::tcp::acceptor open_tcp(boost::asio::io_context& io, const Address& address);

Caller local_caller(int fd);  // identified by its user

}  // namespace bulkhead::control
