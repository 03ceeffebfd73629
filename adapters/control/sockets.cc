#include "sockets.h"

#include <pwd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <stdexcept>
#include <system_error>

namespace bulkhead::control {
namespace asio = boost::asio;
using error_code = boost::system::error_code;
namespace {

std::string user_name(uid_t uid) {
  char buffer[4096];
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer, sizeof buffer, &found) == 0 && found)
    return std::string("unix:") + found->pw_name;
  return "unix:" + std::to_string(uid);
}

[[noreturn]] void fail(int error, const std::string& what) {
  throw std::system_error(error, std::generic_category(), "control: " + what);
}

}  // namespace

Caller local_caller(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  Caller caller{.actor = "unix:unknown", .role = Role::admin, .local = true};
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0) caller.actor = user_name(peer.uid);
  return caller;
}

asio::local::stream_protocol::acceptor open_local(asio::io_context& io, const std::string& path) {
  using Local = asio::local::stream_protocol;
  const std::string what = "cannot listen on unix_socket \"" + path + '"';
  if (path.size() >= sizeof(sockaddr_un::sun_path)) fail(ENAMETOOLONG, what);
  const Local::endpoint endpoint(path);
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) fail(EEXIST, what + ": there is something that is not a socket");
    Local::socket probe(io);
    error_code error;
    probe.connect(endpoint, error);
    if (!error || error == asio::error::try_again)  // the line before it may be full
      fail(EADDRINUSE, what + ": another process listens there");
    // Refused: nobody listens any more. Whatever else is wrong, it may be somebody's.
    if (error == asio::error::connection_refused)
      ::unlink(path.c_str());
    else if (error != boost::system::errc::no_such_file_or_directory)
      fail(error.value(), what + ": there is a socket already");
  }
  Local::acceptor acceptor(io);
  acceptor.open();
  ::fchmod(acceptor.native_handle(), 0660);  // before bind(): the file is never open to more
  error_code error;
  acceptor.bind(endpoint, error);
  if (!error) ::chmod(path.c_str(), 0660);  // whatever the umask
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.value(), what);
  return acceptor;
}

asio::ip::tcp::acceptor open_tcp(asio::io_context& io, const Address& address) {
  error_code error;
  const std::string what = "cannot listen on \"" + address.host + ':' + std::to_string(address.port) + '"';
  const auto ip = asio::ip::make_address(address.host, error);
  if (error) throw std::invalid_argument("control: listen: \"" + address.host + "\" is not an IP address");
  const asio::ip::tcp::endpoint endpoint(ip, address.port);
  asio::ip::tcp::acceptor acceptor(io);
  acceptor.open(endpoint.protocol());
  acceptor.set_option(asio::socket_base::reuse_address(true));
  acceptor.bind(endpoint, error);
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.value(), what);
  return acceptor;
}

}  // namespace bulkhead::control
