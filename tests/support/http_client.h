// http_client.h - an HTTP client on a plain socket, so that it can misbehave.
//
//   HttpClient c(port);
//   c.get("/slow");
//   c.close();                       // in the middle of it
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

namespace bulkhead::tests {

class HttpClient {
 public:
  explicit HttpClient(std::uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    const timeval patience{.tv_sec = 20, .tv_usec = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    if (::connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) close();
  }
  HttpClient(HttpClient&& o) noexcept : fd_(std::exchange(o.fd_, -1)) {}
  HttpClient& operator=(HttpClient&&) = delete;
  ~HttpClient() { close(); }

  bool connected() const { return fd_ >= 0; }
  void close() {
    if (fd_ >= 0) ::close(std::exchange(fd_, -1));
  }
  void send(std::string_view text) const { ::send(fd_, text.data(), text.size(), MSG_NOSIGNAL); }
  void get(std::string_view target, std::string_view headers = "") const {
    send("GET " + std::string(target) + " HTTP/1.1\r\nHost: x\r\n" + std::string(headers) + "\r\n");
  }
  bool has_answer() const {  // or has been closed
    char byte = 0;
    return ::recv(fd_, &byte, 1, MSG_PEEK | MSG_DONTWAIT) >= 0;
  }
  // Everything until the server closes.
  std::string read_all() const {
    std::string text;
    char buffer[65536];
    for (;;) {
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(n));
    }
  }
  std::string read_some() const {  // empty: the server has closed
    char buffer[4096];
    const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
    return n <= 0 ? std::string() : std::string(buffer, static_cast<std::size_t>(n));
  }
  // One response, or what came of it before the server closed.
  std::string read() const {
    std::string text;
    char buffer[4096];
    for (;;) {
      if (const std::size_t head = text.find("\r\n\r\n"); head != std::string::npos) {
        const std::size_t length = text.find("Content-Length: ");
        const std::size_t body = length < head ? std::stoul(text.substr(length + 16)) : 0;
        if (text.size() >= head + 4 + body) return text;
      }
      const ssize_t n = ::recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) return text;
      text.append(buffer, static_cast<std::size_t>(n));
    }
  }

 private:
  int fd_;
};

// Waits for something that is bound to happen; false: it did not in 20 seconds.
template <class F>
bool becomes(F condition) {
  for (int i = 0; i < 4000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

}  // namespace bulkhead::tests
