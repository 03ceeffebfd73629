// server.h - the control plane: see and change a process's bulkheads over HTTP while it runs.
//
//   bulkhead::control::Server admin(registry, {.unix_socket = "/run/shop/admin.sock", .listen = "127.0.0.1:9920"});
//   log(admin.url());                                // curl http://127.0.0.1:9920/v1/snapshot
//
// docs/formats/rest.md is the interface. The unix socket has full rights, for whoever may open it; TCP may read, and with
// a bearer token do what the token's role says. Every change has a reason, ends by itself, and is in the audit log.
//
// Threads: every member may be called from any thread. Two threads of its own, at a low priority: one speaks HTTP, the
//   other makes the changes, one after the other.
// Promises: no call to a bulkhead ever waits for it; what it holds is bounded, however many clients come, however slow
//   they are and whatever they send. Every change and every denial is told to the audit log. Overrides end with the
//   server: its destructor puts back what they replaced.
// Not promised: that two programs may share one socket path (a dead one's is replaced, a living one's is an error).
// Cost: ten glances a second at each gate, one snapshot a second of all; history of about 240 KB for a bulkhead that
//   has been there for an hour.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/registry.h"

namespace bulkhead::control {

enum class Role : std::uint8_t { none, viewer, operator_, admin };
std::string_view to_string(Role role) noexcept;  // "none", "viewer", "operator", "admin"

// What is shown and changed. A Registry is one; a program with three bulkheads of its own can be another.
struct Plant {
  std::function<RegistrySnapshot()> snapshot;
  std::function<std::shared_ptr<Bulkhead>(std::string_view name)> find;  // null: no such bulkhead
  // Default: as Bulkhead's.
  std::function<void(std::string_view name, std::uint32_t max_concurrent)> resize{};
  std::function<void(std::string_view name, std::uint32_t max_queue)> resize_queue{};
};

Plant plant_of(Registry& registry);  // which outlives it

// What is wrong with a configuration, and where.
struct Diagnostic {
  std::string pointer{}, message{}, hint{};
  std::uint32_t line = 0, column = 0;
};

struct ConfigStatus {
  bool valid = true;     // false: the file on disk was refused, the last good one runs
  std::string revision;  // of what runs
  std::string error;     // why it was refused
  std::chrono::system_clock::time_point last_success{};
};

struct ConfigPlan {
  std::vector<Diagnostic> errors;  // none: it loads
  std::vector<std::string> changes, needs_restart;
  std::string revision;
};

// The file behind the bulkheads, if there is one. `status` is called every second and must be quick; the others may take
// their time, and are called by one thread.
struct ConfigFile {
  std::string path{};  // empty: there is none
  std::function<ConfigStatus()> status{};
  std::function<std::string()> running{};                                      // the text in force
  std::function<std::vector<Diagnostic>(const std::string& text)> validate{};  // none: it would load
  std::function<ConfigPlan()> diff{};                                          // what a reload would do
  std::function<ConfigPlan()> reload{};
  // Where a bulkhead's setting comes from: "shop.yaml:12", "default" ... Called as `status` is.
  std::function<std::string(std::string_view bulkhead, std::string_view setting)> source{};
};

// Something else of the program that operators may switch on and off.
struct Switch {
  std::string name, title;
  std::function<bool()> is_on;
  std::function<void(bool)> set;
};

struct ServerOptions {
  std::string unix_socket{};  // path; empty: none
  std::string listen{};       // "127.0.0.1:9920", "[::1]:0" (any free port); empty: no TCP
  std::string tokens_file{};
  std::string certificate{}, private_key{};  // PEM files: TLS on TCP
  Role anonymous = Role::viewer;             // TCP without a token
  std::vector<std::string> hosts{};          // further names in Host that are ours

  std::string instance{};  // default: the host's name
  std::string version = "0";
  std::string audit_file{};  // JSON lines; empty: only the last thousand are kept, in memory

  std::size_t max_connections = 512, max_local_connections = 64;  // on TCP, on the unix socket
  std::size_t max_streams = 16;
  std::size_t max_body = 64 * 1024, max_header = 8 * 1024;
  std::chrono::milliseconds request_timeout{10'000}, write_timeout{10'000};
  std::size_t history_bulkheads = 256;  // that have a history; the others have only the present
  bool dashboard = true;                // the page, at /ui/

  ConfigFile config{};
  std::vector<Switch> switches{};
  std::function<std::string()> not_ready{};  // "": ready; else why not, for /readyz
  // Every event, change and denial, for your own log: a line of JSON without its end. In order, from any thread, one at a
  // time and up to the last of the destructor; it must be quick and not use the server. What it throws is swallowed.
  std::function<void(std::string_view line)> on_event{};
  Clock* clock = nullptr;  // of the overrides' ends; default: Clock::steady()
};

class Server {
 public:
  // Listens when it returns. std::invalid_argument naming the option; std::system_error if it cannot listen.
  Server(Plant plant, ServerOptions options);
  Server(Registry& registry, ServerOptions options) : Server(plant_of(registry), std::move(options)) {}
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::uint16_t port() const noexcept;  // 0: no TCP
  std::string url() const;              // "http://127.0.0.1:9920", or "" without TCP
  // From now on /readyz says no, and connections are closed after their answer.
  void set_stopping() noexcept;
  // After the configuration has been loaded anew by others than POST /v1/config/reload: overrides whose base changed
  // are dropped, the others are put in force again.
  void reloaded(const ConfigPlan& plan, std::string_view actor);
  // For the list of events: "start", "reload" ...
  void note(std::string_view kind, std::string_view text);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace bulkhead::control
