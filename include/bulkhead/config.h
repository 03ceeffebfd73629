// config.h - what a configuration file says, as values: checked as a whole, with the place of every setting.
//
//   const bulkhead::yaml::Loaded file = bulkhead::yaml::load("bulkhead.yaml");       // adapters/yaml/yaml.h
//   if (!file.ok()) std::cerr << bulkhead::to_text(file.problems);                   // all of them, not the first
//   const bulkhead::BulkheadConfig* db = file.config.find("db");
//   db->options.max_concurrent;                                                      // ready for a Bulkhead
//
// A bulkhead that names a type begins as a copy of it; what the file says of the bulkhead itself then replaces
// single settings. That has been done here: `options` is what to use.
//
// Every setting is a row of one table (src/config/settings.cc). settings() lists what is in force by that table,
// and so do `bulkhead explain`, the JSON Schema and docs/formats/config.md.
//
// Threads: plain values.
// Promises: what was read without an error can be made: no constructor refuses its options. Hooks, judges,
//   clocks and gates are never part of a file, and are empty here.
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

// Where in the file, from 1. 0: not from a file.
struct Position {
  std::uint32_t line = 0, column = 0;
  explicit operator bool() const noexcept { return line != 0; }
  auto operator<=>(const Position&) const = default;
};

struct BulkheadConfig {
  BulkheadOptions options{};  // with its name
  std::string type{};         // it was made from; empty: none
  // Member of a group: then that gives the places, and max_concurrent means nothing.
  std::string group{};
  Share guaranteed{};
  Share max{.percent = 100};
  Priority criticality = Priority::normal;  // how bad it is if this one rejects: for alerts and order

  // What is known about it, for the linter and for people; nothing acts on it.
  std::string resource{};  // it uses, of Config::resources; empty: that of its group, or unknown
  std::string fallback{};  // what callers get instead; empty: nobody said
  std::chrono::nanoseconds caller_timeout = wait_forever;  // how long callers wait for all of it
  std::chrono::nanoseconds typical_latency{};              // of a call, without the wait; 0: unknown
  std::vector<std::string> lint_allow{};                   // rules it breaks on purpose
};

struct GroupConfig {
  GroupOptions options{};  // without members: these are the bulkheads that name it
  std::string resource{};
  std::vector<std::string> lint_allow{};
};

// What the bulkheads share out, such as the connections a database server allows.
struct ResourceConfig {
  enum class Kind : std::uint8_t { connections, threads, memory, other };
  std::string name{};
  Kind kind = Kind::connections;
  std::uint32_t capacity = 0;
  std::vector<std::string> lint_allow{};
};

// As TenantOptions of registry.h.
struct TenantsConfig {
  using AtBound = bulkhead::AtBound;
  BulkheadConfig each{};  // the template: options.name is that of the set
  std::uint32_t max_tenants = 1000;
  AtBound at_bound = AtBound::overflow;
  std::chrono::nanoseconds idle_after = std::chrono::minutes(10);
  std::uint32_t max_id_length = 64;
};

struct TlsConfig {
  std::string certificate{}, private_key{};  // PEM files
};

// As control::ServerOptions of adapters/control.
struct ControlConfig {
  enum class Anonymous : std::uint8_t { none, viewer };
  std::string unix_socket{};  // path; empty: none
  std::string listen{};       // "127.0.0.1:9920"; empty: no TCP
  std::string tokens_file{};
  std::optional<TlsConfig> tls{};
  Anonymous anonymous = Anonymous::viewer;  // what TCP without a token may do
  std::vector<std::string> hosts{};         // further names in Host that are ours
  std::string instance{};                   // empty: the host's name
  std::string audit_file{};                 // empty: in memory only
  std::uint32_t max_connections = 512, max_local_connections = 64;
  std::uint32_t max_streams = 16;
  std::uint64_t max_body = std::uint64_t{64} * 1024, max_header = std::uint64_t{8} * 1024;  // bytes
  std::chrono::nanoseconds request_timeout = std::chrono::seconds(10);
  std::chrono::nanoseconds write_timeout = std::chrono::seconds(10);
  std::uint32_t history_bulkheads = 256;
};

struct Config {
  std::uint32_t version = 1;
  std::vector<BulkheadConfig> types{};  // options.name is the type's; the built-in ones first
  std::vector<ResourceConfig> resources{};
  std::vector<GroupConfig> groups{};
  std::vector<BulkheadConfig> bulkheads{};
  std::vector<TenantsConfig> tenants{};
  std::optional<ControlConfig> control{};
  std::vector<std::string> lint_allow{};

  // Where a setting stands: "bulkheads.db.max_queue" -> its value, "bulkheads.db" -> its key. Not for what
  // the file does not say.
  std::map<std::string, Position, std::less<>> positions{};
  // Of the setting; else of the same setting in the bulkhead's type; else of what it would stand in.
  Position where(std::string_view path) const;

  const BulkheadConfig* find(std::string_view bulkhead) const noexcept;
  const BulkheadConfig* find_type(std::string_view name) const noexcept;
  const GroupConfig* find_group(std::string_view name) const noexcept;
  const ResourceConfig* find_resource(std::string_view name) const noexcept;
  const TenantsConfig* find_tenants(std::string_view name) const noexcept;
};

// One setting of one thing, as the file would write it.
struct Setting {
  std::string path;    // "bulkheads.db.breaker.open_for"
  std::string value;   // "30s"; "none" for a section that is absent
  bool live = true;    // false: a change needs a restart
  bool given = false;  // by the file, for this very path; else by a type or by default
};
// Every setting of every bulkhead, group, tenants, resource and the control plane, in the order of the table.
// Equal lists: equal configurations.
std::vector<Setting> settings(const Config& config);

// What is wrong or unwise in a file.
struct Problem {
  enum class Severity : std::uint8_t { error, warning };
  Severity severity = Severity::error;
  std::string file{};
  Position at{};
  std::string path{};     // "bulkheads.db.max_queue"; empty: the file as such
  std::string message{};  // what is wrong
  std::string hint{};     // what to do; may be empty
  std::string rule{};     // of a warning: the linter's rule
  std::string source{};   // the line
};

constexpr std::string_view to_string(Problem::Severity severity) noexcept {
  return severity == Problem::Severity::error ? "error" : "warning";
}

// file:line:col: path: problem, the source line, a caret, a hint; one after the other.
std::string to_text(const Problem& problem);
std::string to_text(const std::vector<Problem>& problems);

// Foot-guns: what is allowed and yet known to hurt. Warnings, each with its rule, in the order of the file.
std::vector<Problem> lint(const Config& config);

}  // namespace bulkhead
