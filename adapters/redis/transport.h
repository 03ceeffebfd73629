// transport.h - how a fleet sends commands to its store. The adapter's own client is a few hundred lines (connection.h), because
// Debian's hiredis has no TLS; to use another one, such as redis-plus-plus, implement Transport with it:
//
//   class MyTransport final : public bulkhead::redis::Transport {
//    public:
//     MyTransport(const bulkhead::redis::Endpoint& to, Until until);
//     std::vector<bulkhead::redis::Value> exchange(const std::vector<bulkhead::redis::Command>& commands, Until until) override;
//   };
//
// and give the Fleet a function that makes one, as its parameter `connect`.
//
// The fleet sends AUTH, SELECT, INFO, SCRIPT LOAD and EVALSHA, asks Sentinels, and follows MOVED and ASK itself; a transport
// connects to one address and carries commands.
// Threads: one thread of the fleet, which waits for the network in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace bulkhead::redis {

struct Address {
  std::string host{}, port{};  // or
  std::string path{};          // of a unix socket
  bool operator==(const Address&) const = default;
};
std::string to_string(const Address& address);

// A reply.
struct Value {
  enum class Kind : std::uint8_t { null, integer, number, boolean, text, error, list };
  Kind kind = Kind::null;
  std::int64_t integer = 0;   // also of a boolean: 0 or 1
  std::string text{};         // of a text, an error or a number (as it was sent)
  std::vector<Value> list{};  // also of a set, a push, and of a map: key, value, key ...

  bool is_error() const noexcept { return kind == Kind::error; }
};

using Command = std::vector<std::string>;  // its words

struct Endpoint {
  Address address{};
  bool tls = false;
  std::string ca_file{};  // empty: the certificates of the system
};

class Transport {
 public:
  using Until = std::chrono::steady_clock::time_point;
  virtual ~Transport() = default;
  // The replies, in the order of the commands; an error reply is a Value. Ends at `until`. std::runtime_error: the
  // connection is lost, and with it all replies.
  virtual std::vector<Value> exchange(const std::vector<Command>& commands, Until until) = 0;
};

// Connects, with the handshake of TLS, until `until`. std::runtime_error says why not.
using Connect = std::function<std::unique_ptr<Transport>(const Endpoint&, Transport::Until)>;

}  // namespace bulkhead::redis
