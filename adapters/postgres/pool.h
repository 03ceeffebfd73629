// pool.h - a bulkhead of PostgreSQL connections, and several of them on one server.
//
//   bulkhead::postgres::Pool checkout{{.name = "checkout", .max = 50, .gate = {.max_queue = 100, .max_wait = 50ms},
//                                      .connection = {.conninfo = "host=db dbname=shop", .statement_timeout = 2s}}};
//   if (auto db = checkout.acquire({.deadline = in_200_ms})) use((*db)->query("select name from items where id = $1", {42}));
//   else reply(503, db.error().message());        // the message says which: full, or no connection to the server
//
// A ResourcePool (resource_pool.h) of Connections (connection.h): the deadline of the acquire becomes
// the statement timeout of the queries on what was lent; application_name is the bulkhead's name, so
// that pg_stat_activity shows it. A connection goes back clean: a query that still runs is cancelled, an
// open transaction rolled back, the session reset as configured, by a helper; one that cannot be
// cleaned, or that the server has closed, is replaced.
// Metrics: registry.attach(pool) makes it known as bulkhead_pg_*, see docs/formats/metrics.md.
// Threads: every member may be called from any thread. Asynchronous forms for Asio: async.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bulkhead/group.h"
#include "bulkhead/resource_pool.h"
#include "connection.h"

namespace bulkhead::postgres {

struct PoolOptions {
  std::string name{};
  std::uint32_t max = 10, min_idle = 0;
  GateOptions gate{};  // as ResourceOptions::gate
  ConnectionOptions connection{};
  std::chrono::nanoseconds validate_after = std::chrono::milliseconds(500);
  std::chrono::nanoseconds keepalive =
      wait_forever;  // as ResourceOptions::keepalive: a ping of idle connections
  std::chrono::nanoseconds idle_timeout = std::chrono::minutes(10);
  std::chrono::nanoseconds max_lifetime = std::chrono::minutes(30);
  std::chrono::nanoseconds connect_timeout = std::chrono::seconds(5);
  std::chrono::nanoseconds reset_timeout =
      std::chrono::seconds(2);  // to clean or validate one; then it is closed
  Backoff backoff{};
  bool histograms = true;
  std::uint64_t seed = 1;
  Gate* on = nullptr;  // as ResourceOptions
  ResourceBudget* budget = nullptr;
};

using Lease = bulkhead::Lease<Connection>;

class Pool {
 public:
  static constexpr std::string_view kKind = "postgres";  // to a registry it is attached to

  explicit Pool(PoolOptions options);  // std::invalid_argument naming the setting; does not connect yet

  // As ResourcePool; the deadline goes with the connection.
  ResourceResult<Connection> acquire(const AcquireOptions& options = {});
  ResourceResult<Connection> try_acquire(const AcquireOptions& options = {});
  ResourcePool<Connection>& resources() noexcept { return pool_; }

  void resize(std::uint32_t max) { pool_.resize(max); }
  void resize_queue(std::uint32_t max_queue) { pool_.resize_queue(max_queue); }
  void close() noexcept { pool_.close(); }
  bool drain(TimePoint until = no_deadline) { return pool_.drain(until); }
  ResourceSnapshot snapshot() const { return pool_.snapshot(); }
  std::vector<Holder> holders() const { return pool_.holders(); }
  std::string_view name() const noexcept { return pool_.name(); }
  const ConnectionOptions& connection_options() const noexcept { return options_.connection; }
  std::chrono::nanoseconds reset_timeout() const noexcept { return options_.reset_timeout; }

  // For async.h: until when a call with this AcquireOptions::timeout waits; a rejection that the gate counts.
  TimePoint waits_until(std::chrono::nanoseconds timeout) const noexcept;
  ResourceError rejection(Priority priority, Reason reason) noexcept;

 private:
  const PoolOptions options_;
  ResourcePool<Connection> pool_;
};

// ---- several on one server ----

struct Workload {
  std::string name{};
  // Of the total, in units or per cent: what it has, or if elastic, what it is guaranteed.
  Share share{};
  Share max{.percent = 100};  // elastic: what it can have at most
  std::uint32_t min_idle = 0;
  GateOptions gate{};
  // In place of those of WorkloadsOptions::connection, unless 0.
  std::chrono::milliseconds statement_timeout{0}, lock_timeout{0}, idle_in_transaction_session_timeout{0};
};

struct WorkloadsOptions {
  std::string name{};
  // Connections of all workloads together; 0: the sum of the shares, which are all in units then.
  std::uint32_t total = 0;
  bool elastic = false;  // what one workload does not use is lent to the others, as in a Group
  Lend lend{};
  std::uint32_t instances =
      1;  // of this service, each with as many connections: the server has to have them all
  ConnectionOptions connection{};
  PoolOptions pool{};  // all but name, max, min_idle, gate, connection
  std::vector<Workload> workloads{};
  bool check = true;  // against the server's max_connections, when they are made
};

// Whether the server allows this many connections; empty: yes. Otherwise the problem and its fix. An Error: the server
// could not be queried.
Result<std::string, Error> check_against_server(const WorkloadsOptions& options,
                                                TimePoint deadline = no_deadline);

//   bulkhead::postgres::Workloads shop{{.name = "shop", .total = 97, .connection = {.conninfo = "..."}, .workloads = {
//       {.name = "checkout", .share = {.percent = 50}, .gate = {.max_queue = 100, .max_wait = 50ms}},
//       {.name = "browse", .share = {.percent = 30}}, {.name = "analytics", .share = {.percent = 15}},
//       {.name = "admin", .share = {.percent = 5}}}}};
//   auto db = shop["checkout"].acquire();
class Workloads {
 public:
  // std::invalid_argument if the settings are wrong, or do not fit into the server. A server that cannot
  // be asked does not keep a service from starting: see unchecked().
  explicit Workloads(WorkloadsOptions options);
  ~Workloads();
  Workloads(const Workloads&) = delete;
  Workloads& operator=(const Workloads&) = delete;

  Pool& operator[](std::string_view name);  // std::invalid_argument if there is none
  std::vector<Pool*> pools() const;         // in the order given
  const Group* group() const noexcept;      // null unless elastic
  std::uint32_t alive() const noexcept;     // connections of all pools
  const std::string& unchecked()
      const noexcept;  // why the server could not be asked; empty: it was, or was not to be

 private:
  struct Inside;
  std::unique_ptr<Inside> inside_;
};

}  // namespace bulkhead::postgres
