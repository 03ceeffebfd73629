// connection.h - the socket stream of cpp-httplib, with a limit of time and size for a whole request.
//
// cpp-httplib's own stream waits again for each byte, so that a client that sends one byte now and then can stay for ever.
#pragma once

#include <httplib.h>

#include <chrono>
#include <string>
#include <utility>

#include "bulkhead/clock.h"

namespace bulkhead::httplib {

class Connection final : public ::httplib::Stream {
 public:
  Connection(int socket, std::chrono::nanoseconds write_timeout)
      : socket_(socket), write_timeout_(write_timeout) {}

  // A new request may take this long and be this large.
  void allow(TimePoint until, std::size_t bytes) {
    until_ = until;
    left_ = bytes;
  }
  bool wait_for_request(
      std::chrono::nanoseconds time) const;  // false: none has begun, or the client has gone
  // From now on write() stores the bytes instead of sending them; the holder sends them later.
  void keep() { keeps_ = true; }
  std::string kept() && { return std::move(kept_); }
  // The client has gone, or has read nothing for the write timeout: a write has failed.
  bool broken() const { return broken_; }

  bool is_readable() const override;
  bool is_writable() const override;
  ssize_t read(char* to, size_t size) override;
  ssize_t write(const char* from, size_t size) override;
  void get_remote_ip_and_port(std::string& ip, int& port) const override;
  void get_local_ip_and_port(std::string& ip, int& port) const override;
  int socket() const override { return socket_; }

 private:
  bool wait(short events, std::chrono::nanoseconds time) const;

  const int socket_;
  const std::chrono::nanoseconds write_timeout_;
  TimePoint until_{};
  std::size_t left_ = 0;
  char buffer_[4096];  // cpp-httplib reads header lines byte by byte
  std::size_t begin_ = 0, end_ = 0;
  bool keeps_ = false;
  mutable bool broken_ = false;  // is_writable() finds out, too
  std::string kept_;
};

}  // namespace bulkhead::httplib
