#include "connection.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace bulkhead::httplib {
namespace {

void name(const sockaddr_storage& address, socklen_t length, std::string& ip, int& port) {
  char host[NI_MAXHOST], service[NI_MAXSERV];
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), length, host, sizeof host, service,
                    sizeof service, NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return;
  ip = host;
  port = std::atoi(service);
}

}  // namespace

bool Connection::wait(short events, std::chrono::nanoseconds time) const {
  pollfd fd{.fd = socket_, .events = events, .revents = 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(time).count();
  if (ms < 0) return false;
  int ready = 0;
  do {
    ready = ::poll(&fd, 1, static_cast<int>(std::min<long long>(ms, 1 << 30)));
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

bool Connection::wait_for_request(std::chrono::nanoseconds time) const {
  return begin_ < end_ || wait(POLLIN, time);
}

bool Connection::is_readable() const {
  return begin_ < end_ || wait(POLLIN, until_ - std::chrono::steady_clock::now());
}
bool Connection::is_writable() const {
  if (keeps_ || wait(POLLOUT, write_timeout_)) return true;
  broken_ = true;
  return false;
}

// Bounded by what the request may still have; reads ahead, so that a request of several lines takes one system call.
ssize_t Connection::read(char* to, size_t size) {
  if (left_ == 0) return -1;
  size = std::min(size, left_);
  if (begin_ == end_) {
    if (!is_readable()) return -1;
    const ssize_t n = ::recv(socket_, buffer_, sizeof buffer_, 0);
    if (n <= 0) return n;
    begin_ = 0;
    end_ = static_cast<std::size_t>(n);
  }
  const std::size_t n = std::min(size, end_ - begin_);
  std::memcpy(to, buffer_ + begin_, n);
  begin_ += n;
  left_ -= n;
  return static_cast<ssize_t>(n);
}

ssize_t Connection::write(const char* from, size_t size) {
  if (keeps_) {
    kept_.append(from, size);
    return static_cast<ssize_t>(size);
  }
  if (!is_writable()) return -1;
  const ssize_t sent = ::send(socket_, from, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (sent < 0) broken_ = true;
  return sent;
}

void Connection::get_remote_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getpeername(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    name(address, length, ip, port);
}

void Connection::get_local_ip_and_port(std::string& ip, int& port) const {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  if (::getsockname(socket_, reinterpret_cast<sockaddr*>(&address), &length) == 0)
    name(address, length, ip, port);
}

}  // namespace bulkhead::httplib
