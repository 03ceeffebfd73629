// connection.h - one connection to a server that speaks RESP, used by one thread: each call waits for the network, until its
// time is over at the latest. Failures are std::runtime_error, after which the connection is of no more use.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "resp.h"
#include "store_url.h"

namespace bulkhead::redis {

struct TlsOptions {
  bool on = false;
  std::string ca_file{};  // empty: the certificates of the system
};

class Connection {
 public:
  using Until = std::chrono::steady_clock::time_point;

  Connection(const Address& address, const TlsOptions& tls, Until until);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  const Address& address() const noexcept { return address_; }
  // Sends commands, each as append_command() wrote it, and gives their replies in order.
  std::vector<Value> exchange(std::string_view commands, std::size_t count, Until until);
  Value call(std::initializer_list<std::string_view> words,
             Until until);  // one; an error reply is a failure, too

 private:
  struct Io;
  void read_more(Until until);

  Address address_;
  std::unique_ptr<Io> io_;
  std::string input_;
};

}  // namespace bulkhead::redis
