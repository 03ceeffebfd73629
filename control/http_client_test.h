// http_client_test.h - a small HTTP client for tests, which can also send what no real client would.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <boost/json/parse.hpp>
#include <boost/json/value.hpp>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace bulkhead::control {

struct Reply {
  int status = 0;  // 0: the connection was closed without an answer
  std::string head, body;

  std::string header(const std::string& name) const {
    const std::size_t at = head.find("\r\n" + name + ": ");
    if (at == std::string::npos) return "";
    const std::size_t start = at + name.size() + 4;
    return head.substr(start, head.find("\r\n", start) - start);
  }
  boost::json::value json() const {
    boost::system::error_code error;
    auto value = boost::json::parse(body, error);
    EXPECT_FALSE(error) << body.substr(0, 300);
    return value;
  }
};

class Client {
 public:
  static Client tcp(std::uint16_t port) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Client c(::socket(AF_INET, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(c.fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << strerror(errno);
    return c;
  }
  static Client local(const std::string& path) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    path.copy(to.sun_path, sizeof to.sun_path - 1);
    Client c(::socket(AF_UNIX, SOCK_STREAM, 0));
    EXPECT_EQ(::connect(c.fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << strerror(errno);
    return c;
  }
  Client(Client&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  ~Client() {
    if (fd_ >= 0) ::close(fd_);
  }

  bool send(const std::string& text) {
    return ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL) == ssize_t(text.size());
  }
  void finish() { ::shutdown(fd_, SHUT_WR); }
  // Up to `n` bytes more of the answer; false at its end, or after 20 s.
  bool receive(std::string& into, std::size_t n = 65536) {
    std::string buffer(n, '\0');
    const ssize_t got = ::recv(fd_, buffer.data(), n, 0);
    if (got > 0) into.append(buffer, 0, static_cast<std::size_t>(got));
    return got > 0;
  }
  Reply read(bool head_only = false) {
    std::string text;
    std::size_t end;
    while ((end = text.find("\r\n\r\n")) == std::string::npos)
      if (!receive(text)) return {};
    Reply reply{.status = std::stoi(text.substr(9, 3)),
                .head = text.substr(0, end + 2),
                .body = text.substr(end + 4)};
    const std::string length = reply.header("Content-Length");
    while (!head_only && !length.empty() && reply.body.size() < std::stoul(length))
      if (!receive(reply.body)) break;
    return reply;
  }

 private:
  explicit Client(int fd) : fd_(fd) {
    const timeval patience{20, 0};
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  }
  int fd_;
};

struct Ask {
  std::string method = "GET", path{}, body{}, token{};
  std::vector<std::string> headers{};
  std::string host = "localhost";

  std::string text() const {
    std::string t = method + ' ' + path + " HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n";
    if (!token.empty()) t += "Authorization: Bearer " + token + "\r\n";
    bool typed = false;
    for (const std::string& h : headers) {
      t += h + "\r\n";
      typed |= h.starts_with("Content-Type");
    }
    if (!body.empty()) t += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    if (!body.empty() && !typed) t += "Content-Type: application/json\r\n";
    return t + "\r\n" + body;
  }
};

}  // namespace bulkhead::control
