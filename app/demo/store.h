// store.h - the database of the demo's shop: SQLite in a temporary file, or a PostgreSQL server. Its queries are real ones.
//
//   const auto store = sqlite_store();                                       // std::runtime_error: why there is none
//   const auto checkout = store->pool("checkout", 50, {.max_queue = 100});
//   checkout->acquire([](ConnectionPool::Answer held) { if (held) (*held)->ask(Ask::basket, 42, {}); });
//
// Every pool is a bulkhead::ResourcePool of connections of its own.
// Threads: every member may be called from any thread; a Held by one at a time. A pool outlives what it lends, a store
//   its pools.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/unique_function.h"
#include "bulkhead/resource_pool.h"

namespace bulkhead::demo {

enum class Ask : std::uint8_t {
  basket,   // what a customer has in it, with prices: two indexes
  shelf,    // the cheapest items of a category
  revenue,  // of a day, by its index
  latest,   // orders
  pairs,  // orders of different customers with nearly the same amount: compares many with all, no index helps
};
inline constexpr std::size_t kAsks = 5;

struct AskError {
  bool stopped = false;  // because it was asked to
  std::string text{};
};

// A connection on loan; it goes back when this dies.
class Held {
 public:
  virtual ~Held() = default;
  virtual Result<void, AskError> ask(Ask what, std::int64_t value,
                                     const std::stop_token& stop) = 0;  // blocks
};

class ConnectionPool {
 public:
  using Answer = Result<std::unique_ptr<Held>, ResourceError>;

  virtual ~ConnectionPool() = default;
  // Calls handler exactly once, inside this call or on any thread.
  virtual void acquire(bulkhead::base::UniqueFunction<void(Answer)> handler) = 0;
  virtual ResourceSnapshot snapshot() const = 0;
};

class Store {
 public:
  virtual ~Store() = default;
  virtual std::string_view kind() const noexcept = 0;      // sqlite, postgres or simulated
  virtual std::string about() const = 0;                   // "SQLite 3.40.1"
  virtual std::uint32_t connections() const noexcept = 0;  // how many it has for the shop
  // All of them are opened before it returns, or as many as can be in a few seconds.
  virtual std::unique_ptr<ConnectionPool> pool(std::string name, std::uint32_t max, GateOptions gate) = 0;
};

inline constexpr std::uint32_t kMostConnections = 100, kFewestConnections = 20;

// std::runtime_error if it cannot be had, also because it was not built in.
std::unique_ptr<Store> sqlite_store();
std::unique_ptr<Store> postgres_store(const std::string& conninfo);
std::unique_ptr<Store> simulated_store();

// SQLite, or where it was not built in, what only pretends to query, and says so; with a conninfo PostgreSQL.
std::unique_ptr<Store> open_store(const std::string& postgres);

// ---- for the stores ----

// How many orders Ask::pairs compares with all: as many as keep a share of 15 connections busy for some 3 s.
std::int64_t orders_to_compare() noexcept;
// With @ before every table, which becomes `schema`.
std::string sql_of(Ask what, std::string_view schema);
// Makes the tables and fills them.
std::vector<std::string> setup_sql(std::string_view schema);

}  // namespace bulkhead::demo
