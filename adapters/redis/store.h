// store.h - the limits of a fleet in Redis or Valkey: finds the server, keeps a connection to it, and carries requests of
// many limits in one round trip. Used by one thread, which waits for the network in it.
//
// Sentinel: at each connection the Sentinels are asked for the master, with the password of the URL if they require one.
// Cluster: MOVED and ASK are followed; all limits of a prefix are in one slot, so one connection suffices.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "bulkhead/fleet.h"
#include "limit_script.h"
#include "store_url.h"
#include "transport.h"

namespace bulkhead::redis {

struct StoreOptions {
  StoreUrl url{};
  std::string ca_file{};
  std::string prefix = "bulkhead";
};
// std::invalid_argument names the setting.
StoreOptions store_options(const FleetSettings& settings);

// In one round trip; the first error reply is a std::runtime_error, too.
std::vector<Value> call_all(Transport& to, const Address& address, const std::vector<Command>& commands,
                            Transport::Until until);
Value call(Transport& to, const Address& address, const Command& command, Transport::Until until);

class Store {
 public:
  using Until = Transport::Until;
  explicit Store(StoreOptions options, Connect connect = {});  // by default, with a Connection

  bool connected() const noexcept { return connection_ != nullptr; }
  void connect(Until until);  // std::runtime_error

  // Of the server that it is connected to.
  const std::string& run() const noexcept { return run_; }
  std::string address() const { return connection_ ? to_string(address_) : ""; }
  // What of the server's settings endangers the limits; one sentence each.
  const std::vector<std::string>& warnings() const noexcept { return warnings_; }

  struct Answer {
    bool ok = false;  // else `problem` says why, and the request may or may not have been carried out
    shared::StoreReply reply{};
    std::string problem{};
  };
  struct Question {
    std::string limit;
    shared::StoreRequest request;
  };
  // All of them in one round trip. std::runtime_error: the connection is lost, and so are all answers.
  std::vector<Answer> exchange(const std::vector<Question>& questions, Until until);

 private:
  Address find_master(Until until);
  std::unique_ptr<Transport> open(const Address& address, Until until);
  Command login() const;
  void introduce(Transport& to, const Address& address, Until until);
  void read_info(const Value& info);
  void follow(const std::string& redirection);

  StoreOptions o_;
  const Connect connect_;
  std::unique_ptr<Transport> connection_;
  Address address_{};     // of it
  std::size_t next_ = 0;  // of the addresses
  Address moved_to_{};    // where the cluster says that the limits are; empty: nowhere else
  bool asking_ = false;   // the slot is on the move: each command is preceded by ASKING
  std::string sha_, run_;
  std::vector<std::string> warnings_;
};

}  // namespace bulkhead::redis
