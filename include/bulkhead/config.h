// config.h - the contents of a configuration file as values, checked as a whole, with the position of every setting.
//
//   const bulkhead::yaml::Loaded file = bulkhead::yaml::load("bulkhead.yaml");       // adapters/yaml/yaml.h
//   if (!file.ok()) std::cerr << bulkhead::to_text(file.problems);                   // all problems, not only the first
//   const bulkhead::BulkheadConfig* db = file.config.find("db");
//   db->options.max_concurrent;                                                      // ready for a Bulkhead
//
// A bulkhead that names a type copies the settings of the type; its own settings then replace them one by one. Here
// that is done already: `options` has the final values.
//
// Every setting is a row of one table (src/config/settings.cc). settings(), `bulkhead explain`, the JSON Schema and
// docs/formats/config.md are made from that table.
//
// Threads: plain values.
// Promises: constructors accept the options of a file that was read without a problem. Hooks, judges, clocks and gates
//   are never part of a file, and are empty here.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/bulkhead.h"
#include "bulkhead/group.h"
#include "bulkhead/registry.h"

namespace bulkhead {

// A position in the file, counted from 1. 0: not from a file.
struct Position {
  std::uint32_t line = 0, column = 0;
  explicit operator bool() const noexcept { return line != 0; }
  auto operator<=>(const Position&) const = default;
};

struct BulkheadConfig {
  BulkheadOptions options{};  // with its name
  std::string type{};         // the type it was copied from; empty: none
  // For a member of a group, whose shares replace max_concurrent.
  std::string group{};
  Share guaranteed{};
  Share max{.percent = 100};
  Priority criticality = Priority::normal;  // how serious a rejection is; for alerts and sorting

  // Descriptions for readers and for the linter, without an effect on calls.
  std::string resource{};  // an entry of Config::resources; empty: that of its group, or unknown
  std::string fallback{};  // what callers get instead of a result; empty: not stated
  std::chrono::nanoseconds caller_timeout = wait_forever;  // how long callers wait for the result
  std::chrono::nanoseconds typical_latency{};  // of a call, without the wait in the queue; 0: unknown
  std::vector<std::string> lint_allow{};       // lint rules that it breaks on purpose
};

struct GroupConfig {
  GroupOptions options{};                    // without members: those are the bulkheads that name the group
  std::optional<LimiterOptions> adaptive{};  // moves the total
  std::string resource{};
  std::vector<std::string> lint_allow{};
};

// A resource that bulkheads share, such as the connections that a database server allows.
struct ResourceConfig {
  enum class Kind : std::uint8_t { connections, threads, memory, other };
  std::string name{};
  Kind kind = Kind::connections;
  std::uint32_t capacity = 0;
  std::vector<std::string> lint_allow{};
};

// See TenantOptions in registry.h.
struct TenantsConfig {
  using AtBound = bulkhead::AtBound;
  BulkheadConfig each{};  // the bulkhead of each tenant; options.name is the name of the set
  std::uint32_t max_tenants = 1000;
  AtBound at_bound = AtBound::overflow;
  std::chrono::nanoseconds idle_after = std::chrono::minutes(10);
  std::uint32_t max_id_length = 64;
};

struct TlsConfig {
  std::string certificate{}, private_key{};  // PEM files
  std::string client_authorities{};          // PEM file; not empty: clients need a certificate (mutual TLS)
};

// See control::ServerOptions.
struct ControlConfig {
  enum class Anonymous : std::uint8_t { none, viewer, automatic };
  std::string unix_socket{};                             // path; empty: none
  std::string unix_socket_owner{}, unix_socket_group{};  // names; empty: those of the process
  std::string unix_socket_mode = "0660";                 // octal
  std::string listen{};                                  // "127.0.0.1:9920"; empty: no TCP
  std::string tokens_file{};
  std::optional<TlsConfig> tls{};
  // The role of TCP clients without a token; automatic: viewer on a loopback address, else none.
  Anonymous anonymous = Anonymous::automatic;
  std::vector<std::string> hosts{};  // additional Host names to accept
  std::string instance{};            // empty: the host name
  std::string audit_file{};          // empty: in memory only
  std::uint32_t max_connections = 512, max_local_connections = 64;
  std::uint32_t max_streams = 16;
  std::uint64_t max_body = std::uint64_t{64} * 1024, max_header = std::uint64_t{8} * 1024;  // bytes
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(10);
  std::uint32_t history_bulkheads = 256;
  bool allow_faults = false;  // operators may inject latency and errors
};

// As shm::HostOptions of adapters/shm.
struct HostConfig {
  std::string region{};  // path
};

struct Config {
  std::uint32_t version = 1;
  std::vector<BulkheadConfig> types{};  // options.name is the name of the type; the built-in types come first
  std::vector<ResourceConfig> resources{};
  std::vector<GroupConfig> groups{};
  std::vector<BulkheadConfig> bulkheads{};
  std::vector<TenantsConfig> tenants{};
  std::optional<HostConfig> host{};
  std::optional<FleetSettings> fleet{};
  std::optional<ControlConfig> control{};
  std::vector<std::string> lint_allow{};

  // Positions: "bulkheads.db.max_queue" -> of its value, "bulkheads.db" -> of its key. Only for settings that the
  // file contains.
  std::map<std::string, Position, std::less<>> positions{};
  // The position of the setting; else of the setting in the bulkhead's type; else of the enclosing section.
  Position where(std::string_view path) const;

  const BulkheadConfig* find(std::string_view bulkhead) const noexcept;
  const BulkheadConfig* find_type(std::string_view name) const noexcept;
  const GroupConfig* find_group(std::string_view name) const noexcept;
  const ResourceConfig* find_resource(std::string_view name) const noexcept;
  const TenantsConfig* find_tenants(std::string_view name) const noexcept;
};

// One setting, as a file would write it.
struct Setting {
  std::string path;    // "bulkheads.db.breaker.open_for"
  std::string value;   // "30s"; "none" for an absent section
  bool live = true;    // false: a change needs a restart
  bool given = false;  // the file contains this path; else the value comes from a type or is the default
};
// Every setting of every bulkhead, group, set of tenants, resource and the control plane, in the order of the table.
// Two configurations are equal if their lists are.
std::vector<Setting> settings(const Config& config);

// An error or a warning about a file.
struct ConfigProblem {
  enum class Severity : std::uint8_t { error, warning };
  Severity severity = Severity::error;
  std::string file{};
  Position at{};
  std::string path{};     // "bulkheads.db.max_queue"; empty: the whole file
  std::string message{};  // what is wrong
  std::string hint{};     // how to fix it; may be empty
  std::string rule{};     // the lint rule of a warning
  std::string source{};   // the line of the file
};

constexpr std::string_view to_string(ConfigProblem::Severity severity) noexcept {
  return severity == ConfigProblem::Severity::error ? "error" : "warning";
}

// file:line:col: path: message, then the source line, a caret and the hint.
std::string to_text(const ConfigProblem& problem);
std::string to_text(const std::vector<ConfigProblem>& problems);

// Warnings about settings that are valid but known to cause trouble, each with its rule, in the order of the file.
std::vector<ConfigProblem> lint(const Config& config);

}  // namespace bulkhead
