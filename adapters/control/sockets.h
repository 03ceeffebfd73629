// sockets.h - where the control plane listens, and who is at the other end of a unix socket.
#pragma once

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>
#include <string>

#include "access.h"

namespace bulkhead::control {

// Both throw std::system_error naming the option. A socket file that nobody listens on any more is replaced; one that is
// alive is left alone.
boost::asio::local::stream_protocol::acceptor open_local(boost::asio::io_context& io,
                                                         const std::string& path);
boost::asio::ip::tcp::acceptor open_tcp(boost::asio::io_context& io, const Address& address);

Caller local_caller(int fd);  // by the name of its user

}  // namespace bulkhead::control
