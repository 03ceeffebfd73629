#include "sockets.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <chrono>
#include <stdexcept>
#include <system_error>
#include <thread>

#include "adapters/beast/listener.h"
#include "base/sync_point.h"

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

void SocketFile::created(const std::string& path) noexcept {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return;
  path_ = path;
  device_ = status.st_dev;
  inode_ = status.st_ino;
}

void SocketFile::remove() noexcept {
  struct stat status{};
  if (path_.empty() || ::lstat(path_.c_str(), &status) != 0) return;
  if (status.st_dev == device_ && status.st_ino == inode_) ::unlink(path_.c_str());
  path_.clear();
}

namespace {

// Owner and group of the socket, by name or number.
void give_to(const std::string& path, const ServerOptions& o) {
  const auto id = [&](const std::string& name, const char* option, auto find) -> std::uint32_t {
    if (name.empty()) return 0xffff'ffff;  // unchanged
    std::uint32_t number = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
    if (error == std::errc{} && end == name.data() + name.size()) return number;
    std::uint32_t found = 0;
    if (!find(name.c_str(), found))
      throw std::invalid_argument(std::string("control: ") + option + ": unknown name \"" + name + '"');
    return found;
  };
  const std::uint32_t user = id(o.unix_socket_owner, "unix_socket_owner", [](const char* name, auto& found) {
    char buffer[4096];
    passwd entry{};
    passwd* there = nullptr;
    return ::getpwnam_r(name, &entry, buffer, sizeof buffer, &there) == 0 && there &&
           (found = there->pw_uid, true);
  });
  const std::uint32_t group = id(o.unix_socket_group, "unix_socket_group", [](const char* name, auto& found) {
    char buffer[4096];
    ::group entry{};
    ::group* there = nullptr;
    return ::getgrnam_r(name, &entry, buffer, sizeof buffer, &there) == 0 && there &&
           (found = there->gr_gid, true);
  });
  if (::chown(path.c_str(), user, group) != 0)
    fail(errno, "cannot give unix_socket \"" + path + "\" to " + o.unix_socket_owner + ':' +
                    o.unix_socket_group + " (unix_socket_owner, unix_socket_group)");
}

}  // namespace

namespace {

// Held while a socket file is replaced: between bind() and listen() the socket of a living process looks like one that a
// killed process has left, and another that starts would unlink it. The file is PATH.lock, and goes with the lock.
class StartLock {
 public:
  StartLock(const std::string& socket, const std::string& what) : path_(socket + ".lock") {
    constexpr std::chrono::milliseconds kPause{10};
    for (int tries = 1000; !take(what); --tries) {
      if (tries == 0) fail(EADDRINUSE, what + ": another process has been starting on it for 10 s");
      base::sync_point("control.starting");
      std::this_thread::sleep_for(kPause);
    }
  }
  ~StartLock() {
    ::unlink(path_.c_str());  // before the lock is released, so that a process that waits for it notices
    ::close(file_);
  }
  StartLock(const StartLock&) = delete;
  StartLock& operator=(const StartLock&) = delete;

 private:
  // False: the process that held the lock has unlinked the file meanwhile, so this lock is on no path. Try again.
  bool take(const std::string& what) {
    file_ = ::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (file_ < 0 && errno == ENOENT)
      fail(
          ENOENT,
          what +
              ": its directory does not exist; create it (systemd: RuntimeDirectory=), or give another path");
    if (file_ < 0) fail(errno, what + ": cannot open \"" + path_ + '"');
    struct stat open{}, there{};
    if (::flock(file_, LOCK_EX | LOCK_NB) == 0 && ::fstat(file_, &open) == 0 &&
        ::lstat(path_.c_str(), &there) == 0 && open.st_ino == there.st_ino && open.st_dev == there.st_dev)
      return true;
    ::close(file_);
    return false;
  }

  const std::string path_;
  int file_ = -1;
};

}  // namespace

asio::local::stream_protocol::acceptor open_local(asio::io_context& io, const ServerOptions& o,
                                                  SocketFile& file) {
  using Local = asio::local::stream_protocol;
  const std::string& path = o.unix_socket;
  const std::string what = "cannot listen on unix_socket \"" + path + '"';
  if (path.size() >= sizeof(sockaddr_un::sun_path)) fail(ENAMETOOLONG, what);
  const Local::endpoint endpoint(path);
  const StartLock lock(path, what);
  struct stat status{};
  if (::lstat(path.c_str(), &status) == 0) {
    if (!S_ISSOCK(status.st_mode)) fail(EEXIST, what + ": the file exists and is not a socket");
    Local::socket probe(io);
    error_code error;
    probe.connect(endpoint, error);
    if (!error || error == asio::error::try_again)  // a full backlog: a process listens
      fail(EADDRINUSE, what + ": another process listens on it");
    // Connection refused: no process listens. After any other error it may be in use.
    if (error == asio::error::connection_refused)
      ::unlink(path.c_str());
    else if (error != boost::system::errc::no_such_file_or_directory)
      fail(error.value(), what + ": the socket exists already");
  }
  Local::acceptor acceptor(io);
  acceptor.open();
  ::fchmod(acceptor.native_handle(), 0600);  // before bind(), so that the file never has a wider mode
  error_code error;
  acceptor.bind(endpoint, error);
  if (!error) {
    file.created(path);
    if (!o.unix_socket_owner.empty() || !o.unix_socket_group.empty()) give_to(path, o);
    ::chmod(path.c_str(), o.unix_socket_mode & 0777);  // independent of the umask
    base::sync_point("control.bound");
  }
  if (!error) acceptor.listen(asio::socket_base::max_listen_connections, error);
  if (error) fail(error.value(), what);
  return acceptor;
}

asio::ip::tcp::acceptor open_tcp(asio::io_context& io, const Address& address) {
  error_code error;
  asio::ip::make_address(address.host, error);
  if (error) throw std::invalid_argument("control: listen: \"" + address.host + "\" is not an IP address");
  asio::ip::tcp::acceptor acceptor(io);
  beast::listen_on(acceptor, address.host, address.port, error);
  if (error)
    fail(error.value(), "cannot listen on \"" + address.host + ':' + std::to_string(address.port) + '"');
  return acceptor;
}

}  // namespace bulkhead::control
