// connection.h - the transport of this adapter: one connection to a server that speaks RESP, over TCP, TLS or a unix socket.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "transport.h"

namespace bulkhead::redis {

class Connection final : public Transport {
 public:
  Connection(const Endpoint& to, Until until);  // std::runtime_error
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
