// server.h - the control plane: shows and changes the bulkheads of a running process over HTTP.
//
//   bulkhead::control::Server admin(registry, live, {.unix_socket = "/run/shop/admin.sock", .listen = "127.0.0.1:9920"});
//   log(admin.url());                                // curl http://127.0.0.1:9920/v1/snapshot
//
// `live` is the LiveConfig that applies a file to the registry. It also holds the overrides of operators, so that a reload
// keeps them and they end on time. If the options name neither a socket nor an address, those of the file's `control:`
// apply. For a registry without a file: Server admin(registry, {...}); this is an error if the registry has a LiveConfig.
//
// docs/formats/rest.md describes the interface. Clients of the unix socket have full rights. Clients of TCP on a loopback
// address may read; a bearer token gives a client the rights of its role. Every change has a reason, ends by itself, and
// is in the audit log.
//
// Threads: every member may be called from any thread. The server has two threads of low priority: one serves HTTP, the
//   other makes the changes, one after the other.
// Promises: no call to a bulkhead ever waits for the server. Its memory, connections and threads are bounded, whatever
//   clients do. Every change is written to the audit log. So are denials, up to 20 per second and 1000 per hour one by
//   one; the others are counted, and one entry states their number. If the audit file cannot be written (a full disk),
//   changes are still made: an event says that lines are missing, and bulkhead_audit_lost_total counts them. The
//   destructor ends drains, forced breakers and faults and restores what they replaced. It also ends the overrides of a
//   server that was made without a LiveConfig; overrides of your LiveConfig stay in force.
// Not promised: two processes cannot share one socket path. The socket of a dead process is replaced; that of a running
//   one is an error.
// Cost: ten samples of each gate and one snapshot of everything per second; about 260 KB of history for a bulkhead that
//   is an hour old.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/live_config.h"
#include "bulkhead/registry.h"

namespace bulkhead::control {

enum class Role : std::uint8_t { none, viewer, operator_, admin };
std::string_view to_string(Role role) noexcept;  // "none", "viewer", "operator", "admin"

// A switch of the program that operators may turn on and off.
struct Switch {
  std::string name, title;
  std::function<bool()> is_on;
  std::function<void(bool)> set;
};

struct ServerOptions {
  std::string unix_socket{};                             // path; empty: none
  std::string unix_socket_owner{}, unix_socket_group{};  // names; empty: those of the process
  std::uint32_t unix_socket_mode = 0660;
  std::string listen{};  // "127.0.0.1:9920", "[::1]:0" (any free port); empty: no TCP
  std::string
      tokens_file{};  // read again when it changes: a removed token stops at once, also on open streams
  std::string certificate{}, private_key{};  // PEM files: TLS on TCP
  std::string client_authorities{};          // PEM file: TCP clients need a certificate of one of these
  std::optional<Role> anonymous{};           // TCP without a token; default: viewer on loopback, else none
  std::vector<std::string> hosts{};          // additional Host names to accept

  std::string instance{};  // default: the host's name
  std::string version = "0";
  std::string audit_file{};  // JSON lines; empty: only the last thousand are kept, in memory

  std::size_t max_connections = 512, max_local_connections = 64;  // on TCP, on the unix socket
  std::size_t max_streams = 16;
  std::size_t max_body = 64 * 1024, max_header = 8 * 1024;
  std::chrono::milliseconds request_timeout{10'000}, write_timeout{10'000};
  std::size_t history_bulkheads = 256;  // that have an hour of history; others have the last minute
  bool dashboard = true;                // the page, at /ui/
  bool allow_faults = false;            // operators may inject faults, see fault.h

  // At most this many tenants are shown, on the page, in the stream and in metrics; a set of tenants that does not fit is
  // shown as a sum.
  std::size_t listed_tenants = 1000;
  std::uint32_t top_tenants = 0;  // with series of their own on /metrics, as MetricsOptions::top_tenants

  std::vector<Switch> switches{};
  std::function<std::string()> not_ready{};  // for /readyz: "" if the program is ready, else the reason
  // Receives every event, change and denial as one line of JSON, for your own log. Called in order, by any thread, one at a
  // time, until the destructor has ended. It must be quick and must not use the server. Exceptions are ignored.
  std::function<void(std::string_view line)> on_event{};
  bool from_file = false;  // set by options_of()
};

// `rest`, with what a file's `control:` sets.
ServerOptions options_of(const ControlConfig& config, ServerOptions rest = {});

class Server {
 public:
  // Listens when it returns. Throws std::invalid_argument naming the option, or std::system_error if it cannot listen.
  // Registry and `live`, which belongs to the registry, must outlive it.
  Server(Registry& registry, LiveConfig& live, ServerOptions options = {});
  // Without a file. std::invalid_argument if the registry has a LiveConfig.
  Server(Registry& registry, ServerOptions options);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;  // 0: no TCP
  std::string url() const;              // "http://127.0.0.1:9920", or "" without TCP
  // From now on /readyz answers 503, and connections are closed after their response.
  void set_stopping() noexcept;
  // Stops accepting, answers requests that have begun, ends the streams, and closes connections that send no request for
  // 250 ms. True: all connections have ended. False: `until` came first; the remaining ones are still served, and drain()
  // may be called again. Implies set_stopping(). Overrides stay in force until the destructor.
  bool drain(TimePoint until = no_deadline);
  // Adds an event: "start", "reload" ...
  void note(std::string_view kind, std::string_view text);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bulkhead::control
