// gateway.h - the `gateway:` part of a file: where HTTP requests arrive, and which bulkhead and upstream each goes to.
//
//   const gateway::Loaded file = gateway::load("bulkhead.yaml");
//   if (file.gateway) write(gateway::nginx_conf(*file.gateway, {...}));
//
// The table of its settings is in settings.cc; docs/how-to/protect-any-service.md explains them.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "adapters/yaml/yaml.h"

namespace bulkhead::gateway {

struct Listener {
  std::string name{};
  std::string address{};  // "0.0.0.0:8080"
  std::optional<TlsConfig> tls{};
  bool http2 = false, proxy_protocol = false;
};

struct Upstream {
  enum class Balance : std::uint8_t { round_robin, least_in_flight };
  enum class Protocol : std::uint8_t { http, grpc };
  std::string name{};
  std::vector<std::string> servers{};  // "127.0.0.1:9000"
  Protocol protocol = Protocol::http;
  Balance balance = Balance::least_in_flight;
  std::uint32_t keep_alive = 64;  // idle connections kept at most
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(1);
  std::chrono::nanoseconds read_timeout = std::chrono::seconds(60);
  std::uint32_t max_fails = 3;  // in fail_timeout, after which a server is left out for that time; 0: never
  std::chrono::nanoseconds fail_timeout = std::chrono::seconds(5);
  std::uint32_t tries = 1;  // servers that a request may be sent to
};

struct Route {
  enum class Hold : std::uint8_t { upstream, response };
  std::string name{};
  std::string host{};  // empty: any
  std::string path = "/";
  std::vector<std::string> methods{};  // empty: any
  std::string header{};                // "X-Beta: 1", or "X-Beta" for any value; empty: any
  std::string bulkhead{};              // or a set of tenants; empty: not protected, for health checks
  std::string upstream{};
  Priority priority = Priority::normal;
  Hold hold = Hold::upstream;
  bool websocket = false;
  bool streaming = false;  // the response is passed on as it arrives
};

struct Gateway {
  std::vector<Listener> listeners{};
  std::vector<Upstream> upstreams{};
  std::vector<Route> routes{};
  std::vector<std::string> trusted_peers{};
  std::string priority_header = "Priority";
  std::string tenant_header = "X-Tenant-Id";
  std::string deadline_header = "X-Request-Timeout-Ms";
  std::uint64_t max_body = std::uint64_t{16} * 1024 * 1024;  // bytes
  std::uint32_t workers = 1;               // nginx processes; more than one need bulkheads with scope: host
  std::uint32_t max_connections = 16'384;  // of one worker, of clients and to services together
  std::string user{};        // of the workers, where this process is root's; empty: see worker_user()
  std::string access_log{};  // a file of JSON lines; empty: none
  std::string nginx{};       // the program; empty: found on the PATH or in /usr/sbin
  std::string module{};      // the module; empty: where it is installed or built
};

std::string& name_of(Listener& l);  // for the settings table
std::string& name_of(Upstream& u);
std::string& name_of(Route& r);

struct Loaded {
  yaml::Loaded file{};               // all problems, also those of the gateway
  std::optional<Gateway> gateway{};  // none: the file has no such part
};
Loaded load(const std::string& path);
Loaded parse(const std::string& text, const std::string& path);  // what the file would say
std::vector<Setting> settings_of(const Loaded& file);            // of all of it, if it is ok()

const config::Section& settings();  // the table
const config::Section& root();      // of a whole file: the library's, and `gateway`

// "X-Beta: 1" -> X-Beta, 1
std::pair<std::string_view, std::string_view> header_of(const Route& route);

// What `bulkhead check` finds in the configuration of an nginx that uses the module; `conf` is its text.
bool is_nginx_conf(std::string_view text);
yaml::Loaded check_nginx_conf(const std::string& path);

}  // namespace bulkhead::gateway
