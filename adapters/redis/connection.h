// connection.h - the transport of this adapter: one connection to a server that speaks RESP, over TCP, TLS or a unix socket.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "names.h"
#include "transport.h"

namespace bulkhead::redis {

// The end of the first of `parts` equal parts of the time that is left: one address that does not answer must not take the
// time of the next ones, or they would never be reached.
inline Transport::Until part_of(Transport::Until until, std::size_t parts) {
  const auto now = std::chrono::steady_clock::now();
  return now + (until - now) / static_cast<Transport::Until::rep>(parts);
}

class Connection final : public Transport {
 public:
  Connection(const Endpoint& to, Until until, Names& names = system_names());  // std::runtime_error
  ~Connection() override;
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  std::vector<Value> exchange(const std::vector<Command>& commands, Until until) override;

 private:
  struct Io;
  void read_more(Until until);

  Address address_;
  std::unique_ptr<Io> io_;
  std::string input_;
};

}  // namespace bulkhead::redis
